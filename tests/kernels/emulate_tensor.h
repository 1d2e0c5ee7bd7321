/*
 * Tensor maps for the emulated hardware: the worker's own description of each operand, in the form
 * that host/ptx/tma.cuh reads in place of the driver's words.
 */
#pragma once

#include "../../daemon/plan/config.h"
#include "../../daemon/worker/tensor_shape.h"

static inline struct gemmd_tensor_map tensor_map_of(const struct tensor_shape *shape)
{
    return (struct gemmd_tensor_map){{
        shape->address,
        shape->size[0],
        shape->size[1],
        shape->size[2],
        shape->stride[0],
        shape->stride[1],
        shape->box[0],
        shape->box[1],
        dtype_size(shape->dtype),
    }};
}

static inline void tensor_maps_of(const struct config *config,
                                  const struct gemmd_feed *feed,
                                  struct gemmd_tensor_maps *ret_maps)
{
    struct config_resources resources;
    struct tensor_shape shape;

    *ret_maps = (struct gemmd_tensor_maps){0};
    config_resources(config, &resources);
    for (uint32_t i = 0; i < feed->job_count * GEMMD_TENSOR_COUNT; i++) {
        uint32_t job = i / GEMMD_TENSOR_COUNT, operand = i % GEMMD_TENSOR_COUNT;
        struct link_box box = {resources.box[operand].columns, resources.box[operand].rows};

        if (box.columns && tensor_shape_of(&feed->jobs[job], (int)operand, &box, &shape))
            ret_maps->of[job][operand] = tensor_map_of(&shape);
        if (box.columns && operand <= GEMMD_TENSOR_B &&
            tensor_shape_of_edge(&feed->jobs[job], (int)operand, &box, &shape))
            ret_maps->edge[job][operand] = tensor_map_of(&shape);
    }
}

/* For half of the runs: nothing that may still run writes the inputs. */
static inline void feed_settle(struct gemmd_feed *feed)
{
    for (uint32_t i = 0; i < feed->job_count; i++)
        feed->jobs[i].flags |= GEMMD_JOB_INPUTS_SETTLED;
}
