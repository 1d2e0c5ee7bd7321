/*
 * The tuning database on disk: one file for each kind of device in the state directory, read when
 * the device is known, written on libuv's pool after a change. Without a usable directory, with a
 * file that does not verify, on a full or read-only disk: one warning, and the database lives in
 * memory only.
 *
 * Daemons of one user on equal devices share the file: it is replaced as a whole, and the last one
 * to tune wins.
 *
 * Owner: the server, by value. Thread: loop; a write has a copy of its own.
 */
#pragma once

#include "../jit/cache_disk.h"
#include "../link/link_message.h"
#include "../plan/tuning.h"
#include <uv.h>

struct tuning_store {
    uv_loop_t *loop;
    struct cache_disk disk;
    char reason[CACHE_DISK_REASON_MAX]; /* why it is in memory only; "" otherwise */
    char device[TUNING_DEVICE_MAX];     /* whose database is loaded; "": none yet */
    char name[64];                      /* of its file */
    bool is_writing, must_write_again, has_warned;
};

/* `directory` NULL: by the rules of cache_disk_open_state(). */
void tuning_store_open(struct tuning_store *store, uv_loop_t *loop, const char *directory);
void tuning_store_close(struct tuning_store *store); /* the loop has ended */
/* Makes `tuning` what is known of this device. Nothing happens when it is that already. */
void tuning_store_load(struct tuning_store *store,
                       struct tuning *tuning,
                       const struct link_device *device);
void tuning_store_save(struct tuning_store *store, const struct tuning *tuning);
