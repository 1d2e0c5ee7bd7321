/*
 * Bounds check of a msgpack message before msgpack-c sees it: msgpack-c allocates by claimed
 * counts (five bytes made it reserve 8 GiB), so counts are held against the bytes that are there.
 * Walks without allocating and without recursion.
 */
#pragma once

#include "../daemon/core/std.h"

/* Containers around a value. Requests need 4 (message, params, fields, operand), the trees of
 * status and stats the rest; far under the 32 at which msgpack-c gives up. */
#define SCAN_DEPTH_MAX 6

/* Values in a request, keys and containers included. None needs a hundred; what msgpack-c makes of
 * this many is 192 KiB, whatever the frame's size. Replies come from the daemon and are bounded by
 * their frame alone: cache.list grows with the cache. */
#define SCAN_VALUES_MAX 4096

/* True when `bytes` holds exactly one well-formed msgpack object, nested at most SCAN_DEPTH_MAX, of
 * at most SCAN_VALUES_MAX values, every claimed length covered by bytes that follow, without
 * extension types. */
bool scan_message(const uint8_t *bytes, size_t size);

/* Bytes of the first object, by the same rules but for any number of values and with anything
 * behind it; 0 when there is none. */
size_t scan_object(const uint8_t *bytes, size_t size);
