#include "tensor_shape.h"

#define ROW_ALIGNMENT 16 /* bytes; what the plan checked of every stride that is used */

struct matrix {
    uint64_t address;
    enum dtype dtype;
    int64_t rows, columns, ld, stride;
};

static struct matrix matrix_of(const struct gemmd_job *job, int operand)
{
    enum dtype input = (enum dtype)job->input, output = (enum dtype)job->output;
    bool is_transposed_a = job->flags & GEMMD_JOB_TRANS_A;
    bool is_transposed_b = job->flags & GEMMD_JOB_TRANS_B;

    switch (operand) {
    case GEMMD_TENSOR_A:
        return (struct matrix){job->a,
                               input,
                               is_transposed_a ? job->k : job->m,
                               is_transposed_a ? job->m : job->k,
                               job->lda,
                               job->stride_a};
    case GEMMD_TENSOR_B:
        return (struct matrix){job->b,
                               input,
                               is_transposed_b ? job->n : job->k,
                               is_transposed_b ? job->k : job->n,
                               job->ldb,
                               job->stride_b};
    case GEMMD_TENSOR_C:
        return (struct matrix){job->c, output, job->m, job->n, job->ldc, job->stride_c};
    default:
        return (struct matrix){job->d, output, job->m, job->n, job->ldd, job->stride_d};
    }
}

static bool is_accessed(const struct gemmd_job *job, int operand)
{
    switch (operand) {
    case GEMMD_TENSOR_A:
    case GEMMD_TENSOR_B:
        return job->k > 0 && job->alpha != 0;
    case GEMMD_TENSOR_C:
        return job->beta != 0;
    default:
        return true;
    }
}

/* A stride that leads nowhere may have any value in a job, but not in a tensor map. */
static uint64_t stride_bytes(int64_t elements, size_t element_size, uint64_t count)
{
    return count > 1 ? (uint64_t)elements * element_size : ROW_ALIGNMENT;
}

/* Copies to global memory write whole chunks of 16 bytes; the kernel stores the rest of a row by
 * itself, so D's map ends with the last whole chunk. */
static uint64_t columns_of(const struct matrix *matrix, int operand)
{
    uint64_t chunk = ROW_ALIGNMENT / dtype_size(matrix->dtype), columns = (uint64_t)matrix->columns;

    return operand == GEMMD_TENSOR_D ? columns / chunk * chunk : columns;
}

bool tensor_shape_of(const struct gemmd_job *job,
                     int operand,
                     const struct link_box *box,
                     struct tensor_shape *ret_shape)
{
    struct matrix matrix = matrix_of(job, operand);
    size_t element_size = dtype_size(matrix.dtype);
    uint64_t rows = (uint64_t)matrix.rows;
    uint64_t items = matrix.stride != 0 ? (uint64_t)job->batch : 1;

    if (!is_accessed(job, operand) || columns_of(&matrix, operand) == 0)
        return false;
    *ret_shape = (struct tensor_shape){
        .address = matrix.address,
        .dtype = matrix.dtype,
        .size = {columns_of(&matrix, operand), rows, items},
        .stride = {stride_bytes(matrix.ld, element_size, rows),
                   stride_bytes(matrix.stride, element_size, items)},
        .box = {box->columns, box->rows, 1},
    };
    return true;
}

bool tensor_shape_of_edge(const struct gemmd_job *job,
                          int operand,
                          const struct link_box *box,
                          struct tensor_shape *ret_shape)
{
    bool rows_go_along_k = operand == GEMMD_TENSOR_A ? job->flags & GEMMD_JOB_TRANS_A
                                                     : !(job->flags & GEMMD_JOB_TRANS_B);

    if (rows_go_along_k || !tensor_shape_of(job, operand, box, ret_shape))
        return false;
    ret_shape->box[1] = (uint32_t)(ret_shape->size[1] % box->rows);
    return ret_shape->box[1] != 0;
}
