#include "std.h"

#include <stdlib.h>
#include <unistd.h>

void fd_closep(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void freep(void *pointer)
{
    void **p = pointer;

    free(*p);
    *p = NULL;
}
