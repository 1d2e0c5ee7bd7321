/*
 * Status codes and the fault record: what a refused request carries back to whoever asked.
 */
#pragma once

#include "std.h"

enum status {

#define STATUS(name, number, meaning) STATUS_##name = (number),
#include "status.def"
#undef STATUS
};

#define FAULT_ARGUMENT_MAX 48
#define FAULT_MESSAGE_MAX  1024 /* enough for the first lines of a compiler log */

/*
 * Which argument (wire path such as "a.ld"; empty when none), and one sentence that says what was
 * given and what is allowed.
 */
struct fault {
    enum status status;
    char argument[FAULT_ARGUMENT_MAX];
    char message[FAULT_MESSAGE_MAX];
};

#define FAULT_NONE ((struct fault){.status = STATUS_OK})

const char *status_name(enum status status);    /* "INVALID_ARGUMENT"; "UNKNOWN" when not listed */
const char *status_meaning(enum status status); /* the sentence of status.def */

/* Fills `ret_fault` and returns `status`, so that `return fault_set(...)` reads well. */
enum status fault_set(struct fault *ret_fault,
                      enum status status,
                      const char *argument,
                      const char *format,
                      ...) printf_like(4, 5);
