/*
 * The whole service table by one command: a daemon of its own, every part a bounded process of its
 * own, then the table. A part that fails or is late says so, and the others still run.
 */
#include <stdio.h>

#include "ask.h"
#include "mps.h"
#include "part.h"
#include "private_daemon.h"
#include "service_rows.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TOTAL_SECONDS 275.0 /* and the end of daemon and MPS: 5 minutes in all */
#define WORDS_MAX     40
#define OPTIONS       "daemon device output brief? peer-device"

struct run {
    struct private_daemon daemon;
    struct mps mps;
    const char *peer_device;
    bool has_mps, is_brief;
    double end;
    FILE *copy; /* what the parts print */
    struct figures figures[PART_COUNT];
    unsigned failed;
};

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* --- the head -------------------------------------------------------------------------------- */

struct facts {
    gemmd *connection; /* NULL: the daemon is gone */
    char device[96], kind[96];
};

static void gather(struct run *run, struct facts *facts)
{
    *facts = (struct facts){0};
    if (ask_connect(run->daemon.socket, &facts->connection))
        return;
    ask_text(facts->connection, "device", "name", facts->device);
    ask_text(facts->connection, "device", "kind", facts->kind);
}

/* "20261129-nvidia-h200-service": what tests/bench/results/README.md asks for. */
static void name_of(const struct facts *facts, char *ret, size_t size)
{
    char slug[96] = "";
    time_t now = time(NULL);
    struct tm utc;
    const char *device = strcmp(facts->kind, "cuda") == 0 ? facts->device : "cpu";
    size_t length = 0;
    for (const char *at = device; *at && length + 1 < sizeof(slug); at++) {
        if (isalnum((unsigned char)*at))
            slug[length++] = (char)tolower((unsigned char)*at);
        else if (length > 0 && slug[length - 1] != '-')
            slug[length++] = '-';
    }
    size_t written = strftime(ret, size, "%Y%m%d-", gmtime_r(&now, &utc));
    (void)snprintf(ret + written, size - written, "%s-service", slug);
}

/* --- the parts ------------------------------------------------------------------------------- */

