#include "status.h"

#include <stdarg.h>
#include <stdio.h>

const char *status_name(enum status status)
{
    switch (status) {
#define STATUS(name, number, meaning)                                                              \
    case STATUS_##name:                                                                            \
        return #name;
#include "status.def"
#undef STATUS
    }
    return "UNKNOWN";
}

const char *status_meaning(enum status status)
{
    switch (status) {
#define STATUS(name, number, meaning)                                                              \
    case STATUS_##name:                                                                            \
        return meaning;
#include "status.def"
#undef STATUS
    }
    return "not a status of this version";
}

enum status fault_set(
    struct fault *ret_fault, enum status status, const char *argument, const char *format, ...)
{
    va_list args;

    ret_fault->status = status;
    (void)snprintf(ret_fault->argument, sizeof(ret_fault->argument), "%s", argument);
    va_start(args, format);
    (void)vsnprintf(ret_fault->message, sizeof(ret_fault->message), format, args);
    va_end(args);
    return status;
}
