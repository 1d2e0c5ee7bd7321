/*
 * What tells one build of a loaded library from another, wherever its file lies: the linker's build
 * ID, or, in a library linked without one, a hash of its code.
 */
#pragma once

#include "../core/std.h"

#define LIBRARY_BUILD_MAX 64

/* `symbol` is an address inside the library. Writes "id-<hex>", "code-<hex>" or, when the address
 * lies in no loaded object, "unknown". */
void library_build(const void *symbol, char *ret_text, size_t size);
