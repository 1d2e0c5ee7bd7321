/*
 * Stands in for backend_cuda.c in a build without CUDA headers: there is no such device.
 */
#include "backend.h"

int backend_cuda_open(const char *selector,
                      const struct link *link,
                      struct backend **ret_backend,
                      struct fault *ret_fault)
{
    (void)link;
    (void)ret_backend;
    (void)fault_set(ret_fault, STATUS_UNSUPPORTED, "device",
                    "%s cannot be used: this gemmd was built without CUDA (no cuda.h was found)",
                    selector);
    return BACKEND_E_ABSENT;
}
