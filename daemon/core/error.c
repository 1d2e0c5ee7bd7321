#include "error.h"

#include "log.h"
#include <string.h>

int error_note(int r, const char *what, const char *file, int line, const char *function)
{
    if (r < 0)
        log_message(LOG_LEVEL_ERROR, "error=%s step=%s at=%s:%d function=%s", strerror(-r), what,
                    file, line, function);
    return r;
}
