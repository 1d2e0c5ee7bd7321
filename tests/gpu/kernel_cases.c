#include "kernel_cases.h"

#include "../../client/reference.h"
#include "../../daemon/link/link_job.h"
#include "../../daemon/plan/plan_hopper.h"
#include "../../daemon/plan/plan_hopper_split.h"
#include "../../daemon/worker/backend.h"
#include "../support/load_request.h"
#include "compile_all.h"
#include "kernel_shapes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ARENA_SIZE      (256u << 20) /* 40 items of 200 x 330 x 1100 in fp64 */
#define MARGIN          4096
#define MULTIPLICATIONS (1u << 25) /* of the reference, per case */
#define ROUND_UP(x, to) (((x) + (to)-1) / (to) * (to))

struct bench {
    struct backend *gpu;
    char *host;            /* the memfd, mapped here too */
    uint64_t host_address; /* and by the backend */
    uint64_t device_address;
    uint64_t next_job;
};

static struct bench bench;

/* --- the backend ----------------------------------------------------------------------------- */

static enum status run(struct gemmd_command *command)
{
    struct gemmd_completion completion;
    int r;
    command->job = bench.next_job++;
    cr_assert_eq(bench.gpu->operations->submit(bench.gpu, command), 0, "the device is lost");
    do {
        r = bench.gpu->operations->reap(bench.gpu, &completion);
        cr_assert_geq(r, 0, "the device is lost");
    } while (r == 0);
    cr_assert_eq(completion.job, command->job);
    return (enum status)completion.status;
}

static void copy(uint64_t offset, uint64_t size, bool to_device)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY};
    uint64_t host = bench.host_address + offset, device = bench.device_address + offset;
    command.body.copy = (struct gemmd_copy){
        .destination = to_device ? device : host,
        .source = to_device ? host : device,
        .size = size,
        .flags = to_device ? GEMMD_JOB_HOST_A : GEMMD_JOB_HOST_D,
    };
    cr_assert_eq(run(&command), STATUS_OK);
}

static uint64_t map(enum link_memory_kind kind, uint64_t id, int *fd)
{
    struct fault fault = FAULT_NONE;
    uint64_t address = 0;
    struct link_message request = {
        .kind = LINK_MAP, .memory_kind = kind, .id = id, .size = ARENA_SIZE, .writable = 1};
    int r = bench.gpu->operations->map(bench.gpu, &request, fd, &address, &fault);
    cr_assert_eq(r, 0, "%s", fault.message);
    return address;
}

static void open_bench(void)
{
    struct fault fault = FAULT_NONE;
    const char *selector = getenv("GEMMD_TEST_DEVICE");
    bool is_cuda = selector && (!strncmp(selector, "cuda", 4) || !strncmp(selector, "GPU-", 4));
    int r = backend_cuda_open(is_cuda ? selector : "cuda", NULL, &bench.gpu, &fault);
    cr_assert_eq(r, 0, "no GPU to test on: %s", fault.message);

    int memory = memfd_create("test", MFD_CLOEXEC), device = -1;
    cr_assert_eq(ftruncate(memory, ARENA_SIZE), 0);
    bench.host = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    cr_assert_neq(bench.host, MAP_FAILED);
    bench.host_address = map(LINK_MEMORY_HOST, 1, &memory);
    bench.device_address = map(LINK_MEMORY_DEVICE_CREATE, 2, &device);
    close(device);
}

static bool load(struct compiled *compiled, uint64_t id)
{
    struct fault fault = FAULT_NONE;
    struct link_message request = load_request(&compiled->config, id, compiled->result.cubin.size);
    cr_assert_eq(compiled->r, 0, "%s: %s", request.configuration, compiled->result.log);
    int r = bench.gpu->operations->load(bench.gpu, &request, compiled->result.cubin.bytes, &fault);
    cr_expect_eq(r, 0, "%s: %s", request.configuration, fault.message);
    return r == 0;
}

/* --- one case -------------------------------------------------------------------------------- */

struct sample {
    const struct config *config;
    const struct shape *shape;
    struct problem problem;
    uint64_t offset[OPERAND_COUNT]; /* of the first element, in either arena */
    uint64_t d_start, d_size;       /* D's memory with what lies before and behind */
    uint64_t size;                  /* of everything */
    uint32_t splits;
};

