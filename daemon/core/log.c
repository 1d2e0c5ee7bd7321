#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNSET (-1) /* LOG_LEVEL_INFO */

static const char *log_role = "gemmd";
static atomic_int log_threshold = UNSET;
static bool log_prefix;

void log_init(const char *role, enum log_level level)
{
    log_role = role;
    atomic_store(&log_threshold, (int)level);
    log_prefix = !isatty(STDERR_FILENO);
}

void log_silence(void)
{
    int unset = UNSET;

    (void)atomic_compare_exchange_strong(&log_threshold, &unset, LOG_LEVEL_NONE);
}

static const struct {
    const char *name;
    enum log_level level;
} level_names[] = {
    {"error", LOG_LEVEL_ERROR},
    {"warning", LOG_LEVEL_WARNING},
    {"info", LOG_LEVEL_INFO},
    {"debug", LOG_LEVEL_DEBUG},
};

bool log_level_from_text(const char *text, enum log_level *ret_level)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
        if (strcmp(text, level_names[i].name) == 0) {
            *ret_level = level_names[i].level;
            return true;
        }
    }
    return false;
}

const char *log_level_name(enum log_level level)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
        if (level_names[i].level == level)
            return level_names[i].name;
    return "unknown";
}

enum log_level log_level(void)
{
    int level = atomic_load(&log_threshold);

    return level == UNSET ? LOG_LEVEL_INFO : (enum log_level)level;
}

void log_message(enum log_level level, const char *format, ...)
{
    char line[LOG_LINE_MAX];
    va_list args;
    int head, body;
    size_t length;

    if (level > log_level())
        return;

    if (log_prefix)
        head = snprintf(line, sizeof(line), "<%d>%s: ", (int)level, log_role);
    else
        head = snprintf(line, sizeof(line), "%s: ", log_role);

    va_start(args, format);
    body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, args);
    va_end(args);

    length = (size_t)head + (size_t)MAX(body, 0);
    if (length > sizeof(line) - 2) {
        length = sizeof(line) - 2;
        memcpy(line + length - 3, "...", 3);
    }
    line[length++] = '\n';
    (void)!write(STDERR_FILENO, line, length);
}
