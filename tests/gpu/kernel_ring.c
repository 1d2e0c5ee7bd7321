#include "kernel_ring.h"

#include "../support/load_request.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIDE    KERNEL_RING_SIDE
#define MATRIX  ((uint64_t)SIDE * SIDE * 2) /* bytes */
#define LINKS   16                          /* rounds that are queued at once */
#define NARROW  8 /* a part of the device: the grid of a product that leaves room */
#define HOLD_NS 1000000

enum { WRITER = 1, READER }; /* numbers of kernels */

/* Places in memory, in matrices. */
enum {
    AT_VERSIONS,
    AT_IDENTITY = AT_VERSIONS + KERNEL_RING_VERSIONS,
    AT_A,
    AT_B,
    AT_SLOTS,
    AT_RESULTS = AT_SLOTS + KERNEL_RING_SLOTS,
};

const struct kernel_ring_reader kernel_ring_readers[KERNEL_RING_READERS] = {
    {"sm90a.bf16.bf16.nt.1x1x16.s1.c1x1.dot.element", 1},
    {"sm90a.bf16.bf16.nt.64x248x8.s1.c1x1.outer.element", 1},
    {"sm90a.bf16.bf16.nt.128x112x64.s1.c1x1.strip.element", 1},
    {"sm90a.bf16.bf16.nt.64x64x64.s5.c1x1.coop.tma", 1},
    {"sm90a.bf16.bf16.nt.128x256x64.s4.c2x1.coop.tma", 1},
    {"sm90a.bf16.bf16.nt.128x128x64.s6.c2x1.pingpong.tma", 1},
    {"sm90a.bf16.bf16.nt.16x64x128.s10.c1x1.split.tma.swapped", 1},
    {"sm90a.bf16.bf16.nt.64x64x128.s6.c1x1.split.tma.swapped", 2},
    {"sm90a.bf16.bf16.nt.128x128x64.s5.c1x1x2.split.tma", 1},
    {"sm90a.bf16.bf16.nt.64x128x64.s9.c2x1.parts.tma", 2},
    {"sm90a.bf16.bf16.nt.512x64x32.s4.c1x1.stream.element", 1},
    {"sm90a.bf16.bf16.nt.64x64x64.s2.c1x1.split.realign.swapped", 1},
    {"sm90a.bf16.bf16.nt.128x128x64.s6.c2x1.coop.repack", 1},
    {"sm90a.bf16.bf16.nt.16x64x128.s10.c1x1.split.repack.swapped", 1},
};

/* --- what the matrices hold ------------------------------------------------------------------ */

/* -2 to 2: sums of 64 products and one more are integers that bf16 has. */
static int value(int place, int row, int col)
{
    uint64_t number = ((uint64_t)place * SIDE + (uint64_t)row) * SIDE + (uint64_t)col + 1;

    if (place == AT_IDENTITY)
        return row == col;
    number *= 0x9e3779b97f4a7c15u;
    number ^= number >> 29;
    number *= 0xbf58476d1ce4e5b9u;
    return (int)(number >> 40) % (place == AT_B ? 2 : 3) * (number >> 33 & 1 ? 1 : -1);
}

static void matrix_fill(void *memory, int place)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            dtype_store(DTYPE_BF16, memory, (size_t)(i * SIDE + j), value(place, i, j));
}

/* How the reader takes the matrix, and how far behind the writer it is. */
struct turn {
    const struct config *reader;
    uint32_t splits, items;
    int distance; /* rounds */
    bool as_c;
};

/* Rows that start anywhere do: the reader takes what begins one column late. */
static int late(const struct turn *turn)
{
    return turn->reader->copy != CONFIG_COPY_V16 && turn->reader->copy != CONFIG_COPY_TMA;
}

static int columns(const struct turn *turn)
{
    return SIDE - (turn->as_c ? late(turn) : 0);
}

static int depth(const struct turn *turn)
{
    return SIDE - (turn->as_c ? 0 : late(turn));
}

