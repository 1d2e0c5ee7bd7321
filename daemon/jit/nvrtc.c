/*
 * NVRTC's few functions are declared here by hand: their ABI has not changed since CUDA 7, and a
 * machine without CUDA's headers then still builds a daemon that compiles where there is a library.
 */
#include "nvrtc.h"

#include "../core/error.h"
#include "library_build.h"
#include "ptxas_log.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct nvrtc_program; /* NVRTC's own */

enum {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
};

struct nvrtc {
    void *library;
    struct compiler_identity identity;
    int (*version)(int *major, int *minor);
    const char *(*error_string)(int result);
    int (*create)(struct nvrtc_program **program,
                  const char *source,
                  const char *name,
                  int header_count,
                  const char *const *headers,
                  const char *const *include_names);
    int (*destroy)(struct nvrtc_program **program);
    int (*compile)(struct nvrtc_program *program, int count, const char *const *options);
    int (*cubin_size)(struct nvrtc_program *program, size_t *size);
    int (*cubin)(struct nvrtc_program *program, char *cubin);
    int (*log_size)(struct nvrtc_program *program, size_t *size);
    int (*log)(struct nvrtc_program *program, char *log);
};

/* --- the library ----------------------------------------------------------------------------- */

static bool find_functions(struct nvrtc *nvrtc)
{
    const struct {
        const char *name;
        void *pointer; /* of a function pointer: POSIX has dlsym fill it like this */
    } functions[] = {
        {"nvrtcVersion", &nvrtc->version},        {"nvrtcGetErrorString", &nvrtc->error_string},
        {"nvrtcCreateProgram", &nvrtc->create},   {"nvrtcDestroyProgram", &nvrtc->destroy},
        {"nvrtcCompileProgram", &nvrtc->compile}, {"nvrtcGetCUBINSize", &nvrtc->cubin_size},
        {"nvrtcGetCUBIN", &nvrtc->cubin},         {"nvrtcGetProgramLogSize", &nvrtc->log_size},
        {"nvrtcGetProgramLog", &nvrtc->log},
    };

    for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
        void *symbol = dlsym(nvrtc->library, functions[i].name);

        if (!symbol)
            return false;
        memcpy(functions[i].pointer, &symbol, sizeof(symbol));
    }
    return true;
}

/* Remembers the first reason: it is about the place that was meant, later ones are about
 * fallbacks. */
static bool try_library(struct nvrtc *nvrtc, const char *path, struct fault *fault)
{
    nvrtc->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nvrtc->library && find_functions(nvrtc))
        return true;
    if (fault->status == STATUS_OK)
        (void)fault_set(fault, STATUS_UNSUPPORTED, "", "NVRTC cannot be loaded: %s",
                        nvrtc->library ? "a function is missing in it" : dlerror());
    if (nvrtc->library)
        (void)dlclose(nvrtc->library);
    nvrtc->library = NULL;
    return false;
}

static bool try_beside_binary(struct nvrtc *nvrtc, const char *name, struct fault *fault)
{
    char binary[PATH_MAX], path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", binary, sizeof(binary) - 1);
    char *slash;

    if (length < 0)
        return false;
    binary[length] = '\0';
    slash = strrchr(binary, '/');
    if (!slash)
        return false;
    *slash = '\0';
    (void)snprintf(path, sizeof(path), "%s/../lib/%s", binary, name);
    return access(path, R_OK) == 0 && try_library(nvrtc, path, fault);
}

static bool load_library(struct nvrtc *nvrtc, struct fault *fault)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    const char *chosen = getenv("GEMMD_NVRTC");

    if (chosen && *chosen)
        return try_library(nvrtc, chosen, fault);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (try_beside_binary(nvrtc, names[i], fault))
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (try_library(nvrtc, names[i], fault))
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "/usr/local/cuda/lib64/%s", names[i]);
        if (try_library(nvrtc, path, fault))
            return true;
    }
    return false;
}

static int read_identity(struct nvrtc *nvrtc, struct fault *fault)
{
    int major, minor;

    if (nvrtc->version(&major, &minor) != NVRTC_SUCCESS) {
        (void)fault_set(fault, STATUS_UNSUPPORTED, "", "NVRTC does not say its version");
        return NVRTC_E_ABSENT;
    }
    nvrtc->identity.major = (uint32_t)major;
    nvrtc->identity.minor = (uint32_t)minor;
    library_build(dlsym(nvrtc->library, "nvrtcVersion"), nvrtc->identity.build,
                  sizeof(nvrtc->identity.build));
    return 0;
}

/* NVRTC opens its builtins by bare name, which only the system's folders answer. Loaded from beside
 * it first, they are found by that name wherever the pair lies (NVIDIA's wheels have no run path).
 * Without the file NVRTC looks by itself and says so in its log. */
