/*
 * Which directory the cache takes, and what it does when that is no good.
 */
#include "cache_fixture.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#define NOBODY 65534

static unsigned warnings_in_log(const struct scratch *scratch)
{
    FILE *file = fopen(scratch_path(scratch, "log").text, "r");
    char line[2048];
    unsigned count = 0;

    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, "cache=memory") != NULL;
    (void)fclose(file);
    return count;
}

/* --- where ----------------------------------------------------------------------------------- */

static void check_directory(const char *expected)
{
    cleanup(cache_freep) struct cache *cache = open_cache(NULL);

    cr_assert_str_eq(statistics_of(cache).directory, expected);
    cr_assert(!statistics_of(cache).is_memory_only);
}

Test(cache_disk, finds_its_directory_by_the_rules)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct scratch_path a = scratch_path(&scratch, "a"), b = scratch_path(&scratch, "b"),
                        c = scratch_path(&scratch, "c"), both = a;

    (void)snprintf(both.text + strlen(both.text), 32, ":/other");
    set_environment(a.text, b.text, c.text);
    check_directory(a.text);
    set_environment(both.text, b.text, c.text);
    check_directory(a.text);
    set_environment(NULL, b.text, c.text);
    check_directory(scratch_path(&scratch, "b/gemmd").text);
    set_environment(NULL, NULL, c.text);
    check_directory(scratch_path(&scratch, "c/.cache/gemmd").text);
    set_environment("relative", "relative", c.text);
    check_directory(scratch_path(&scratch, "c/.cache/gemmd").text);
}

/* What holds without a disk: everything but what outlives the process. */
static void check_memory_only(struct cache *cache, const char *reason)
{
    struct key key = key_number(1);
    int flight = -1;

    cr_assert(statistics_of(cache).is_memory_only);
    cr_assert_not_null(strstr(statistics_of(cache).reason, reason), "%s",
                       statistics_of(cache).reason);
    cr_assert_str_empty(statistics_of(cache).directory);
    cr_assert_geq(statistics_of(cache).failures, 1);
    put_number(cache, 1, 1000);
    cr_assert(get_number(cache, 1, 1000));
    cr_assert_eq(statistics_of(cache).entries, 1);
    cr_assert_eq(statistics_of(cache).bytes, 1000);
    cr_assert_eq(cache_flight_begin(cache, &key, &flight), 0);
    cache_flight_end(cache, flight);
}

Test(cache_disk, lives_in_memory_when_no_directory_is_named)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = NULL;

    cr_assert_eq(chdir(scratch.path), 0);
    set_environment(NULL, "", "relative");
    cache = open_cache(NULL);
    check_memory_only(cache, "HOME");
    cr_assert_eq(rmdir(scratch.path), 0, "nothing is ever put into the working directory");
}

Test(cache_disk, lives_in_memory_when_the_path_is_too_long)
{
    char path[1024];
    cleanup(cache_freep) struct cache *cache = NULL;

    memset(path, 'x', sizeof(path));
    memcpy(path, "/tmp/", 5);
    path[sizeof(path) - 1] = '\0';
    cache = open_cache(path);
    check_memory_only(cache, "over 255 bytes");
}

Test(cache_disk, lives_in_memory_when_the_directory_is_a_file)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = NULL;

    scratch_write_text(&scratch, "file", "");
    cache = open_cache(scratch_path(&scratch, "file").text);
    check_memory_only(cache, "Not a directory");
}

Test(cache_disk, trusts_no_directory_of_somebody_else)
{
    cleanup(cache_freep) struct cache *cache = NULL;

    if (geteuid() == 0)
        cr_assert_eq(seteuid(NOBODY), 0);
    cache = open_cache("/usr"); /* root's, on every machine */
    check_memory_only(cache, "owned by uid 0");
}

Test(cache_disk, trusts_no_directory_that_others_can_write)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = NULL;

    cr_assert_eq(chmod(scratch.path, 0770), 0);
    cache = open_cache(scratch.path);
    check_memory_only(cache, "mode 0770");
}

/* --- disks that fail ------------------------------------------------------------------------- */

/* Puts fail, cubins are served all the same, and there is one warning. */
static void check_failing_disk(struct cache *cache, const struct scratch *log)
{
    uint64_t failures;

    put_number(cache, 1, 100000);
    failures = statistics_of(cache).failures;
    cr_assert_geq(failures, 1);
    put_number(cache, 2, 100000);
    cr_assert_gt(statistics_of(cache).failures, failures);
    cr_assert(get_number(cache, 1, 100000));
    cr_assert(get_number(cache, 2, 100000));
    cr_assert_eq(warnings_in_log(log), 1);
}

Test(cache_disk, reads_a_read_only_directory_and_warns_once)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    struct cache *cache;

    if (geteuid() == 0) { /* root writes everywhere */
        cr_assert_eq(chown(scratch.path, NOBODY, (gid_t)-1), 0);
        cr_assert_eq(seteuid(NOBODY), 0);
    }
    cache = open_cache(scratch.path);
    put_number(cache, 7, 1000);
    cache = cache_free(cache);
    cr_assert_eq(chmod(scratch.path, 0500), 0);
    if (geteuid() == NOBODY)
        cr_assert_eq(seteuid(0), 0);
    redirect_log(&log);
    if (geteuid() == 0)
        cr_assert_eq(seteuid(NOBODY), 0);

    cache = open_cache(scratch.path);
    cr_assert(!statistics_of(cache).is_memory_only);
    cr_assert(get_number(cache, 7, 1000), "what is there is served");
    check_failing_disk(cache, &log);
    cache_free(cache);
    cr_assert_eq(chmod(scratch.path, 0700), 0);
    if (getuid() == 0)
        cr_assert_eq(seteuid(0), 0);
}

Test(cache_disk, goes_on_in_memory_when_the_disk_is_full)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    struct cache *cache;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", scratch.path, "tmpfs", 0, "size=64k,mode=0700") < 0)
        cr_skip_test("needs the right to mount");
    redirect_log(&log);
    cache = open_cache(scratch.path);
    check_failing_disk(cache, &log);
    cr_assert_not_null(strstr(statistics_of(cache).reason, "No space left"));
    put_number(cache, 3, 1000);
    cr_assert_eq(statistics_of(cache).stores, 1, "nothing of the failed ones is left behind");
    cache_free(cache);
    cr_assert_eq(umount(scratch.path), 0);
}

Test(cache_disk, goes_on_in_memory_at_a_file_size_limit)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    struct rlimit limit = {.rlim_cur = 50000, .rlim_max = RLIM_INFINITY};
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);

    redirect_log(&log);
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &(struct rlimit){0}), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_failing_disk(cache, &log);
}

Test(cache_disk, goes_on_when_its_directory_is_taken_away)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    struct scratch_path path = scratch_path(&scratch, "cache");
    cleanup(cache_freep) struct cache *cache = open_cache(path.text);

    cr_assert_eq(rmdir(path.text), 0);
    redirect_log(&log);
    check_failing_disk(cache, &log);
}
