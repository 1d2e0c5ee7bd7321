/*
 * gemmctl gemm: a product of .npy files.
 *
 * A 2-dimensional array in Fortran order is the transposed matrix in C order, so it is used as it
 * lies with the other transposition flag. Three dimensions are a batch; those in Fortran order have
 * the batch innermost, which no stride can say, and are copied.
 */
#include "gemmctl.h"
#include "npy.h"
#include "reference.h"

#include <inttypes.h>
#include <string.h>

enum {
    OPTION_C = CTL_OPTION_OWN,
    OPTION_ALPHA,
    OPTION_BETA,
    OPTION_TRANS_A,
    OPTION_TRANS_B,
    OPTION_DTYPE,
    OPTION_OUT_DTYPE,
    OPTION_VERIFY,
    OPTION_DEADLINE,
    OPTION_PRIORITY,
    OPTION_BIAS,
    OPTION_BIAS_PER,
    OPTION_ACTIVATION,
};

struct arguments {
    const char *path[OPERAND_COUNT]; /* NULL: not given */
    double alpha, beta, deadline, priority;
    bool has_beta, trans_a, trans_b, verify;
    enum dtype input, output;
    enum bias bias_per;
    enum activation activation;
};

/* Owns the arrays. */
struct work {
    struct problem problem;
    struct npy array[OPERAND_COUNT];
};

static void work_deinit(struct work *work)
{
    for (int i = 0; i < OPERAND_COUNT; i++)
        npy_deinit(&work->array[i]);
}

/* --- arguments ------------------------------------------------------------------------------- */

static int take_option(const struct gemmctl *ctl, int option, struct arguments *arguments)
{
    switch (option) {
    case 'o':
        arguments->path[OPERAND_D] = optarg;
        return CTL_OK;
    case OPTION_C:
        arguments->path[OPERAND_C] = optarg;
        return CTL_OK;
    case OPTION_ALPHA:
        return ctl_parse_real(ctl, "--alpha", optarg, &arguments->alpha);
    case OPTION_BETA:
        arguments->has_beta = true;
        return ctl_parse_real(ctl, "--beta", optarg, &arguments->beta);
    case OPTION_TRANS_A:
        arguments->trans_a = true;
        return CTL_OK;
    case OPTION_TRANS_B:
        arguments->trans_b = true;
        return CTL_OK;
    case OPTION_DTYPE:
        return ctl_parse_dtype(ctl, "--dtype", optarg, &arguments->input);
    case OPTION_OUT_DTYPE:
        return ctl_parse_dtype(ctl, "--out-dtype", optarg, &arguments->output);
    case OPTION_DEADLINE:
        return ctl_parse_real(ctl, "--deadline", optarg, &arguments->deadline);
    case OPTION_PRIORITY:
        return ctl_parse_real(ctl, "--priority", optarg, &arguments->priority);
    case OPTION_BIAS:
        arguments->path[OPERAND_BIAS] = optarg;
        return CTL_OK;
    case OPTION_BIAS_PER:
        return ctl_parse_axis(ctl, "--bias-per", optarg, &arguments->bias_per);
    case OPTION_ACTIVATION:
        return ctl_parse_activation(ctl, optarg, &arguments->activation);
    default:
        arguments->verify = true;
        return CTL_OK;
    }
}

