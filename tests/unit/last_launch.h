/*
 * What the fake driver was given with the last launch: for tests of what the worker launches.
 */
#pragma once

#include "fake_gpu.h"

static struct backend *gpu;
static struct gemmd_tensor_maps maps;
static struct gemmd_job launched;

static void keep_launch(const struct fake_driver_launch *launch)
{
    memcpy(&maps, launch->maps, sizeof(maps));
    launched = ((const struct gemmd_tensor_feed *)launch->parameter)->jobs[0];
}

static void open_fake(void)
{
    gpu = fake_gpu_open();
    fake_driver_on_launch(keep_launch);
}
