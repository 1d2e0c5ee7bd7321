#include "../../daemon/jit/cubin_file.h"
#include "cache_fixture.h"

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

/* --- listing --------------------------------------------------------------------------------- */

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
