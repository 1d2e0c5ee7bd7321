#include "cache_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_SUFFIX     ".entry"
#define TEMPORARY_PREFIX ".new-"

/* --- which directory ------------------------------------------------------------------------- */

/* An absolute path from the environment; relative ones are ignored, as the XDG specification asks:
 * they would put the cache into whatever directory the daemon was started in. */
static const char *absolute(const char *variable)
{
    const char *value = getenv(variable);

    return value && value[0] == '/' ? value : NULL;
}

/* Where a kind of directory lies: what systemd says, what the XDG specification says. */
struct place {
    const char *service, *xdg, *home;
};

static const struct place cache_place = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", ".cache"};
static const struct place state_place = {"STATE_DIRECTORY", "XDG_STATE_HOME", ".local/state"};

static bool
choose_path(const char *directory, const struct place *place, char ret_path[CACHE_DISK_PATH_MAX])
{
    const char *base;
    int n;

    if (directory)
        n = snprintf(ret_path, CACHE_DISK_PATH_MAX, "%s", directory);
    else if ((base = absolute(place->service)))
        n = snprintf(ret_path, CACHE_DISK_PATH_MAX, "%.*s", (int)strcspn(base, ":"), base);
    else if ((base = absolute(place->xdg)))
        n = snprintf(ret_path, CACHE_DISK_PATH_MAX, "%s/gemmd", base);
    else if ((base = absolute("HOME")))
        n = snprintf(ret_path, CACHE_DISK_PATH_MAX, "%s/%s/gemmd", base, place->home);
    else
        n = 0;
    return n > 0 && n < CACHE_DISK_PATH_MAX;
}

static int make_directories(const char *path)
{
    char part[CACHE_DISK_PATH_MAX];

    (void)snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST && access(part, F_OK) < 0)
            return errno;
        *slash = '/';
    }
    return mkdir(part, 0700) < 0 && errno != EEXIST ? errno : 0;
}

/* A cubin is code that runs on everybody's data: nobody else may be able to put one here. */
static bool is_safe(int fd, char reason[CACHE_DISK_REASON_MAX])
{
    struct stat status;

    if (fstat(fd, &status) < 0) {
        (void)snprintf(reason, CACHE_DISK_REASON_MAX, "fstat: %s", strerror(errno));
        return false;
    }
    if (status.st_uid != geteuid()) {
        (void)snprintf(reason, CACHE_DISK_REASON_MAX, "it is owned by uid %u, not by %u",
                       status.st_uid, geteuid());
        return false;
    }
    if (status.st_mode & (S_IWGRP | S_IWOTH)) {
        (void)snprintf(reason, CACHE_DISK_REASON_MAX, "others can write to it (mode %04o)",
                       status.st_mode & 07777);
        return false;
    }
    return true;
}

