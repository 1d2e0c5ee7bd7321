/*
 * status.def is repeated in client/gemmd.h, which has no other header, and in proto/protocol.md:
 * the three say the same.
 */
#include "../../client/gemmd.h"
#include "../../daemon/core/status.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS(name, number, meaning)                                                              \
    static_assert((int)GEMMD_##name == (number), "gemmd.h and status.def differ in " #name);
#include "../../daemon/core/status.def"
#undef STATUS

static const struct {
    int number;
    const char *name, *meaning;
} listed[] = {

#define STATUS(name, number, meaning) {number, #name, meaning},
#include "../../daemon/core/status.def"
#undef STATUS
};

Test(status, has_its_name_and_meaning)
{
    for (size_t i = 0; i < ARRAY_SIZE(listed); i++) {
        cr_expect_str_eq(status_name(listed[i].number), listed[i].name);
        cr_expect_str_eq(status_meaning(listed[i].number), listed[i].meaning);
    }
    cr_expect_str_eq(status_name(9999), "UNKNOWN");
}

Test(status, has_numbers_without_gaps_in_order)
{
    for (size_t i = 0; i < ARRAY_SIZE(listed); i++)
        cr_expect_eq(listed[i].number, (int)i);
}

Test(status, stands_in_the_specification_row_by_row)
{
    FILE *file = fopen(PROTO_SOURCE "/protocol.md", "r");
    char line[1024], expected[1024];
    size_t rows = 0;

    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file) != NULL && strcmp(line, "## Errors\n") != 0)
        continue;
    while (fgets(line, sizeof(line), file) != NULL && strncmp(line, "## ", 3) != 0) {
        if (line[0] != '|' || line[2] < '0' || line[2] > '9')
            continue;
        cr_assert_lt(rows, ARRAY_SIZE(listed));
        snprintf(expected, sizeof(expected), "| %d | %s | %s |\n", listed[rows].number,
                 listed[rows].name, listed[rows].meaning);
        cr_expect_str_eq(line, expected);
        rows++;
    }
    cr_expect_eq(rows, ARRAY_SIZE(listed));
    fclose(file);
}

Test(status, cuts_a_long_message_at_its_end)
{
    struct fault fault;
    char text[2 * FAULT_MESSAGE_MAX];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    cr_expect_eq(fault_set(&fault, STATUS_LIMIT, text, "%s", text), STATUS_LIMIT);
    cr_expect_eq(strlen(fault.message), FAULT_MESSAGE_MAX - 1);
    cr_expect_eq(strlen(fault.argument), FAULT_ARGUMENT_MAX - 1);
}
