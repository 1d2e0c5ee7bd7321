#include "value_text.h"

#include <stdlib.h>
#include <string.h>

bool number_from_text(const char *text, int base, uint64_t max, uint64_t *ret_number)
{
    char *end;
    unsigned long long number;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    number = strtoull(text, &end, base);
    if (errno != 0 || *end != '\0' || number > max)
        return false;
    *ret_number = number;
    return true;
}

bool size_from_text(const char *text, uint64_t *ret_size)
{
    static const char units[] = "KMGT";
    char digits[32];
    size_t length = strlen(text);
    const char *unit = length > 0 ? strchr(units, text[length - 1]) : NULL;
    unsigned shift = unit ? 10u * (unsigned)(unit - units + 1) : 0;
    uint64_t number;

    if (unit)
        length--;
    if (length >= sizeof(digits))
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (!number_from_text(digits, 10, UINT64_MAX >> shift, &number))
        return false;
    *ret_size = number << shift;
    return true;
}

bool switch_from_text(const char *text, bool *ret_is_on)
{
    bool is_on = strcmp(text, "yes") == 0;

    if (!is_on && strcmp(text, "no") != 0)
        return false;
    *ret_is_on = is_on;
    return true;
}

/* Levenshtein's, one row at a time. What is longer than any of our words is as far away as can be.
 */
size_t text_distance(const char *a, const char *b)
{
    size_t row[64];
    const size_t length = strlen(b);

    if (length >= ARRAY_SIZE(row) || strlen(a) >= ARRAY_SIZE(row))
        return SIZE_MAX;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t replaced = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            row[j + 1] = MIN(MIN(row[j], row[j + 1]) + 1, replaced);
        }
    }
    return row[length];
}