static bool open_place(struct cache_disk *disk,
                       const char *directory,
                       const struct place *place,
                       char ret_reason[CACHE_DISK_REASON_MAX])
{
    struct cache_disk new = CACHE_DISK_NULL;
    int r;

    if (!choose_path(directory, place, new.path)) {
        if (directory)
            (void)snprintf(ret_reason, CACHE_DISK_REASON_MAX, "the path has over %d bytes",
                           CACHE_DISK_PATH_MAX - 1);
        else
            (void)snprintf(ret_reason, CACHE_DISK_REASON_MAX,
                           "no absolute path of at most %d bytes in %s, %s or HOME",
                           CACHE_DISK_PATH_MAX - 1, place->service, place->xdg);
        return false;
    }
    r = make_directories(new.path);
    if (r == 0)
        new.fd = open(new.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (new.fd < 0) {
        (void)snprintf(ret_reason, CACHE_DISK_REASON_MAX, "%s", strerror(r ? r : errno));
        return false;
    }
    if (!is_safe(new.fd, ret_reason)) {
        cache_disk_close(&new);
        return false;
    }
    *disk = new;
    return true;
}

bool cache_disk_open(struct cache_disk *disk,
                     const char *directory,
                     char ret_reason[CACHE_DISK_REASON_MAX])
{
    return open_place(disk, directory, &cache_place, ret_reason);
}

bool cache_disk_open_state(struct cache_disk *disk,
                           const char *directory,
                           char ret_reason[CACHE_DISK_REASON_MAX])
{
    return open_place(disk, directory, &state_place, ret_reason);
}

void cache_disk_close(struct cache_disk *disk)
{
    fd_closep(&disk->fd);
    disk->path[0] = '\0';
}

void cache_disk_name(const struct key *key, char ret_name[CACHE_DISK_NAME_MAX])
{
    char text[KEY_TEXT_SIZE];

    key_to_text(key, text);
    (void)snprintf(ret_name, CACHE_DISK_NAME_MAX, "%s" ENTRY_SUFFIX, text);
}

/* --- one file -------------------------------------------------------------------------------- */

static int read_all(int fd, size_t size, void **ret_bytes)
{
    cleanup(freep) uint8_t *bytes = malloc(size ? size : 1);
    size_t done = 0;

    if (!bytes)
        return ENOMEM;
    while (done < size) {
        ssize_t n = read(fd, bytes + done, size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return EIO; /* nobody shortens a file here: they are replaced */
        done += (size_t)n;
    }
    *ret_bytes = steal(bytes, NULL);
    return 0;
}

int cache_disk_read(const struct cache_disk *disk,
                    const char *name,
                    size_t limit,
                    bool is_use,
                    void **ret_bytes,
                    size_t *ret_size)
{
    /* NONBLOCK: a FIFO under an entry's name must not hold a thread for ever. */
    cleanup(fd_closep) int fd =
        openat(disk->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    int r;

    if (fd < 0)
        return errno == ELOOP ? EPERM : errno;
    if (fstat(fd, &status) < 0)
        return errno;
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return EPERM;
    if ((uint64_t)status.st_size > limit)
        return EFBIG;
    r = read_all(fd, (size_t)status.st_size, ret_bytes);
    if (r)
        return r;
    *ret_size = (size_t)status.st_size;
    if (is_use)
        (void)futimens(fd, NULL); /* a read-only disk keeps no record, and evicts nothing either */
    return 0;
}

static int write_all(int fd, const void *bytes, size_t size)
{
    const uint8_t *next = bytes;

    while (size > 0) {
        ssize_t n = write(fd, next, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        next += n;
        size -= (size_t)n;
    }
    return 0;
}

static int create_temporary(int directory, char ret_name[32], int *ret_fd)
{
    uint64_t random;
    int fd;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return errno;
    (void)snprintf(ret_name, 32, TEMPORARY_PREFIX "%016llx", (unsigned long long)random);
    fd = openat(directory, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    *ret_fd = fd;
    return 0;
}

int cache_disk_write(const struct cache_disk *disk,
                     const char *name,
                     const void *head,
                     size_t head_size,
                     const void *body,
                     size_t body_size)
{
    cleanup(fd_closep) int fd = -1;
    char temporary[32];
    int r = create_temporary(disk->fd, temporary, &fd);

    if (r)
        return r;
    r = write_all(fd, head, head_size);
    if (!r)
        r = write_all(fd, body, body_size);
    if (!r && (fsync(fd) < 0 || renameat(disk->fd, temporary, disk->fd, name) < 0))
        r = errno;
    if (r)
        (void)unlinkat(disk->fd, temporary, 0);
    else
        (void)fsync(disk->fd); /* the entry is whole either way; at worst it is compiled again */
    return r;
}

int cache_disk_remove(const struct cache_disk *disk, const char *name)
{
    return unlinkat(disk->fd, name, 0) < 0 ? errno : 0;
}

/* --- all files ------------------------------------------------------------------------------- */

static bool key_from_name(const char *name, struct key *ret_key)
{
    char text[KEY_TEXT_SIZE];

    if (strlen(name) != KEY_TEXT_SIZE - 1 + sizeof(ENTRY_SUFFIX) - 1 ||
        strcmp(name + KEY_TEXT_SIZE - 1, ENTRY_SUFFIX) != 0)
        return false;
    memcpy(text, name, KEY_TEXT_SIZE - 1);
    text[KEY_TEXT_SIZE - 1] = '\0';
    return key_from_text(text, ret_key);
}

static void remove_dead_temporary(int directory, const char *name)
{
    struct stat status;

    if (strncmp(name, TEMPORARY_PREFIX, sizeof(TEMPORARY_PREFIX) - 1) == 0 &&
        fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_mtime < time(NULL) - TEMPORARY_SECONDS)
        (void)unlinkat(directory, name, 0);
}

static int compare_use(const void *a, const void *b)
{
    const struct cache_file *x = a, *y = b;

    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

struct file_list {
    struct cache_file *files;
    size_t count, capacity;
};

static void file_list_deinit(struct file_list *list)
{
    free(list->files);
}

static int file_list_add(struct file_list *list, const struct key *key, const struct stat *status)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        struct cache_file *files = realloc(list->files, capacity * sizeof(*files));

        if (!files)
            return ENOMEM;
        list->files = files;
        list->capacity = capacity;
    }
    list->files[list->count++] = (struct cache_file){
        .key = *key,
        .size = (uint64_t)status->st_size,
        .used_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
    };
    return 0;
}

static int scan_names(DIR *directory, struct file_list *list)
{
    struct dirent *member;

    while ((member = readdir(directory)) && list->count < CACHE_DISK_FILES_MAX) {
        struct stat status;
        struct key key;
        int r;

        if (!key_from_name(member->d_name, &key)) {
            remove_dead_temporary(dirfd(directory), member->d_name);
            continue;
        }
        if (fstatat(dirfd(directory), member->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue; /* removed by another process in between */
        r = file_list_add(list, &key, &status);
        if (r)
            return r;
    }
    return 0;
}

int cache_disk_scan(const struct cache_disk *disk, struct cache_file **ret_files, size_t *ret_count)
{
    cleanup(file_list_deinit) struct file_list list = {0};
    /* Opened anew: a duplicate would share its read position with other threads. */
    int r, fd = openat(disk->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory;

    if (fd < 0)
        return errno;
    directory = fdopendir(fd);
    if (!directory) {
        r = errno;
        (void)close(fd);
        return r;
    }
    r = scan_names(directory, &list);
    (void)closedir(directory);
    if (r)
        return r;
    if (list.count > 0)
        qsort(list.files, list.count, sizeof(*list.files), compare_use);
    *ret_count = list.count;
    *ret_files = steal(list.files, NULL);
    return 0;
}

int cache_disk_lock(const struct cache_disk *disk, const struct key *key, int *ret_fd)
{
    cleanup(fd_closep) int fd =
        openat(disk->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    /* A lock of an open file description, not of the process: two threads exclude each other too.
     */
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    uint64_t offset;

    if (fd < 0)
        return errno;
    memcpy(&offset, key->bytes, sizeof(offset));
    range.l_start = (off_t)(offset & (UINT64_MAX >> 2)); /* so that its end is positive too */
    if (fcntl(fd, F_OFD_SETLK, &range) < 0)
        return errno == EACCES ? EAGAIN : errno;
    *ret_fd = steal(fd, -1);
    return 0;
}
