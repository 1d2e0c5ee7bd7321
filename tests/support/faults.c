#include "faults.h"

#include "../../daemon/jit/sources.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where a kernel begins a job, and what is put before it. */
#define JOB_FEED "sched/job_feed.cuh"
#define OPENING  "    DEVICE void open()\n    {\n"
#define CALL     "        fault_if_asked(job());\n"

static const char fault_text[] =
    "/* Of a test: see tests/support/faults.h. */\n"
    "DEVICE void fault_if_asked(const gemmd_job &job)\n"
    "{\n"
    "    int fault = (int)(job.alpha - %.1f);\n"
    "\n"
    "    if (job.alpha != (double)fault + %.1f)\n"
    "        return;\n"
    "    if (fault == %d)\n"
    "        *(volatile u32 *)16 = 1;\n"
    "    if (fault == %d)\n"
    "        *(volatile u64 *)(job.d + 1) = 1;\n"
    "    if (fault == %d)\n"
    "        __trap();\n"
    "    if (fault == %d) {\n"
    "        for (long long start = clock64(); clock64() - start < %d * 1500000000ll;)\n"
    "            ;\n"
    "    }\n"
    "}\n"
    "\n";

const char *test_fault_name(enum test_fault fault)
{
    static const char *const names[TEST_FAULT_COUNT] = {"address", "misaligned", "trap", "endless"};

    return names[fault];
}

static FILE *open_for(const char *directory, const char *name)
{
    char path[512];

    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(path, sizeof(path), "%s/%.*s", directory, (int)(slash - name), name);
        (void)mkdir(path, 0755);
    }
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return fopen(path, "we");
}

static void write_fault(FILE *file)
{
    (void)fprintf(file, fault_text, TEST_FAULT_ALPHA, TEST_FAULT_ALPHA, TEST_FAULT_ADDRESS,
                  TEST_FAULT_MISALIGNED, TEST_FAULT_TRAP, TEST_FAULT_ENDLESS, TEST_FAULT_SECONDS);
}

/* The file with the function before its struct, and the call first in open(). */
static bool write_job_feed(FILE *file, const char *text)
{
    const char *type = strstr(text, "struct job_feed {");
    const char *opening = type ? strstr(type, OPENING) : NULL;
    const char *rest;

    if (!opening)
        return false;
    rest = opening + strlen(OPENING);
    (void)fwrite(text, 1, (size_t)(type - text), file);
    write_fault(file);
    (void)fwrite(type, 1, (size_t)(rest - type), file);
    /* After its declarations: C++ does not mind. */
    (void)fputs(CALL, file);
    (void)fputs(rest, file);
    return true;
}

static bool write_file(const char *directory, const struct source_file *source, bool *feed)
{
    FILE *file = open_for(directory, source->name);
    bool is_right = true;

    if (!file)
        return false;
    if (strcmp(source->name, JOB_FEED) == 0)
        is_right = *feed = write_job_feed(file, source->text);
    else
        (void)fwrite(source->text, 1, source->size, file);
    return fclose(file) == 0 && is_right;
}

bool faulty_kernels_write(const char *directory)
{
    struct sources sources = SOURCES_NULL;
    bool is_right = sources_open(&sources, NULL) == 0, feed = false;

    for (size_t i = 0; i < sources.count && is_right; i++)
        is_right = write_file(directory, &sources.files[i], &feed);
    sources_deinit(&sources);
    return is_right && feed;
}

/* Asked by a child: the library's threads stay for as long as the process does, and a process with
 * threads should not fork. */
bool faulty_blas_is_possible(void)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0)
        _exit(dlopen("libopenblas.so.0", RTLD_NOW) ? 0 : 1);
    (void)waitpid(child, &status, 0);
    return status == 0;
}

void faulty_blas_choose(const char *once)
{
    const char *given = getenv("ASAN_OPTIONS");
    char options[512];

    /* Dying is the point: no report, and the exit by the signal. */
    (void)snprintf(options, sizeof(options), "%s%shandle_segv=0:handle_sigbus=0:handle_abort=0",
                   given ? given : "", given ? ":" : "");
    (void)setenv("ASAN_OPTIONS", options, 1);
    (void)setenv("GEMMD_BLAS", FAULTY_BLAS, 1);
    if (once)
        (void)setenv("FAULTY_BLAS_ONCE", once, 1);
}