/* The command's words and what every part of its kind is told; valid until the next call. */
static char **words_of(const struct run *run, const struct service_command *command)
{
    static char text[512];
    static char *words[WORDS_MAX];
    size_t count = 0;
    char *rest = NULL;
    (void)snprintf(text, sizeof(text), "%s", run->is_brief ? command->brief : command->full);
    for (char *word = strtok_r(text, " ", &rest); word && count + 8 < WORDS_MAX;
         word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    if (command->asks_daemon) {
        words[count++] = (char *)"--socket";
        words[count++] = (char *)run->daemon.socket;
    }
    if (command->shares) {
        words[count++] = (char *)"--mps";
        words[count++] = (char *)(run->has_mps ? run->mps.directory : "none");
        words[count++] = (char *)"--device";
        words[count++] = (char *)run->peer_device;
    }
    words[count] = NULL;
    return words;
}

static void run_part(struct run *run, enum service_part part)
{
    const struct service_command *command = &service_commands[part];
    double begin = bench_now(), limit = MIN(command->limit, run->end - begin);
    char why[PART_WHY] = "";
    bool was_dead = false;
    if (is_interrupted || limit < 1) {
        fprintf(run->copy, "# part \"%s\" is left out: no time left\n", command->name);
        run->failed++;
        return;
    }
    fprintf(stderr, "gemmd-bench: %s ...\n", command->name);
    fprintf(run->copy, "\n## %s\n", command->name);
    bool has_daemon = private_daemon_ensure(&run->daemon, &was_dead) == 0;
    if (was_dead)
        fprintf(run->copy, "# the daemon had ended and was started again\n");
    int status = has_daemon
                     ? part_run(words_of(run, command), limit, run->copy, &run->figures[part], why)
                     : -1;
    double seconds = bench_now() - begin;
    if (part == PART_SHARE && run->has_mps &&
        isnan(figures_find(&run->figures[part], "share-mps", "tflops"))) {
        fprintf(run->copy, "# MPS started and does not serve: left out of the other parts\n");
        mps_stop(&run->mps);
        run->has_mps = false;
    }
    if (status == EXIT_ABSENT) {
        fprintf(run->copy, "# part \"%s\" is left out: %s\n", command->name, why);
    } else if (status == 0 && !was_dead) {
        fprintf(run->copy, "# part \"%s\": %.1f s\n", command->name, seconds);
    } else {
        run->failed++;
        fprintf(run->copy, "# part \"%s\" FAILED after %.1f s: %s\n", command->name, seconds,
                has_daemon ? why : "no daemon");
    }
}

/* --- the table ------------------------------------------------------------------------------- */

static FILE *create(const char *directory, const char *name, const char *suffix)
{
    char path[512];
    (void)mkdir(directory, 0755);
    (void)snprintf(path, sizeof(path), "%s/%s.%s", directory, name, suffix);
    FILE *file = fopen(path, "we");
    if (!file)
        fprintf(stderr, "gemmd-bench: %s: %m\n", path);
    return file;
}

static int
write_csv(const char *directory, const char *name, const struct table_row *rows, size_t count)
{
    FILE *file = create(directory, name, "csv");
    if (!file)
        return 1;
    table_print_csv(file, rows, count);
    return fclose(file) != 0;
}

static void copy_all(FILE *from)
{
    char line[1200];
    rewind(from);
    while (fgets(line, sizeof(line), from))
        (void)fputs(line, stdout);
    (void)fflush(stdout);
}

/* A result is never written over: a second run of a day ends in -2. */
static void make_unused(const char *directory, char *name, size_t size)
{
    char path[512];
    size_t length = strlen(name);
    for (int i = 2; i < 100; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s.txt", directory, name);
        if (access(path, F_OK) < 0)
            return;
        (void)snprintf(name + length, size - length, "-%d", i);
    }
}

/* The parts' own words come after the table, in the order in which they ran. */
static void
print_report(struct run *run, const struct facts *facts, const struct table_row *rows, size_t count)
{
    if (facts->connection)
        ask_print_facts(facts->connection);
    else
        bench_print_facts(NULL, NULL);
    if (run->is_brief)
        printf("# brief: no figure below means anything\n");
    printf("# %u of %d parts failed\n\n", run->failed, PART_COUNT);
    table_print(stdout, rows, count);
    service_print_stages(stdout, run->figures, rows, count);
    copy_all(run->copy);
}

/* The same text to a file: through descriptor 1, which all of our printing goes to. */
static int save_report(struct run *run,
                       const struct facts *facts,
                       const struct table_row *rows,
                       size_t count,
                       const char *directory)
{
    char name[160];
    name_of(facts, name, sizeof(name));
    make_unused(directory, name, sizeof(name));
    FILE *text = create(directory, name, "txt");
    int console = text ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0) : -1;
    if (console < 0 || dup2(fileno(text), STDOUT_FILENO) < 0)
        return 1;
    print_report(run, facts, rows, count);
    (void)dup2(console, STDOUT_FILENO);
    (void)close(console);
    return fclose(text) != 0 || write_csv(directory, name, rows, count);
}

static int report(struct run *run, const char *output)
{
    struct table_row rows[SERVICE_ROWS_MAX];
    struct facts facts;
    gather(run, &facts);
    size_t count = service_rows(run->figures, rows);
    private_daemon_print_warnings(&run->daemon, run->copy);
    print_report(run, &facts, rows, count);
    int r = output ? save_report(run, &facts, rows, count, output) : 0;
    gemmd_close(facts.connection);
    return r || run->failed > 0;
}

int bench_service(int argc, char **argv)
{
    static struct run run;
    char why[200] = "";
    if (!bench_options_are_known(argc, argv, OPTIONS))
        return EXIT_USAGE;
    run.is_brief = bench_flag(argc, argv, "--brief");
    run.peer_device = bench_option(argc, argv, "--peer-device", "cuda");
    run.end = bench_now() + TOTAL_SECONDS;
    run.copy = tmpfile();
    if (!run.copy)
        return 1;
    (void)signal(SIGINT, interrupt);
    (void)signal(SIGTERM, interrupt);
    if (private_daemon_start(&run.daemon, bench_option(argc, argv, "--daemon", NULL),
                             bench_option(argc, argv, "--device", "auto"))) {
        private_daemon_stop(&run.daemon);
        return 1;
    }
    run.has_mps = mps_start(&run.mps, why);
    if (!run.has_mps)
        fprintf(run.copy, "# no MPS: %s\n", why);
    for (enum service_part part = 0; part < PART_COUNT; part++)
        run_part(&run, part);
    int r = report(&run, bench_option(argc, argv, "--output", NULL));
    if (run.has_mps)
        mps_stop(&run.mps);
    private_daemon_stop(&run.daemon);
    (void)fclose(run.copy);
    return r;
}
