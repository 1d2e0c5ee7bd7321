#include "cuda_stage.h"

#define ROW_ALIGNMENT     16  /* what vector loads and TMA need */
#define OPERAND_ALIGNMENT 256 /* as cuMemAlloc gives */

/* One operand of a job, read through the names that its role has there. */
struct view {
    uint64_t address;
    uint32_t host_flag;
    int64_t rows, columns; /* as stored */
    int64_t ld, stride;
    uint64_t element; /* bytes */
    bool is_used;     /* read or written, by the BLAS rules */
};

static const uint32_t with_bias = GEMMD_JOB_BIAS_PER_ROW | GEMMD_JOB_BIAS_PER_COLUMN;

static struct view view_of(const struct gemmd_job *job, enum operand_role role)
{
    bool is_empty = job->m == 0 || job->n == 0 || job->batch == 0;
    bool has_product = !is_empty && job->k > 0 && job->alpha != 0.0;
    bool trans_a = job->flags & GEMMD_JOB_TRANS_A;
    bool trans_b = job->flags & GEMMD_JOB_TRANS_B;
    uint64_t in = dtype_size((enum dtype)job->input);
    uint64_t out = dtype_size((enum dtype)job->output);

    switch (role) {
    case OPERAND_A:
        return (struct view){.address = job->a,
                             .host_flag = GEMMD_JOB_HOST_A,
                             .rows = trans_a ? job->k : job->m,
                             .columns = trans_a ? job->m : job->k,
                             .ld = job->lda,
                             .stride = job->stride_a,
                             .element = in,
                             .is_used = has_product};
    case OPERAND_B:
        return (struct view){.address = job->b,
                             .host_flag = GEMMD_JOB_HOST_B,
                             .rows = trans_b ? job->n : job->k,
                             .columns = trans_b ? job->k : job->n,
                             .ld = job->ldb,
                             .stride = job->stride_b,
                             .element = in,
                             .is_used = has_product};
    case OPERAND_C:
        return (struct view){.address = job->c,
                             .host_flag = GEMMD_JOB_HOST_C,
                             .rows = job->m,
                             .columns = job->n,
                             .ld = job->ldc,
                             .stride = job->stride_c,
                             .element = out,
                             .is_used = !is_empty && job->beta != 0.0};
    case OPERAND_BIAS:
        return (struct view){.address = job->bias,
                             .host_flag = GEMMD_JOB_HOST_BIAS,
                             .rows = 1,
                             .columns = job->flags & GEMMD_JOB_BIAS_PER_ROW ? job->m : job->n,
                             .ld = job->flags & GEMMD_JOB_BIAS_PER_ROW ? job->m : job->n,
                             .stride = job->stride_bias,
                             .element = out,
                             .is_used = !is_empty && (job->flags & with_bias)};
    default:
        return (struct view){.address = job->d,
                             .host_flag = GEMMD_JOB_HOST_D,
                             .rows = job->m,
                             .columns = job->n,
                             .ld = job->ldd,
                             .stride = job->stride_d,
                             .element = out,
                             .is_used = !is_empty};
    }
}

