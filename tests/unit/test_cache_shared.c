/*
 * The bound on the cache's size, and several processes and threads on one directory.
 */
#include "../../daemon/jit/cubin_file.h"
#include "cache_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* --- size ------------------------------------------------------------------------------------ */

Test(cache_shared, keeps_what_was_used_last_within_its_size)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct cache *cache = NULL;

    cr_assert_eq(cache_new(&cache, scratch.path, 5 * 10000), 0);
    for (unsigned i = 0; i < 4; i++) {
        put_number(cache, i, 10000);
        set_last_use(&scratch, i, 1000 + i);
    }
    cache = cache_free(cache); /* so that the use below goes to the disk */
    cr_assert_eq(cache_new(&cache, scratch.path, 5 * 10000), 0);
    cr_assert(get_number(cache, 0, 10000));
    put_number(cache, 4, 10000);
    put_number(cache, 5, 10000);
    cr_assert_leq(statistics_of(cache).bytes, 5 * 10000);
    cr_assert_eq(statistics_of(cache).entries, 4);
    cr_assert_eq(statistics_of(cache).removed_old, 2);
    cr_assert_eq(access(entry_path(&scratch, 0).text, F_OK), 0, "used, although the oldest");
    cr_assert_eq(access(entry_path(&scratch, 1).text, F_OK), -1);
    cr_assert_eq(access(entry_path(&scratch, 5).text, F_OK), 0);
    cache_free(cache);
}

Test(cache_shared, prune_counts_what_it_removes_everywhere)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *disk = open_cache(scratch.path), *memory = NULL;
    uint64_t removed = 0;

    set_environment(NULL, NULL, NULL);
    memory = open_cache(NULL);
    for (unsigned i = 0; i < 3; i++) {
        put_number(disk, i, 1000);
        put_number(memory, i, 1000);
    }
    cr_assert_eq(cache_prune(disk, 0, &removed), 0);
    cr_assert_eq(removed, 3);
    cr_assert(!get_number(disk, 2, 1000));
    cr_assert_eq(cache_prune(memory, 2000, &removed), 0);
    cr_assert_eq(removed, 1);
    cr_assert(get_number(memory, 2, 1000));
    cr_assert(!get_number(memory, 0, 1000));
}

Test(cache_shared, memory_is_bounded_without_a_disk)
{
    cleanup(cache_freep) struct cache *cache = NULL;

    set_environment(NULL, NULL, NULL);
    cr_assert_eq(cache_new(&cache, NULL, 10000), 0);
    for (unsigned i = 0; i < 100; i++)
        put_number(cache, i, 1000);
    cr_assert_eq(statistics_of(cache).bytes, 10000);
    cr_assert(get_number(cache, 99, 1000));
}

Test(cache_shared, refuses_what_is_no_kernel_of_ours)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);

    redirect_log(&log);
    put_number(cache, 1, CUBIN_BYTES_MAX + 1);
    put_number(cache, 2, 0);
    cr_assert_eq(statistics_of(cache).entries, 0);
    cr_assert_eq(statistics_of(cache).failures, 2);
}

/* --- several processes ----------------------------------------------------------------------- */

Test(cache_shared, one_flight_per_key_between_caches)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *a = open_cache(scratch.path), *b = open_cache(scratch.path);
    struct key key = key_number(1), other = key_number(2);
    int flight = -1, second = -1;

    cr_assert_eq(cache_flight_begin(a, &key, &flight), 0);
    cr_assert_eq(cache_flight_begin(b, &key, &second), CACHE_E_BUSY);
    cr_assert_eq(cache_flight_begin(a, &key, &second), CACHE_E_BUSY);
    cr_assert_eq(cache_flight_begin(b, &other, &second), 0, "other keys are free");
    cache_flight_end(b, second);
    cache_flight_end(a, flight);
    cr_assert_eq(cache_flight_begin(b, &key, &flight), 0);
    cache_flight_end(b, flight);
}

Test(cache_shared, the_flight_of_a_killed_process_is_over)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);
    struct key key = key_number(1);
    int status, flight = -1, ready[2];
    char byte;
    pid_t child;

    cr_assert_eq(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        if (cache_flight_begin(cache, &key, &flight) == 0 && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert_eq(cache_flight_begin(cache, &key, &flight), CACHE_E_BUSY);
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(cache_flight_begin(cache, &key, &flight), 0);
    cache_flight_end(cache, flight);
}

static void put_until_killed(const char *directory)
{
    struct cache *cache = open_cache(directory);

    for (unsigned i = 0;; i = (i + 1) % 8)
        put_number(cache, i, 300000);
}

static unsigned temporaries(const struct scratch *scratch)
{
    char command[512];
    unsigned count = 0;
    FILE *pipe;

    (void)snprintf(command, sizeof(command), "ls -A %s | grep -c '^.new-'", scratch->path);
    pipe = popen(command, "r");
    cr_assert_eq(fscanf(pipe, "%u", &count), 1);
    (void)pclose(pipe);
    return count;
}

Test(cache_shared, is_whole_after_a_kill_in_the_middle_of_a_put)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct cache *cache;
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

    for (unsigned round = 0; round < 12; round++) {
        struct timespec wait = {.tv_nsec = 3000000 + round * 1700000};
        pid_t child = fork();
        struct seen seen;
        int status;

        if (child == 0)
            put_until_killed(scratch.path);
        (void)nanosleep(&wait, NULL);
        cr_assert_eq(kill(child, SIGKILL), 0);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cache = open_cache(scratch.path);
        seen = list(cache, true);
        cr_assert_eq(seen.damaged, 0);
        cache_free(cache);
    }
    scratch_write_text(&scratch, ".new-0123456789abcdef", "half an entry");
    cr_assert_geq(temporaries(&scratch), 1);
    cr_assert_eq(utimensat(AT_FDCWD, scratch_path(&scratch, ".new-0123456789abcdef").text, old, 0),
                 0);
    cache = open_cache(scratch.path);
    cr_assert_eq(access(scratch_path(&scratch, ".new-0123456789abcdef").text, F_OK), -1,
                 "what a dead process left is removed");
    cache_free(cache);
}

static void *work(void *context)
{
    struct cache *cache = context;
    uint64_t removed;

    for (unsigned i = 0; i < 40; i++) {
        put_number(cache, i % 5, 2000);
        (void)get_number(cache, (i + 2) % 5, 2000);
        if (i % 8 == 0)
            (void)cache_prune(cache, 4000, &removed);
    }
    return NULL;
}

Test(cache_shared, serves_several_threads_and_caches_at_once)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *a = open_cache(scratch.path), *b = open_cache(scratch.path);
    pthread_t threads[4];

    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, work, i % 2 ? a : b), 0);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    cr_assert_eq(list(a, true).damaged, 0);
    cr_assert_eq(statistics_of(a).failures + statistics_of(b).failures, 0);
}
