/*
 * A directory for one test and small files in it; removed with everything inside at the end of the
 * scope: `cleanup(scratch_remove) struct scratch scratch = scratch_new();`
 */
#pragma once

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct scratch {
    char path[256];
};

struct scratch_path {
    char text[512];
};

static inline struct scratch scratch_new(void)
{
    struct scratch scratch = {.path = "/tmp/gemmd-test-XXXXXX"};

    if (!mkdtemp(scratch.path))
        abort();
    return scratch;
}

static inline int
scratch_unlink(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void scratch_remove(struct scratch *scratch)
{
    (void)nftw(scratch->path, scratch_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct scratch_path scratch_path(const struct scratch *scratch, const char *name)
{
    struct scratch_path path;

    (void)snprintf(path.text, sizeof(path.text), "%s/%s", scratch->path, name);
    return path;
}

/* Makes the folders in `name` too. */
static inline void
scratch_write(const struct scratch *scratch, const char *name, const void *bytes, size_t size)
{
    struct scratch_path path = scratch_path(scratch, name);
    FILE *file;

    for (char *slash = strchr(path.text + strlen(scratch->path) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path.text, 0700);
        *slash = '/';
    }
    file = fopen(path.text, "w");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static inline void
scratch_write_text(const struct scratch *scratch, const char *name, const char *text)
{
    scratch_write(scratch, name, text, strlen(text));
}
