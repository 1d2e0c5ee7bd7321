#include "compile_disk.h"

#include "../core/std.h"

static struct compile_disk *disk_of(uv_work_t *work)
{
    return container_of(work, struct compile_disk, work);
}

/* The second look is for who compiled between the first look and the lock. */
static void do_look(uv_work_t *work)
{
    struct compile_disk *disk = disk_of(work);
    int r;

    disk->look = COMPILE_LOOK_FOUND;
    disk->source = COMPILER_FROM_MEMORY;
    if (cache_get_memory(disk->cache, &disk->key, &disk->cubin) == 0)
        return;
    disk->source = COMPILER_FROM_DISK;
    r = disk->is_again ? cache_get_again(disk->cache, &disk->key, &disk->cubin)
                       : cache_get(disk->cache, &disk->key, &disk->cubin);
    disk->is_again = true;
    if (r == 0)
        return;
    disk->look = COMPILE_LOOK_MISSED;
    if (!disk->wants_lock)
        return;
    if (cache_flight_begin(disk->cache, &disk->key, &disk->lock) == CACHE_E_BUSY)
        disk->look = COMPILE_LOOK_ELSEWHERE;
    else if (cache_get_again(disk->cache, &disk->key, &disk->cubin) == 0)
        disk->look = COMPILE_LOOK_FOUND;
}

static void do_store(uv_work_t *work)
{
    struct compile_disk *disk = disk_of(work);

    cache_put(disk->cache, &disk->key, &disk->cubin);
    cache_put_compiler(disk->cache, &disk->identity);
    compile_disk_unlock(disk);
}

static void after_work(uv_work_t *work, int status)
{
    (void)status; /* never cancelled */
    disk_of(work)->done(disk_of(work));
}

static void start(struct compile_disk *disk,
                  uv_loop_t *loop,
                  void (*done)(struct compile_disk *disk),
                  uv_work_cb work)
{
    int r;

    disk->done = done;
    r = uv_queue_work(loop, &disk->work, work, after_work);
    assert(r == 0); /* it refuses only work that is no function */
    (void)r;
}

void compile_disk_look(struct compile_disk *disk,
                       uv_loop_t *loop,
                       void (*done)(struct compile_disk *disk))
{
    start(disk, loop, done, do_look);
}

void compile_disk_store(struct compile_disk *disk,
                        uv_loop_t *loop,
                        void (*done)(struct compile_disk *disk))
{
    start(disk, loop, done, do_store);
}

void compile_disk_unlock(struct compile_disk *disk)
{
    cache_flight_end(disk->cache, steal(disk->lock, -1));
}

void compile_disk_deinit(struct compile_disk *disk)
{
    compile_disk_unlock(disk);
    cubin_deinit(&disk->cubin);
}
