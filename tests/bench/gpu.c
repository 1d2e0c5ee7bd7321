#include "gpu.h"

/* Not driver_init(): eager loading is the worker's need, and would load all of cuBLASLt. */
static int init(struct driver *driver, struct fault *ret_fault)
{
    int r = driver_load(driver, ret_fault);
    if (r)
        return r;
    CUresult result = cu(driver)->Init(0);
    if (result == CUDA_SUCCESS)
        result = cu(driver)->DriverGetVersion(&driver->version);
    if (result == CUDA_SUCCESS && !driver_symbol(driver, "cuEventCreate"))
        result = CUDA_ERROR_NOT_SUPPORTED; /* a stand-in for a driver: nothing to time */
    if (result == CUDA_SUCCESS)
        return 0;
    fault_set(ret_fault, STATUS_UNSUPPORTED, "", "cuInit: %s", driver_error_name(driver, result));
    return DRIVER_E_ABSENT;
}

int gpu_open(struct gpu *gpu, const char *selector, struct fault *ret_fault)
{
    *gpu = (struct gpu){0};
    int r = init(&gpu->driver, ret_fault);
    if (!r)
        r = cuda_device_init(&gpu->device, &gpu->driver, selector, &gpu->facts, ret_fault);
    if (r)
        return r;

    cuda_kernels_init(&gpu->kernels, &gpu->driver);
    r = cu_try(&gpu->driver, ret_fault, StreamCreate, &gpu->stream, CU_STREAM_NON_BLOCKING);
    CUresult result = GPU_CALL(gpu, EventCreate)(&gpu->start, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = GPU_CALL(gpu, EventCreate)(&gpu->stop, CU_EVENT_DEFAULT);
    return r ? r : driver_check(&gpu->driver, result, "cuEventCreate", ret_fault);
}

void gpu_close(struct gpu *gpu)
{
    cuda_kernels_deinit(&gpu->kernels);
    (void)cu(&gpu->driver)->StreamDestroy(gpu->stream);
    cuda_device_deinit(&gpu->device, &gpu->driver);
}

int gpu_graph_capture(struct gpu *gpu,
                      gpu_launch_fn launch,
                      void *context,
                      size_t sets,
                      size_t launches,
                      struct gpu_graph *ret_graph)
{
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    int r = 0;
    /* relaxed: a library may allocate while it is captured */
    CUresult result =
        GPU_CALL(gpu, StreamBeginCapture)(gpu->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS)
        return (int)result;

    for (size_t i = 0; i < launches && r == 0; i++)
        r = launch(context, gpu->stream, i % sets);
    result = GPU_CALL(gpu, StreamEndCapture)(gpu->stream, &graph);
    if (r == 0 && result == CUDA_SUCCESS)
        result = GPU_CALL(gpu, GraphInstantiateWithFlags)(&executable, graph, 0);
    if (graph)
        (void)GPU_CALL(gpu, GraphDestroy)(graph);
    if (r || result != CUDA_SUCCESS)
        return r ? r : (int)result;
    *ret_graph = (struct gpu_graph){.executable = executable, .launches = launches};
    return 0;
}

void gpu_graph_free(struct gpu *gpu, struct gpu_graph *graph)
{
    if (graph->executable)
        (void)GPU_CALL(gpu, GraphExecDestroy)(graph->executable);
    graph->executable = NULL;
}

int gpu_graph_start(struct gpu *gpu, const struct gpu_graph *graph, size_t repeats)
{
    __typeof__(cuGraphLaunch) *launch = GPU_CALL(gpu, GraphLaunch);
    CUresult result = GPU_CALL(gpu, EventRecord)(gpu->start, gpu->stream);
    for (size_t i = 0; i < repeats && result == CUDA_SUCCESS; i++)
        result = launch(graph->executable, gpu->stream);
    if (result == CUDA_SUCCESS)
        result = GPU_CALL(gpu, EventRecord)(gpu->stop, gpu->stream);
    return result == CUDA_SUCCESS ? 0 : -1;
}

double gpu_graph_finish(struct gpu *gpu, const struct gpu_graph *graph, size_t repeats)
{
    float milliseconds = 0;
    CUresult result = GPU_CALL(gpu, EventSynchronize)(gpu->stop);
    if (result == CUDA_SUCCESS)
        result = GPU_CALL(gpu, EventElapsedTime)(&milliseconds, gpu->start, gpu->stop);
    if (result != CUDA_SUCCESS)
        return -1;
    return (double)milliseconds * 1e-3 / (double)(repeats * graph->launches);
}

double gpu_graph_time(struct gpu *gpu, const struct gpu_graph *graph, size_t repeats)
{
    if (gpu_graph_start(gpu, graph, repeats) < 0)
        return -1;
    return gpu_graph_finish(gpu, graph, repeats);
}
