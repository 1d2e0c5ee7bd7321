/*
 * The compile role: `gemmd compile --socket FD [--kernels DIR] [--memory BYTES]`. Answers one
 * request after the other until the front closes the socket; jit/compile_message.h has the words.
 *
 * Everything that can go wrong in a compiler goes wrong here: the process limits its own memory,
 * leaves no core file, dies with the front, and is killed by the front when a compile takes too
 * long.
 */
#include "../core/error.h"
#include "../core/log.h"
#include "../roles.h"
#include "compile_message.h"
#include "nvrtc.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* An address space under a sanitizer is terabytes of shadow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define HAS_SHADOW_MEMORY 1
#else
#    define HAS_SHADOW_MEMORY 0
#endif

#define REHEARSAL_WAIT_MS 20 /* a busy front's way from our hello to its request */

struct role {
    int socket;
    const char *kernels_directory;
    uint64_t memory_bytes; /* 0: no limit */
    struct sources sources;
    struct nvrtc *nvrtc; /* NULL when there is none */
    struct compiler_identity identity;
    struct fault absence;
};

/* --- the socket ------------------------------------------------------------------------------ */

/* 1 when all was read, 0 at the end of file. */
static int read_exactly(int fd, void *bytes, size_t size)
{
    uint8_t *next = bytes;

    while (size > 0) {
        ssize_t n = read(fd, next, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_origin(-errno);
        if (n == 0)
            return 0;
        next += n;
        size -= (size_t)n;
    }
    return 1;
}

static int write_exactly(int fd, const void *bytes, size_t size)
{
    const uint8_t *next = bytes;

    while (size > 0) {
        ssize_t n = write(fd, next, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_origin(-errno);
        next += n;
        size -= (size_t)n;
    }
    return 0;
}

static int send_message(const struct role *role,
                        enum compile_message_kind kind,
                        const void *body,
                        size_t body_size,
                        const struct cubin *cubin)
{
    struct compile_header header = {
        .magic = COMPILE_MAGIC,
        .kind = kind,
        .size = body_size + cubin->size,
    };
    int r = write_exactly(role->socket, &header, sizeof(header));

    if (!r)
        r = write_exactly(role->socket, body, body_size);
    if (!r)
        r = write_exactly(role->socket, cubin->bytes, cubin->size);
    return error_trace(r);
}

static int send_hello(const struct role *role)
{
    struct compile_hello hello = {
        .protocol = COMPILE_PROTOCOL,
        .has_nvrtc = role->nvrtc != NULL,
        .identity = role->identity,
        .fault = role->absence,
    };

    return send_message(role, COMPILE_HELLO, &hello, sizeof(hello), &CUBIN_NULL);
}

/* --- one request ----------------------------------------------------------------------------- */

static bool request_is_ours(const struct role *role,
                            const struct compile_request *request,
                            struct config *ret_config,
                            struct fault *fault)
{
    struct key key;

    if (!memchr(request->configuration, '\0', sizeof(request->configuration)) ||
        !config_from_text(request->configuration, ret_config) || !config_source(ret_config)) {
        (void)fault_set(fault, STATUS_COMPILE_FAILED, "",
                        "'%.*s' is not a configuration with a kernel", CONFIG_TEXT_MAX,
                        request->configuration);
        return false;
    }
    key_compute(&key, &role->sources, ret_config, &role->identity);
    if (!key_equal(&key, &request->key)) {
        (void)fault_set(fault, STATUS_COMPILE_FAILED, "",
                        "the kernel files or the compiler changed since the daemon started: "
                        "restart it");
        return false;
    }
    return true;
}

static void describe_failure(const struct role *role,
                             const struct compile_request *request,
                             int r,
                             const char *log,
                             struct fault *fault)
{
    if (r < 0 || r == NVRTC_E_MEMORY)
        (void)fault_set(fault, STATUS_COMPILE_TIMEOUT, "",
                        "%s: the compiler was stopped at its memory limit of %llu MiB",
                        request->configuration, (unsigned long long)role->memory_bytes >> 20);
    else
        (void)fault_set(fault, STATUS_COMPILE_FAILED, "", "%s: %s", request->configuration, log);
}

static int answer(const struct role *role, const struct compile_request *request)
{
    cleanup(nvrtc_result_deinit) struct nvrtc_result compiled = {.cubin = CUBIN_NULL};
    struct compile_result result = {.key = request->key, .fault = FAULT_NONE};
    struct config config;
    int r;

    if (!role->nvrtc) {
        result.fault = role->absence;
    } else if (request_is_ours(role, request, &config, &result.fault)) {
        r = nvrtc_compile(role->nvrtc, &role->sources, &config, &compiled);
        if (r)
            describe_failure(role, request, r, compiled.log, &result.fault);
    }
    result.registers = compiled.cubin.registers;
    result.shared_memory = compiled.cubin.shared_memory;
    result.spill_bytes = compiled.cubin.spill_bytes;
    result.compile_seconds = compiled.cubin.compile_seconds;
    result.cubin_size = compiled.cubin.size;
    return send_message(role, COMPILE_RESULT, &result, sizeof(result), &compiled.cubin);
}

/* Started ahead of need (compiler_warm()), we use the time. A request we were started for comes at
 * once after the hello. */
static void rehearse(const struct role *role)
{
    struct pollfd socket = {.fd = role->socket, .events = POLLIN};

    if (role->nvrtc && poll(&socket, 1, REHEARSAL_WAIT_MS) == 0)
        nvrtc_rehearse(role->nvrtc);
}

static int serve(const struct role *role)
{
    for (;;) {
        struct compile_header header;
        struct compile_request request;
        int r = read_exactly(role->socket, &header, sizeof(header));

        if (r <= 0)
            return error_trace(r);
        if (header.magic != COMPILE_MAGIC || header.kind != COMPILE_REQUEST ||
            header.size != sizeof(request))
            return error_origin(-EPROTO);
        r = read_exactly(role->socket, &request, sizeof(request));
        if (r <= 0)
            return error_trace(r);
        r = answer(role, &request);
        if (r)
            return error_trace(r);
    }
}

/* --- start ----------------------------------------------------------------------------------- */

static int limit_process(const struct role *role)
{
    struct rlimit memory = {.rlim_cur = role->memory_bytes, .rlim_max = role->memory_bytes};
    struct rlimit core = {0};

    /* A terminal's interrupt and systemd's TERM go to the whole group, but the front drains first
     * and then closes the socket: compiles under way still count. */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return error_origin(-errno);
    if (setrlimit(RLIMIT_CORE, &core) < 0)
        return error_origin(-errno);
    if (role->memory_bytes > 0 && !HAS_SHADOW_MEMORY && setrlimit(RLIMIT_AS, &memory) < 0)
        return error_origin(-errno);
    return 0;
}

/* What is missing is said in the hello; the front has a cache that may serve without us. */
static int find_compiler(struct role *role)
{
    int r = sources_open(&role->sources, role->kernels_directory);

    if (r) {
        (void)fault_set(&role->absence, STATUS_COMPILE_FAILED, "", "no kernel files in %s: %s",
                        role->kernels_directory ? role->kernels_directory : "this binary",
                        r < 0 ? strerror(-r) : "none, or too many");
        return 0;
    }
    r = nvrtc_new(&role->nvrtc, &role->absence);
    if (r < 0)
        return error_trace(r);
    if (r == 0)
        nvrtc_identity(role->nvrtc, &role->identity);
    return 0;
}

static bool parse_number(const char *text, uint64_t max, uint64_t *ret_number)
{
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || number > max)
        return false;
    *ret_number = number;
    return true;
}

static bool parse_arguments(int argc, char **argv, struct role *role)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"kernels", required_argument, NULL, 'k'},
        {"memory", required_argument, NULL, 'm'},
        {0},
    };
    uint64_t fd;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's' && parse_number(optarg, INT32_MAX, &fd))
            role->socket = (int)fd;
        else if (option == 'k')
            role->kernels_directory = optarg;
        else if (option != 'm' || !parse_number(optarg, INT64_MAX, &role->memory_bytes))
            return false;
    }
    return role->socket >= 0 && optind == argc;
}

static void role_deinit(struct role *role)
{
    role->nvrtc = nvrtc_free(role->nvrtc);
    sources_deinit(&role->sources);
}

int compile_main(int argc, char **argv)
{
    cleanup(role_deinit) struct role role = {.socket = -1, .sources = SOURCES_NULL};
    int r;

    log_init("compile", LOG_LEVEL_INFO);
    if (!parse_arguments(argc, argv, &role)) {
        log_error("usage: compile --socket FD [--kernels DIR] [--memory BYTES]; "
                  "started by the daemon only");
        return 2;
    }
    r = limit_process(&role);
    if (!r)
        r = find_compiler(&role);
    if (!r)
        r = send_hello(&role);
    if (!r) {
        rehearse(&role);
        r = serve(&role);
    }
    return r ? 1 : 0;
}
