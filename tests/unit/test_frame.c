#include "../../proto/frame.h"

#include <criterion/criterion.h>
#include <string.h>

Test(frame, is_the_sixteen_bytes_of_the_specification)
{
    static const uint8_t expected[FRAME_HEADER_SIZE] = {
        'G', 'M', 'M', 'D', 1, 0, 2, 0, 0x78, 0x56, 0x34, 0x02, 0, 0, 0, 0,
    };
    uint8_t bytes[FRAME_HEADER_SIZE];

    frame_encode(bytes, 0x02345678, 2);
    cr_assert_arr_eq(bytes, expected, sizeof(expected));
}

Test(frame, decodes_what_it_encodes)
{
    static const uint32_t lengths[] = {1, 255, 256, 65536, FRAME_LENGTH_MAX};
    uint8_t bytes[FRAME_HEADER_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        for (uint16_t n_fds = 0; n_fds <= FRAME_FDS_MAX; n_fds++) {
            struct frame_header header = {0};

            frame_encode(bytes, lengths[i], n_fds);
            cr_assert_eq(frame_decode(bytes, FRAME_LENGTH_MAX, &header), 0);
            cr_assert_eq(header.length, lengths[i]);
            cr_assert_eq(header.n_fds, n_fds);
            cr_assert_eq(header.version, FRAME_VERSION);
        }
    }
}

/* One byte of a good header is replaced; the result and the untouched output are held. */
static void expect_refusal(size_t at, uint8_t byte, int expected)
{
    uint8_t bytes[FRAME_HEADER_SIZE];
    struct frame_header header = {.length = 77};

    frame_encode(bytes, 100, 0);
    bytes[at] = byte;
    cr_assert_eq(frame_decode(bytes, FRAME_LENGTH_MAX, &header), expected, "byte %zu", at);
    cr_assert_eq(header.length, 77, "an output was written on failure");
}

Test(frame, refuses_each_field_that_is_wrong)
{
    for (size_t at = 0; at < 4; at++)
        expect_refusal(at, 0x7f, FRAME_E_MAGIC);
    expect_refusal(4, 0, FRAME_E_VERSION);
    expect_refusal(4, 2, FRAME_E_VERSION);
    for (unsigned bit = 0; bit < 8; bit++)
        expect_refusal(5, (uint8_t)(1u << bit), FRAME_E_FLAGS);
    expect_refusal(6, FRAME_FDS_MAX + 1, FRAME_E_FDS);
    expect_refusal(7, 1, FRAME_E_FDS);
    expect_refusal(11, 0xff, FRAME_E_LENGTH);
    for (size_t at = 12; at < FRAME_HEADER_SIZE; at++)
        expect_refusal(at, 1, FRAME_E_FLAGS);
}

Test(frame, holds_the_length_against_the_receivers_cap)
{
    uint8_t bytes[FRAME_HEADER_SIZE];
    struct frame_header header;

    frame_encode(bytes, 0, 0);
    cr_expect_eq(frame_decode(bytes, 1000, &header), FRAME_E_LENGTH);
    frame_encode(bytes, 1000, 0);
    cr_expect_eq(frame_decode(bytes, 1000, &header), 0);
    frame_encode(bytes, 1001, 0);
    cr_expect_eq(frame_decode(bytes, 1000, &header), FRAME_E_LENGTH);
}

Test(frame, has_a_sentence_for_every_refusal)
{
    for (int r = FRAME_E_MAGIC; r <= FRAME_E_LENGTH; r++)
        cr_expect(strlen(frame_error(r)) > 20, "error %d", r);
}
