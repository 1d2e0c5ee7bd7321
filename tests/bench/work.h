/*
 * One product through the daemon, again and again: a connection, operands of random data in its
 * buffers, and an engine for flow_run(). Inputs rotate over `sets` places, results over at least as
 * many as are in flight: two products that write the same place would run one after the other.
 *
 * Owner: whoever opened it. Thread: one.
 */
#pragma once

#include "client.h"
#include "flow.h"
#include "shapes.h"

struct work_options {
    const char *socket; /* NULL: the default path */
    struct shape shape;
    size_t sets, in_flight;
    size_t batch; /* products of one message; 0: one */
    gemmd_memory memory;
};

struct work {
    struct work_options options;
    gemmd *connection;
    size_t bytes[3], places[3]; /* of A, B, D */
    gemmd_buffer *buffers[3];
    void *host[3];
    gemmd_job jobs[FLOW_IN_FLIGHT_MAX];
    uint64_t next;
    size_t waiting[GEMMD_SUBMIT_MANY_MAX], waiting_count; /* slots that wait for their message */
    uint64_t sent, finished;
    char configuration[96];
};

/* 0, or 1 with a line on stderr; work_close() is due in both cases. */
int work_open(struct work *work, const struct work_options *options);
void work_close(struct work *work);
gemmd_product work_product(const struct work *work, uint64_t number);
/* Runs one product, so that its kernel is there when time is taken. */
int work_warm(struct work *work);
/* Runs one product over poisoned memory and holds it against the reference: 0 when it is right. */
int work_check(struct work *work);
struct flow_engine work_engine(struct work *work);

/* Places that together are three times an L2 of 60 MiB, shared by `processes`; at most 256. */
size_t work_sets(const struct shape *shape, size_t processes);
