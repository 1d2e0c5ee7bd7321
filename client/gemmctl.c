/*
 * gemmctl: the command line of gemmd. This file is the command table, the options before a command,
 * and the connection that commands share.
 */
#include "gemmctl.h"
#include "../daemon/core/log.h"
#include "../daemon/core/standard_streams.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct command commands[] = {
    {
        "gemm",
        ctl_gemm,
        "multiply matrices from .npy files",
        "A.npy B.npy -o D.npy [OPTION...]",
        "  D = act(alpha * op(A) @ op(B) + beta * C + bias); 3-dimensional arrays are batches.\n"
        "\n"
        "  -o, --output FILE    where D goes\n"
        "      --c FILE         C, of D's shape\n"
        "      --alpha NUMBER   default 1\n"
        "      --beta NUMBER    default 1 with --c, else 0\n"
        "      --trans-a        op(A) is A transposed\n"
        "      --trans-b        op(B) is B transposed\n"
        "      --dtype TYPE     bf16, fp16, fp32, fp64 or int8; default A's. Files of another\n"
        "                       floating type are rounded to it; bf16 names '<u2' data\n"
        "      --out-dtype TYPE type of C and D; default the input's, int32 for int8\n"
        "      --bias FILE      a value for each column of D, or row; 1-dimensional\n"
        "      --bias-per AXIS  column (default) or row\n"
        "      --activation ACT none, relu, gelu, gelu_tanh or silu\n"
        "      --deadline SECONDS\n"
        "                       what has not started by then is not run\n"
        "      --priority N     -1, 0 or 1, among this user's products\n"
        "      --verify         hold D against a reference; exit 1 when it is outside the bound\n",
    },
    {
        "status",
        ctl_status,
        "what the daemon is and does now",
        "[--json]",
        "      --json           the daemon's answer as it is\n",
    },
    {
        "stats",
        ctl_stats,
        "counters since the daemon started",
        "[--json]",
        "      --json           the daemon's answer as it is\n",
    },
    {
        "explain",
        ctl_explain,
        "which configuration a product gets, and why",
        "M N K [OPTION...]",
        "      --dtype TYPE     default bf16\n"
        "      --out-dtype TYPE default the input's, int32 for int8\n"
        "      --layout LAYOUT  nn, nt, tn or tt: A's letter, then B's; default nn\n"
        "      --batch COUNT    default 1\n"
        "      --bias AXIS      with a bias for each row or column of D\n"
        "      --activation ACT none, relu, gelu, gelu_tanh or silu\n"
        "      --json           the daemon's answer as it is\n",
    },
    {
        "tune",
        ctl_tune,
        "time the best few configurations of shapes, keep the fastest",
        "MxNxK|FILE... [OPTION...]",
        "  FILE has lines group,dtype,layout,m,n,k, as a benchmark's suite; others are skipped.\n"
        "  Root and the daemon's own user only: what is tuned is what everybody gets.\n"
        "\n"
        "      --keep COUNT     configurations that are timed, 1 to 32; default 4\n"
        "      --dtype TYPE     default bf16\n"
        "      --out-dtype TYPE default the input's, int32 for int8\n"
        "      --layout LAYOUT  nn, nt, tn or tt: A's letter, then B's; default nn\n"
        "      --batch COUNT    default 1\n"
        "      --json           the daemon's answers as they are, one a line\n",
    },
    {
        "selftest",
        ctl_selftest,
        "hold every type, layout and kind of shape against fp64",
        "[--quick] [--json] [--memory KIND]",
        "  Prints the worst error of each cell as a share of its bound: at most 1 is right.\n"
        "\n"
        "      --quick          one or two shapes of each kind\n"
        "      --json           the cells as JSON\n"
        "      --memory KIND    where operands lie: host or device; default by the device\n",
    },
    {
        "cache",
        ctl_cache,
        "the daemon's compiled kernels",
        "list|verify|prewarm|prune [OPTION...]",
        "  list                 the entries\n"
        "  verify               the same, payloads read, damaged ones removed\n"
        "  prewarm CONFIG...    compile these; all of an architecture with --arch\n"
        "  prune --max SIZE     remove the least recently used until SIZE bytes remain\n"
        "\n"
        "      --arch ARCH      prewarm: 80, 90, sm_90a, ...\n"
        "      --max SIZE       prune: bytes, or with K, M, G\n"
        "      --json           list, verify: the daemon's answer as it is\n",
    },
    {
        "compile",
        ctl_compile,
        "compile configurations here, without daemon or GPU",
        "[--arch ARCH] [--all] [--list] [CONFIG...]",
        "  Prints registers, shared memory, spills and time; exit 1 when one does not compile.\n"
        "\n"
        "      --arch ARCH      80, 90, sm_90a, ...: for --all and --list\n"
        "      --all            every configuration that the plan can name\n"
        "      --list           print their names and compile nothing\n"
        "      --kernels DIR    kernel files from DIR instead of those built in\n"
        "  -o, --output DIR     write CONFIG.cubin files there\n"
        "      --jobs COUNT     compile so many at once; default one per processor, at most 8\n",
    },
};

