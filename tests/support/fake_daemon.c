/*
 * See fake_daemon.h. Any failure of the fake itself aborts: the test is then wrong, not the client.
 */
#include "fake_daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../proto/frame.h"
#include "naive.h"
#include "wire.h"

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fake daemon: %s: %s\n", what, strerror(errno));
    abort();
}

/* --- frames ---------------------------------------------------------------------------------- */

static void send_and_drop(struct fake_daemon *daemon, struct message *message, int passed)
{
    wire_transmit(daemon->fd, message->bytes, message->size, passed);
    message_deinit(message);
}

static void send_fault(struct fake_daemon *daemon, uint32_t id, const struct fault *fault)
{
    struct message message = MESSAGE_NULL;

    must(reply_encode_fault(id, fault, &message) == 0, "encode");
    send_and_drop(daemon, &message, -1);
}

/* --- buffers --------------------------------------------------------------------------------- */

static struct fake_buffer *find_buffer(struct fake_daemon *daemon, uint64_t id)
{
    if (id == 0 || id > FAKE_BUFFERS_MAX || daemon->buffers[id - 1].size == 0)
        return NULL;
    return &daemon->buffers[id - 1];
}

static struct fake_buffer *free_place(struct fake_daemon *daemon)
{
    for (size_t i = 0; i < FAKE_BUFFERS_MAX; i++) {
        if (daemon->buffers[i].size == 0)
            return &daemon->buffers[i];
    }
    must(false, "too many buffers");
    return NULL;
}

static void buffer_drop(struct fake_buffer *buffer)
{
    (void)munmap(buffer->data, buffer->size);
    (void)close(buffer->fd);
    *buffer = (struct fake_buffer){0};
}

static struct fake_buffer *buffer_new(struct fake_daemon *daemon, uint64_t size, int fd)
{
    struct fake_buffer *buffer = free_place(daemon);

    buffer->size = size;
    buffer->fd = fd;
    buffer->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(buffer->data != MAP_FAILED, "mmap");
    return buffer;
}

static void answer_buffer(struct fake_daemon *daemon, uint32_t id, const struct fake_buffer *buffer)
{
    bool passes =
        buffer->kind == BUFFER_HOST && daemon->options.misdeed != FAKE_FORGETS_THE_DESCRIPTOR;
    struct reply_buffer reply = {
        .id = (uint64_t)(buffer - daemon->buffers) + 1,
        .size = buffer->size,
        .kind = buffer->kind,
        .writable = buffer->is_writable,
    };
    struct message message = MESSAGE_NULL;

    if (daemon->options.misdeed == FAKE_LIES_ABOUT_THE_SIZE)
        must(ftruncate(buffer->fd, (off_t)buffer->size / 2) == 0, "ftruncate");
    if (daemon->options.misdeed == FAKE_CUTS_THE_BUFFER)
        reply.size /= 2;
    if (daemon->options.misdeed == FAKE_CONFUSES_THE_KIND)
        reply.kind = BUFFER_DEVICE;
    must(reply_encode_buffer(id, &reply, passes, &message) == 0, "encode");
    send_and_drop(daemon, &message, passes ? buffer->fd : -1);
}

static void create(struct fake_daemon *daemon, const struct request *request)
{
    const struct request_buffer *body = &request->body.buffer;
    int fd = memfd_create("fake", MFD_CLOEXEC);
    struct fake_buffer *buffer;

    must(fd >= 0 && ftruncate(fd, (off_t)body->size) == 0, "memfd");
    buffer = buffer_new(daemon, body->size, fd);
    buffer->kind = body->kind;
    buffer->is_writable = true;
    (void)snprintf(buffer->name, sizeof(buffer->name), "%.*s", (int)body->name_size,
                   body->name ? body->name : "");
    answer_buffer(daemon, request->id, buffer);
}

static void open_named(struct fake_daemon *daemon, const struct request *request)
{
    const struct request_buffer *body = &request->body.buffer;
    struct fault fault;

    for (size_t i = 0; i < FAKE_BUFFERS_MAX; i++) {
        struct fake_buffer *buffer = &daemon->buffers[i];

        if (buffer->size > 0 && strlen(buffer->name) == body->name_size &&
            memcmp(buffer->name, body->name, body->name_size) == 0) {
            buffer->is_writable = body->writable;
            answer_buffer(daemon, request->id, buffer);
            return;
        }
    }
    (void)fault_set(&fault, STATUS_NOT_FOUND, "name", "no buffer has that name");
    send_fault(daemon, request->id, &fault);
}

