#include "crew.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CREW_END        UINT32_MAX
#define LOOK_SECONDS    0.05 /* between two looks at whether a member has died */
#define END_SECONDS     5.0
#define ARGUMENTS_MAX   40
#define PARENT_PATIENCE 60.0 /* beyond a round's own time */

static void futex_wait(const uint32_t *word, uint32_t seen, double seconds)
{
    struct timespec timeout = {.tv_sec = (time_t)seconds,
                               .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, seconds > 0 ? &timeout : NULL, NULL, 0);
}

static void futex_wake(const uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store_and_wake(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    futex_wake(word);
}

/* --- the parent ------------------------------------------------------------------------------ */

int crew_init(struct crew *crew)
{
    *crew = CREW_NULL;
    crew->fd = memfd_create("crew", MFD_CLOEXEC);
    if (crew->fd < 0 || ftruncate(crew->fd, sizeof(struct crew_page)) < 0)
        return -errno;
    void *page =
        mmap(NULL, sizeof(struct crew_page), PROT_READ | PROT_WRITE, MAP_SHARED, crew->fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    crew->page = page;
    return 0;
}

static void
become_member(const struct crew *crew, const char *const *argv, char *const *environment)
{
    const char *arguments[ARGUMENTS_MAX];
    char number[24];
    size_t count = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (; environment && *environment; environment++)
        (void)putenv(*environment); /* glibc: a name without a value is taken out */
    while (argv[count] && count + 3 < ARGUMENTS_MAX) {
        arguments[count] = argv[count];
        count++;
    }
    (void)snprintf(number, sizeof(number), "%zu", crew->count);
    arguments[count++] = "--member";
    arguments[count++] = number;
    arguments[count] = NULL;
    /* dup2() onto itself would keep close-on-exec */
    int copy = dup(crew->fd);
    if (copy >= 0 && dup2(copy, CREW_FD) == CREW_FD)
        (void)execv("/proc/self/exe", (char *const *)arguments);
    _exit(127);
}

int crew_add(struct crew *crew, const char *const *argv, char *const *environment)
{
    if (crew->count == CREW_MAX)
        return -E2BIG;
    crew->page->members[crew->count].spawned = bench_now();
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        become_member(crew, argv, environment);
    crew->pids[crew->count++] = pid;
    return 0;
}

/* Whether one ended before its time. */
static bool has_lost_one(struct crew *crew)
{
    bool is_lost = false;
    for (size_t i = 0; i < crew->count; i++) {
        if (crew->pids[i] == 0 || waitpid(crew->pids[i], NULL, WNOHANG) == crew->pids[i]) {
            crew->pids[i] = 0;
            is_lost = true;
        }
    }
    if (is_lost && crew->page->why[0] == '\0')
        (void)snprintf(crew->page->why, CREW_WHY, "a process of the crew ended");
    return is_lost;
}

bool crew_await(struct crew *crew, double timeout)
{
    double end = bench_now() + timeout;
    for (;;) {
        uint32_t arrived = load(&crew->page->arrived);
        if (load(&crew->page->failed) != 0)
            return false;
        if (arrived == crew->count)
            return true;
        if (has_lost_one(crew))
            return false;
        if (bench_now() > end) {
            (void)snprintf(crew->page->why, CREW_WHY, "%u of %zu processes after %.0f s", arrived,
                           crew->count, timeout);
            return false;
        }
        futex_wait(&crew->page->arrived, arrived, LOOK_SECONDS);
    }
}

bool crew_round(struct crew *crew, double seconds, uint64_t members)
{
    for (size_t i = 0; i < crew->count; i++)
        crew->page->members[i].seconds = members >> i & 1 ? seconds : 0;
    __atomic_store_n(&crew->page->arrived, 0, __ATOMIC_RELEASE);
    store_and_wake(&crew->page->round, load(&crew->page->round) + 1);
    return crew_await(crew, seconds + PARENT_PATIENCE);
}

static void end_members(struct crew *crew)
{
    double end = bench_now() + END_SECONDS;
    store_and_wake(&crew->page->round, CREW_END);
    store_and_wake(&crew->page->choice, CREW_END);
    for (size_t i = 0; i < crew->count; i++) {
        while (crew->pids[i] > 0 && waitpid(crew->pids[i], NULL, WNOHANG) == 0) {
            if (bench_now() > end)
                (void)kill(crew->pids[i], SIGKILL);
            (void)usleep(1000);
        }
        crew->pids[i] = 0;
    }
}

void crew_deinit(struct crew *crew)
{
    if (crew->page) {
        end_members(crew);
        (void)munmap(crew->page, sizeof(struct crew_page));
    }
    fd_closep(&crew->fd);
    *crew = CREW_NULL;
}

/* --- a member -------------------------------------------------------------------------------- */

struct crew_page *crew_join(void)
{
    void *page =
        mmap(NULL, sizeof(struct crew_page), PROT_READ | PROT_WRITE, MAP_SHARED, CREW_FD, 0);
    return page == MAP_FAILED ? NULL : page;
}

double crew_wait(struct crew_page *page, size_t member)
{
    uint32_t round = load(&page->round), now = round;
    while (round != CREW_END) {
        (void)__atomic_add_fetch(&page->arrived, 1, __ATOMIC_ACQ_REL);
        futex_wake(&page->arrived);
        while ((now = load(&page->round)) == round)
            futex_wait(&page->round, round, 0);
        if (now != CREW_END && page->members[member].seconds > 0)
            return page->members[member].seconds;
        round = now;
    }
    return 0;
}

void crew_decide(struct crew_page *page, uint32_t choice)
{
    store_and_wake(&page->choice, choice);
}

uint32_t crew_decision(struct crew_page *page)
{
    while (load(&page->choice) == 0)
        futex_wait(&page->choice, 0, 0);
    return load(&page->choice);
}

int crew_fail(struct crew_page *page, const char *format, ...)
{
    va_list arguments;
    if (__atomic_exchange_n(&page->failed, 1, __ATOMIC_ACQ_REL) == 0) {
        va_start(arguments, format);
        (void)vsnprintf(page->why, CREW_WHY, format, arguments);
        va_end(arguments);
    }
    futex_wake(&page->arrived);
    return 1;
}