static int take_arguments(struct gemmctl *ctl, int argc, char **argv, struct arguments *ret)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},
        {"c", required_argument, NULL, OPTION_C},
        {"alpha", required_argument, NULL, OPTION_ALPHA},
        {"beta", required_argument, NULL, OPTION_BETA},
        {"trans-a", no_argument, NULL, OPTION_TRANS_A},
        {"trans-b", no_argument, NULL, OPTION_TRANS_B},
        {"dtype", required_argument, NULL, OPTION_DTYPE},
        {"out-dtype", required_argument, NULL, OPTION_OUT_DTYPE},
        {"verify", no_argument, NULL, OPTION_VERIFY},
        {"deadline", required_argument, NULL, OPTION_DEADLINE},
        {"priority", required_argument, NULL, OPTION_PRIORITY},
        {"bias", required_argument, NULL, OPTION_BIAS},
        {"bias-per", required_argument, NULL, OPTION_BIAS_PER},
        {"activation", required_argument, NULL, OPTION_ACTIVATION},
        CTL_COMMON_OPTIONS,
    };
    int option;

    while ((option = ctl_option(ctl, argc, argv, options)) != CTL_OPTION_END) {
        if (option == CTL_OPTION_WRONG || take_option(ctl, option, ret) != CTL_OK)
            return CTL_USAGE;
    }
    for (int i = OPERAND_A; i <= OPERAND_B; i++) {
        if (optind == argc)
            return ctl_usage(ctl, "%s.npy is missing", i == OPERAND_A ? "A" : "B");
        ret->path[i] = argv[optind++];
    }
    if (!ret->path[OPERAND_D])
        return ctl_usage(ctl, "-o D.npy is missing");
    if (ret->priority != -1 && ret->priority != 0 && ret->priority != 1)
        return ctl_usage(ctl, "--priority is %g; allowed: -1, 0 and 1", ret->priority);
    if (!ret->path[OPERAND_C] && ret->has_beta && ret->beta != 0)
        return ctl_usage(ctl, "--beta %g needs --c C.npy", ret->beta);
    if (!ret->path[OPERAND_BIAS] && ret->bias_per != BIAS_NONE)
        return ctl_usage(ctl, "--bias-per needs --bias BIAS.npy");
    if (ret->path[OPERAND_BIAS] && ret->bias_per == BIAS_NONE)
        ret->bias_per = BIAS_PER_COLUMN;
    if (!ret->has_beta)
        ret->beta = ret->path[OPERAND_C] ? 1 : 0;
    return ctl_no_more(ctl, argc, argv);
}

/* --- arrays ---------------------------------------------------------------------------------- */

static bool is_floating(enum dtype dtype)
{
    return dtype >= DTYPE_BF16 && dtype <= DTYPE_FP64;
}

static size_t element_count(const struct npy *npy)
{
    return npy->size / dtype_size(npy->dtype);
}

/* Rounds every element to another floating type, in place of the array. */
static int convert(struct npy *npy, enum dtype dtype, struct fault *ret_fault)
{
    struct npy converted;

    if (npy_new(dtype, npy->ndim, npy->shape, &converted, ret_fault))
        return NPY_E_REFUSED;
    for (size_t i = 0; i < element_count(npy); i++)
        dtype_store(dtype, converted.data, i, dtype_load(npy->dtype, npy->data, i));
    converted.fortran = npy->fortran;
    npy_deinit(npy);
    *npy = converted;
    return 0;
}

/* A 3-dimensional Fortran-order array, or C of any, as C order. */
static int make_c_order(struct npy *npy, struct fault *ret_fault)
{
    int64_t shape[3] = {1, 1, 1};
    struct npy copy;

    memcpy(shape + 3 - npy->ndim, npy->shape, (size_t)npy->ndim * sizeof(*shape));
    if (npy_new(npy->dtype, npy->ndim, npy->shape, &copy, ret_fault))
        return NPY_E_REFUSED;
    for (int64_t i = 0, to = 0; i < shape[0]; i++) {
        for (int64_t j = 0; j < shape[1]; j++) {
            for (int64_t l = 0; l < shape[2]; l++, to++)
                dtype_store(
                    npy->dtype, copy.data, (size_t)to,
                    dtype_load(npy->dtype, npy->data, (size_t)(i + shape[0] * (j + shape[1] * l))));
        }
    }
    npy_deinit(npy);
    *npy = copy;
    return 0;
}

