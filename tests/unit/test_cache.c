#include "../../daemon/jit/cache.h"
#include "../../daemon/jit/cubin_file.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define NOBODY 65534

static void cache_freep(struct cache **cache)
{
    *cache = cache_free(*cache);
}

static struct cache *open_cache(const char *directory)
{
    struct cache *cache = NULL;

    cr_assert_eq(cache_new(&cache, directory, CACHE_BYTES_DEFAULT), 0);
    return cache;
}

static struct key key_number(unsigned number)
{
    struct key key = {.bytes = {0}};

    memcpy(key.bytes, &number, sizeof(number));
    key.bytes[15] = 0x5a;
    return key;
}

/* Its content follows from the number, so that a reader can tell a mixed-up entry. */
static struct cubin cubin_number(unsigned number, size_t size)
{
    struct cubin cubin = {
        .bytes = malloc(size),
        .size = size,
        .registers = number + 1,
        .shared_memory = number + 2,
        .spill_bytes = number + 3,
        .compile_seconds = number + 0.5,
    };

    (void)snprintf(cubin.configuration, sizeof(cubin.configuration), "configuration.%u", number);
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)cubin.bytes)[i] = (uint8_t)(number * 31 + i * 7);
    return cubin;
}

static void put_number(struct cache *cache, unsigned number, size_t size)
{
    cleanup(cubin_deinit) struct cubin cubin = cubin_number(number, size);
    struct key key = key_number(number);

    cache_put(cache, &key, &cubin);
}

static bool get_number(struct cache *cache, unsigned number, size_t size)
{
    cleanup(cubin_deinit) struct cubin wanted = cubin_number(number, size), got = CUBIN_NULL;
    struct key key = key_number(number);
    int r = cache_get(cache, &key, &got);

    cr_assert(r == 0 || r == CACHE_E_MISS);
    if (r == CACHE_E_MISS)
        return false;
    cr_assert_eq(got.size, size);
    cr_assert_eq(memcmp(got.bytes, wanted.bytes, size), 0);
    cr_assert_eq(got.registers, wanted.registers);
    cr_assert_eq(got.shared_memory, wanted.shared_memory);
    cr_assert_eq(got.spill_bytes, wanted.spill_bytes);
    cr_assert_eq(got.compile_seconds, wanted.compile_seconds);
    cr_assert_str_eq(got.configuration, wanted.configuration);
    return true;
}

static struct scratch_path entry_path(const struct scratch *scratch, unsigned number)
{
    struct key key = key_number(number);
    char text[KEY_TEXT_SIZE], name[KEY_TEXT_SIZE + 8];

    key_to_text(&key, text);
    (void)snprintf(name, sizeof(name), "%s.entry", text);
    return scratch_path(scratch, name);
}

static struct cache_statistics statistics_of(struct cache *cache)
{
    struct cache_statistics statistics;

    cache_statistics(cache, &statistics);
    return statistics;
}

/* Stderr into a file, to count warnings. */
static void redirect_log(const struct scratch *scratch)
{
    int fd = open(scratch_path(scratch, "log").text, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    cr_assert_geq(fd, 0);
    cr_assert_eq(chmod(scratch->path, 0755), 0); /* the reader may have changed its uid */
    cr_assert_geq(dup2(fd, STDERR_FILENO), 0);
    (void)close(fd);
}

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

/* --- keeping --------------------------------------------------------------------------------- */

Test(cache, gives_back_what_was_put)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);

    cr_assert(!get_number(cache, 1, 1000));
    put_number(cache, 1, 1000);
    cr_assert(get_number(cache, 1, 1000));
    cr_assert_eq(statistics_of(cache).misses, 1);
    cr_assert_eq(statistics_of(cache).hits, 1);
    cr_assert_eq(statistics_of(cache).stores, 1);
    cr_assert_eq(statistics_of(cache).entries, 1);
}

Test(cache, outlives_the_process_that_wrote_it)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct cache *cache = open_cache(scratch.path);

    put_number(cache, 1, 200000);
    cache = cache_free(cache);
    cache = open_cache(scratch.path);
    cr_assert_eq(statistics_of(cache).entries, 1);
    cr_assert(get_number(cache, 1, 200000));
    cache_free(cache);
}

