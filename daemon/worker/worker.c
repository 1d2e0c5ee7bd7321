/*
 * The worker role: takes the link it inherited, opens the device it was told, says hello, and
 * works until the front says QUIT or is gone, or the device is lost.
 *
 * Exit status: 0 in order; 1 when the arguments, the link or the device are not to be had (the
 * hello carries the reason once there is a link); 2 when the device was lost: then at once, without
 * what was to run at exit().
 *
 * It is crash-only: nothing is saved here, every descriptor of memory is held by the front.
 */
#include "../core/error.h"
#include "../core/log.h"
#include "../roles.h"
#include "backend.h"
#include "worker_loop.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TIMER_SLACK_NS 1000 /* pauses of 50 us, which the default slack of 50 us would double */

enum {
    EXIT_ABSENT = 1,
    EXIT_LOST = 2,
};

struct arguments {
    const char *device;
    struct link_fds fds;
    enum log_level level;
    uint64_t scratch; /* bytes for a streamed product; 0: the device's own measure */
};

static bool fd_parse(const char *text, int *ret_fd)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > INT32_MAX)
        return false;

    *ret_fd = (int)value;
    return true;
}

static bool size_parse(const char *text, uint64_t *ret_size)
{
    char *end;

    errno = 0;
    *ret_size = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

static bool arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'},
        {"memory", required_argument, NULL, 'm'},
        {"command-event", required_argument, NULL, 'c'},
        {"completion-event", required_argument, NULL, 'p'},
        {"socket", required_argument, NULL, 's'},
        {"log-level", required_argument, NULL, 'l'},
        {"scratch", required_argument, NULL, 'r'},
        {0},
    };
    struct arguments given = {.device = "auto", .fds = {-1, -1, -1, -1}, .level = LOG_LEVEL_INFO};
    bool good = true;
    int option;

    optind = 1;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'd')
            given.device = optarg;
        else if (option == 'm')
            good = fd_parse(optarg, &given.fds.memory);
        else if (option == 'c')
            good = fd_parse(optarg, &given.fds.command_event);
        else if (option == 'p')
            good = fd_parse(optarg, &given.fds.completion_event);
        else if (option == 's')
            good = fd_parse(optarg, &given.fds.socket);
        else if (option == 'r')
            good = size_parse(optarg, &given.scratch);
        else
            good = option == 'l' && log_level_from_text(optarg, &given.level);
    }
    if (!good || optind != argc || given.fds.memory < 0 || given.fds.command_event < 0 ||
        given.fds.completion_event < 0 || given.fds.socket < 0)
        return false;

    *ret_arguments = given;
    return true;
}

/* The front ends the worker by message; ^C at a terminal reaches both and is the front's to judge.
 * A front that dies without a word takes the worker with it: at once by the signal, and, should it
 * have died before prctl(), by the end of the socket, which the loop sees before it sleeps. */
static void process_prepare(void)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        (void)signal(ignored[i], SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
}

/* --- the device ------------------------------------------------------------------------------ */

static int
device_fall_back(const struct fault *reason, struct backend **ret_backend, struct fault *ret_fault)
{
    struct link_device *device;
    int r = backend_cpu_open(ret_backend, ret_fault);

    if (r)
        return error_trace(r);

    device = &(*ret_backend)->device;
    (void)snprintf(device->note, sizeof(device->note), "%.*s", (int)sizeof(device->note) - 1,
                   reason->message);
    log_debug("device=cpu reason=\"no GPU is used: %s\"", device->note); /* the front warns, once */
    return 0;
}

/* 0; BACKEND_E_* or < 0 with the fault filled. */
static int device_open(const char *selector,
                       const struct link *link,
                       struct backend **ret_backend,
                       struct fault *ret_fault)
{
    struct fault reason = FAULT_NONE;
    int r;

    if (strcmp(selector, "cpu") == 0)
        return error_trace(backend_cpu_open(ret_backend, ret_fault));

    if (strcmp(selector, "auto") == 0) {
        r = backend_cuda_open("cuda:0", link, ret_backend, &reason);
        if (r > 0)
            return error_trace(device_fall_back(&reason, ret_backend, ret_fault));
        *ret_fault = reason;
        return error_trace(r);
    }

    if (strncmp(selector, "cuda", 4) == 0 || strncmp(selector, "GPU-", 4) == 0)
        return error_trace(backend_cuda_open(selector, link, ret_backend, ret_fault));

    (void)fault_set(ret_fault, STATUS_INVALID_ARGUMENT, "device",
                    "device is \"%.80s\"; allowed are auto, cpu, cuda, cuda:N and GPU-<uuid>",
                    selector);
    return BACKEND_E_ABSENT;
}

static int hello(struct link *link, const struct backend *backend, const struct fault *fault)
{
    struct link_message message = {.kind = LINK_HELLO};

    if (backend)
        message.device = backend->device;
    else
        message.fault = *fault;
    return worker_loop_send(link, &message, -1);
}

static int device_refused(struct link *link, struct fault *fault, int r)
{
    if (fault->status == STATUS_OK) /* lost while opening, without a word */
        (void)fault_set(fault, STATUS_INTERNAL, "device", "the device cannot be opened: %s",
                        strerror(abs(r)));
    log_error("device=none reason=\"%s\"", fault->message);
    (void)hello(link, NULL, fault);
    return EXIT_ABSENT;
}

/* --- the role -------------------------------------------------------------------------------- */

static int work(struct link *link, struct backend *backend)
{
    struct link_message lost = {.kind = LINK_LOST};
    struct worker_loop loop;

    worker_loop_init(&loop, link, backend);
    if (worker_loop_run(&loop, &lost.fault) == 0)
        return 0;

    log_error("state=lost reason=\"%s\"", lost.fault.message);
    (void)worker_loop_send(link, &lost, -1);
    return EXIT_LOST;
}

static int device_serve(struct link *link, const struct arguments *arguments)
{
    struct backend *backend = NULL;
    struct fault fault = FAULT_NONE;
    int r;

    r = device_open(arguments->device, link, &backend, &fault);
    if (r)
        return device_refused(link, &fault, r);
    if (arguments->scratch > 0)
        backend->scratch = arguments->scratch;

    log_info("device=%s name=\"%s\" driver=\"%s\"", backend->operations->name, backend->device.name,
             backend->device.driver);
    r = hello(link, backend, NULL);
    if (r == 0)
        r = work(link, backend);
    else
        r = r == LINK_E_CLOSED ? 0 : EXIT_ABSENT;

    /* A lost device's calls may hang, those that its driver makes at exit(), too: the kernel takes
     * back what this process held. */
    if (r == EXIT_LOST)
        _exit(EXIT_LOST);
    backend->operations->close(backend);
    return r;
}

int worker_main(int argc, char **argv)
{
    cleanup(link_deinit) struct link link = LINK_NULL;
    struct arguments arguments;

    log_init("worker", LOG_LEVEL_INFO);
    if (!arguments_parse(argc, argv, &arguments)) {
        log_error(
            "state=refused reason=\"usage: gemmd worker --device DEVICE --memory FD "
            "--command-event FD --completion-event FD --socket FD [--scratch BYTES]; the front "
            "starts it\"");
        return EXIT_ABSENT;
    }
    log_init("worker", arguments.level);
    process_prepare();
    if (link_attach(&link, &arguments.fds) != 0) {
        log_error("state=refused reason=\"the memory given is not a link of this version\"");
        return EXIT_ABSENT;
    }
    return device_serve(&link, &arguments);
}
