/*
 * Device memory of a client, to lend: on a real GPU from its driver, on the CPU and the fake driver
 * a memfd. Only here does a test's own process use CUDA.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a real device's allocations, and the fake driver's, are multiples of. */
#define CLIENT_MEMORY_UNIT   (2u << 20)
#define CLIENT_MEMORY_HANDLE 64

struct client_memory {
    int fd;           /* -1: it has a legacy handle only */
    uint64_t size;    /* a multiple of the unit */
    uint8_t *data;    /* a memfd's; NULL on a real device */
    uint64_t address; /* of a real device */
};

struct client_memory client_memory_new(uint64_t size);
/* As cuMemAlloc() gives it: no descriptor that could be lent. */
struct client_memory client_memory_new_plain(uint64_t size);
void client_memory_handle(const struct client_memory *memory, uint8_t ret_handle[64]);
void client_memory_write(const struct client_memory *memory,
                         uint64_t offset,
                         const void *data,
                         uint64_t bytes);
void client_memory_read(const struct client_memory *memory,
                        uint64_t offset,
                        void *ret_data,
                        uint64_t bytes);
/* Element `i` of so many floats. */
void client_memory_set(const struct client_memory *memory, uint64_t i, float value);
float client_memory_get(const struct client_memory *memory, uint64_t i);