Test(cache, a_later_put_replaces_an_entry)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);

    put_number(cache, 1, 10);
    put_number(cache, 1, 20);
    cr_assert(get_number(cache, 1, 20));
    cr_assert_eq(statistics_of(cache).entries, 1);
}

Test(cache, other_users_see_nothing)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache =
        open_cache(scratch_path(&scratch, "made/by/cache").text);
    cleanup(cubin_deinit) struct cubin cubin = cubin_number(1, 10);
    struct scratch_path path;
    struct stat status;
    char text[KEY_TEXT_SIZE], name[128];
    struct key key = key_number(1);

    (void)umask(0);
    cache_put(cache, &key, &cubin);
    key_to_text(&key, text);
    (void)snprintf(name, sizeof(name), "made/by/cache/%s.entry", text);
    path = scratch_path(&scratch, name);
    cr_assert_eq(stat(path.text, &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0600);
    cr_assert_eq(stat(scratch_path(&scratch, "made/by/cache").text, &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0700);
    cr_assert_eq(stat(scratch_path(&scratch, "made").text, &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0700);
}

/* --- damage ---------------------------------------------------------------------------------- */

typedef void (*damage_fn)(const char *path);

static void truncate_to(const char *path, off_t size)
{
    cr_assert_eq(truncate(path, size), 0);
}

static void cut_to_nothing(const char *path)
{
    truncate_to(path, 0);
}

static void cut_inside_header(const char *path)
{
    truncate_to(path, sizeof(struct cubin_file_header) / 2);
}

static void cut_after_header(const char *path)
{
    truncate_to(path, sizeof(struct cubin_file_header));
}

static void cut_last_byte(const char *path)
{
    struct stat status;

    cr_assert_eq(stat(path, &status), 0);
    truncate_to(path, status.st_size - 1);
}

static void append_zeros(const char *path)
{
    struct stat status;

    cr_assert_eq(stat(path, &status), 0);
    truncate_to(path, status.st_size + 8);
}

static void grow_beyond_limit(const char *path)
{
    truncate_to(path, (off_t)CUBIN_BYTES_MAX * 2);
}

static void replace_by_link(const char *path)
{
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("/etc/passwd", path), 0);
}

static void replace_by_fifo(const char *path)
{
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
}

static void check_damage(damage_fn damage)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct scratch_path path = entry_path(&scratch, 1);
    struct cache *cache = open_cache(scratch.path);
    struct stat status;

    put_number(cache, 1, 1000);
    cache = cache_free(cache);
    damage(path.text);

    cache = open_cache(scratch.path);
    cr_assert(!get_number(cache, 1, 1000));
    cr_assert_eq(lstat(path.text, &status), -1, "a damaged entry is removed");
    cr_assert_eq(statistics_of(cache).removed_damaged, 1);
    cr_assert_eq(statistics_of(cache).entries, 0);
    put_number(cache, 1, 1000);
    cache = cache_free(cache);
    cache = open_cache(scratch.path);
    cr_assert(get_number(cache, 1, 1000), "and can be put again");
    cache_free(cache);
}

Test(cache, an_entry_that_does_not_verify_is_a_miss_and_is_removed)
{
    static const damage_fn damages[] = {
        cut_to_nothing, cut_inside_header, cut_after_header, cut_last_byte,
        append_zeros,   grow_beyond_limit, replace_by_link,  replace_by_fifo,
    };

    for (size_t i = 0; i < ARRAY_SIZE(damages); i++)
        check_damage(damages[i]);
}

Test(cache, every_flipped_bit_is_noticed)
{
    struct {
        struct cubin_file_header header;
        uint8_t payload[40];
    } file;

    cleanup(cubin_deinit) struct cubin cubin = cubin_number(1, sizeof(file.payload));
    struct key key = key_number(1);
    struct cubin got = CUBIN_NULL;

    cubin_file_header_init(&file.header, &key, &cubin);
    memcpy(file.payload, cubin.bytes, sizeof(file.payload));
    cr_assert_eq(cubin_file_decode(&file, sizeof(file), &key, &got), 0);
    cubin_deinit(&got);
    for (size_t bit = 0; bit < sizeof(file) * 8; bit++) {
        uint8_t *byte = (uint8_t *)&file + bit / 8;

        *byte ^= (uint8_t)(1u << (bit % 8));
        cr_assert_eq(cubin_file_decode(&file, sizeof(file), &key, &got), CUBIN_FILE_E_DAMAGED,
                     "bit %zu", bit);
        *byte ^= (uint8_t)(1u << (bit % 8));
    }
}

