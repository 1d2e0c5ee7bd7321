#include "cuda_box.h"

/* Pitches of a 3D copy, in bytes: CU_DEVICE_ATTRIBUTE_MAX_PITCH is 2^31 - 1 on every device. */
#define PITCH_MAX INT32_MAX

static bool is_one_run(const struct cuda_box *box)
{
    return box->rows == 1 && box->items == 1;
}

/* Rows without a gap between them are one longer row; the items then take the rows' place. */
static struct cuda_box merge_rows(struct cuda_box box)
{
    bool has_gap = box.host_pitch != box.width || box.device_pitch != box.width;
    if (box.rows != 1 && has_gap)
        return box;

    box.width *= box.rows;
    box.rows = box.items;
    box.host_pitch = box.host_stride;
    box.device_pitch = box.device_stride;
    box.items = 1;
    return box;
}

/* The same bytes, row r of every item first: fewer calls when items are many and short. */
static struct cuda_box exchange_rows_and_items(struct cuda_box box)
{
    struct cuda_box exchanged = box;
    exchanged.rows = box.items;
    exchanged.host_pitch = box.host_stride;
    exchanged.device_pitch = box.device_stride;
    exchanged.items = box.rows;
    exchanged.host_stride = box.host_pitch;
    exchanged.device_stride = box.device_pitch;
    return exchanged;
}

/* Inputs may overlap themselves (a stride below the row length), which a 2D copy refuses. */
static bool pitches_fit(const struct cuda_box *box)
{
    return box->host_pitch >= box->width && box->device_pitch >= box->width &&
           box->host_pitch <= PITCH_MAX && box->device_pitch <= PITCH_MAX;
}

/* A 3D copy counts the distance of its slices in rows. */
static bool is_regular(uint64_t stride, uint64_t pitch, uint64_t rows)
{
    return stride % pitch == 0 && stride / pitch >= rows;
}

static int copy_run(const struct driver *driver,
                    CUstream stream,
                    enum cuda_box_direction direction,
                    const struct cuda_box *box,
                    struct fault *ret_fault)
{
    if (direction == CUDA_BOX_TO_DEVICE)
        return cu_try(driver, ret_fault, MemcpyHtoDAsync, box->device, box->host, box->width,
                      stream);
    return cu_try(driver, ret_fault, MemcpyDtoHAsync, box->host, box->device, box->width, stream);
}

/* One call for `depth` items whose distance is a whole number of rows. */
static int copy_slices(const struct driver *driver,
                       CUstream stream,
                       enum cuda_box_direction direction,
                       const struct cuda_box *box,
                       uint64_t depth,
                       struct fault *ret_fault)
{
    size_t host_height = depth > 1 ? box->host_stride / box->host_pitch : box->rows;
    size_t device_height = depth > 1 ? box->device_stride / box->device_pitch : box->rows;
    CUDA_MEMCPY3D copy = {.WidthInBytes = box->width, .Height = box->rows, .Depth = depth};
    if (direction == CUDA_BOX_TO_DEVICE) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = box->host;
        copy.srcPitch = box->host_pitch;
        copy.srcHeight = host_height;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = box->device;
        copy.dstPitch = box->device_pitch;
        copy.dstHeight = device_height;
    } else {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = box->device;
        copy.srcPitch = box->device_pitch;
        copy.srcHeight = device_height;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = box->host;
        copy.dstPitch = box->host_pitch;
        copy.dstHeight = host_height;
    }
    return cu_try(driver, ret_fault, Memcpy3DAsync, &copy, stream);
}

/* Pitches that no 2D copy takes: a call per row. */
static int copy_rows(const struct driver *driver,
                     CUstream stream,
                     enum cuda_box_direction direction,
                     const struct cuda_box *box,
                     struct fault *ret_fault)
{
    struct cuda_box row = *box;
    for (uint64_t i = 0; i < box->rows; i++) {
        int r = copy_run(driver, stream, direction, &row, ret_fault);
        if (r)
            return r;
        row.host += box->host_pitch;
        row.device += box->device_pitch;
    }
    return 0;
}

static int copy_items(const struct driver *driver,
                      CUstream stream,
                      enum cuda_box_direction direction,
                      const struct cuda_box *box,
                      struct fault *ret_fault)
{
    struct cuda_box item = *box;
    for (uint64_t i = 0; i < box->items; i++) {
        int r = pitches_fit(box) ? copy_slices(driver, stream, direction, &item, 1, ret_fault)
                                 : copy_rows(driver, stream, direction, &item, ret_fault);
        if (r)
            return r;
        item.host += box->host_stride;
        item.device += box->device_stride;
    }
    return 0;
}

int cuda_box_copy(const struct driver *driver,
                  CUstream stream,
                  enum cuda_box_direction direction,
                  const struct cuda_box *box,
                  struct fault *ret_fault)
{
    struct cuda_box merged = merge_rows(merge_rows(*box));
    if (merged.width == 0 || merged.rows == 0 || merged.items == 0)
        return 0;
    if (is_one_run(&merged))
        return copy_run(driver, stream, direction, &merged, ret_fault);

    if (pitches_fit(&merged) && is_regular(merged.host_stride, merged.host_pitch, merged.rows) &&
        is_regular(merged.device_stride, merged.device_pitch, merged.rows))
        return copy_slices(driver, stream, direction, &merged, merged.items, ret_fault);

    if (merged.items > merged.rows) {
        struct cuda_box exchanged = exchange_rows_and_items(merged);
        if (pitches_fit(&exchanged))
            return copy_items(driver, stream, direction, &exchanged, ret_fault);
    }
    return copy_items(driver, stream, direction, &merged, ret_fault);
}
