#include "notify.h"

#include <unistd.h>

#ifdef GEMMD_HAVE_SYSTEMD
#    include <systemd/sd-daemon.h>
#endif

static void tell_systemd(const char *state)
{
#ifdef GEMMD_HAVE_SYSTEMD
    (void)sd_notify(0, state);
#else
    (void)state;
#endif
}

void notify_ready(int fd)
{
    tell_systemd("READY=1");
    if (fd < 0)
        return;
    (void)!write(fd, "\n", 1);
    (void)close(fd);
}

void notify_stopping(void)
{
    tell_systemd("STOPPING=1");
}