static int check_dimensions(struct gemmctl *ctl,
                            const char *path,
                            enum operand_role role,
                            const struct npy *npy)
{
    char shape[128];

    if (role == OPERAND_BIAS && (npy->ndim == 1 || npy->ndim == 2))
        return CTL_OK;
    if (role == OPERAND_BIAS)
        return ctl_fail(ctl, "%s: it has %d dimensions; a bias has 1, a batch of them 2", path,
                        npy->ndim);
    if (npy->ndim == 2 || npy->ndim == 3)
        return CTL_OK;
    npy_shape_text(npy, shape, sizeof(shape));
    if (npy->ndim == 1)
        return ctl_fail(ctl,
                        "%s: its shape is %s; a vector is neither row nor column: reshape it to "
                        "(1, %" PRId64 ") or (%" PRId64 ", 1)",
                        path, shape, npy->shape[0], npy->shape[0]);
    return ctl_fail(ctl, "%s: its shape is %s; a matrix has 2 dimensions, a batch of them 3", path,
                    shape);
}

/* Reads an operand as `dtype`; DTYPE_NONE takes what the file says. */
static int load(struct gemmctl *ctl,
                const struct arguments *arguments,
                enum operand_role role,
                enum dtype dtype,
                struct npy *ret_npy)
{
    const char *path = arguments->path[role];
    cleanup(npy_deinit) struct npy npy = NPY_NULL;
    struct fault fault;
    int r = 0;

    if (npy_read(path, &npy, &fault))
        return ctl_fail(ctl, "%s", fault.message);
    if (check_dimensions(ctl, path, role, &npy) != CTL_OK)
        return CTL_FAILED;
    if (npy.dtype == DTYPE_NONE && dtype == DTYPE_NONE)
        return ctl_fail(ctl, "%s: its elements are '%s'; say what they are with --dtype bf16", path,
                        npy.descr);
    if (dtype != DTYPE_NONE && npy.dtype != dtype) {
        if (is_floating(npy.dtype) && is_floating(dtype))
            r = convert(&npy, dtype, &fault);
        else
            r = npy_view(&npy, dtype, &fault);
    }
    if (r == 0 && npy.fortran && (npy.ndim == 3 || role > OPERAND_B))
        r = make_c_order(&npy, &fault);
    if (r)
        return ctl_fail(ctl, "%s: %s", path, fault.message);
    *ret_npy = steal(npy, NPY_NULL);
    return CTL_OK;
}

/* --- the problem ----------------------------------------------------------------------------- */

/* Rows and columns of the array as the user sees it, the last two dimensions. */
static int64_t array_rows(const struct npy *npy)
{
    return npy->shape[npy->ndim - 2];
}

static int64_t array_columns(const struct npy *npy)
{
    return npy->shape[npy->ndim - 1];
}

static int64_t array_batch(const struct npy *npy)
{
    return npy->ndim == 3 ? npy->shape[0] : 1;
}

/* One matrix serves the whole batch. */
static struct problem_operand operand_of(const struct npy *npy, int64_t batch)
{
    bool is_shared = batch != 1 && array_batch(npy) == 1;

    return (struct problem_operand){
        .ld = MAX(1, npy->fortran ? array_rows(npy) : array_columns(npy)),
        .stride = is_shared ? 0 : PROBLEM_DEFAULT,
    };
}

static int check_bias(struct gemmctl *ctl, const struct problem *problem, const struct npy *bias)
{
    int64_t length = problem_columns(problem, OPERAND_BIAS);
    int64_t batch = bias->ndim == 2 ? bias->shape[0] : 1;
    char shape[128];

    npy_shape_text(bias, shape, sizeof(shape));
    if (array_columns(bias) != length)
        return ctl_fail(ctl, "the bias is %s; with one value for each %s it is (%" PRId64 ",)",
                        shape, problem->bias == BIAS_PER_ROW ? "row" : "column", length);
    if (batch != 1 && batch != problem->batch)
        return ctl_fail(ctl, "the bias is %s and the batch has %" PRId64 " products", shape,
                        problem->batch);
    return CTL_OK;
}

