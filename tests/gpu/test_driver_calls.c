/*
 * Keeps the two lists of driver.h true: each call is made beside a grid that fills the device, in a
 * process of its own, and must come back, or must not, within two seconds. A driver update may
 * change either; the lists then follow the driver.
 */
#include "calls.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANG_SECONDS  2.0
#define SETUP_SECONDS 30.0

enum step {
    STEP_SETUP,
    STEP_CALLING,
    STEP_RETURNED,
    STEP_FAILED,
};

/* What parent and children share. */
struct page {
    volatile enum step step;
    CUresult result;
    double seconds;
    struct fault fault;
    volatile bool has_handle;
    CUipcMemHandle ipc;
    struct spin_cubin cubin;
};

static struct page *page;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* --- children -------------------------------------------------------------------------------- */

static void child_compile(const struct call *call)
{
    (void)call;
    page->step = spin_compile(&page->cubin, &page->fault) ? STEP_FAILED : STEP_RETURNED;
}

/* Lends memory to the child that opens it by its legacy handle, until it is killed. */
static void child_export(const struct call *call)
{
    static struct spin spin;
    (void)call;
    if (spin_prepare(&spin, &page->cubin, &page->fault) == 0)
        page->has_handle = SPIN_CALL(&spin, IpcGetMemHandle)(&page->ipc, spin.memory) == 0;
    page->step = page->has_handle ? STEP_RETURNED : STEP_FAILED;
    for (;;)
        pause();
}

static void child_call(const struct call *call)
{
    static struct spin spin;
    if (spin_prepare(&spin, &page->cubin, &page->fault)) {
        page->step = STEP_FAILED;
        return;
    }
    spin.ipc = page->ipc;
    if (!spin_start(&spin)) {
        fault_set(&page->fault, STATUS_INTERNAL, "", "the grid did not start");
        page->step = STEP_FAILED;
        return;
    }
    double start = now();
    page->step = STEP_CALLING;
    page->result = call->make(&spin);
    page->seconds = now() - start;
    page->step = STEP_RETURNED;
    spin_stop(&spin);
}

static pid_t start(void (*body)(const struct call *call), const struct call *call)
{
    page->step = STEP_SETUP;
    page->fault = FAULT_NONE;
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        body(call);
        _exit(0); /* no exit handlers: some of them would wait for the grid */
    }
    return pid;
}

/* The step it stands at when it ends, or when its time is over. */
static enum step watch(pid_t pid, double setup_seconds, double call_seconds)
{
    double limit = now() + setup_seconds;
    bool is_calling = false;
    siginfo_t info = {0};
    while (page->step < STEP_RETURNED && now() < limit) {
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return page->step < STEP_RETURNED ? STEP_FAILED : page->step; /* it crashed */
        if (page->step == STEP_CALLING && !is_calling) {
            is_calling = true;
            limit = now() + call_seconds;
        }
        pause_ms(1);
    }
    return page->step;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void compile(void)
{
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(page, MAP_FAILED);
    pid_t pid = start(child_compile, NULL);
    enum step step = watch(pid, SETUP_SECONDS, 0);
    end(pid);
    cr_assert_eq(step, STEP_RETURNED, "no GPU to test on: %s", page->fault.message);
}

static bool check(const struct call *call)
{
    static const char *const words[] = {"works", "hangs", "either"};
    pid_t pid = start(child_call, call);
    enum step step = watch(pid, SETUP_SECONDS, HANG_SECONDS);
    if (step == STEP_RETURNED)
        pause_ms(20); /* let the grid leave by itself */
    end(pid);

    bool hangs = step == STEP_CALLING;
    bool works = step == STEP_RETURNED && page->result == CUDA_SUCCESS;
    bool is_right = call->expected == EITHER  ? hangs || works
                    : call->expected == HANGS ? hangs
                                              : works;
    fprintf(stderr, "%s %-7s expected %-7s %9.1f us result %3d %s %s\n", is_right ? "  " : "! ",
            hangs   ? "hangs"
            : works ? "works"
                    : "fails",
            words[call->expected], hangs ? HANG_SECONDS * 1e6 : page->seconds * 1e6,
            hangs ? 0 : (int)page->result, call->names, page->fault.message);
    return is_right;
}

Test(driver_calls, each_stands_in_the_right_list, .timeout = 600)
{
    const char *only = getenv("GEMMD_TEST_CALLS"); /* those whose names contain it */
    unsigned wrong = 0;
    compile();
    pid_t exporter = start(child_export, NULL);
    enum step step = watch(exporter, SETUP_SECONDS, 0);
    cr_expect_eq(step, STEP_RETURNED, "no memory to lend: %s", page->fault.message);
    for (size_t i = 0; i < calls_count; i++)
        wrong += (!only || strstr(calls[i].names, only)) && !check(&calls[i]);
    end(exporter);
    cr_expect_eq(wrong, 0, "%u calls are in the wrong list, see above", wrong);
}

static bool is_named(const struct call *call, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = call->names; (at = strstr(at, name)); at += length) {
        if (at[length] == ' ' || at[length] == 0)
            return true;
    }
    return false;
}

static const struct call *find(const char *name)
{
    for (size_t i = 0; i < calls_count; i++) {
        if (is_named(&calls[i], name))
            return &calls[i];
    }
    return NULL;
}

Test(driver_calls, each_is_measured)
{
#define IS_FIRST(name)                                                                             \
    cr_expect(find("cu" #name) && find("cu" #name)->expected == WORKS, "cu" #name);
#define IS_SECOND(name)                                                                            \
    cr_expect(find("cu" #name) && find("cu" #name)->expected != WORKS, "cu" #name);
    DRIVER_CALLS(IS_FIRST)
    DRIVER_PARKED_CALLS(IS_SECOND)
}
