#include "../../proto/scan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

Test(scan, accepts_one_of_every_type)
{
    cr_expect(scan_message(BYTES(0xc0)));
    cr_expect(scan_message(BYTES(0xc2)));
    cr_expect(scan_message(BYTES(0xc3)));
    cr_expect(scan_message(BYTES(0x7f)));
    cr_expect(scan_message(BYTES(0xe0)));
    cr_expect(scan_message(BYTES(0xcc, 1)));
    cr_expect(scan_message(BYTES(0xcd, 1, 2)));
    cr_expect(scan_message(BYTES(0xce, 1, 2, 3, 4)));
    cr_expect(scan_message(BYTES(0xcf, 1, 2, 3, 4, 5, 6, 7, 8)));
    cr_expect(scan_message(BYTES(0xd0, 1)));
    cr_expect(scan_message(BYTES(0xd1, 1, 2)));
    cr_expect(scan_message(BYTES(0xd2, 1, 2, 3, 4)));
    cr_expect(scan_message(BYTES(0xd3, 1, 2, 3, 4, 5, 6, 7, 8)));
    cr_expect(scan_message(BYTES(0xca, 1, 2, 3, 4)));
    cr_expect(scan_message(BYTES(0xcb, 1, 2, 3, 4, 5, 6, 7, 8)));
    cr_expect(scan_message(BYTES(0xa0)));
    cr_expect(scan_message(BYTES(0xa2, 'h', 'i')));
    cr_expect(scan_message(BYTES(0xd9, 1, 'h')));
    cr_expect(scan_message(BYTES(0xda, 0, 1, 'h')));
    cr_expect(scan_message(BYTES(0xdb, 0, 0, 0, 1, 'h')));
    cr_expect(scan_message(BYTES(0xc4, 1, 0)));
    cr_expect(scan_message(BYTES(0xc5, 0, 1, 0)));
    cr_expect(scan_message(BYTES(0xc6, 0, 0, 0, 1, 0)));
    cr_expect(scan_message(BYTES(0x90)));
    cr_expect(scan_message(BYTES(0x92, 1, 2)));
    cr_expect(scan_message(BYTES(0xdc, 0, 2, 1, 2)));
    cr_expect(scan_message(BYTES(0xdd, 0, 0, 0, 2, 1, 2)));
    cr_expect(scan_message(BYTES(0x80)));
    cr_expect(scan_message(BYTES(0x81, 1, 2)));
    cr_expect(scan_message(BYTES(0xde, 0, 1, 1, 2)));
    cr_expect(scan_message(BYTES(0xdf, 0, 0, 0, 1, 1, 2)));
}

Test(scan, refuses_extensions_and_the_unused_tag)
{
    static const uint8_t tags[] = {0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8};
    uint8_t bytes[32] = {0};

    for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
        bytes[0] = tags[i];
        for (size_t size = 1; size <= sizeof(bytes); size++)
            cr_expect_not(scan_message(bytes, size), "tag %#x, %zu bytes", tags[i], size);
    }
}

Test(scan, refuses_claims_without_bodies)
{
    cr_expect_not(scan_message(BYTES(0xdd, 0xff, 0, 0, 0))); /* 4 G values in five bytes */
    cr_expect_not(scan_message(BYTES(0xdf, 0xff, 0xff, 0xff, 0xff)));
    cr_expect_not(scan_message(BYTES(0xc6, 0xff, 0xff, 0xff, 0xff)));
    cr_expect_not(scan_message(BYTES(0xdb, 0xff, 0xff, 0xff, 0xff)));
    cr_expect_not(scan_message(BYTES(0xdc, 0xff, 0xff)));
    cr_expect_not(scan_message(BYTES(0xde, 0x80, 0x00)));
    cr_expect_not(scan_message(BYTES(0x9f)));
    cr_expect_not(scan_message(BYTES(0x8f, 1, 2)));
    cr_expect_not(scan_message(BYTES(0xbf, 'x')));
    /* Both claims are true alone; together they are not. */
    cr_expect_not(scan_message(BYTES(0x92, 0x92, 1, 2)));
}

Test(scan, refuses_every_shortened_message_and_what_follows_one)
{
    static const uint8_t whole[] = {
        0x94, 0x00, 0xcd, 0x01, 0x02, 0xa4, 'g', 'e',  'm', 'm', 0x91, 0x82,
        0xa1, 'm',  0xcf, 0,    0,    0,    0,   0,    0,   0,   5,    0xa1,
        'a',  0x81, 0xa4, 'd',  'a',  't',  'a', 0xc4, 3,   1,   2,    3,
    };
    uint8_t longer[sizeof(whole) + 1] = {0};

    memcpy(longer, whole, sizeof(whole));
    cr_assert(scan_message(whole, sizeof(whole)));
    for (size_t size = 0; size < sizeof(whole); size++)
        cr_expect_not(scan_message(whole, size), "%zu bytes", size);
    cr_expect_not(scan_message(longer, sizeof(longer)));
    cr_expect_eq(scan_object(longer, sizeof(longer)), sizeof(whole));
}

Test(scan, refuses_nesting_over_its_bound_without_recursion)
{
    const size_t size = 100000;
    uint8_t *bytes = malloc(size);

    for (unsigned depth = 1; depth <= SCAN_DEPTH_MAX + 2; depth++) {
        memset(bytes, 0x91, depth);
        bytes[depth] = 0xc0;
        cr_expect_eq(scan_message(bytes, depth + 1), depth <= SCAN_DEPTH_MAX, "depth %u", depth);
    }
    memset(bytes, 0x91, size);
    bytes[size - 1] = 0xc0;
    cr_expect_not(scan_message(bytes, size));
    memset(bytes, 0x81, size);
    cr_expect_not(scan_message(bytes, size));
    free(bytes);
}

/* An array of `count` nils has count + 1 values. */
static size_t make_array(uint8_t *bytes, uint32_t count)
{
    bytes[0] = 0xdc;
    bytes[1] = (uint8_t)(count >> 8);
    bytes[2] = (uint8_t)count;
    memset(bytes + 3, 0xc0, count);
    return 3 + count;
}

Test(scan, bounds_the_values_of_a_request_but_not_of_a_reply)
{
    uint8_t bytes[SCAN_VALUES_MAX + 8];
    size_t size;

    size = make_array(bytes, SCAN_VALUES_MAX - 1);
    cr_expect(scan_message(bytes, size));
    size = make_array(bytes, SCAN_VALUES_MAX);
    cr_expect_not(scan_message(bytes, size));
    cr_expect_eq(scan_object(bytes, size), size);
}

Test(scan, leaves_empty_containers_at_once)
{
    cr_expect(scan_message(BYTES(0x93, 0x90, 0x80, 0x90)));
    cr_expect(scan_message(BYTES(0x92, 0x91, 0x90, 0xc0)));
    cr_expect(scan_message(BYTES(0x82, 0x90, 0x80, 0xa0, 0x81, 0xc0, 0xc0)));
}