static void load_builtins(const struct nvrtc *nvrtc)
{
    char path[PATH_MAX];
    Dl_info info;
    const char *slash;

    if (dladdr(dlsym(nvrtc->library, "nvrtcVersion"), &info) == 0)
        return;
    slash = strrchr(info.dli_fname, '/');
    if (!slash)
        return;
    (void)snprintf(path, sizeof(path), "%.*s/libnvrtc-builtins.so.%" PRIu32 ".%" PRIu32,
                   (int)(slash - info.dli_fname), info.dli_fname, nvrtc->identity.major,
                   nvrtc->identity.minor);
    (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void nvrtc_freep(struct nvrtc **nvrtc)
{
    (void)nvrtc_free(*nvrtc);
}

int nvrtc_new(struct nvrtc **ret_nvrtc, struct fault *ret_fault)
{
    cleanup(nvrtc_freep) struct nvrtc *nvrtc = calloc(1, sizeof(*nvrtc));
    struct fault fault = FAULT_NONE;
    int r;

    if (!nvrtc)
        return error_origin(-ENOMEM);
    r = load_library(nvrtc, &fault) ? read_identity(nvrtc, &fault) : NVRTC_E_ABSENT;
    if (r) {
        *ret_fault = fault;
        return r;
    }
    load_builtins(nvrtc);
    *ret_nvrtc = steal(nvrtc, NULL);
    return 0;
}

struct nvrtc *nvrtc_free(struct nvrtc *nvrtc)
{
    /* The library stays mapped: NVRTC starts threads and handlers that outlive a dlclose. */
    free(nvrtc);
    return NULL;
}

void nvrtc_identity(const struct nvrtc *nvrtc, struct compiler_identity *ret_identity)
{
    *ret_identity = nvrtc->identity;
}

/* --- one compile ----------------------------------------------------------------------------- */

void nvrtc_result_deinit(struct nvrtc_result *result)
{
    cubin_deinit(&result->cubin);
    free(result->log);
    result->log = NULL;
}

/* What a kernel may include: every file under its name relative to kernels_src/, and those of abi/
 * also without their folder, since C includes them relative to each other and NVRTC does not. */
struct headers {
    const char *text[2 * SOURCES_COUNT_MAX];
    const char *name[2 * SOURCES_COUNT_MAX];
    int count;
};

static void collect_headers(const struct sources *sources, struct headers *ret_headers)
{
    int n = 0;

    for (size_t i = 0; i < sources->count; i++) {
        const struct source_file *file = &sources->files[i];

        ret_headers->text[n] = file->text;
        ret_headers->name[n++] = file->name;
        if (strncmp(file->name, "abi/", 4) == 0) {
            ret_headers->text[n] = file->text;
            ret_headers->name[n++] = file->name + 4;
        }
    }
    ret_headers->count = n;
}

static int set_log(struct nvrtc_result *result, const char *format, const char *text)
{
    free(result->log);
    if (asprintf(&result->log, format, text) < 0) {
        result->log = NULL;
        return error_origin(-ENOMEM);
    }
    return 0;
}

/* The front end reports want of memory as an error in the program. */
static bool is_memory_error(int outcome, const char *log)
{
    return outcome == NVRTC_ERROR_OUT_OF_MEMORY || strstr(log, "catastrophic error: out of memory");
}

/* NVRTC's outcomes that are not its success: all are results for whoever asked. An outcome without
 * a log gets NVRTC's name for it. */
static int nvrtc_fold(struct nvrtc *nvrtc, int outcome, struct nvrtc_result *result)
{
    if (!result->log || !*result->log) {
        int r = set_log(result, "%s\n", nvrtc->error_string(outcome));

        if (r)
            return error_trace(r);
    }
    return is_memory_error(outcome, result->log) ? NVRTC_E_MEMORY : NVRTC_E_COMPILE;
}

static int take_log(struct nvrtc *nvrtc, struct nvrtc_program *program, struct nvrtc_result *result)
{
    size_t size = 0;

    if (nvrtc->log_size(program, &size) != NVRTC_SUCCESS)
        size = 0;
    result->log = calloc(size + 1, 1);
    if (!result->log)
        return error_origin(-ENOMEM);
    if (size > 0)
        (void)nvrtc->log(program, result->log);
    return 0;
}

static int
take_cubin(struct nvrtc *nvrtc, struct nvrtc_program *program, struct nvrtc_result *result)
{
    size_t size = 0;
    int outcome = nvrtc->cubin_size(program, &size);

    if (outcome != NVRTC_SUCCESS)
        return nvrtc_fold(nvrtc, outcome, result);
    result->cubin.bytes = malloc(size);
    if (!result->cubin.bytes)
        return error_origin(-ENOMEM);
    result->cubin.size = size;
    outcome = nvrtc->cubin(program, result->cubin.bytes);
    if (outcome != NVRTC_SUCCESS) {
        cubin_deinit(&result->cubin);
        return nvrtc_fold(nvrtc, outcome, result);
    }
    return 0;
}

/* Options of younger NVRTCs that change no code, and so are in no key. */
#define EXTRA_OPTIONS_MAX 2

static size_t extra_options(const struct nvrtc *nvrtc, const char *ret_text[EXTRA_OPTIONS_MAX])
{
    if (nvrtc->identity.major < 12 || (nvrtc->identity.major == 12 && nvrtc->identity.minor < 9))
        return 0;
    ret_text[0] = "-no-cache"; /* of NVRTC's own, since 12.9: ours is enough, it writes to $HOME */
    ret_text[1] = "--minimal"; /* nothing of CUDA's runtime, which no kernel has a use for: 4 ms */
    return EXTRA_OPTIONS_MAX;
}

static int run_compiler(struct nvrtc *nvrtc,
                        struct nvrtc_program *program,
                        const struct config *config,
                        const char *const *more,
                        struct nvrtc_result *result)
{
    struct key_options options;
    const char *text[KEY_OPTIONS_MAX + EXTRA_OPTIONS_MAX + NVRTC_MORE_MAX];
    size_t n;
    int r, outcome;

    key_options_init(&options, config);
    for (n = 0; n < options.count; n++)
        text[n] = options.text[n];
    n += extra_options(nvrtc, text + n);
    for (size_t i = 0; more && i < NVRTC_MORE_MAX && more[i]; i++)
        text[n++] = more[i];
    outcome = nvrtc->compile(program, (int)n, text);
    r = take_log(nvrtc, program, result);
    if (r)
        return error_trace(r);
    return outcome == NVRTC_SUCCESS ? take_cubin(nvrtc, program, result)
                                    : nvrtc_fold(nvrtc, outcome, result);
}

static int compile_source(struct nvrtc *nvrtc,
                          const struct sources *sources,
                          const struct config *config,
                          const char *const *more,
                          struct nvrtc_result *result)
{
    const struct source_file *source = sources_find(sources, config_source(config));
    struct nvrtc_program *program = NULL;
    struct headers headers;
    int r;

    if (!source) {
        r = set_log(result, "%s is not among the kernel files\n", config_source(config));
        return r ? error_trace(r) : NVRTC_E_COMPILE;
    }
    collect_headers(sources, &headers);
    r = nvrtc->create(&program, source->text, source->name, headers.count, headers.text,
                      headers.name);
    if (r != NVRTC_SUCCESS)
        return nvrtc_fold(nvrtc, r, result);
    r = run_compiler(nvrtc, program, config, more, result);
    (void)nvrtc->destroy(&program);
    return r;
}

void nvrtc_rehearse(struct nvrtc *nvrtc)
{
    const char *options[1 + EXTRA_OPTIONS_MAX] = {"--gpu-architecture=sm_80"};
    size_t count = 1 + extra_options(nvrtc, options + 1);
    struct nvrtc_program *program = NULL;

    if (nvrtc->create(&program, "__global__ void rehearsal() {}", "rehearsal.cu", 0, NULL, NULL) !=
        NVRTC_SUCCESS)
        return;
    (void)nvrtc->compile(program, (int)count, options);
    (void)nvrtc->destroy(&program);
}

static double seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int nvrtc_compile_with(struct nvrtc *nvrtc,
                       const struct sources *sources,
                       const struct config *config,
                       const char *const *more,
                       struct nvrtc_result *ret_result)
{
    cleanup(nvrtc_result_deinit) struct nvrtc_result result = {.cubin = CUBIN_NULL};
    struct ptxas_usage usage;
    double start = seconds_now();
    int r = compile_source(nvrtc, sources, config, more, &result);

    if (r < 0)
        return error_trace(r);
    ptxas_log_read(result.log, &usage);
    result.cubin.registers = usage.registers;
    result.cubin.shared_memory = usage.shared_memory;
    result.cubin.spill_bytes = usage.spill_bytes;
    result.cubin.compile_seconds = seconds_now() - start;
    config_to_text(config, result.cubin.configuration);
    *ret_result = steal(result, ((struct nvrtc_result){.cubin = CUBIN_NULL}));
    return r;
}

int nvrtc_compile(struct nvrtc *nvrtc,
                  const struct sources *sources,
                  const struct config *config,
                  struct nvrtc_result *ret_result)
{
    return nvrtc_compile_with(nvrtc, sources, config, /* more= */ NULL, ret_result);
}