Test(cache, an_entry_under_a_foreign_key_is_damaged)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct cache *cache = open_cache(scratch.path);

    put_number(cache, 1, 1000); /* as for another architecture: all that tells them is the key */
    cr_assert_eq(rename(entry_path(&scratch, 1).text, entry_path(&scratch, 2).text), 0);
    cache = cache_free(cache);
    cache = open_cache(scratch.path);
    cr_assert(!get_number(cache, 2, 1000));
    cr_assert_eq(statistics_of(cache).removed_damaged, 1);
    cache_free(cache);
}

Test(cache, forgets_what_the_driver_refused)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);
    struct key key = key_number(1);

    put_number(cache, 1, 1000);
    cache_remove(cache, &key);
    cr_assert(!get_number(cache, 1, 1000));
    cr_assert_eq(statistics_of(cache).entries, 0);
    cr_assert_eq(access(entry_path(&scratch, 1).text, F_OK), -1);
}

/* --- where ----------------------------------------------------------------------------------- */

static void set_environment(const char *directory, const char *xdg, const char *home)
{
    static const char *const names[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};
    const char *values[] = {directory, xdg, home};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_eq(values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]), 0);
}

static void check_directory(const char *expected)
{
    cleanup(cache_freep) struct cache *cache = open_cache(NULL);

    cr_assert_str_eq(statistics_of(cache).directory, expected);
    cr_assert(!statistics_of(cache).is_memory_only);
}

Test(cache, finds_its_directory_by_the_rules)
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

Test(cache, lives_in_memory_when_no_directory_is_named)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = NULL;

    cr_assert_eq(chdir(scratch.path), 0);
    set_environment(NULL, "", "relative");
    cache = open_cache(NULL);
    check_memory_only(cache, "HOME");
    cr_assert_eq(rmdir(scratch.path), 0, "nothing is ever put into the working directory");
}

Test(cache, lives_in_memory_when_the_path_is_too_long)
{
    char path[1024];
    cleanup(cache_freep) struct cache *cache = NULL;

    memset(path, 'x', sizeof(path));
    memcpy(path, "/tmp/", 5);
    path[sizeof(path) - 1] = '\0';
    cache = open_cache(path);
    check_memory_only(cache, "over 255 bytes");
}

Test(cache, lives_in_memory_when_the_directory_is_a_file)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = NULL;

    scratch_write_text(&scratch, "file", "");
    cache = open_cache(scratch_path(&scratch, "file").text);
    check_memory_only(cache, "Not a directory");
}

Test(cache, trusts_no_directory_of_somebody_else)
{
    cleanup(cache_freep) struct cache *cache = NULL;

    if (geteuid() == 0)
        cr_assert_eq(seteuid(NOBODY), 0);
    cache = open_cache("/usr"); /* root's, on every machine */
    check_memory_only(cache, "owned by uid 0");
}

Test(cache, trusts_no_directory_that_others_can_write)
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

Test(cache, reads_a_read_only_directory_and_warns_once)
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

Test(cache, goes_on_in_memory_when_the_disk_is_full)
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

Test(cache, goes_on_in_memory_at_a_file_size_limit)
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

Test(cache, goes_on_when_its_directory_is_taken_away)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    struct scratch_path path = scratch_path(&scratch, "cache");
    cleanup(cache_freep) struct cache *cache = open_cache(path.text);

    cr_assert_eq(rmdir(path.text), 0);
    redirect_log(&log);
    check_failing_disk(cache, &log);
}

/* --- size ------------------------------------------------------------------------------------ */

static void set_last_use(const struct scratch *scratch, unsigned number, time_t seconds)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds}};

    cr_assert_eq(utimensat(AT_FDCWD, entry_path(scratch, number).text, times, 0), 0);
}

