/*
 * A client for fuzzing: requests out of a small vocabulary with fields that the input chooses,
 * sound ones, nearly sound ones and bytes that are none, with descriptors of every kind.
 *
 * Owner: the target. Thread: the fuzzer's.
 */
#pragma once

#include "session_input.h"
#include <sys/types.h>

#define CLIENT_BUFFERS 6

struct fuzz_client {
    int fd; /* -1: not connected */
    uint32_t next_id;
    uint64_t buffers[CLIENT_BUFFERS]; /* numbers that were seen in replies */
    size_t buffers_seen;
    uint8_t replies[4096]; /* the rest of what was read */
    size_t replies_size;
};

void fuzz_client_hello(struct fuzz_client *client);
void fuzz_client_act(struct fuzz_client *client, struct session_input *input);
void fuzz_client_read(struct fuzz_client *client);
void fuzz_client_close(struct fuzz_client *client);
