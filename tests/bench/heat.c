#include "heat.h"

static bool run_once(struct heat *heat)
{
    CUresult result = GPU_CALL(heat->gpu, GraphLaunch)(heat->graph.executable, heat->stream);

    if (result == CUDA_SUCCESS)
        result = cu(&heat->gpu->driver)->StreamSynchronize(heat->stream);
    return result == CUDA_SUCCESS;
}

static void *run(void *context)
{
    struct heat *heat = context;

    (void)cu(&heat->gpu->driver)->CtxSetCurrent(heat->gpu->device.context);
    pthread_mutex_lock(&heat->mutex);
    while (!heat->is_ending) {
        if (!heat->is_wanted || heat->has_failed) {
            heat->is_running = false;
            pthread_cond_broadcast(&heat->changed);
            pthread_cond_wait(&heat->changed, &heat->mutex);
            continue;
        }
        heat->is_running = true;
        pthread_mutex_unlock(&heat->mutex);
        bool is_well = run_once(heat);
        pthread_mutex_lock(&heat->mutex);
        heat->has_failed = !is_well;
    }
    pthread_mutex_unlock(&heat->mutex);
    return NULL;
}

int heat_init(struct heat *heat, struct gpu *gpu, struct gpu_graph *graph)
{
    *heat = (struct heat){.gpu = gpu,
                          .graph = *graph,
                          .mutex = PTHREAD_MUTEX_INITIALIZER,
                          .changed = PTHREAD_COND_INITIALIZER};
    *graph = (struct gpu_graph){0};
    if (cu(&gpu->driver)->StreamCreate(&heat->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return -1;
    return pthread_create(&heat->thread, NULL, run, heat) == 0 ? 0 : -1;
}

static void want(struct heat *heat, bool is_wanted)
{
    pthread_mutex_lock(&heat->mutex);
    heat->is_wanted = is_wanted;
    pthread_cond_broadcast(&heat->changed);
    while (!is_wanted && heat->is_running)
        pthread_cond_wait(&heat->changed, &heat->mutex);
    pthread_mutex_unlock(&heat->mutex);
}

void heat_on(struct heat *heat)
{
    want(heat, true);
}

void heat_off(struct heat *heat)
{
    want(heat, false);
}

void heat_deinit(struct heat *heat)
{
    heat_off(heat);
    pthread_mutex_lock(&heat->mutex);
    heat->is_ending = true;
    pthread_cond_broadcast(&heat->changed);
    pthread_mutex_unlock(&heat->mutex);
    (void)pthread_join(heat->thread, NULL);
    gpu_graph_free(heat->gpu, &heat->graph);
    (void)cu(&heat->gpu->driver)->StreamDestroy(heat->stream);
}
