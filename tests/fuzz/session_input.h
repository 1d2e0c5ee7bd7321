/*
 * The fuzzer's bytes, read as choices; zeros after their end.
 */
#pragma once

#include "../../daemon/core/std.h"

struct session_input {
    const uint8_t *data;
    size_t size;
};

static inline bool input_is_over(const struct session_input *input)
{
    return input->size == 0;
}

static inline uint8_t input_byte(struct session_input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

static inline unsigned input_below(struct session_input *input, unsigned bound)
{
    return input_byte(input) % bound;
}

/* Small ones, and those at which something ends. */
static inline uint64_t input_number(struct session_input *input)
{
    static const uint64_t numbers[] = {
        0,        1,          2,          3,          4,         7,          8,          16,
        64,       100,        255,        4096,       4097,      65536,      1u << 20,   16u << 20,
        1u << 31, UINT32_MAX, 1ull << 32, 1ull << 40, INT64_MAX, 1ull << 63, UINT64_MAX,
    };
    uint8_t choice = input_byte(input);

    return choice < 128 ? choice : numbers[choice % ARRAY_SIZE(numbers)];
}