static void register_file(struct fake_daemon *daemon, const struct request *request, int fd)
{
    struct fake_buffer *buffer = buffer_new(daemon, request->body.buffer.size, dup(fd));
    struct message message = MESSAGE_NULL;
    struct reply_buffer reply;

    buffer->kind = BUFFER_HOST;
    buffer->is_writable = request->body.buffer.writable;
    reply = (struct reply_buffer){
        .id = (uint64_t)(buffer - daemon->buffers) + 1,
        .size = buffer->size,
        .kind = BUFFER_HOST,
        .writable = buffer->is_writable,
    };
    must(reply_encode_buffer(request->id, &reply, 0, &message) == 0, "encode");
    send_and_drop(daemon, &message, -1);
}

static void answer_empty(struct fake_daemon *daemon, uint32_t id)
{
    struct message message = MESSAGE_NULL;

    must(reply_encode_empty(id, &message) == 0, "encode");
    send_and_drop(daemon, &message, -1);
}

static void move_bytes(struct fake_daemon *daemon, const struct request *request)
{
    const struct request_buffer *body = &request->body.buffer;
    struct fake_buffer *buffer = find_buffer(daemon, body->id);
    struct message message = MESSAGE_NULL;
    struct reply_buffer reply = {0};

    must(buffer && body->offset + body->length <= buffer->size, "range of a write or read");
    if (request->method == METHOD_BUFFER_WRITE) {
        memcpy(buffer->data + body->offset, body->data, body->length);
        answer_empty(daemon, request->id);
        return;
    }
    reply.data = buffer->data + body->offset;
    reply.data_size = body->length;
    must(reply_encode_buffer(request->id, &reply, 0, &message) == 0, "encode");
    send_and_drop(daemon, &message, -1);
}

static void copy(struct fake_daemon *daemon, const struct request *request)
{
    const struct request_copy *body = &request->body.copy;
    struct fake_buffer *from = find_buffer(daemon, body->source);
    struct fake_buffer *to = find_buffer(daemon, body->destination);
    struct fault fault;

    if (!from || !to || body->source_offset + body->length > from->size ||
        body->destination_offset + body->length > to->size) {
        (void)fault_set(&fault, STATUS_INVALID_ARGUMENT, "length", "out of range");
        send_fault(daemon, request->id, &fault);
        return;
    }
    memmove(to->data + body->destination_offset, from->data + body->source_offset, body->length);
    answer_empty(daemon, request->id);
}

/* --- products -------------------------------------------------------------------------------- */

/* Where an operand lies; NULL when absent. */
static void *resolve(struct fake_daemon *daemon, const struct request_operand *operand)
{
    struct fake_buffer *buffer;

    if (operand->kind == OPERAND_INLINE)
        return (void *)(uintptr_t)operand->data;
    if (operand->kind != OPERAND_BUFFER)
        return NULL;
    buffer = find_buffer(daemon, operand->buffer);
    must(buffer && operand->offset < buffer->size, "an operand's buffer");
    return buffer->data + operand->offset;
}

static void check_inline_sizes(const struct problem *row_major, const struct request_gemm *gemm)
{
    for (int i = 0; i < OPERAND_D; i++) {
        enum operand_role role = (enum operand_role)i;

        if (gemm->column_major && role <= OPERAND_B)
            role = role == OPERAND_A ? OPERAND_B : OPERAND_A;
        if (gemm->operand[i].kind == OPERAND_INLINE)
            must(gemm->operand[i].size == problem_span(row_major, role), "size of inline data");
    }
}

static void release_held(struct fake_daemon *daemon)
{
    while (daemon->n_held > 0)
        send_and_drop(daemon, &daemon->held[--daemon->n_held], -1);
}

static void answer_product(struct fake_daemon *daemon, uint32_t id, const void *d, size_t size)
{
    struct reply_gemm reply = {
        .configuration = "fake.fp64",
        .epoch = 7,
        .queued_ns = 1500,
        .device_ns = 2500,
        .compile_seconds = 0.25,
        .data = d,
        .size = size,
    };
    bool slips = daemon->options.misdeed == FAKE_SLIPS_IN_A_DESCRIPTOR;
    struct message message = MESSAGE_NULL;

    must(reply_encode_gemm(id, &reply, &message) == 0, "encode");
    if (daemon->options.hold <= 1) {
        send_and_drop(daemon, &message, slips ? daemon->listen_fd : -1);
        return;
    }
    must(daemon->n_held < FAKE_HELD_MAX, "too many answers held");
    daemon->held[daemon->n_held++] = message;
    if (daemon->n_held == daemon->options.hold)
        release_held(daemon);
}

