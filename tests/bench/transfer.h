/*
 * How long a copy between host and device takes alone: through a CUDA context of this process on
 * registered memory where there is one, else as a buffer.copy of the daemon.
 */
#pragma once

#include "bench.h"

struct transfer;
struct work;
struct copier;

/* `uuid` "": no GPU. `work` is borrowed: its connection serves where there is none. */
int transfer_open(struct transfer **ret, struct work *work, const char *uuid, size_t bytes_max);
void transfer_close(struct transfer *transfer);
int transfer_time(struct transfer *transfer, size_t bytes, bool to_device, double *ret_seconds);
/* Both directions at once, until the second one is done; through a daemon one after the other. */
int transfer_time_both(struct transfer *transfer, size_t in, size_t out, double *ret_seconds);
const char *transfer_how(const struct transfer *transfer);

/* A CUDA context of our own (copier.c); NULL when there is none. */
struct copier *copier_open(const char *uuid, void *memory, size_t bytes);
void copier_close(struct copier *copier);
int copier_copy(struct copier *copier, size_t bytes, bool to_device, size_t times);
int copier_copy_both(struct copier *copier, size_t in, size_t out, size_t times);