Test(cache, keeps_what_was_used_last_within_its_size)
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

Test(cache, prune_counts_what_it_removes_everywhere)
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

Test(cache, memory_is_bounded_without_a_disk)
{
    cleanup(cache_freep) struct cache *cache = NULL;

    set_environment(NULL, NULL, NULL);
    cr_assert_eq(cache_new(&cache, NULL, 10000), 0);
    for (unsigned i = 0; i < 100; i++)
        put_number(cache, i, 1000);
    cr_assert_eq(statistics_of(cache).bytes, 10000);
    cr_assert(get_number(cache, 99, 1000));
}

Test(cache, refuses_what_is_no_kernel_of_ours)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new(), log = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);

    redirect_log(&log);
    put_number(cache, 1, CUBIN_BYTES_MAX + 1);
    put_number(cache, 2, 0);
    cr_assert_eq(statistics_of(cache).entries, 0);
    cr_assert_eq(statistics_of(cache).failures, 2);
}

/* --- listing --------------------------------------------------------------------------------- */

struct seen {
    unsigned count, damaged;
    int64_t last_used;
    bool is_ordered;
};

static void see(const struct cache_entry *entry, bool is_damaged, void *context)
{
    struct seen *seen = context;

    seen->is_ordered &= seen->count == 0 || entry->last_used <= seen->last_used;
    seen->last_used = entry->last_used;
    seen->count++;
    seen->damaged += is_damaged;
    if (!is_damaged)
        cr_assert_eq(strncmp(entry->configuration, "configuration.", 14), 0);
}

static struct seen list(struct cache *cache, bool verify)
{
    struct seen seen = {.is_ordered = true};

    cr_assert_eq(cache_list(cache, verify, see, &seen), 0);
    cr_assert(seen.is_ordered);
    return seen;
}

Test(cache, lists_entries_and_removes_damaged_ones_when_asked)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);

    for (unsigned i = 0; i < 3; i++) {
        put_number(cache, i, 1000);
        set_last_use(&scratch, i, 1000 + (i * 7) % 3);
    }
    cr_assert_eq(list(cache, false).count, 3);
    cut_last_byte(entry_path(&scratch, 1).text);
    cr_assert_eq(list(cache, false).damaged, 1);
    cr_assert_eq(list(cache, true).damaged, 1);
    cr_assert_eq(list(cache, true).count, 2);
    cr_assert_eq(statistics_of(cache).removed_damaged, 1);
}

Test(cache, lists_what_is_in_memory)
{
    cleanup(cache_freep) struct cache *cache = NULL;

    set_environment(NULL, NULL, NULL);
    cache = open_cache(NULL);
    put_number(cache, 1, 10);
    put_number(cache, 2, 10);
    cr_assert_eq(list(cache, true).count, 2);
}

/* --- several processes ----------------------------------------------------------------------- */

Test(cache, one_flight_per_key_between_caches)
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

Test(cache, the_flight_of_a_killed_process_is_over)
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

Test(cache, is_whole_after_a_kill_in_the_middle_of_a_put)
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

Test(cache, serves_several_threads_and_caches_at_once)
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

/* --- the compiler last used ------------------------------------------------------------------ */

Test(cache, remembers_the_compiler)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);
    struct compiler_identity identity = {.major = 13, .minor = 2, .build = "id-0123"}, got;

    cr_assert_eq(cache_get_compiler(cache, &got), CACHE_E_MISS);
    cache_put_compiler(cache, &identity);
    identity.minor = 3;
    cache_put_compiler(cache, &identity);
    cr_assert_eq(cache_get_compiler(cache, &got), 0);
    cr_assert_eq(got.major, 13);
    cr_assert_eq(got.minor, 3);
    cr_assert_str_eq(got.build, "id-0123");
}

Test(cache, ignores_a_record_that_is_none)
{
    static const char *const texts[] = {"", "13", "x 0 build", "13 0 "};
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(cache_freep) struct cache *cache = open_cache(scratch.path);
    struct compiler_identity got;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        scratch_write_text(&scratch, "compiler", texts[i]);
        cr_assert_eq(cache_get_compiler(cache, &got), CACHE_E_MISS, "'%s'", texts[i]);
    }
}
