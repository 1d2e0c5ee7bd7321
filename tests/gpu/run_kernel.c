/*
 * One configuration on one small product, for tools that look into a kernel and make it slow:
 * compiles, launches with few CTAs, checks.
 *
 *   run_kernel CONFIG MxNxK [--ctas N] [--splits N] [--batch N] [--beta X] [--launches N]
 *              [--kernels DIR]
 *
 * Operands lie in allocations of their own, as large as they must be and no larger, so that a tool
 * sees every access beside them. Rows start on 16 bytes where the configuration asks for that, and
 * nowhere in particular where it does not: such kernels read the whole aligned 16 bytes around a
 * row's ends, which no allocation of a device cuts, so allocations end with them. --ctas: as many
 * multiprocessors the launch is told to have, so that CTAs that walk over tiles walk. Exit status 0
 * when D is right.
 */
#include "../../client/reference.h"
#include "../../daemon/jit/nvrtc.h"
#include "../../daemon/link/link_job.h"
#include "../../daemon/plan/plan_hopper.h"
#include "../../daemon/worker/cuda_device.h"
#include "../../daemon/worker/cuda_launch.h"
#include "../support/load_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MULTIPLICATIONS ((uint64_t)1 << 24) /* of the reference */

struct arguments {
    struct config config;
    struct problem problem;
    uint32_t ctas, splits, launches;
    const char *kernels;
};

struct operands {
    void *host[OPERAND_COUNT];
    CUdeviceptr device[OPERAND_COUNT];
};

struct machine {
    struct driver driver;
    struct cuda_device device;
    struct link_device facts;
    struct cuda_kernels kernels;
    struct cuda_scratch scratch;
    struct cuda_workspace workspace;
    CUstream stream;
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "run_kernel: %s: %s\n", what, why);
    return 1;
}

/* --- what is asked for ----------------------------------------------------------------------- */

static bool starts_on_16_bytes(const struct config *config)
{
    return config->copy == CONFIG_COPY_V16 || config->copy == CONFIG_COPY_TMA;
}

/* Rows as short as they can be, but odd where that is allowed. */
static void lay_out(const struct config *config, struct problem *problem)
{
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++) {
        int64_t columns = problem_columns(problem, role), step = 16;
        int64_t ld = starts_on_16_bytes(config) ? (columns + step - 1) / step * step : columns | 1;

        problem->operand[role] =
            (struct problem_operand){.ld = ld, .stride = ld * problem_rows(problem, role)};
    }
}

static bool read_arguments(int argc, char **argv, struct arguments *ret)
{
    struct arguments a = {.splits = 1, .ctas = 1, .launches = 1};
    struct problem *p = &a.problem;
    long long m, n, k;

    *p = (struct problem){.alpha = 1, .batch = 1};
    if (argc < 3 || !config_from_text(argv[1], &a.config) ||
        sscanf(argv[2], "%lldx%lldx%lld", &m, &n, &k) != 3)
        return false;
    for (int i = 3; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (!value)
            return false;
        else if (strcmp(argv[i], "--ctas") == 0)
            a.ctas = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--splits") == 0)
            a.splits = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--launches") == 0)
            a.launches = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--batch") == 0)
            p->batch = strtoll(value, NULL, 10);
        else if (strcmp(argv[i], "--beta") == 0)
            p->beta = strtod(value, NULL);
        else if (strcmp(argv[i], "--kernels") == 0)
            a.kernels = value;
        else
            return false;
    }
    p->m = m, p->n = n, p->k = k;
    p->input = a.config.input, p->output = a.config.output;
    p->trans_a = a.config.trans_a, p->trans_b = a.config.trans_b;
    lay_out(&a.config, p);
    *ret = a;
    return true;
}

/* --- operands -------------------------------------------------------------------------------- */

static void fill(enum dtype dtype, void *memory, size_t count)
{
    uint64_t state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double value = (double)(state >> 33) / 0x1p30 - 1;

        dtype_store(dtype, memory, i, dtype == DTYPE_INT8 ? (int)(value * 127) : value);
    }
}

static CUresult operand_make(const struct machine *machine,
                             const struct problem *problem,
                             enum operand_role role,
                             struct operands *operands)
{
    __typeof__(cuMemAlloc) *allocate =
        (__typeof__(cuMemAlloc) *)driver_symbol(&machine->driver, "cuMemAlloc");
    bool is_input = role == OPERAND_A || role == OPERAND_B;
    enum dtype dtype = is_input ? problem->input : problem->output;
    uint64_t size = problem_span(problem, role);
    CUresult r = allocate(&operands->device[role], (size + 15) / 16 * 16);

    operands->host[role] = malloc(size);
    if (r != CUDA_SUCCESS || !operands->host[role])
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_OUT_OF_MEMORY;
    if (role == OPERAND_D)
        memset(operands->host[role], 0xff, size);
    else
        fill(dtype, operands->host[role], size / dtype_size(dtype));
    return cu(&machine->driver)
        ->MemcpyHtoDAsync(operands->device[role], operands->host[role], size, machine->stream);
}