static uint32_t random_bits(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static double random_value(enum dtype dtype)
{
    double unit = (double)random_bits() / 0x1p31; /* 0 to 1 */
    return dtype == DTYPE_INT8 || dtype == DTYPE_INT32 ? floor(unit * 256) - 128 : 2 * unit - 1;
}

static enum dtype dtype_of(const struct problem *problem, enum operand_role role)
{
    return role == OPERAND_A || role == OPERAND_B ? problem->input : problem->output;
}

static enum bias bias_of(unsigned traits)
{
    if (traits & BIAS_ROWS)
        return BIAS_PER_ROW;
    return traits & BIAS_COLUMNS ? BIAS_PER_COLUMN : BIAS_NONE;
}

static enum activation activation_of(unsigned traits)
{
    if (traits & GELU)
        return ACTIVATION_GELU;
    if (traits & GELU_TANH)
        return ACTIVATION_GELU_TANH;
    if (traits & SILU)
        return ACTIVATION_SILU;
    return traits & RELU ? ACTIVATION_RELU : ACTIVATION_NONE;
}

static void lay_out(struct sample *s)
{
    const struct shape *shape = s->shape;
    uint64_t at = 0;
    s->problem = (struct problem){.input = s->config->input,
                                  .output = s->config->output,
                                  .m = shape->m,
                                  .n = shape->n,
                                  .k = shape->k,
                                  .batch = shape->batch,
                                  .trans_a = s->config->trans_a,
                                  .trans_b = s->config->trans_b,
                                  .alpha = shape->alpha,
                                  .beta = shape->beta,
                                  .bias = bias_of(shape->traits),
                                  .activation = activation_of(shape->traits)};
    if (!activation_is_valid(s->problem.activation, s->problem.output))
        s->problem.activation = ACTIVATION_RELU;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        enum operand_role role = (enum operand_role)i;
        struct problem_operand *operand = &s->problem.operand[role];
        uint64_t element = dtype_size(dtype_of(&s->problem, role));
        int64_t columns = problem_columns(&s->problem, role);
        bool is_shared = (role == OPERAND_A && shape->traits & SHARED_A) ||
                         (role == OPERAND_B && shape->traits & SHARED_B) ||
                         (role == OPERAND_BIAS && shape->traits & SHARED_BIAS);
        bool is_padded = shape->traits & PADDED, is_aligned = shape->traits & ALIGNED;
        operand->ld = MAX(columns + (is_padded ? 5 : 0), 1);
        if (is_aligned)
            operand->ld = ROUND_UP(operand->ld, 16);
        operand->stride = problem_rows(&s->problem, role) * operand->ld + (is_padded ? 3 : 0);
        if (is_aligned)
            operand->stride = ROUND_UP(operand->stride, 16);
        if (is_shared)
            operand->stride = 0;

        uint64_t items = is_shared ? 1 : (uint64_t)shape->batch;
        uint64_t bytes = ((uint64_t)operand->stride * (items - 1) +
                          (uint64_t)(problem_rows(&s->problem, role) * operand->ld)) *
                         element;
        s->offset[role] = at + MARGIN + (shape->traits & OFF_BY_ONE ? element : 0) +
                          (shape->traits >> 8) * element;
        if (role == OPERAND_D) {
            s->d_start = at;
            s->d_size = bytes + 2 * MARGIN;
        }
        at = ROUND_UP(at + bytes + 2 * MARGIN, 256);
    }
    s->size = at;
    cr_assert_leq(at, ARENA_SIZE);
}

static void fill_operand(const struct sample *s, enum operand_role role)
{
    const struct problem_operand *operand = &s->problem.operand[role];
    enum dtype dtype = dtype_of(&s->problem, role);
    int64_t items = operand->stride == 0 ? 1 : s->problem.batch;
    int64_t rows = problem_rows(&s->problem, role), columns = problem_columns(&s->problem, role);
    char *base = bench.host + s->offset[role];
    for (int64_t b = 0; b < items; b++) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < columns; c++)
                dtype_store(dtype, base, (size_t)(b * operand->stride + r * operand->ld + c),
                            random_value(dtype));
        }
    }
}