static uint64_t align(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

static int too_large(struct fault *ret_fault, enum operand_role role)
{
    fault_set(ret_fault, STATUS_OUT_OF_MEMORY, operand_name(role),
              "the operand is larger than any device memory");
    return DRIVER_E_FAULT;
}

/* The packed layout. Rows that lie without a gap stay so, at the client's alignment; all others
 * are spread to whole 16 bytes. */
static void pack(struct cuda_box *box)
{
    uint64_t item;
    bool is_dense = box->rows > 1 && box->host_pitch == box->width;

    box->device_pitch = is_dense ? box->width : align(box->width, ROW_ALIGNMENT);
    item = box->rows * box->device_pitch;
    box->device_stride = box->items == 1 || (is_dense && box->host_stride == item)
                             ? item
                             : align(item, ROW_ALIGNMENT);
}

/* D then has elements that it does not compute. */
static bool is_slice(const struct gemmd_job *job)
{
    return job->first_tile != 0 || job->tile_count != 0;
}

static int plan_operand(struct cuda_stage *stage,
                        const struct gemmd_job *job,
                        enum operand_role role,
                        struct fault *ret_fault)
{
    struct view view = view_of(job, role);
    struct cuda_stage_operand *operand = &stage->operands[role];
    uint64_t bound, ignored;
    if (!(job->flags & view.host_flag) || !view.is_used)
        return 0;

    /* Stride 0 names one item for the whole batch, and one item is copied. */
    uint64_t items = view.stride == 0 ? 1 : (uint64_t)job->batch;
    if (mul_overflows((uint64_t)view.columns, view.element, &bound) ||
        mul_overflows(bound + ROW_ALIGNMENT, (uint64_t)view.rows, &bound) ||
        mul_overflows(bound + ROW_ALIGNMENT, items, &bound) ||
        add_overflows(stage->size, bound, &bound) ||
        add_overflows(bound, OPERAND_ALIGNMENT * OPERAND_COUNT, &ignored))
        return too_large(ret_fault, role);

    operand->is_staged = true;
    operand->goes_in = role != OPERAND_D || is_slice(job);
    operand->goes_out = role == OPERAND_D;
    operand->box = (struct cuda_box){
        .width = (uint64_t)view.columns * view.element,
        .rows = (uint64_t)view.rows,
        .items = items,
        .host_pitch = (uint64_t)view.ld * view.element,
        .host_stride = (uint64_t)view.stride * view.element,
        .host = (char *)(uintptr_t)view.address,
        .device = align(stage->size, OPERAND_ALIGNMENT),
    };
    pack(&operand->box);
    stage->size = operand->box.device + operand->box.items * operand->box.device_stride;
    return 0;
}

static bool is_in_place(const struct gemmd_job *job)
{
    const uint32_t both = GEMMD_JOB_HOST_C | GEMMD_JOB_HOST_D;
    return (job->flags & both) == both && job->beta != 0.0 && job->c == job->d &&
           job->ldc == job->ldd && job->stride_c == job->stride_d;
}

int cuda_stage_plan(struct cuda_stage *stage, const struct gemmd_job *job, struct fault *ret_fault)
{
    *stage = (struct cuda_stage){.is_in_place = is_in_place(job)};
    for (int role = 0; role < OPERAND_COUNT; role++) {
        if (role == OPERAND_C && stage->is_in_place)
            continue;
        int r = plan_operand(stage, job, (enum operand_role)role, ret_fault);
        if (r)
            return r;
    }
    stage->operands[OPERAND_D].goes_in |= stage->is_in_place;
    return 0;
}

static void rewrite(const struct cuda_stage_operand *operand,
                    uint32_t element,
                    uint64_t *address,
                    int64_t *ld,
                    int64_t *stride)
{
    /* Not read by the BLAS rules: no address at all, so that a kernel that reads it is caught. */
    if (!operand->is_staged) {
        *address = 0;
        return;
    }
    *address = operand->box.device;
    *ld = (int64_t)(operand->box.device_pitch / element);
    if (*stride != 0)
        *stride = (int64_t)(operand->box.device_stride / element);
}

void cuda_stage_place(struct cuda_stage *stage, CUdeviceptr base, struct gemmd_job *job)
{
    uint32_t in = (uint32_t)dtype_size((enum dtype)job->input);
    uint32_t out = (uint32_t)dtype_size((enum dtype)job->output);
    struct cuda_stage_operand *operands = stage->operands;
    int64_t ld_bias; /* one row has no use for it */

    const struct cuda_stage_operand *c = &operands[stage->is_in_place ? OPERAND_D : OPERAND_C];

    for (int role = 0; role < OPERAND_COUNT; role++)
        operands[role].box.device += base;
    if (job->flags & GEMMD_JOB_HOST_A)
        rewrite(&operands[OPERAND_A], in, &job->a, &job->lda, &job->stride_a);
    if (job->flags & GEMMD_JOB_HOST_B)
        rewrite(&operands[OPERAND_B], in, &job->b, &job->ldb, &job->stride_b);
    if (job->flags & GEMMD_JOB_HOST_C)
        rewrite(c, out, &job->c, &job->ldc, &job->stride_c);
    if (job->flags & GEMMD_JOB_HOST_BIAS)
        rewrite(&operands[OPERAND_BIAS], out, &job->bias, &ld_bias, &job->stride_bias);
    if (job->flags & GEMMD_JOB_HOST_D)
        rewrite(&operands[OPERAND_D], out, &job->d, &job->ldd, &job->stride_d);
    job->flags &= ~CUDA_STAGE_HOST_FLAGS;
}

int cuda_stage_copy(const struct cuda_stage *stage,
                    const struct driver *driver,
                    CUstream stream,
                    enum cuda_box_direction direction,
                    struct fault *ret_fault)
{
    for (int role = 0; role < OPERAND_COUNT; role++) {
        const struct cuda_stage_operand *operand = &stage->operands[role];
        bool goes = direction == CUDA_BOX_TO_DEVICE ? operand->goes_in : operand->goes_out;
        if (!operand->is_staged || !goes)
            continue;
        int r = cuda_box_copy(driver, stream, direction, &operand->box, ret_fault);
        if (r)
            return r;
    }
    return 0;
}