static void run_product(struct fake_daemon *daemon, const struct request *request)
{
    const struct request_gemm *gemm = &request->body.gemm;
    struct problem problem = gemm->problem;
    void *at[OPERAND_COUNT], *own = NULL;
    struct fault fault;
    size_t size = 0;

    must(problem_check(&problem, gemm->column_major, &fault) == STATUS_OK, fault.message);
    for (int i = 0; i < OPERAND_COUNT; i++)
        at[i] = resolve(daemon, &gemm->operand[i]);
    naive_normalize(&problem, gemm->column_major, at);
    check_inline_sizes(&problem, gemm);
    if (!at[OPERAND_D]) {
        size = problem_span(&problem, OPERAND_D);
        own = at[OPERAND_D] = calloc(1, size + 1);
    }
    naive_product(&problem, at);
    if (daemon->options.misdeed == FAKE_CUTS_THE_RESULT)
        size--;
    answer_product(daemon, request->id, size ? own : NULL, size);
    free(own);
}

/* --- requests -------------------------------------------------------------------------------- */

static void farewell(struct fake_daemon *daemon, enum status status, const char *message)
{
    struct fault fault;

    (void)fault_set(&fault, status, "", "%s", message);
    send_fault(daemon, UINT32_MAX, &fault);
    (void)shutdown(daemon->fd, SHUT_RDWR);
}

static void misbehave(struct fake_daemon *daemon)
{
    static const uint8_t garbage[64] = {1, 2, 3, 4, 5};
    struct message message = MESSAGE_NULL;
    struct request request = {.id = 1, .method = METHOD_STATUS};

    switch (daemon->options.misdeed) {
    case FAKE_CLOSES:
        (void)shutdown(daemon->fd, SHUT_RDWR);
        break;
    case FAKE_SENDS_GARBAGE:
        wire_transmit(daemon->fd, garbage, sizeof(garbage), -1);
        break;
    case FAKE_SENDS_NO_REPLY:
        must(request_encode(&request, 0, &message) == 0, "encode");
        send_and_drop(daemon, &message, -1);
        break;
    case FAKE_ANSWERS_WHAT_NOBODY_ASKED:
        answer_empty(daemon, 1u << 30);
        break;
    case FAKE_SAYS_FAREWELL:
        farewell(daemon, STATUS_PROTOCOL, "your frames are no frames");
        break;
    default:
        break;
    }
}

static bool product_misdeed_is_due(const struct fake_daemon *daemon)
{
    enum fake_misdeed misdeed = daemon->options.misdeed;

    return misdeed != FAKE_BEHAVES && misdeed != FAKE_CUTS_THE_RESULT &&
           misdeed <= FAKE_STAYS_SILENT && daemon->products > daemon->options.misdeed_after;
}

static void product(struct fake_daemon *daemon, const struct request *request)
{
    daemon->products++;
    if (product_misdeed_is_due(daemon)) {
        misbehave(daemon);
        return;
    }
    if (daemon->options.delay_ms)
        (void)usleep(daemon->options.delay_ms * 1000);
    if (daemon->options.refusal.status != STATUS_OK)
        send_fault(daemon, request->id, &daemon->options.refusal);
    else
        run_product(daemon, request);
}

static void hello(struct fake_daemon *daemon, uint32_t id)
{
    const struct fake_options *options = &daemon->options;
    struct reply_hello reply = {
        .version = options->version ? options->version : PROTOCOL_VERSION,
        .daemon = "9.8.7",
        .length_max = options->length_max ? options->length_max : FRAME_LENGTH_MAX,
        .in_flight_max = options->in_flight_max ? options->in_flight_max : 256,
        .device = "a thread",
        .device_kind = "cpu",
        .ready = !options->is_starting || daemon->hellos++ > 0,
    };
    struct message message = MESSAGE_NULL;

    if (options->misdeed == FAKE_TURNS_AWAY) {
        farewell(daemon, STATUS_LIMIT, "too many clients");
        return;
    }
    must(reply_encode_hello(id, &reply, &message) == 0, "encode");
    send_and_drop(daemon, &message, -1);
}

