/*
 * Products that fault the device, for tests: what computes is replaced, the daemon is the one that
 * users run. Over CUDA its kernel files are (--kernels, faulty_kernels_write()), on the CPU its
 * BLAS is (GEMMD_BLAS, faulty_blas.c), over the fake driver that driver (FAKE_DRIVER_FAULTS).
 * There, and nowhere else, an alpha of the table below is a fault.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum test_fault {
    TEST_FAULT_ADDRESS,    /* CPU: SIGSEGV */
    TEST_FAULT_MISALIGNED, /* CPU: SIGBUS */
    TEST_FAULT_TRAP,       /* CPU: abort() */
    TEST_FAULT_ENDLESS,    /* waits for longer than anybody; bounded by TEST_FAULT_SECONDS */
    TEST_FAULT_COUNT,
};

#define TEST_FAULT_SECONDS 60

/* alpha of fault f is TEST_FAULT_ALPHA + f: exact in fp32 too. */
#define TEST_FAULT_ALPHA 7001.0

const char *test_fault_name(enum test_fault fault);
/* The kernel files of this build in a directory that exists, each product of theirs with a faulty
 * alpha being a fault; but DOT's, which takes its jobs without a feed. False: they are not what
 * they were, or cannot be written. */
bool faulty_kernels_write(const char *directory);
/* Whether there is an OpenBLAS to be faulty. */
bool faulty_blas_is_possible(void);
/* For the environment of a daemon on the CPU: its BLAS, and a sanitizer that lets it die. With
 * `once`, a file that is there, only the first fault is one; it removes the file. */
void faulty_blas_choose(const char *once);
