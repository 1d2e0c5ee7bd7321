#include "cache.h"

#include <stdlib.h>

void cubin_deinit(struct cubin *cubin)
{
    free(cubin->bytes);
    *cubin = CUBIN_NULL;
}
