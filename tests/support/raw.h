/*
 * A client without the client library, for tests: sends what it likes, sees what comes back.
 */
#pragma once

#include "../../proto/reply.h"
#include "daemon.h"

struct raw_reply {
    uint32_t id;
    struct fault fault;         /* STATUS_OK: it succeeded */
    struct reply_buffer buffer; /* of the buffer methods, without data */
};

/* A connection; asserts that there is one. */
int raw_connect(const struct test_daemon *daemon);
/* One that said hello. */
int raw_greeted(const struct test_daemon *daemon);
/* False when the peer does not take it. `passed` (-1: none) travels with the first byte. */
bool raw_send(int fd, const void *bytes, size_t size, int passed);
bool raw_request(int fd, const struct request *request, int passed);
/* False at the end of the connection. A descriptor that comes along is closed. */
bool raw_receive(int fd, struct raw_reply *ret_reply);
/* The next reply has this id and this status. */
void raw_expect(int fd, uint32_t id, enum status status);
/* One reply each for `first`, `first` + 1, ...: replies come in any order. */
void raw_expect_all(int fd, uint32_t first, uint32_t count, enum status status);
/* Sends, and waits for its reply. */
struct raw_reply raw_call(int fd, const struct request *request, int passed);
/* Reads until the daemon closes the connection; false when it has not within so many seconds. */
bool raw_ends(int fd, double seconds);

/* A gemm of fp32 without operands, row-major, m x n x k. */
struct request raw_product(uint32_t id, int64_t m, int64_t n, int64_t k);
