/*
 * OpenBLAS, but a product with an alpha of faults.h is a fault of the process; when
 * $FAULTY_BLAS_ONCE names a file, only for the one process that removes it. For $GEMMD_BLAS.
 */
#include "../../daemon/worker/blas.h"
#include "faults.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* cblas's two functions, as the worker looks for them. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED __typeof__(*(blas_sgemm_fn)NULL) cblas_sgemm;
EXPORTED __typeof__(*(blas_dgemm_fn)NULL) cblas_dgemm;

/* Beyond the end of what it maps. */
static void fault_bus(void)
{
    int fd = memfd_create("empty", MFD_CLOEXEC);
    volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    (void)close(fd);
    page[0] = 1;
}

static void fault_endless(void)
{
    struct timespec left = {.tv_sec = TEST_FAULT_SECONDS};

    while (nanosleep(&left, &left) < 0)
        ;
}

static bool is_asked(double alpha)
{
    double fault = alpha - TEST_FAULT_ALPHA;
    const char *once = getenv("FAULTY_BLAS_ONCE");

    return fault >= 0 && fault < TEST_FAULT_COUNT && (!once || unlink(once) == 0);
}

static void fault_if_asked(double alpha)
{
    static volatile int *nowhere;

    if (!is_asked(alpha))
        return;
    if (alpha == TEST_FAULT_ALPHA + TEST_FAULT_ADDRESS)
        *nowhere = 1;
    if (alpha == TEST_FAULT_ALPHA + TEST_FAULT_MISALIGNED)
        fault_bus();
    if (alpha == TEST_FAULT_ALPHA + TEST_FAULT_TRAP)
        abort();
    if (alpha == TEST_FAULT_ALPHA + TEST_FAULT_ENDLESS)
        fault_endless();
}

/* The function of that name in OpenBLAS; without it there is nothing to be faulty in. */
static void *real(const char *name)
{
    static void *library;

    if (!library)
        library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

void cblas_sgemm(int order,
                 int trans_a,
                 int trans_b,
                 int m,
                 int n,
                 int k,
                 float alpha,
                 const float *a,
                 int lda,
                 const float *b,
                 int ldb,
                 float beta,
                 float *c,
                 int ldc)
{
    static blas_sgemm_fn function;
    void *symbol = function ? NULL : real("cblas_sgemm");

    if (symbol)
        memcpy(&function, &symbol, sizeof(function));
    fault_if_asked((double)alpha);
    function(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_dgemm(int order,
                 int trans_a,
                 int trans_b,
                 int m,
                 int n,
                 int k,
                 double alpha,
                 const double *a,
                 int lda,
                 const double *b,
                 int ldb,
                 double beta,
                 double *c,
                 int ldc)
{
    static blas_dgemm_fn function;
    void *symbol = function ? NULL : real("cblas_dgemm");

    if (symbol)
        memcpy(&function, &symbol, sizeof(function));
    fault_if_asked(alpha);
    function(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