static int check_shapes(struct gemmctl *ctl, const struct problem *problem, const struct work *work)
{
    const struct npy *b = &work->array[OPERAND_B], *c = &work->array[OPERAND_C];
    int64_t inner = problem->trans_b != b->fortran ? array_columns(b) : array_rows(b);
    char shapes[3][128];

    for (int i = 0; i < 3; i++)
        npy_shape_text(&work->array[i], shapes[i], sizeof(shapes[i]));
    if (problem->k != inner)
        return ctl_fail(ctl,
                        "op(A) has %" PRId64 " columns and op(B) %" PRId64
                        " rows; they must be equal (A is %s, B is %s)",
                        problem->k, inner, shapes[0], shapes[1]);
    for (int i = OPERAND_A; i <= OPERAND_C; i++) {
        int64_t batch = work->array[i].data ? array_batch(&work->array[i]) : 1;

        if (batch != 1 && batch != problem->batch)
            return ctl_fail(ctl,
                            "the batches differ: A is %s, B is %s%s%s; each has one matrix or as "
                            "many as the others",
                            shapes[0], shapes[1], c->data ? ", C is " : "",
                            c->data ? shapes[2] : "");
    }
    if (c->data && (array_rows(c) != problem->m || array_columns(c) != problem->n))
        return ctl_fail(ctl, "C is %s; the product is %" PRId64 " x %" PRId64, shapes[2],
                        problem->m, problem->n);
    return CTL_OK;
}

static int make_problem(struct gemmctl *ctl, const struct arguments *arguments, struct work *work)
{
    const struct npy *a = &work->array[OPERAND_A], *b = &work->array[OPERAND_B],
                     *c = &work->array[OPERAND_C], *bias = &work->array[OPERAND_BIAS];
    struct problem *problem = &work->problem;
    struct fault fault;
    int status;

    problem->m = arguments->trans_a ? array_columns(a) : array_rows(a);
    problem->k = arguments->trans_a ? array_rows(a) : array_columns(a);
    problem->n = arguments->trans_b ? array_rows(b) : array_columns(b);
    problem->batch = array_batch(a) != 1 ? array_batch(a) : array_batch(b);
    if (problem->batch == 1 && c->data)
        problem->batch = array_batch(c);
    problem->trans_a = arguments->trans_a != a->fortran;
    problem->trans_b = arguments->trans_b != b->fortran;
    problem->alpha = arguments->alpha;
    problem->beta = arguments->beta;
    problem->bias = arguments->bias_per;
    problem->activation = arguments->activation;
    status = check_shapes(ctl, problem, work);
    if (status == CTL_OK && bias->data)
        status = check_bias(ctl, problem, bias);
    if (status != CTL_OK)
        return status;

    problem->operand[OPERAND_A] = operand_of(a, problem->batch);
    problem->operand[OPERAND_B] = operand_of(b, problem->batch);
    problem->operand[OPERAND_D] = (struct problem_operand){PROBLEM_DEFAULT, PROBLEM_DEFAULT};
    problem->operand[OPERAND_C] =
        c->data ? operand_of(c, problem->batch) : problem->operand[OPERAND_D];
    problem->operand[OPERAND_BIAS] = (struct problem_operand){
        .ld = PROBLEM_DEFAULT,
        .stride = bias->ndim == 2 && bias->shape[0] != 1 ? PROBLEM_DEFAULT : 0,
    };
    problem_fill_defaults(problem);
    if (problem_check(problem, false, &fault) != STATUS_OK)
        return ctl_fail(ctl, "%s", fault.message);
    return CTL_OK;
}

static int load_all(struct gemmctl *ctl, const struct arguments *arguments, struct work *work)
{
    struct problem *problem = &work->problem;
    int status;

    ctl_progress(ctl, "reading");
    status = load(ctl, arguments, OPERAND_A, arguments->input, &work->array[OPERAND_A]);
    if (status != CTL_OK)
        return status;
    problem->input = work->array[OPERAND_A].dtype;
    problem->output = arguments->output ? arguments->output : dtype_default_output(problem->input);
    status = load(ctl, arguments, OPERAND_B, problem->input, &work->array[OPERAND_B]);
    for (enum operand_role role = OPERAND_C; role < OPERAND_D && status == CTL_OK; role++) {
        if (arguments->path[role])
            status = load(ctl, arguments, role, problem->output, &work->array[role]);
    }
    return status == CTL_OK ? make_problem(ctl, arguments, work) : status;
}

