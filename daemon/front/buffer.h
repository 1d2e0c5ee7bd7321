/*
 * Buffers: memory that outlives a request. The front holds every descriptor, so a buffer outlives
 * the worker; it is charged to the uid that made it until the last of its users is gone: handles
 * of connections, jobs under way, and the name.
 *
 * A connection knows buffers by handles, as a process knows files by descriptors: a number means
 * nothing in another connection, so there is nothing to guess. Named buffers are opened like
 * files: owner, group and mode of the maker decide.
 *
 * Owner: the server owns the table; buffers are counted. Thread: loop.
 */
#pragma once

#include "../../proto/request.h"
#include "../core/list.h"
#include "../limits.h"
#include "quota.h"
#include "slab.h"
#include "worker_process.h"

/* Of the place in its allocation where imported memory begins: plans count on it (product.c). */
#define BUFFER_IMPORT_ALIGNMENT 256

struct session;

struct copies;

struct buffers {
    struct list all; /* struct buffer */
    struct worker_process *worker;
    struct quota *quota;
    struct slabs slabs;
    uint64_t count;
};

enum copy_state {
    COPY_NONE,
    COPY_WANTED,  /* its memory is asked for */
    COPY_FILLING, /* a job copies */
    COPY_READY,
};

/* Of a frozen host buffer, on the device: copies.h. */
struct copy {
    struct list link; /* in copies.used */
    enum copy_state state;
    struct copies *copies;
    struct buffer *memory;  /* counted; NULL: COPY_NONE */
    uint64_t not_before_ns; /* when to try again */
};

struct buffer {
    struct list link;
    struct buffers *table;
    struct memory memory; /* its own: buffer_memory() */
    struct slab_cut cut;  /* taken: it lies there */
    enum buffer_kind kind;
    uint64_t size;
    uint64_t allocation; /* device memory: what it takes on the device, and what is charged */
    bool is_exportable;
    bool is_frozen;         /* host memory that nobody writes any more, by its owner's word */
    struct copy copy;       /* of it */
    struct buffer *copy_of; /* this is such a copy; NULL once that let it go */
    dev_t device; /* device and inode of host memory: two registrations can be of one memfd */
    ino_t inode;  /* 0: device memory, which has one buffer */
    char name[BUFFER_NAME_MAX + 1]; /* empty: unnamed */
    uid_t uid;
    gid_t gid;
    mode_t mode;
    uint32_t references;
    bool has_maker;   /* the connection that made it still has its handle */
    bool is_made;     /* false until its creation was answered */
    bool is_clearing; /* a job of its creation zeroes it */
    struct charge charge_count, charge_fd, charge_bytes;
    void (*changed)(struct buffer *buffer); /* its memory is MAPPED or LOST now; or NULL */
    /* creation under way: who waits for the answer */
    struct session *requester;
    uint32_t request_id;
};

struct buffer_request {
    enum buffer_kind kind;
    enum link_memory_kind import; /* DEVICE_FOREIGN, DEVICE_IPC; 0: ours, or a client's memfd */
    uint64_t size;
    uint64_t offset;       /* import: where in its allocation it begins */
    uint64_t allocation;   /* import: bytes of that; 0: it ends with the buffer */
    const uint8_t *handle; /* DEVICE_IPC: LINK_IPC_HANDLE bytes */
    const char *name;      /* NULL: unnamed */
    size_t name_size;
    mode_t mode;
    bool is_writable, is_exportable;
    uid_t uid;
    gid_t gid;
    int fd; /* a client's memfd that passed buffer_check_memfd(), or an imported descriptor;
               consumed on success; -1: ours */
};

enum {
    BUFFER_E_FAULT = 1, /* the fault says which argument, what was given, what is allowed */
};

void buffers_init(struct buffers *buffers, struct worker_process *worker, struct quota *quota);
void buffers_deinit(struct buffers *buffers);
/* At the end of the daemon: takes every name away, and what no worker answered for. */
void buffers_end(struct buffers *buffers);

/* One reference, for the caller. The memory is asked for; `changed` is called when it is there, and
 * never from here: a small buffer's may be MAPPED when this returns. */
int buffer_new(struct buffers *buffers,
               const struct buffer_request *request,
               void (*changed)(struct buffer *buffer),
               struct buffer **ret_buffer,
               struct fault *ret_fault);
struct buffer *buffer_ref(struct buffer *buffer);
struct buffer *buffer_unref(struct buffer *buffer); /* NULL is allowed; returns NULL */

/* By name, as the mode allows. One reference, for the caller. */
int buffer_open(struct buffers *buffers,
                const struct buffer_request *request,
                struct buffer **ret_buffer,
                struct fault *ret_fault);
void buffer_forget_name(struct buffer *buffer);
/* Nobody writes it from now on: no job through the daemon, no new mapping where seals can say so.
 */
void buffer_freeze(struct buffer *buffer);
void buffer_drop_copy(struct buffer *buffer); /* idempotent */
/* Its memory was refused: once more. */
int buffer_ask_again(struct buffer *buffer);
struct memory *buffer_memory(struct buffer *buffer);
/* Where the worker has it; its memory is MAPPED. */
uint64_t buffer_address(struct buffer *buffer);
/* Device memory of a client's. */
bool buffer_is_imported(const struct buffer *buffer);
/* One memory, be it by two names: equal offsets are then equal bytes. Of imported device memory it
 * cannot be known: two descriptors of one allocation look like any two. */
bool buffer_is_same_memory(const struct buffer *a, const struct buffer *b);
/* A descriptor for a client to map: read-only unless it may write (device memory's always lets its
 * holder write). -errno. */
int buffer_export(const struct buffer *buffer, bool writable, int *ret_fd);

/* A memfd that a client wants registered: shrinking sealed, as large as claimed, no huge pages. */
enum status buffer_check_memfd(int fd, uint64_t size, bool writable, struct fault *ret_fault);

/* --- handles --------------------------------------------------------------------------------- */

struct handle {
    struct buffer *buffer; /* counted; NULL: free */
    bool is_writable, is_maker;
    uint32_t generation;
};

/* Owner: a session. */
struct handles {
    struct handle *entries;
    uint32_t capacity;
    uint32_t count;
};

void handles_deinit(struct handles *handles);
/* Opening a name again and again must end somewhere. */
#define HANDLES_MAX LIMIT_BUFFERS_PER_UID

/* Takes the reference on success; BUFFER_E_FAULT when the connection has HANDLES_MAX. */
int handles_add(struct handles *handles,
                struct buffer *buffer,
                bool writable,
                bool maker,
                uint64_t *ret_id,
                struct fault *ret_fault);
/* Through this handle. False with the fault, about `argument`, which is `id`. */
bool handle_may_write(const struct handle *handle,
                      const char *argument,
                      uint64_t id,
                      struct fault *ret_fault);
struct handle *handles_find(const struct handles *handles, uint64_t id);
/* Gives the number back. The maker's takes the name away; so does the owner's uid when the maker
 * is gone, or a name whose maker died could never be removed. */
void handles_remove(struct handles *handles, struct handle *handle, uid_t uid);