static int expected_element(const struct turn *turn, int version, int row, int col)
{
    int skipped = late(turn), sum = 0;

    for (int k = 0; k < depth(turn); k++)
        sum += (turn->as_c ? value(AT_A, row, k) : value(version, row, skipped + k)) *
               value(AT_B, col, k);
    return sum + (turn->as_c ? value(version, row, skipped + col) : 0);
}

/* An item of D as it is to be: what belongs to no element stays poisoned. */
static void expect(const struct turn *turn, char (*ret_expected)[MATRIX])
{
    memset(ret_expected, 0xff, KERNEL_RING_VERSIONS * MATRIX);
    for (int version = 0; version < KERNEL_RING_VERSIONS; version++)
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < columns(turn); j++)
                dtype_store(DTYPE_BF16, ret_expected[version], (size_t)(i * SIDE + j),
                            expected_element(turn, version, i, j));
    /* A row is a line of the L1: one that is old must show. */
    for (int i = 0; i < SIDE; i++)
        for (int v = 0; v < KERNEL_RING_VERSIONS; v++)
            assert(memcmp(ret_expected[v] + i * SIDE * 2,
                          ret_expected[(v + 1) % KERNEL_RING_VERSIONS] + i * SIDE * 2,
                          SIDE * 2) != 0);
}

/* --- the device ------------------------------------------------------------------------------ */

static CUdeviceptr matrix_at(const struct kernel_ring *ring, uint64_t place)
{
    return ring->memory + place * MATRIX;
}

uint64_t kernel_ring_slots(const struct kernel_ring *ring)
{
    return matrix_at(ring, AT_SLOTS);
}

static uint64_t results_size(const struct kernel_ring *ring)
{
    return (uint64_t)LINKS * ring->facts.multiprocessors * MATRIX;
}

static int memory_make(struct kernel_ring *ring, struct fault *ret_fault)
{
    uint64_t size = AT_RESULTS * MATRIX + results_size(ring);
    char *image = malloc(size);
    int r;

    ring->results = malloc(results_size(ring));
    if (!image || !ring->results) {
        free(image);
        return -ENOMEM;
    }
    memset(image, 0xff, size);
    for (int place = AT_VERSIONS; place < AT_SLOTS; place++)
        matrix_fill(image + (uint64_t)place * MATRIX, place);
    r = cu_try(&ring->driver, ret_fault, MemAllocAsync, &ring->memory, size, ring->stream);
    if (!r)
        r = cu_try(&ring->driver, ret_fault, MemcpyHtoDAsync, ring->memory, image, size,
                   ring->stream);
    if (!r)
        r = cu_try(&ring->driver, ret_fault, StreamSynchronize, ring->stream);
    free(image);
    return r;
}

int kernel_ring_open(struct kernel_ring *ring, const char *selector, struct fault *ret_fault)
{
    int r;

    *ring = (struct kernel_ring){.round = 0};
    r = driver_init(&ring->driver, ret_fault);
    if (!r)
        r = cuda_device_init(&ring->device, &ring->driver, selector, &ring->facts, ret_fault);
    cuda_kernels_init(&ring->kernels, &ring->driver);
    if (!r)
        r = cu_try(&ring->driver, ret_fault, StreamCreate, &ring->stream, CU_STREAM_NON_BLOCKING);
    cuda_scratch_init(&ring->scratch, &ring->driver, ring->stream);
    return r ? r : memory_make(ring, ret_fault);
}

void kernel_ring_close(struct kernel_ring *ring)
{
    cuda_scratch_deinit(&ring->scratch);
    cuda_workspace_deinit(&ring->workspace, &ring->driver, ring->stream);
    (void)cu(&ring->driver)->MemFreeAsync(ring->memory, ring->stream);
    (void)cu(&ring->driver)->StreamSynchronize(ring->stream);
    (void)cu(&ring->driver)->StreamDestroy(ring->stream);
    cuda_kernels_deinit(&ring->kernels);
    cuda_device_deinit(&ring->device, &ring->driver);
    free(ring->results);
}