/* --- the product ----------------------------------------------------------------------------- */

static int multiply(struct gemmctl *ctl,
                    const struct arguments *arguments,
                    struct work *work,
                    gemmd_result *ret_result)
{
    const struct problem *problem = &work->problem;
    bool is_batch = false;
    gemmd_product product;
    struct fault fault;

    for (int i = OPERAND_A; i <= OPERAND_C; i++)
        is_batch |= work->array[i].ndim == 3;
    if (npy_new(problem->output, is_batch ? 3 : 2,
                is_batch ? (int64_t[]){problem->batch, problem->m, problem->n}
                         : (int64_t[]){problem->m, problem->n},
                &work->array[OPERAND_D], &fault))
        return ctl_fail(ctl, "D: %s", fault.message);
    ctl_product(problem, &product);
    product.deadline_seconds = arguments->deadline;
    product.priority = (int)arguments->priority;
    product.a.data = work->array[OPERAND_A].data;
    product.b.data = work->array[OPERAND_B].data;
    product.c.data = work->array[OPERAND_C].data;
    product.bias.data = work->array[OPERAND_BIAS].data;
    product.d.data = work->array[OPERAND_D].data;
    ctl_progress(ctl, "multiplying");
    *ret_result = (gemmd_result){.size = sizeof(*ret_result)};
    if (gemmd_gemm(ctl->connection, &product, ret_result) != GEMMD_OK)
        return ctl_daemon_error(ctl);
    return CTL_OK;
}

static void print_result(const struct work *work, const gemmd_result *result)
{
    const struct problem *problem = &work->problem;
    char shape[128];

    npy_shape_text(&work->array[OPERAND_D], shape, sizeof(shape));
    (void)printf("D %s %s", shape, dtype_name(problem->output));
    if (*result->configuration)
        (void)printf("  %s", result->configuration);
    if (result->device_seconds > 0)
        (void)printf("  %.3g ms  %.3g TFLOP/s", result->device_seconds * 1e3,
                     problem_flop(problem) / result->device_seconds * 1e-12);
    if (result->compile_seconds > 0)
        (void)printf("  compiled in %.3g s", result->compile_seconds);
    (void)putchar('\n');
}

static int verify(struct gemmctl *ctl, const struct work *work)
{
    struct reference_operands operands = {
        .a = work->array[OPERAND_A].data,
        .b = work->array[OPERAND_B].data,
        .c = work->array[OPERAND_C].data,
        .bias = work->array[OPERAND_BIAS].data,
        .d = work->array[OPERAND_D].data,
    };
    struct reference_report report;
    char text[256];

    ctl_progress(ctl, "verifying");
    if (reference_check(&work->problem, &operands, REFERENCE_ONE_SECOND, &report) < 0)
        return ctl_fail(ctl, "no memory for the reference");
    reference_describe(&report, text, sizeof(text));
    if (!reference_is_right(&report))
        return ctl_fail(ctl, "%s", text);
    ctl_progress_end(ctl);
    (void)printf("%s\n", text);
    return CTL_OK;
}

int ctl_gemm(struct gemmctl *ctl, int argc, char **argv)
{
    struct arguments arguments = {.alpha = 1};
    cleanup(work_deinit) struct work work = {0};
    gemmd_result result;
    struct fault fault;
    int status;

    status = take_arguments(ctl, argc, argv, &arguments);
    if (status == CTL_OK)
        status = load_all(ctl, &arguments, &work);
    if (status == CTL_OK)
        status = ctl_connect(ctl);
    if (status == CTL_OK)
        status = multiply(ctl, &arguments, &work, &result);
    if (status != CTL_OK)
        return status;
    if (npy_write(arguments.path[OPERAND_D], &work.array[OPERAND_D], &fault))
        return ctl_fail(ctl, "%s", fault.message);
    ctl_progress_end(ctl);
    print_result(&work, &result);
    return arguments.verify ? verify(ctl, &work) : CTL_OK;
}
