/*
 * The cache's directory: which one, who owns it, and its files, without policy (cache.c has that).
 *
 *   <key>.entry   one cubin (cubin_file.h), its modification time being the last use: access times
 *                 are off on many file systems, and a record apart could disagree with the files
 *   compiler      the identity of the compiler last used
 *   lock          never deleted; one byte of it per key is locked during a compile
 *   .new-<hex>    being written; one that lies there for TEMPORARY_SECONDS belongs to a dead
 * process
 *
 * Whatever a disk does is an outcome here, not an accident: functions return 0 or a positive errno,
 * and the caller decides. All are thread-safe: the descriptor never changes after opening.
 *
 * Owner: the cache.
 */
#pragma once

#include "../core/std.h"
#include "key.h"

#define CACHE_DISK_PATH_MAX   256 /* with the zero; as in struct cache_statistics */
#define CACHE_DISK_REASON_MAX 160
#define CACHE_DISK_FILES_MAX  65536 /* entries looked at; more are not ours */
#define TEMPORARY_SECONDS     600   /* writing an entry takes milliseconds */

struct cache_disk {
    int fd; /* -1: there is no usable directory */
    char path[CACHE_DISK_PATH_MAX];
};

#define CACHE_DISK_NULL ((struct cache_disk){.fd = -1})

struct cache_file {
    struct key key;
    uint64_t size;
    int64_t used_ns; /* since the epoch */
};

/* `directory` NULL: $CACHE_DIRECTORY, $XDG_CACHE_HOME/gemmd, $HOME/.cache/gemmd. False, and why,
 * when none is named, or when it cannot be made or is not safe to use. */
bool cache_disk_open(struct cache_disk *disk,
                     const char *directory,
                     char ret_reason[CACHE_DISK_REASON_MAX]);
/* The same for what must not be lost with a cache: $STATE_DIRECTORY, $XDG_STATE_HOME/gemmd,
 * $HOME/.local/state/gemmd. Reading and writing whole files works there, too. */
bool cache_disk_open_state(struct cache_disk *disk,
                           const char *directory,
                           char ret_reason[CACHE_DISK_REASON_MAX]);
void cache_disk_close(struct cache_disk *disk);

/* A whole file of at most `limit` bytes. ENOENT; EPERM when it is not a plain file of ours; EFBIG.
 * `is_use` records the use. */
int cache_disk_read(const struct cache_disk *disk,
                    const char *name,
                    size_t limit,
                    bool is_use,
                    void **ret_bytes,
                    size_t *ret_size);
/* Atomic and durable: a reader, or a machine after a power failure, sees all of it or nothing. */
int cache_disk_write(const struct cache_disk *disk,
                     const char *name,
                     const void *head,
                     size_t head_size,
                     const void *body,
                     size_t body_size);
int cache_disk_remove(const struct cache_disk *disk, const char *name);
/* Every entry, least recently used first; removes temporaries of dead processes on the way. */
int cache_disk_scan(const struct cache_disk *disk,
                    struct cache_file **ret_files,
                    size_t *ret_count);
/* Takes the key's byte of the lock file, without waiting: EAGAIN when somebody has it. Closing the
 * descriptor gives it back, also when the process dies. */
int cache_disk_lock(const struct cache_disk *disk, const struct key *key, int *ret_fd);

#define CACHE_DISK_NAME_MAX (KEY_TEXT_SIZE + 8)
void cache_disk_name(const struct key *key, char ret_name[CACHE_DISK_NAME_MAX]);
