/*
 * The fake driver's kernel: whatever was loaded, a launch computes the products of its feed by the
 * BLAS rules, so that a whole daemon can be tested over the CUDA backend without a GPU.
 *
 * Of a slice it computes its tiles only. It does not know how large the tiles of the kernel are
 * that it stands for; its own have one element, which are never fewer, and a last slice takes all
 * the rest.
 */
#include "../../daemon/core/activation.h"
#include "../../kernels_src/abi/job.h"
#include "fake_driver_state.h"
#include "faults.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct operand {
    const void *base;
    enum dtype dtype;
    int64_t item;        /* elements to the current item of the batch */
    int64_t row, column; /* elements from one to the next */
};

static double load(const struct operand *x, int64_t row, int64_t column)
{
    return dtype_load(x->dtype, x->base, (size_t)(x->item + row * x->row + column * x->column));
}

static struct operand input(const struct gemmd_job *job, uint64_t base, int64_t ld, bool is_trans)
{
    return (struct operand){.base = (const void *)(uintptr_t)base,
                            .dtype = (enum dtype)job->input,
                            .row = is_trans ? 1 : ld,
                            .column = is_trans ? ld : 1};
}

/* rows x columns values, once each: reading them anew for each product takes seconds. */
static double *load_all(const struct operand *x, int64_t rows, int64_t columns)
{
    double *values = calloc((size_t)(rows * columns) + 1, sizeof(double));

    for (int64_t i = 0; values && i < rows; i++) {
        for (int64_t j = 0; j < columns; j++)
            values[i * columns + j] = load(x, i, j);
    }
    return values;
}

static bool is_in_slice(const struct gemmd_job *job, uint64_t tile)
{
    return tile >= job->first_tile &&
           (job->tile_count == 0 || tile - job->first_tile < job->tile_count);
}

static double bias_of(const struct gemmd_job *job, int64_t item, int64_t row, int64_t column)
{
    const void *base = (const void *)(uintptr_t)job->bias;
    bool is_per_row = job->flags & GEMMD_JOB_BIAS_PER_ROW;
    if (!is_per_row && !(job->flags & GEMMD_JOB_BIAS_PER_COLUMN))
        return 0;
    return dtype_load((enum dtype)job->output, base,
                      (size_t)(item * job->stride_bias + (is_per_row ? row : column)));
}

static void multiply_item(const struct gemmd_job *job, int64_t item)
{
    struct operand a = input(job, job->a, job->lda, job->flags & GEMMD_JOB_TRANS_A);
    struct operand b = input(job, job->b, job->ldb, !(job->flags & GEMMD_JOB_TRANS_B));
    struct operand c = {(const void *)(uintptr_t)job->c, (enum dtype)job->output, 0, job->ldc, 1};
    int64_t k = job->alpha != 0 ? job->k : 0;
    void *d = (void *)(uintptr_t)job->d;
    a.item = item * job->stride_a;
    b.item = item * job->stride_b;
    c.item = item * job->stride_c;
    double *rows = load_all(&a, job->m, k), *columns = load_all(&b, job->n, k);
    for (int64_t i = 0; rows && columns && i < job->m; i++) {
        for (int64_t j = 0; j < job->n; j++) {
            const double *left = rows + i * k, *right = columns + j * k;
            double sum = 0;
            if (!is_in_slice(job, (uint64_t)((item * job->m + i) * job->n + j)))
                continue;
            for (int64_t l = 0; l < k; l++)
                sum += left[l] * right[l];
            sum = job->alpha != 0 ? job->alpha * sum : 0;
            sum += job->beta != 0 ? job->beta * load(&c, i, j) : 0;
            sum += bias_of(job, item, i, j);
            dtype_store((enum dtype)job->output, d,
                        (size_t)(item * job->stride_d + i * job->ldd + j),
                        activation_apply((enum activation)job->activation, sum));
        }
    }
    free(rows);
    free(columns);
}

/* $FAKE_DRIVER_HANG_M: the launch of a product with so many rows never ends. */
static bool hangs(const struct gemmd_job *job)
{
    const char *rows = getenv("FAKE_DRIVER_HANG_M");
    return rows && job->m == atoll(rows);
}

static bool is_lost;

/* $FAKE_DRIVER_LOSE_M: that launch loses the device, and with it the driver's end of the process.
 */
static bool loses(const struct gemmd_job *job)
{
    const char *rows = getenv("FAKE_DRIVER_LOSE_M");
    return rows && job->m == atoll(rows);
}

__attribute__((destructor)) static void end(void)
{
    while (is_lost)
        (void)pause();
}

/* $FAKE_DRIVER_STILL_AFTER_FAULT: from a fault on nothing runs, until somebody ends that. */
static void stand_still(void)
{
    if (getenv("FAKE_DRIVER_STILL_AFTER_FAULT"))
        (void)close(open(getenv("FAKE_DRIVER_STILL"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

/* $FAKE_DRIVER_FAULTS: a product with an alpha of faults.h is a fault of the device. */
static bool is_fault(const struct gemmd_job *job, unsigned stream)
{
    static const struct {
        CUresult result;
        unsigned xid;
    } faults[TEST_FAULT_COUNT] = {
        [TEST_FAULT_ADDRESS] = {CUDA_ERROR_ILLEGAL_ADDRESS, FAKE_DRIVER_XID_ADDRESS},
        [TEST_FAULT_MISALIGNED] = {CUDA_ERROR_MISALIGNED_ADDRESS, FAKE_DRIVER_XID_MISALIGNED},
        [TEST_FAULT_TRAP] = {CUDA_ERROR_LAUNCH_FAILED, FAKE_DRIVER_XID_TRAP},
    };

    double fault = job->alpha - TEST_FAULT_ALPHA;
    if (!getenv("FAKE_DRIVER_FAULTS") || !(fault >= 0 && fault < TEST_FAULT_COUNT))
        return false;
    stand_still();
    if ((enum test_fault)fault == TEST_FAULT_ENDLESS) {
        fake_driver_stop_stream(stream);
        return true;
    }
    fake_driver_xid(faults[(int)fault].xid);
    /* As a device does: it stands still, and CUDA does not say so for long. */
    if ((enum test_fault)fault == TEST_FAULT_TRAP && getenv("GEMMD_LIBNVML"))
        fake_driver_hold(true);
    else
        fake_driver_break(faults[(int)fault].result);
    return true;
}

void fake_driver_product(const struct fake_driver_launch *launch)
{
    const struct gemmd_feed *feed = launch->parameter;
    for (uint32_t i = 0; i < feed->job_count; i++) {
        if (is_fault(&feed->jobs[i], launch->stream))
            return;
        if (hangs(&feed->jobs[i])) {
            fake_driver_stop_stream(launch->stream);
            return;
        }
        if (loses(&feed->jobs[i])) {
            is_lost = true;
            fake_driver_break(CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        for (int64_t item = 0; item < feed->jobs[i].batch; item++)
            multiply_item(&feed->jobs[i], item);
    }
}

void fake_driver_repack(const struct gemmd_repack *what)
{
    for (int i = 0; i < GEMMD_REPACK_OPERANDS; i++) {
        const struct gemmd_repack_operand *o = &what->operand[i];

        for (int64_t line = 0; line < o->rows * o->items; line++) {
            int64_t item = line / o->rows, row = line % o->rows;

            memcpy((uint16_t *)(uintptr_t)o->destination + item * o->to_stride + row * o->to_ld,
                   (const uint16_t *)(uintptr_t)o->source + item * o->stride + row * o->ld,
                   (size_t)o->columns * sizeof(uint16_t));
        }
    }
}
