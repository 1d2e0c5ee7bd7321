/*
 * A daemon for the client's tests: one thread, one connection at a time, products in double, and
 * misbehaviour on request. It speaks through proto/, so what it hears is what a real one would.
 *
 * Owner: the test. The thread ends when the client of the last connection is gone and stop() ran.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../../daemon/core/socket_path.h"
#include "../../proto/reply.h"

enum fake_misdeed {
    FAKE_BEHAVES,
    /* instead of answering a product: */
    FAKE_CLOSES,
    FAKE_SENDS_GARBAGE,  /* bytes that are no frame */
    FAKE_SENDS_NO_REPLY, /* a frame that holds something else */
    FAKE_ANSWERS_WHAT_NOBODY_ASKED,
    FAKE_CUTS_THE_RESULT, /* inline D shorter than it must be */
    FAKE_SAYS_FAREWELL,   /* the last reply of a daemon, then the end */
    FAKE_STAYS_SILENT,
    /* instead of answering hello: */
    FAKE_TURNS_AWAY,
    /* with a host buffer: */
    FAKE_FORGETS_THE_DESCRIPTOR,
    FAKE_LIES_ABOUT_THE_SIZE, /* the file is shorter than the buffer */
    FAKE_CUTS_THE_BUFFER,     /* shorter than what was asked for */
    FAKE_CONFUSES_THE_KIND,   /* says that it is device memory */
    /* with a product's answer: */
    FAKE_SLIPS_IN_A_DESCRIPTOR, /* that its frame does not announce */
};

struct fake_options {
    enum fake_misdeed misdeed;
    unsigned misdeed_after; /* products answered properly before it */
    struct fault refusal;   /* status set: the answer to every product */
    unsigned hold;          /* answers are kept until so many are there, then sent last first */
    unsigned delay_ms;      /* before a product is computed */
    uint32_t version, length_max, in_flight_max; /* 0: the usual */
    bool is_starting;                            /* ready only from the second hello on */
};

#define FAKE_BUFFERS_MAX 64
#define FAKE_HELD_MAX    64

struct fake_buffer {
    uint64_t size; /* 0: free place */
    enum buffer_kind kind;
    bool is_writable;
    int fd;
    uint8_t *data;
    char name[BUFFER_NAME_MAX + 1];
};

struct fake_daemon {
    struct fake_options options;
    char path[SOCKET_PATH_MAX + 1];
    int listen_fd;
    pthread_t thread;
    atomic_uint requests[METHOD_COUNT];
    atomic_ullong largest_frame; /* payload bytes of a request */
    atomic_bool is_resting;      /* what it took for the last one is freed */
    /* of the thread */
    int fd;
    unsigned products, hellos;
    struct fake_buffer buffers[FAKE_BUFFERS_MAX];
    struct message held[FAKE_HELD_MAX];
    unsigned n_held;
};

void fake_daemon_start(struct fake_daemon *daemon, const struct fake_options *options);
void fake_daemon_stop(struct fake_daemon *daemon);

/* Waits until its thread only waits for another request, before a fork: a lock that it had inside
 * the allocator would stay locked in the child, where the allocator does not mind forks
 * (AddressSanitizer's). */
static inline void fake_daemon_await_rest(struct fake_daemon *daemon)
{
    while (!atomic_load(&daemon->is_resting))
        (void)usleep(1000);
}