static void fill(const struct sample *s)
{
    const struct shape *shape = s->shape;
    bool is_floating = s->problem.input != DTYPE_INT8;
    memset(bench.host, 0xff, s->size); /* NaN, in all that is not an element */
    for (int role = OPERAND_A; role < OPERAND_D; role++) {
        if (problem_reads(&s->problem, (enum operand_role)role))
            fill_operand(s, (enum operand_role)role);
    }
    if (is_floating && shape->traits & NAN_IN_A)
        dtype_store(s->problem.input, bench.host + s->offset[OPERAND_A], 3, NAN);
    if (is_floating && shape->traits & INF_IN_B)
        dtype_store(s->problem.input, bench.host + s->offset[OPERAND_B], 5, INFINITY);
    if (shape->traits & IN_PLACE)
        memcpy(bench.host + s->offset[OPERAND_D], bench.host + s->offset[OPERAND_C],
               problem_span(&s->problem, OPERAND_D));
}

static struct gemmd_command command_of(const struct sample *s, uint64_t kernel, bool is_host)
{
    uint64_t base = is_host ? bench.host_address : bench.device_address, address[OPERAND_COUNT];
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .kernel = kernel};
    for (int role = 0; role < OPERAND_COUNT; role++)
        address[role] = base + s->offset[role];
    if (s->shape->traits & IN_PLACE)
        address[OPERAND_C] = address[OPERAND_D];
    link_job_describe(&s->problem, address, &command.body.gemm);
    command.body.gemm.splits = s->splits;
    if (is_host)
        command.body.gemm.flags |= GEMMD_JOB_HOST_A | GEMMD_JOB_HOST_B | GEMMD_JOB_HOST_C |
                                   GEMMD_JOB_HOST_D | GEMMD_JOB_HOST_BIAS;
    return command;
}

/* "" when right. */
static void judge(const struct sample *s, char *ret_text, size_t size)
{
    struct reference_report report;
    struct reference_operands operands = {.a = bench.host + s->offset[OPERAND_A],
                                          .b = bench.host + s->offset[OPERAND_B],
                                          .c = bench.host + s->offset[OPERAND_C],
                                          .bias = bench.host + s->offset[OPERAND_BIAS],
                                          .d = bench.host + s->offset[OPERAND_D]};
    cr_assert_eq(reference_check(&s->problem, &operands, MULTIPLICATIONS, &report), 0);
    ret_text[0] = 0;
    if (!reference_is_right(&report)) {
        reference_describe(&report, ret_text, size);
        return;
    }

    uint64_t behind = s->d_start + s->d_size - s->offset[OPERAND_D];
    int64_t spill = reference_find_spill(&s->problem, operands.d, behind);
    for (uint64_t i = s->d_start; i < s->offset[OPERAND_D] && spill == -1; i++) {
        if ((unsigned char)bench.host[i] != 0xff)
            spill = (int64_t)(i - s->offset[OPERAND_D]);
    }
    if (spill != -1)
        snprintf(ret_text, size, "wrote beside D, at byte %lld of it", (long long)spill);
}

static bool takes_any_row(const struct config *config)
{
    return config->copy != CONFIG_COPY_V16 && config->copy != CONFIG_COPY_TMA;
}

/* One to four, in turn over cases, where the configuration has splits and the workspace room. */
static uint32_t splits_of(const struct sample *s, uint64_t number)
{
    uint32_t wanted = config_is_split(s->config) ? (uint32_t)(number % 4) + 1 : 1;
    return MIN(wanted, plan_splits_max(&s->problem, s->config));
}

static bool
try(const struct config *config, const struct shape *shape, uint64_t kernel, bool is_host)
{
    struct sample s = {.config = config, .shape = shape};
    char text[512], name[CONFIG_TEXT_MAX];
    lay_out(&s);
    s.splits = splits_of(&s, kernel + (uint64_t)(shape - shapes));
    if (!takes_any_row(config) && !plan_rows_are_aligned(&s.problem, s.offset, 16))
        return false;
    if (config->family == CONFIG_HOPPER && !(plan_hopper_finishes(&s.problem, config) && s.splits))
        return false;

    fill(&s);
    struct gemmd_command command = command_of(&s, kernel, is_host);
    if (!is_host)
        copy(0, s.size, true);
    enum status status = run(&command);
    if (!is_host)
        copy(s.d_start, s.d_size, false);
    if (status == STATUS_OK)
        judge(&s, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "%s", status_name(status));

    config_to_text(config, name);
    cr_expect_str_eq(text, "",
                     "%s %s m=%lld n=%lld k=%lld batch=%lld traits=%#x alpha=%g beta=%g splits=%u: "
                     "%s",
                     name, is_host ? "staged" : "on the device", (long long)shape->m,
                     (long long)shape->n, (long long)shape->k, (long long)shape->batch,
                     shape->traits, shape->alpha, shape->beta, s.splits, text);
    return true;
}

