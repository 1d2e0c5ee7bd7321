#include "data.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE   4096u
#define PERIOD ((size_t)4093 * PAGE) /* 4093 is a prime */

static int make_period(struct data *data)
{
    size_t element = dtype_size(data->dtype);
    void *bytes;

    data->fd = memfd_create("bench-data", MFD_CLOEXEC);
    if (data->fd < 0 || ftruncate(data->fd, PERIOD) < 0)
        return -1;
    bytes = mmap(NULL, PERIOD, PROT_READ | PROT_WRITE, MAP_SHARED, data->fd, 0);
    if (bytes == MAP_FAILED)
        return -1;
    bench_fill(data->dtype, bytes, PERIOD / element, 1);

    CUresult result = GPU_CALL(data->gpu, MemAlloc)(&data->device, PERIOD);
    if (result == CUDA_SUCCESS)
        result = GPU_CALL(data->gpu, MemcpyHtoD)(data->device, bytes, PERIOD);
    (void)munmap(bytes, PERIOD);
    return result == CUDA_SUCCESS ? 0 : -1;
}

static int map_view(struct data *data, size_t size)
{
    char *view;

    data->view_size = (size + PERIOD - 1) / PERIOD * PERIOD;
    view =
        mmap(NULL, data->view_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (view == MAP_FAILED)
        return -1;
    data->view = view;
    for (size_t at = 0; at < data->view_size; at += PERIOD)
        if (mmap(view + at, PERIOD, PROT_READ, MAP_SHARED | MAP_FIXED, data->fd, 0) == MAP_FAILED)
            return -1;
    return 0;
}

int data_init(struct data *data, struct gpu *gpu, enum dtype dtype, size_t view_size)
{
    *data = (struct data){.gpu = gpu, .dtype = dtype, .fd = -1};
    if (make_period(data) == 0 && map_view(data, view_size) == 0)
        return 0;
    data_deinit(data);
    return -1;
}

void data_deinit(struct data *data)
{
    if (data->view)
        (void)munmap((void *)(uintptr_t)data->view, data->view_size);
    if (data->device)
        (void)GPU_CALL(data->gpu, MemFree)(data->device);
    fd_closep(&data->fd);
    *data = (struct data){.fd = -1};
}

int data_spread(const struct data *data, CUdeviceptr to, size_t size)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t at = 0; at < size && result == CUDA_SUCCESS; at += PERIOD)
        result =
            cu_parked(&data->gpu->driver)
                ->MemcpyDtoDAsync(to + at, data->device, MIN(PERIOD, size - at), data->gpu->stream);
    return result == CUDA_SUCCESS ? 0 : -1;
}