static const struct command program = {
    .name = NULL,
    .usage = "[--socket PATH] COMMAND [ARGUMENT...]",
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static void print_program_help(void)
{
    (void)printf("usage: gemmctl %s\n\nCommands:\n", program.usage);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        (void)printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    (void)printf("\nOptions:\n"
                 "      --socket PATH    the daemon's socket; default $GEMMD_SOCKET, else\n"
                 "                       $XDG_RUNTIME_DIR/gemmd.sock, else /run/gemmd/gemmd.sock\n"
                 "      --progress       progress on stderr also when it is no terminal\n"
                 "      --version        print the version\n"
                 "      --help           this, or a command's own with COMMAND --help\n"
                 "\nExit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon.\n");
}

void ctl_print_help(const struct gemmctl *ctl)
{
    const struct command *command = ctl->command;

    if (!command->name) {
        print_program_help();
        return;
    }
    (void)printf("usage: gemmctl %s %s\n\n", command->name, command->usage);
    (void)printf("%s\nCommon options: --socket PATH, --progress, --help; see gemmctl(1).\n",
                 command->help);
}

double ctl_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void ctl_progress(struct gemmctl *ctl, const char *format, ...)
{
    char text[128];
    va_list args;

    if (!ctl->progress)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* Replaced in place on a terminal, one line each in a log. */
    (void)fprintf(stderr, isatty(STDERR_FILENO) ? "\r\033[K%s" : "%s\n", text);
    (void)fflush(stderr);
    ctl->progress_shown = isatty(STDERR_FILENO);
}

void ctl_progress_end(struct gemmctl *ctl)
{
    if (ctl->progress_shown)
        (void)fputs("\r\033[K", stderr);
    ctl->progress_shown = false;
}

int ctl_connect(struct gemmctl *ctl)
{
    gemmd_error error = {.status = GEMMD_OK};

    if (gemmd_connect(ctl->socket, &ctl->connection, &error) == GEMMD_OK)
        return CTL_OK;
    if (error.status == GEMMD_INVALID_ARGUMENT)
        return ctl_usage(ctl, "%s", error.message);
    (void)fprintf(stderr, "gemmctl: no daemon: %s\n", error.message);
    return CTL_NO_DAEMON;
}

int ctl_daemon_error(struct gemmctl *ctl)
{
    const gemmd_error *error = gemmd_last_error(ctl->connection);

    ctl_progress_end(ctl);
    (void)fprintf(stderr, "gemmctl %s: %s: %s%s%s\n", ctl->command->name,
                  gemmd_strerror(error->status), error->argument, *error->argument ? ": " : "",
                  error->message);
    return error->status == GEMMD_DISCONNECTED ? CTL_NO_DAEMON : CTL_FAILED;
}

void ctl_product(const struct problem *problem, gemmd_product *ret_product)
{
    const struct problem_operand *operand = problem->operand;

    *ret_product = (gemmd_product){
        .size = sizeof(*ret_product),
        .input = (gemmd_dtype)problem->input,
        .output = (gemmd_dtype)problem->output,
        .order = GEMMD_ROW_MAJOR,
        .trans_a = problem->trans_a,
        .trans_b = problem->trans_b,
        .m = problem->m,
        .n = problem->n,
        .k = problem->k,
        .batch = problem->batch,
        .alpha = problem->alpha,
        .beta = problem->beta,
        .a = {.ld = operand[OPERAND_A].ld, .stride = operand[OPERAND_A].stride},
        .b = {.ld = operand[OPERAND_B].ld, .stride = operand[OPERAND_B].stride},
        .c = {.ld = operand[OPERAND_C].ld, .stride = operand[OPERAND_C].stride},
        .d = {.ld = operand[OPERAND_D].ld, .stride = operand[OPERAND_D].stride},
        .bias = {.ld = operand[OPERAND_BIAS].ld, .stride = operand[OPERAND_BIAS].stride},
        .bias_kind = (gemmd_bias_kind)problem->bias,
        .activation = (gemmd_activation)problem->activation,
    };
}

/* A result that could not be written is a failure, whatever led to it. */
static int flush_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    (void)fprintf(stderr, "gemmctl: cannot write the output: %s\n", strerror(errno));
    return CTL_FAILED;
}

static int run_command(struct gemmctl *ctl, int argc, char **argv)
{
    int status;

    optind = 0; /* glibc: start anew, on the command's own argv */
    status = ctl->command->run(ctl, argc, argv);
    ctl_progress_end(ctl);
    gemmd_close(ctl->connection);
    return flush_output(status);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"version", no_argument, NULL, CTL_OPTION_VERSION},
        CTL_COMMON_OPTIONS,
    };
    struct gemmctl ctl = {.command = &program, .progress = isatty(STDERR_FILENO)};
    int option;

    standard_streams_occupy();
    log_init("gemmctl", LOG_LEVEL_WARNING);
    option = ctl_option(&ctl, argc, argv, options);
    if (option == CTL_OPTION_VERSION) {
        (void)printf("gemmctl %s\n", GEMMD_VERSION);
        return flush_output(CTL_OK);
    }
    if (option != CTL_OPTION_END)
        return CTL_USAGE;
    if (optind == argc)
        return ctl_usage(&ctl, "no command given");
    ctl.command = find_command(argv[optind]);
    if (!ctl.command) {
        ctl.command = &program;
        return ctl_usage(&ctl, "'%s' is not a command", argv[optind]);
    }
    return run_command(&ctl, argc - optind, argv + optind);
}
