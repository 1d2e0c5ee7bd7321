/*
 * Texts of the public enumerations, and memory handed to the caller.
 */
#include <stdlib.h>

#include "../daemon/core/dtype.h"
#include "../daemon/core/status.h"
#include "gemmd.h"

const char *gemmd_strerror(gemmd_status status)
{
    return status_name((enum status)status);
}

const char *gemmd_dtype_name(gemmd_dtype dtype)
{
    return dtype_name((enum dtype)dtype);
}

size_t gemmd_dtype_size(gemmd_dtype dtype)
{
    return dtype_size((enum dtype)dtype);
}

void gemmd_free(void *memory)
{
    free(memory);
}
