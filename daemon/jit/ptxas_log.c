#include "ptxas_log.h"

#include <stdlib.h>
#include <string.h>

/* The number in front of `unit` in a line: 2044 for " bytes spill stores". */
static uint32_t number_before(const char *line, const char *end, const char *unit)
{
    const char *found = memmem(line, (size_t)(end - line), unit, strlen(unit));
    const char *digits = found;

    if (!found)
        return 0;
    while (digits > line && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    return (uint32_t)strtoul(digits, NULL, 10);
}

static bool has_advisory(const char *line, const char *end)
{
    static const char mark[] = "(C75";

    return memmem(line, (size_t)(end - line), mark, sizeof(mark) - 1) != NULL;
}

void ptxas_log_read(const char *log, struct ptxas_usage *ret_usage)
{
    struct ptxas_usage usage = {0};

    while (*log) {
        const char *end = strchrnul(log, '\n');

        usage.registers = MAX(usage.registers, number_before(log, end, " registers"));
        usage.shared_memory = MAX(usage.shared_memory, number_before(log, end, " bytes smem"));
        usage.spill_bytes += number_before(log, end, " bytes spill stores");
        usage.spill_bytes += number_before(log, end, " bytes spill loads");
        usage.has_advisory |= has_advisory(log, end);
        log = *end ? end + 1 : end;
    }
    *ret_usage = usage;
}