/* Every place that rows can have in 16 bytes: that of the first one, and the way to the next. */
static size_t try_places(const struct config *config, uint64_t kernel)
{
    size_t cases = 0;
    for (int late = 0; late < 8; late++) {
        for (int step = 0; step < 8; step++) {
            struct shape shape = {64 + step, 136 + step, 72 + step, 1, LATE(late), 1, step % 3};
            cases += try(config, &shape, kernel, false);
        }
    }
    return cases;
}

/* The configurations of the family whose text contains $GEMMD_TEST_CONFIGURATIONS. */
static size_t list(enum config_family family, struct config configs[CONFIG_LIST_MAX])
{
    const char *filter = getenv("GEMMD_TEST_CONFIGURATIONS");
    uint32_t arch =
        config_arch_for_device(bench.gpu->device.compute_major, bench.gpu->device.compute_minor);
    size_t count = 0, listed = config_list(arch, configs);
    char text[CONFIG_TEXT_MAX];
    for (size_t i = 0; i < listed; i++) {
        config_to_text(&configs[i], text);
        if (configs[i].family == family && (!filter || strstr(text, filter)))
            configs[count++] = configs[i];
    }
    return count;
}

/* The same product again and again: D's bytes are those of the first time, in `times` runs. */
void kernel_cases_repeat(const char *configuration, uint32_t splits, int times)
{
    static const struct shape shape = {128, 1000, 8200, 1, ALIGNED, 1, 1};
    static struct compiled compiled;
    struct fault fault = FAULT_NONE;
    struct sample s = {.config = &compiled.config, .shape = &shape, .splits = splits};
    int different = 0;
    open_bench();
    cr_assert(config_from_text(configuration, &compiled.config), "%s", configuration);
    cr_assert_eq(compile_all(&compiled, 1, &fault), 0, "%s", fault.message);
    cr_assert(load(&compiled, 1));
    lay_out(&s);
    fill(&s);
    copy(0, s.size, true);

    struct gemmd_command command = command_of(&s, 1, /* is_host= */ false);
    char *first = malloc(s.d_size);
    for (int i = 0; i < times; i++) {
        cr_assert_eq(run(&command), STATUS_OK);
        copy(s.d_start, s.d_size, false);
        if (i == 0)
            memcpy(first, bench.host + s.d_start, s.d_size);
        different += memcmp(first, bench.host + s.d_start, s.d_size) != 0;
    }
    cr_expect_eq(different, 0, "%s: %d of %d runs gave other bits", configuration, different,
                 times);
    free(first);
    nvrtc_result_deinit(&compiled.result);
    bench.gpu->operations->close(bench.gpu);
}

/* --- chains ---------------------------------------------------------------------------------- */

#define CHAIN_SIDE  272 /* all operands are squares, and lie side by side */
#define CHAIN_LINKS 64
#define CHAIN_STEP  ((uint64_t)CHAIN_SIDE * CHAIN_SIDE * 2)
#define CHAIN_FIRST (CHAIN_LINKS * CHAIN_STEP) /* behind the Bs */
#define CHAIN_FAR   10                         /* links, further than launches may begin at once */
#define CHAIN_SIZE  (CHAIN_FIRST + (CHAIN_LINKS + CHAIN_FAR) * CHAIN_STEP)

/* The Bs so that products neither grow nor vanish, then the As that are no product. */
static void chain_fill(enum dtype dtype)
{
    for (uint64_t i = 0; i < (CHAIN_FIRST + CHAIN_FAR * CHAIN_STEP) / 2; i++)
        dtype_store(dtype, bench.host, i,
                    random_value(dtype) * (i < CHAIN_FIRST / 2 ? sqrt(3.0 / CHAIN_SIDE) : 1));
    copy(0, CHAIN_SIZE, true);
}

static struct gemmd_job chain_link(const struct config *config, uint32_t splits, int distance)
{
    uint64_t base = bench.device_address;

