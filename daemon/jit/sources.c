#include "sources.h"

#include "../core/error.h"
#include "../core/std.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_BYTES 256
#define DEPTH_MAX      4 /* folders inside kernels_src/; also ends a loop of links */

static void directory_closep(DIR **directory)
{
    if (*directory)
        (void)closedir(*directory);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);

    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

static bool is_kernel_file(const char *name)
{
    return ends_with(name, ".cu") || ends_with(name, ".cuh") ||
           (strncmp(name, "abi/", 4) == 0 && ends_with(name, ".h"));
}

/* The whole file, zero-terminated. A short read (the file shrank) is not an error: an editor is at
 * work, and the compile will say what is wrong. */
static int read_text(int fd, size_t size, char **ret_text, size_t *ret_size)
{
    cleanup(freep) char *text = malloc(size + 1);
    size_t done = 0;

    if (!text)
        return error_origin(-ENOMEM);

    while (done < size) {
        ssize_t n = read(fd, text + done, size - done);

        if (n < 0)
            return error_origin(-errno);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    text[done] = '\0';
    *ret_text = steal(text, NULL);
    *ret_size = done;
    return 0;
}

static int append(struct sources *sources, const char *name, const char *text, size_t size)
{
    struct source_file *files;
    cleanup(freep) char *copy = NULL;

    if (sources->count == SOURCES_COUNT_MAX)
        return SOURCES_E_TOO_LARGE;
    files = realloc(sources->files, (sources->count + 1) * sizeof(*files));
    if (!files)
        return error_origin(-ENOMEM);
    sources->files = files;
    copy = strdup(name);
    if (!copy)
        return error_origin(-ENOMEM);
    files[sources->count++] =
        (struct source_file){.name = steal(copy, NULL), .text = text, .size = size};
    return 0;
}

static int add_file(struct sources *sources, int fd, const char *name, off_t size)
{
    cleanup(freep) char *text = NULL;
    size_t length;
    int r;

    if (size > SOURCES_FILE_MAX)
        return SOURCES_E_TOO_LARGE;
    r = read_text(fd, (size_t)size, &text, &length);
    if (r)
        return error_trace(r);
    r = append(sources, name, text, length);
    if (r)
        return r;
    text = NULL;
    return 0;
}

static int add_directory(struct sources *sources, int fd, const char *prefix, int depth);

static int add_member(struct sources *sources, int parent, const char *name, int depth)
{
    const char *last = strrchr(name, '/');
    cleanup(fd_closep) int fd = -1;
    struct stat status;

    fd = openat(parent, last ? last + 1 : name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_origin(-errno);
    if (S_ISDIR(status.st_mode))
        return depth < DEPTH_MAX ? add_directory(sources, steal(fd, -1), name, depth + 1) : 0;
    if (S_ISREG(status.st_mode) && is_kernel_file(name))
        return add_file(sources, fd, name, status.st_size);
    return 0;
}

/* Consumes `fd`. */
static int add_directory(struct sources *sources, int fd, const char *prefix, int depth)
{
    cleanup(directory_closep) DIR *directory = fdopendir(fd);
    struct dirent *member;

    if (!directory) {
        int r = -errno;

        (void)close(fd);
        return error_origin(r);
    }
    while ((member = readdir(directory))) {
        char name[NAME_MAX_BYTES];
        int length, r;

        if (member->d_name[0] == '.')
            continue;
        length = snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "/" : "", member->d_name);
        if (length < 0 || (size_t)length >= sizeof(name))
            return SOURCES_E_TOO_LARGE;
        r = add_member(sources, dirfd(directory), name, depth);
        if (r)
            return r;
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct source_file *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int open_embedded(struct sources *sources)
{
    for (size_t i = 0; i < sources_embedded_count; i++) {
        const struct source_file *file = &sources_embedded[i];
        int r = append(sources, file->name, file->text, file->size);

        if (r)
            return r;
    }
    return 0;
}

static int open_directory(struct sources *sources, const char *path)
{
    int r, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno; /* the caller names the directory; a trace would only repeat it */
    r = add_directory(sources, fd, "", 0);
    if (r)
        return r;
    if (sources->count == 0)
        return SOURCES_E_EMPTY;
    qsort(sources->files, sources->count, sizeof(*sources->files), compare_names);
    return 0;
}

int sources_open(struct sources *sources, const char *directory)
{
    cleanup(sources_deinit) struct sources new = SOURCES_NULL;
    int r;

    new.is_embedded = !directory; /* from here on: texts are not ours to free */
    r = directory ? open_directory(&new, directory) : open_embedded(&new);
    if (r)
        return r;
    *sources = steal(new, SOURCES_NULL);
    return 0;
}

void sources_deinit(struct sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) {
        free((char *)sources->files[i].name);
        if (!sources->is_embedded)
            free((char *)sources->files[i].text);
    }
    free(sources->files);
    *sources = SOURCES_NULL;
}

const struct source_file *sources_find(const struct sources *sources, const char *name)
{
    struct source_file wanted = {.name = name};

    if (sources->count == 0)
        return NULL;
    return bsearch(&wanted, sources->files, sources->count, sizeof(wanted), compare_names);
}
