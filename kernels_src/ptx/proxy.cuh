/*
 * Between ordinary accesses and the asynchronous proxy (tensor copies, wgmma).
 */
#pragma once

#include "ptx/target_sm90a.cuh"

/* This thread's ordinary accesses to shared memory come before later asynchronous ones, for who
 * synchronises with it. */
DEVICE void fence_proxy_async_shared_cta()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void fence_proxy_async_global()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
