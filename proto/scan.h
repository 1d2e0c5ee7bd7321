/*
 * Bounds check of a msgpack message before msgpack-c sees it: msgpack-c allocates by claimed
 * counts (five bytes made it reserve 8 GiB), so counts are held against the bytes that are there.
 * Walks without allocating and without recursion.
 */
#pragma once

#include "../daemon/core/std.h"

#define SCAN_DEPTH_MAX 6 /* message array, params array, params map, operand map, one spare, ...   \
                          */

/* True when `bytes` holds exactly one well-formed msgpack object, nested at most SCAN_DEPTH_MAX,
 * every claimed length covered by bytes that follow, without extension types. */
bool scan_message(const uint8_t *bytes, size_t size);
