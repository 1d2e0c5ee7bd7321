#include "kernel_set.h"

#include "../support/load_request.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 32

struct kernel_entry {
    struct config config;
    struct nvrtc_result result; /* until it is loaded */
    int outcome;                /* of the compiler */
    struct fault fault;
    struct kernel_made made;
    const struct cuda_kernel *kernel;
};

int kernel_set_init(struct kernel_set *set,
                    struct gpu *gpu,
                    const char *folder,
                    struct fault *fault)
{
    int r;

    *set =
        (struct kernel_set){.gpu = gpu, .entries = calloc(KERNEL_SET_MAX, sizeof(*set->entries))};
    r = set->entries ? nvrtc_new(&set->nvrtc, fault) : -ENOMEM;
    return r ? r : sources_open(&set->sources, folder);
}

void kernel_set_deinit(struct kernel_set *set)
{
    set->nvrtc = nvrtc_free(set->nvrtc);
    sources_deinit(&set->sources);
    free(set->entries);
    set->entries = NULL;
}

static struct kernel_entry *find(const struct kernel_set *set, const struct config *config)
{
    for (size_t i = 0; i < set->count; i++)
        if (config_equal(&set->entries[i].config, config))
            return &set->entries[i];
    return NULL;
}

void kernel_set_add(struct kernel_set *set, const struct config *config)
{
    if (set->count < KERNEL_SET_MAX && !find(set, config))
        set->entries[set->count++] = (struct kernel_entry){.config = *config};
}

struct work {
    struct kernel_set *set;
    atomic_size_t next;
};

static void *compile(void *context)
{
    struct work *work = context;
    size_t i;

    while ((i = atomic_fetch_add(&work->next, 1)) < work->set->count) {
        struct kernel_entry *entry = &work->set->entries[i];

        entry->outcome = nvrtc_compile_with(work->set->nvrtc, &work->set->sources, &entry->config,
                                            work->set->more, &entry->result);
    }
    return NULL;
}

static void compile_all(struct kernel_set *set)
{
    struct work work = {.set = set, .next = set->built};
    pthread_t threads[THREADS_MAX];
    size_t wanted = MIN((size_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), THREADS_MAX), started = 0;

    wanted = MIN(wanted, set->count - set->built);
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, compile, &work) == 0)
        started++;
    (void)compile(&work); /* this thread is one of them */
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
}

static void load(struct kernel_set *set, struct kernel_entry *entry, uint64_t id)
{
    struct link_message request = load_request(&entry->config, id, entry->result.cubin.size);

    entry->made =
        (struct kernel_made){entry->result.cubin.registers, entry->result.cubin.compile_seconds};
    if (entry->outcome)
        (void)fault_set(&entry->fault, STATUS_COMPILE_FAILED, "", "%s",
                        entry->result.log ? entry->result.log : "no log");
    else if (cuda_kernels_load(&set->gpu->kernels, &request, entry->result.cubin.bytes,
                               &entry->fault) == 0)
        entry->kernel = cuda_kernels_find(&set->gpu->kernels, id);
    nvrtc_result_deinit(&entry->result);
}

void kernel_set_build(struct kernel_set *set)
{
    compile_all(set);
    for (; set->built < set->count; set->built++)
        load(set, &set->entries[set->built], set->first_id + set->built + 1);
}

struct kernel_made kernel_set_made(const struct kernel_set *set, const struct config *config)
{
    const struct kernel_entry *entry = find(set, config);

    return entry ? entry->made : (struct kernel_made){0};
}

const struct cuda_kernel *
kernel_set_find(const struct kernel_set *set, const struct config *config, struct fault *fault)
{
    const struct kernel_entry *entry = find(set, config);

    if (entry && entry->kernel)
        return entry->kernel;
    if (entry && entry->fault.status != STATUS_OK)
        *fault = entry->fault;
    else
        (void)fault_set(fault, STATUS_INTERNAL, "", "the kernel was not built");
    return NULL;
}