static CUresult operands_make(const struct machine *machine,
                              const struct problem *problem,
                              struct operands *operands)
{
    CUresult r = CUDA_SUCCESS;

    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT && r == CUDA_SUCCESS; role++)
        if (role == OPERAND_D || problem_reads(problem, role))
            r = operand_make(machine, problem, role, operands);
    return r;
}

/* --- the kernel ------------------------------------------------------------------------------ */

static int open_machine(struct machine *machine, struct fault *fault)
{
    const char *selector = getenv("GEMMD_TEST_DEVICE");
    int r = driver_init(&machine->driver, fault);

    r = r ? r
          : cuda_device_init(&machine->device, &machine->driver,
                             selector && strncmp(selector, "cuda", 4) == 0 ? selector : "cuda",
                             &machine->facts, fault);
    if (r)
        return r;
    cuda_kernels_init(&machine->kernels, &machine->driver);
    r = cu_try(&machine->driver, fault, StreamCreate, &machine->stream, CU_STREAM_NON_BLOCKING);
    cuda_scratch_init(&machine->scratch, &machine->driver, machine->stream);
    return r;
}

static const struct cuda_kernel *
make_kernel(struct machine *machine, const struct arguments *a, struct fault *fault)
{
    cleanup(nvrtc_result_deinit) struct nvrtc_result result = {.cubin = CUBIN_NULL};
    struct sources sources = SOURCES_NULL;
    struct nvrtc *nvrtc = NULL;
    const char *const for_tools[] = {"-lineinfo", "-DGEMMD_WAIT_LIMIT_NS=0xffffffffu", NULL};
    int r = nvrtc_new(&nvrtc, fault);

    r = r ? r : sources_open(&sources, a->kernels);
    r = r ? r : nvrtc_compile_with(nvrtc, &sources, &a->config, for_tools, &result);
    if (!r) {
        struct link_message request = load_request(&a->config, 1, result.cubin.size);

        r = cuda_kernels_load(&machine->kernels, &request, result.cubin.bytes, fault);
    } else if (result.log) {
        fprintf(stderr, "%s\n", result.log);
    }
    sources_deinit(&sources);
    (void)nvrtc_free(nvrtc);
    return r ? NULL : cuda_kernels_find(&machine->kernels, 1);
}

static int launch(struct machine *machine,
                  const struct cuda_kernel *kernel,
                  const struct arguments *a,
                  const struct operands *operands,
                  struct fault *fault)
{
    struct gemmd_feed feed = {.job_count = 1};
    struct cuda_running running = {0};
    struct cuda_launch_target target = {.driver = &machine->driver,
                                        .multiprocessors = a->ctas,
                                        .stream = machine->stream,
                                        .scratch = &machine->scratch,
                                        .workspace = &machine->workspace,
                                        .running = &running};
    uint64_t address[OPERAND_COUNT];
    int r = 0;

    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++)
        address[role] = operands->device[role];
    link_job_describe(&a->problem, address, &feed.jobs[0]);
    feed.jobs[0].splits = a->splits;
    for (uint32_t i = 0; i < a->launches && r == 0; i++)
        r = cuda_launch(&target, kernel, &feed, fault);
    return r ? r : cu_try(&machine->driver, fault, StreamSynchronize, machine->stream);
}

static int check(struct machine *machine, const struct problem *problem, struct operands *operands)
{
    uint64_t size = problem_span(problem, OPERAND_D);
    struct reference_operands given = {.a = operands->host[OPERAND_A],
                                       .b = operands->host[OPERAND_B],
                                       .c = operands->host[OPERAND_C],
                                       .d = operands->host[OPERAND_D]};
    struct reference_report report;
    struct fault fault = FAULT_NONE;
    char text[512];

    if (cu_try(&machine->driver, &fault, MemcpyDtoHAsync, operands->host[OPERAND_D],
               operands->device[OPERAND_D], size, machine->stream) ||
        cu_try(&machine->driver, &fault, StreamSynchronize, machine->stream))
        return fail("copy of D", fault.message);
    if (reference_check(problem, &given, MULTIPLICATIONS, &report) < 0)
        return fail("reference", "no memory");
    reference_describe(&report, text, sizeof(text));
    puts(text);
    return !reference_is_right(&report);
}

int main(int argc, char **argv)
{
    static struct machine machine;
    static struct operands operands;
    struct fault fault = FAULT_NONE;
    struct arguments a;

    if (!read_arguments(argc, argv, &a))
        return fail("arguments", "CONFIG MxNxK [--ctas N] [--splits N] [--batch N] [--beta X] "
                                 "[--launches N] [--kernels DIR]");
    if (a.config.family == CONFIG_HOPPER && !plan_hopper_finishes(&a.problem, &a.config))
        return fail("arguments", "C, or rows of D that end within 16 bytes, are for configurations "
                                 "whose threads store");
    if (open_machine(&machine, &fault))
        return fail("device", fault.message);
    const struct cuda_kernel *kernel = make_kernel(&machine, &a, &fault);
    if (!kernel)
        return fail("kernel", fault.message);
    if (operands_make(&machine, &a.problem, &operands) != CUDA_SUCCESS)
        return fail("operands", "no memory");
    if (launch(&machine, kernel, &a, &operands, &fault))
        return fail("launch", fault.message);
    return check(&machine, &a.problem, &operands);
}