int kernel_ring_load(struct kernel_ring *ring,
                     const struct config *config,
                     bool is_writer,
                     const void *cubin,
                     uint64_t size,
                     struct fault *ret_fault)
{
    struct link_message request = load_request(config, is_writer ? WRITER : READER, size);

    cuda_kernels_unload(&ring->kernels, request.id);
    return cuda_kernels_load(&ring->kernels, &request, cubin, ret_fault);
}

/* --- launches -------------------------------------------------------------------------------- */

static int launch(struct kernel_ring *ring,
                  uint64_t kernel,
                  const struct gemmd_job *job,
                  struct fault *ret_fault)
{
    struct gemmd_feed feed = {.job_count = 1, .jobs = {*job}};
    struct cuda_launch_target target = {.driver = &ring->driver,
                                        .multiprocessors = ring->facts.multiprocessors,
                                        .stream = ring->stream,
                                        .scratch = &ring->scratch,
                                        .workspace = &ring->workspace,
                                        .running = &ring->running};

    return cuda_launch(&target, cuda_kernels_find(&ring->kernels, kernel), &feed, ret_fault);
}

static struct gemmd_job job_of(CUdeviceptr a, CUdeviceptr b, CUdeviceptr d)
{
    return (struct gemmd_job){.a = a,
                              .b = b,
                              .d = d,
                              .m = SIDE,
                              .n = SIDE,
                              .k = SIDE,
                              .batch = 1,
                              .lda = SIDE,
                              .ldb = SIDE,
                              .ldc = SIDE,
                              .ldd = SIDE,
                              .stride_d = SIDE * SIDE,
                              .alpha = 1,
                              .input = DTYPE_BF16,
                              .output = DTYPE_BF16,
                              .flags = GEMMD_JOB_TRANS_B};
}

/* One tile: one CTA, one multiprocessor. */
static int write_slot(struct kernel_ring *ring, struct fault *ret_fault)
{
    struct gemmd_job job = job_of(matrix_at(ring, AT_VERSIONS + ring->round % KERNEL_RING_VERSIONS),
                                  matrix_at(ring, AT_IDENTITY),
                                  matrix_at(ring, AT_SLOTS + ring->round % KERNEL_RING_SLOTS));

    return launch(ring, WRITER, &job, ret_fault);
}

static int
read_slot(struct kernel_ring *ring, const struct turn *turn, uint64_t link, struct fault *ret_fault)
{
    uint64_t round = ring->round - (uint64_t)turn->distance;
    CUdeviceptr slot =
        matrix_at(ring, AT_SLOTS + round % KERNEL_RING_SLOTS) + (uint64_t)late(turn) * 2;
    struct gemmd_job job = job_of(turn->as_c ? matrix_at(ring, AT_A) : slot, matrix_at(ring, AT_B),
                                  matrix_at(ring, AT_RESULTS + link * turn->items));

    job.n = columns(turn);
    job.k = depth(turn);
    job.batch = turn->items;
    job.splits = turn->splits;
    if (turn->as_c) {
        job.c = slot;
        job.beta = 1;
    }
    return launch(ring, READER, &job, ret_fault);
}

/* Launches behind this are all queued before the first of them runs: so they overlap. */
static void CUDA_CB hold(void *nothing)
{
    struct timespec time = {.tv_nsec = HOLD_NS};

    (void)nothing;
    (void)nanosleep(&time, NULL);
}

