#include "settings_file.h"

#include <ini.h>
#include <stdio.h>
#include <string.h>

struct reading {
    FILE *file;
    const char *path;
    int line; /* counted from 1; 0: none was read */
    settings_fn take;
    void *context;
    char *message;
    bool is_wrong;
};

static void file_closep(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

/* The first complaint stays. */
static void complain(struct reading *reading, const char *sentence)
{
    if (reading->is_wrong)
        return;
    reading->is_wrong = true;
    (void)snprintf(reading->message, SETTINGS_MESSAGE_MAX, "%.128s:%d: %.320s", reading->path,
                   reading->line, sentence);
}

static bool take(struct reading *reading, const char *section, const char *key, const char *value)
{
    char sentence[SETTINGS_MESSAGE_MAX];

    if (!reading->is_wrong && !reading->take(reading->context, section, key, value, sentence))
        complain(reading, sentence);
    return !reading->is_wrong;
}

static int handle(void *context, const char *section, const char *key, const char *value)
{
    return take(context, section, key, value);
}

/* inih names a section only together with its first key. */
static void begin_section(struct reading *reading, const char *line)
{
    char name[64];
    size_t length = strcspn(line + 1, "]\n");

    if (line[1 + length] != ']') {
        complain(reading, "the section's ] is missing");
        return;
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)length, line + 1);
    (void)take(reading, name, NULL, NULL);
}

/* As fgets(), for inih. A NULL ends the reading. */
static char *read_line(char *line, int size, void *stream)
{
    struct reading *reading = stream;
    char sentence[96];

    if (reading->is_wrong)
        return NULL;
    if (!fgets(line, size, reading->file)) {
        if (ferror(reading->file))
            complain(reading, strerror(errno));
        return NULL;
    }
    reading->line++;
    if (!strchr(line, '\n') && !feof(reading->file)) {
        (void)snprintf(sentence, sizeof(sentence),
                       "the line is too long, or holds a zero byte; at most %d bytes are allowed",
                       size - 2);
        complain(reading, sentence);
        return NULL;
    }
    (void)memmove(line, line + strspn(line, " \t"), strlen(line + strspn(line, " \t")) + 1);
    if (line[0] == '[')
        begin_section(reading, line);
    return line;
}

int settings_read(const char *path,
                  settings_fn take_setting,
                  void *context,
                  char ret_message[SETTINGS_MESSAGE_MAX])
{
    cleanup(file_closep) FILE *file = fopen(path, "re");
    struct reading reading = {
        .file = file,
        .path = path,
        .take = take_setting,
        .context = context,
        .message = ret_message,
    };

    if (!file) {
        const int error = errno;

        (void)snprintf(ret_message, SETTINGS_MESSAGE_MAX, "%.128s cannot be read: %s", path,
                       strerror(error));
        return error == ENOENT || error == ENOTDIR ? SETTINGS_E_MISSING : SETTINGS_E_WRONG;
    }
    if (ini_parse_stream(read_line, &reading, handle, &reading) != 0)
        complain(&reading, "this is neither [section] nor key = value");
    return reading.is_wrong ? SETTINGS_E_WRONG : 0;
}
