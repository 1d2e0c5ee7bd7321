/*
 * One binary, three roles, told apart by the first argument: the front (no role named), the worker
 * and the compile child. Each role is reached by exec, never by fork alone: CUDA and NVRTC do not
 * survive a fork.
 */
#include "core/standard_streams.h"
#include "roles.h"

#include <string.h>
#include <sys/prctl.h>

/* What ps, and the driver where it reports a fault, call this process: that of a role, which is
 * started as /proc/self/exe, would be "exe". At most 15 characters; threads inherit it. */
static void set_name(const char *name)
{
    (void)prctl(PR_SET_NAME, name);
}

int main(int argc, char **argv)
{
    standard_streams_occupy();
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        set_name("gemmd-worker");
        return worker_main(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "compile") == 0) {
        set_name("gemmd-compile");
        return compile_main(argc - 1, argv + 1);
    }
    return front_main(argc, argv);
}
