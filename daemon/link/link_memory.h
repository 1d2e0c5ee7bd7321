/*
 * What lies in the link's memfd. Private to daemon/link/.
 *
 * Every line is written by one side, except the sleeping flags: the sleeper sets its flag, whoever
 * wakes it takes it back. Lines are 128 bytes because the prefetcher of current CPUs moves pairs of
 * 64. Rings start on pages of their own, so that a device can map them apart from the words.
 */
#pragma once

#include "../../kernels_src/abi/ring.h"
#include "../core/std.h"
#include "link.h"

#define LINK_MAGIC                                                                                 \
    0x326b6e696c646d67ull /* "gmdlink2": the last character is the layout version                  \
                           */
#define LINK_LINE 128
#define LINK_PAGE 4096

struct link_memory {
    /* written once, by link_create() */
    alignas(LINK_PAGE) uint64_t magic;
    uint64_t size;

    /* written by the front */
    alignas(LINK_LINE) uint64_t front_messages; /* sent on the socket so far */

    /* written by the worker */
    alignas(LINK_LINE) uint64_t commands_taken;
    uint64_t heartbeat;
    uint64_t device_answers;
    alignas(LINK_LINE) uint64_t worker_messages;

    alignas(LINK_LINE) uint32_t front_sleeps;
    alignas(LINK_LINE) uint32_t worker_sleeps;

    alignas(LINK_PAGE) struct gemmd_command commands[LINK_COMMANDS];
    alignas(LINK_PAGE) struct gemmd_completion completions[LINK_COMPLETIONS];
};

static_assert((LINK_COMMANDS & (LINK_COMMANDS - 1)) == 0, "slots are found by masking");
static_assert((LINK_COMPLETIONS & (LINK_COMPLETIONS - 1)) == 0, "slots are found by masking");
static_assert(LINK_COMPLETIONS >= LINK_COMMANDS, "a worker never waits to complete");
static_assert(sizeof(struct link_memory) % LINK_PAGE == 0, "the memory is whole pages");