    return (struct gemmd_job){
        .a = base + CHAIN_FIRST,
        .b = base,
        .d = base + CHAIN_FIRST + (uint64_t)distance * CHAIN_STEP,
        .m = CHAIN_SIDE,
        .n = CHAIN_SIDE,
        .k = CHAIN_SIDE,
        .batch = 1,
        .lda = CHAIN_SIDE,
        .ldb = CHAIN_SIDE,
        .ldd = CHAIN_SIDE,
        .alpha = 1,
        .input = config->input,
        .output = config->output,
        .flags = config->trans_b ? GEMMD_JOB_TRANS_B : 0,
        .splits = splits,
    };
}

static void chain_run(const struct gemmd_job *link, uint32_t at_once)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .kernel = 1};

    for (uint32_t i = 0; i < CHAIN_LINKS; i += at_once) {
        command.body.gemm = *link;
        command.body.gemm.a += i * CHAIN_STEP;
        command.body.gemm.b += i * CHAIN_STEP;
        command.body.gemm.d += i * CHAIN_STEP;
        command.body.gemm.repeats = command.body.gemm.repeat_sets = at_once;
        command.body.gemm.repeat_step = CHAIN_STEP;
        cr_assert_eq(run(&command), STATUS_OK);
    }
    copy(CHAIN_FIRST, CHAIN_SIZE - CHAIN_FIRST, false);
}

static void chain_check(const struct compiled *compiled, uint32_t splits, int distance)
{
    struct gemmd_job link = chain_link(&compiled->config, splits, distance);
    uint64_t size = CHAIN_SIZE - CHAIN_FIRST, inputs = (uint64_t)distance * CHAIN_STEP;
    char *one_by_one = malloc(size);
    chain_run(&link, 1);
    memcpy(one_by_one, bench.host + CHAIN_FIRST, size);
    for (int i = 0; i < 5; i++) {
        memset(bench.host + CHAIN_FIRST + inputs, 0xff, size - inputs);
        copy(CHAIN_FIRST, size, true);
        chain_run(&link, CHAIN_LINKS);
        cr_expect(!memcmp(bench.host + CHAIN_FIRST, one_by_one, inputs + CHAIN_LINKS * CHAIN_STEP),
                  "tile of %u rows, %d apart", compiled->config.tile_m, distance);
    }
    free(one_by_one);
}

void kernel_cases_chain(const char *configuration, uint32_t splits)
{
    static struct compiled compiled;
    struct fault fault = FAULT_NONE;
    open_bench();
    cr_assert(config_from_text(configuration, &compiled.config), "%s", configuration);
    cr_assert_eq(compile_all(&compiled, 1, &fault), 0, "%s", fault.message);
    cr_assert(load(&compiled, 1));
    chain_fill(compiled.config.input);
    for (int distance = CHAIN_FAR; distance > 0; distance--)
        chain_check(&compiled, splits, distance);
    nvrtc_result_deinit(&compiled.result);
    bench.gpu->operations->close(bench.gpu);
}

void kernel_cases_run(enum config_family family)
{
    static struct config configs[CONFIG_LIST_MAX];
    static struct compiled compiled[CONFIG_LIST_MAX];
    struct fault fault = FAULT_NONE;
    size_t cases = 0;
    open_bench();
    size_t count = list(family, configs);
    if (count == 0)
        cr_skip_test("no such configuration for %s", bench.gpu->device.name);
    for (size_t i = 0; i < count; i++)
        compiled[i].config = configs[i];
    cr_assert_eq(compile_all(compiled, count, &fault), 0, "%s", fault.message);
    for (size_t i = 0; i < count; i++) {
        if (!load(&compiled[i], i))
            continue;
        for (size_t j = 0; j < ARRAY_SIZE(shapes); j++)
            cases += try(&configs[i], &shapes[j], i, (i + j) % 3 == 0);
        if (configs[i].family == CONFIG_HOPPER && takes_any_row(&configs[i]))
            cases += try_places(&configs[i], i);
        bench.gpu->operations->unload(bench.gpu, i);
        nvrtc_result_deinit(&compiled[i].result);
    }
    fprintf(stderr, "%zu configurations, %zu products\n", count, cases);
    bench.gpu->operations->close(bench.gpu);
}
