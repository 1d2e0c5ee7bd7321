#include "tuning_store.h"

#include "../core/log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tuning_store_open(struct tuning_store *store, uv_loop_t *loop, const char *directory)
{
    *store = (struct tuning_store){.loop = loop, .disk = CACHE_DISK_NULL};
    if (!cache_disk_open_state(&store->disk, directory, store->reason))
        log_info("tuning=memory-only reason=\"%s\"", store->reason);
}

void tuning_store_close(struct tuning_store *store)
{
    assert(!store->is_writing);
    cache_disk_close(&store->disk);
}

static void warn(struct tuning_store *store, const char *what, const char *why)
{
    if (!store->has_warned)
        log_warning("tuning=%s/%s %s=failed reason=\"%s\", ignoring", store->disk.path, store->name,
                    what, why);
    store->has_warned = true;
}

/* --- reading --------------------------------------------------------------------------------- */

/* "tuning-nvidia-h200-132": what a directory listing should say. The file's own line decides. */
static void name_file(struct tuning_store *store, const struct link_device *device)
{
    size_t length;

    (void)snprintf(store->name, sizeof(store->name), "tuning-%.40s-%u", device->name,
                   device->multiprocessors);
    length = strlen(store->name);
    for (size_t i = 0; i < length; i++)
        store->name[i] = isalnum((unsigned char)store->name[i])
                             ? (char)tolower((unsigned char)store->name[i])
                             : '-';
}

static void read_file(struct tuning_store *store, struct tuning *tuning)
{
    cleanup(freep) void *text = NULL;
    size_t size = 0;
    int r = cache_disk_read(&store->disk, store->name, TUNING_TEXT_MAX, false, &text, &size);

    if (r == ENOENT)
        return;
    if (r) {
        warn(store, "read", strerror(r));
        return;
    }
    r = tuning_from_text(tuning, text, size, store->device);
    if (r == TUNING_E_DAMAGED)
        warn(store, "read", "the file is damaged");
    else if (r == TUNING_E_OTHER)
        warn(store, "read", "the file is of another version or device");
    else if (r < 0)
        warn(store, "read", "no memory");
}

void tuning_store_load(struct tuning_store *store,
                       struct tuning *tuning,
                       const struct link_device *device)
{
    char text[TUNING_DEVICE_MAX];

    (void)snprintf(text, sizeof(text), "arch %u.%u, %u multiprocessors, %.96s",
                   device->compute_major, device->compute_minor, device->multiprocessors,
                   device->name);
    if (strcmp(text, store->device) == 0)
        return;
    (void)snprintf(store->device, sizeof(store->device), "%s", text);
    name_file(store, device);
    tuning_deinit(tuning);
    tuning_init(tuning);
    if (store->disk.fd >= 0 && device->kind == LINK_DEVICE_CUDA)
        read_file(store, tuning);
    if (tuning->count > 0)
        log_info("tuning=%s/%s classes=%zu epoch=%u", store->disk.path, store->name, tuning->count,
                 tuning->epoch);
}

/* --- writing --------------------------------------------------------------------------------- */

struct write {
    uv_work_t work;
    struct tuning_store *store;
    const struct tuning *tuning; /* for another write, on the loop */
    char name[64];
    char *text; /* owned */
    int outcome;
};

static void do_write(uv_work_t *work)
{
    struct write *write = container_of(work, struct write, work);

    write->outcome = cache_disk_write(&write->store->disk, write->name, write->text,
                                      strlen(write->text), NULL, 0);
}

static void after_write(uv_work_t *work, int status)
{
    struct write *write = container_of(work, struct write, work);
    struct tuning_store *store = write->store;
    const struct tuning *tuning = write->tuning;

    (void)status; /* never cancelled */
    if (write->outcome)
        warn(store, "write", strerror(write->outcome));
    else
        store->has_warned = false;
    free(write->text);
    free(write);
    store->is_writing = false;
    if (store->must_write_again)
        tuning_store_save(store, tuning);
}

void tuning_store_save(struct tuning_store *store, const struct tuning *tuning)
{
    struct write *write;

    if (store->disk.fd < 0)
        return;
    store->must_write_again = store->is_writing;
    if (store->is_writing)
        return;
    write = calloc(1, sizeof(*write));
    if (write)
        write->text = tuning_to_text(tuning, store->device);
    if (!write || !write->text) {
        free(write);
        warn(store, "write", "no memory");
        return;
    }
    write->store = store;
    write->tuning = tuning;
    memcpy(write->name, store->name, sizeof(write->name));
    store->is_writing = true;
    (void)uv_queue_work(store->loop, &write->work, do_write, after_write);
}
