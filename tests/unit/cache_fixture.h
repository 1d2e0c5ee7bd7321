/*
 * Numbered cubins, whose content follows from the number, and what tests of the cache share.
 */
#pragma once

#include "../../daemon/jit/cache.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <time.h>

static inline void cache_freep(struct cache **cache)
{
    *cache = cache_free(*cache);
}

static inline struct cache *open_cache(const char *directory)
{
    struct cache *cache = NULL;

    cr_assert_eq(cache_new(&cache, directory, CACHE_BYTES_DEFAULT), 0);
    return cache;
}

static inline struct key key_number(unsigned number)
{
    struct key key = {.bytes = {0}};

    memcpy(key.bytes, &number, sizeof(number));
    key.bytes[15] = 0x5a;
    return key;
}

/* Its content follows from the number, so that a reader can tell a mixed-up entry. */
static inline struct cubin cubin_number(unsigned number, size_t size)
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

static inline void put_number(struct cache *cache, unsigned number, size_t size)
{
    cleanup(cubin_deinit) struct cubin cubin = cubin_number(number, size);
    struct key key = key_number(number);

    cache_put(cache, &key, &cubin);
}

static inline bool get_number(struct cache *cache, unsigned number, size_t size)
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

static inline struct scratch_path entry_path(const struct scratch *scratch, unsigned number)
{
    struct key key = key_number(number);
    char text[KEY_TEXT_SIZE], name[KEY_TEXT_SIZE + 8];

    key_to_text(&key, text);
    (void)snprintf(name, sizeof(name), "%s.entry", text);
    return scratch_path(scratch, name);
}

static inline struct cache_statistics statistics_of(struct cache *cache)
{
    struct cache_statistics statistics;

    cache_statistics(cache, &statistics);
    return statistics;
}

static inline void set_environment(const char *directory, const char *xdg, const char *home)
{
    static const char *const names[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};
    const char *values[] = {directory, xdg, home};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_eq(values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]), 0);
}

static inline void set_last_use(const struct scratch *scratch, unsigned number, time_t seconds)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds}};

    cr_assert_eq(utimensat(AT_FDCWD, entry_path(scratch, number).text, times, 0), 0);
}

struct seen {
    unsigned count, damaged;
    int64_t last_used;
    bool is_ordered;
};

static inline void see(const struct cache_entry *entry, bool is_damaged, void *context)
{
    struct seen *seen = context;

    seen->is_ordered &= seen->count == 0 || entry->last_used <= seen->last_used;
    seen->last_used = entry->last_used;
    seen->count++;
    seen->damaged += is_damaged;
    if (!is_damaged)
        cr_assert_eq(strncmp(entry->configuration, "configuration.", 14), 0);
}

static inline struct seen list(struct cache *cache, bool verify)
{
    struct seen seen = {.is_ordered = true};

    cr_assert_eq(cache_list(cache, verify, see, &seen), 0);
    cr_assert(seen.is_ordered);
    return seen;
}

/* Stderr into a file, to count warnings. */
static inline void redirect_log(const struct scratch *scratch)
{
    int fd = open(scratch_path(scratch, "log").text, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    cr_assert_geq(fd, 0);
    cr_assert_eq(chmod(scratch->path, 0755), 0); /* the reader may have changed its uid */
    cr_assert_geq(dup2(fd, STDERR_FILENO), 0);
    (void)close(fd);
}
