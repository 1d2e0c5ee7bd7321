/*
 * The only macro header: what every file may assume to exist.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

/* The object that embeds `member`, from a pointer to that member. */
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Runs `fn(&variable)` when the variable leaves its scope. Destructors accept an empty object. */
#define cleanup(fn) __attribute__((cleanup(fn)))

/* printf-style checking; positions count from 1. */
#define printf_like(text, first) __attribute__((format(printf, text, first)))

/* Takes the value out of a variable and leaves `empty` behind: how ownership moves. */
#define steal(variable, empty)                                                                     \
    ({                                                                                             \
        __typeof__(variable) stolen_ = (variable);                                                 \
        (variable) = (empty);                                                                      \
        stolen_;                                                                                   \
    })

void fd_closep(int *fd);   /* cleanup(fd_closep) int fd = -1; closes when fd >= 0 */
void freep(void *pointer); /* cleanup(freep) char *p = NULL; */

/* Checked arithmetic: true when the result does not fit, `ret` is then unspecified. */
static inline bool add_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
    return __builtin_add_overflow(a, b, ret);
}

static inline bool mul_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
    return __builtin_mul_overflow(a, b, ret);
}