static int play(struct kernel_ring *ring, const struct turn *turn, struct fault *ret_fault)
{
    const struct driver *driver = &ring->driver;
    int r = cu_parked_try(driver, ret_fault, LaunchHostFunc, ring->stream, hold, NULL);

    for (uint64_t link = 0; link < LINKS && !r; link++) {
        r = write_slot(ring, ret_fault);
        r = r ? r : read_slot(ring, turn, link, ret_fault);
        ring->round++;
    }
    r = r ? r
          : cu_try(driver, ret_fault, MemcpyDtoHAsync, ring->results, matrix_at(ring, AT_RESULTS),
                   LINKS * turn->items * MATRIX, ring->stream);
    return r ? r : cu_try(driver, ret_fault, StreamSynchronize, ring->stream);
}

/* --- what came of them ----------------------------------------------------------------------- */

static void
note_wrong(const struct turn *turn, uint64_t link, uint64_t item, struct kernel_ring_report *report)
{
    if (report->wrong++ > 0)
        return;
    (void)snprintf(report->first, sizeof(report->first),
                   "item %llu of %u in round %llu, read as %s %d rounds after it was written",
                   (unsigned long long)item, turn->items, (unsigned long long)link,
                   turn->as_c ? "C" : "A", turn->distance);
}

static void judge(const struct kernel_ring *ring,
                  const struct turn *turn,
                  const char (*expected)[MATRIX],
                  struct kernel_ring_report *report)
{
    for (uint64_t link = 0; link < LINKS; link++) {
        uint64_t round = ring->round - LINKS + link - (uint64_t)turn->distance;
        uint64_t version = round % KERNEL_RING_VERSIONS;
        uint64_t before = (round - KERNEL_RING_SLOTS) % KERNEL_RING_VERSIONS;

        for (uint64_t item = 0; item < turn->items; item++) {
            const char *got = ring->results + (link * turn->items + item) * MATRIX;

            report->products++;
            if (memcmp(got, expected[version], MATRIX) == 0)
                continue;
            note_wrong(turn, link, item, report);
            report->old += memcmp(got, expected[before], MATRIX) == 0;
        }
    }
}

/* Poisoned anew: another turn may leave other elements alone. */
static int results_poison(struct kernel_ring *ring, struct fault *ret_fault)
{
    uint64_t size = results_size(ring);

    memset(ring->results, 0xff, size);
    return cu_try(&ring->driver, ret_fault, MemcpyHtoDAsync, matrix_at(ring, AT_RESULTS),
                  ring->results, size, ring->stream);
}

/* All widths and distances. */
static int take_turns(struct kernel_ring *ring,
                      struct turn turn,
                      int times,
                      struct kernel_ring_report *report,
                      struct fault *ret_fault)
{
    static char expected[KERNEL_RING_VERSIONS][MATRIX];
    uint32_t all = ring->facts.multiprocessors;
    int r = 0;

    expect(&turn, expected);
    for (int i = 0; i < 2 * KERNEL_RING_SLOTS && !r; i++) {
        turn.items = i & 1 ? MAX(all / NARROW, 1u) : all;
        turn.distance = i / 2;
        r = results_poison(ring, ret_fault);
        for (int t = 0; t < times && !r; t++) {
            r = play(ring, &turn, ret_fault);
            if (!r)
                judge(ring, &turn, (const char(*)[MATRIX])expected, report);
        }
    }
    return r;
}

/* C is for kernels that a plan would give it to. */
static bool reads_c(const struct config *config)
{
    return config->copy != CONFIG_COPY_TMA || config_is_split(config);
}

int kernel_ring_run(struct kernel_ring *ring,
                    const struct config *reader,
                    uint32_t splits,
                    int times,
                    struct kernel_ring_report *ret_report,
                    struct fault *ret_fault)
{
    struct turn turn = {.reader = reader, .splits = splits};
    int r = 0;

    *ret_report = (struct kernel_ring_report){0};
    for (ring->round = 0; ring->round < KERNEL_RING_SLOTS && !r; ring->round++)
        r = write_slot(ring, ret_fault);
    r = r ? r : take_turns(ring, turn, times, ret_report, ret_fault);
    turn.as_c = true;
    if (!r && reads_c(reader))
        r = take_turns(ring, turn, times, ret_report, ret_fault);
    return r;
}