static void answer_map(struct fake_daemon *daemon, const struct request *request)
{
    struct message message = MESSAGE_NULL;
    struct reply_map *map;

    must(reply_map_new(&map) == 0, "map");
    reply_map_text(map, "method", method_name(request->method));
    reply_map_real(map, "seconds", 1.5);
    reply_map_unsigned(map, "removed", 3);
    must(reply_encode_map(request->id, map, &message) == 0, "encode");
    (void)reply_map_free(map);
    send_and_drop(daemon, &message, -1);
}

static void serve(struct fake_daemon *daemon, const struct request *request, int fd)
{
    struct fake_buffer *buffer;

    switch (request->method) {
    case METHOD_HELLO:
        hello(daemon, request->id);
        break;
    case METHOD_GEMM:
        product(daemon, request);
        break;
    case METHOD_GEMM_MANY:
        for (uint32_t i = 0; i < request->body.many.count; i++) {
            struct request one = {.id = request->id + i, .method = METHOD_GEMM};

            one.body.gemm = request->body.many.products[i].gemm;
            product(daemon, &one);
        }
        break;
    case METHOD_BUFFER_CREATE:
        create(daemon, request);
        break;
    case METHOD_BUFFER_REGISTER:
        register_file(daemon, request, fd);
        break;
    case METHOD_BUFFER_OPEN:
        open_named(daemon, request);
        break;
    case METHOD_BUFFER_FREE:
        buffer = find_buffer(daemon, request->body.buffer.id);
        if (buffer)
            buffer_drop(buffer);
        answer_empty(daemon, request->id);
        break;
    case METHOD_BUFFER_WRITE:
    case METHOD_BUFFER_READ:
        move_bytes(daemon, request);
        break;
    case METHOD_BUFFER_COPY:
        copy(daemon, request);
        break;
    default:
        answer_map(daemon, request);
        break;
    }
}

static void serve_connection(struct fake_daemon *daemon)
{
    uint8_t bytes[FRAME_HEADER_SIZE];
    struct frame_header header;
    struct request request;
    struct fault fault;

    for (;;) {
        int fd = -1;
        uint8_t *payload;

        atomic_store(&daemon->is_resting, true);
        if (!wire_receive(daemon->fd, bytes, sizeof(bytes), &fd))
            break;
        atomic_store(&daemon->is_resting, false);
        must(frame_decode(bytes, FRAME_LENGTH_MAX, &header) == 0, "frame");
        must(header.n_fds == (fd >= 0), "announced descriptors");
        payload = malloc(header.length);
        must(payload && wire_receive(daemon->fd, payload, header.length, NULL), "payload");
        if (header.length > atomic_load(&daemon->largest_frame))
            atomic_store(&daemon->largest_frame, header.length);
        must(request_decode(payload, header.length, &request, &fault) == 0, "request");
        atomic_fetch_add(&daemon->requests[request.method], 1);
        serve(daemon, &request, fd);
        request_deinit(&request);
        free(payload);
        fd_closep(&fd);
    }
    while (daemon->n_held > 0)
        message_deinit(&daemon->held[--daemon->n_held]);
}

static void *run(void *context)
{
    struct fake_daemon *daemon = context;

    while ((daemon->fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        serve_connection(daemon);
        (void)close(daemon->fd);
    }
    for (size_t i = 0; i < FAKE_BUFFERS_MAX; i++) {
        if (daemon->buffers[i].size > 0)
            buffer_drop(&daemon->buffers[i]);
    }
    return NULL;
}

void fake_daemon_start(struct fake_daemon *daemon, const struct fake_options *options)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *directory = getenv("TMPDIR");
    static unsigned started;

    memset(daemon, 0, sizeof(*daemon));
    if (options)
        daemon->options = *options;
    (void)snprintf(daemon->path, sizeof(daemon->path), "%s/gemmd-fake-%d-%u.sock",
                   directory ? directory : "/tmp", (int)getpid(), started++);
    memcpy(address.sun_path, daemon->path, sizeof(daemon->path));
    (void)unlink(daemon->path);
    daemon->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(daemon->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
    must(listen(daemon->listen_fd, 8) == 0, "listen");
    must(pthread_create(&daemon->thread, NULL, run, daemon) == 0, "thread");
}

void fake_daemon_stop(struct fake_daemon *daemon)
{
    (void)shutdown(daemon->listen_fd, SHUT_RDWR);
    (void)pthread_join(daemon->thread, NULL);
    (void)close(daemon->listen_fd);
    (void)unlink(daemon->path);
}
