#include "compile_child.h"

#include "../core/error.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOCKET_FD        3   /* in the child, after the standard three */
#define DRAIN_SECONDS    0.2 /* between a child's exit and the end of its socket */
#define RETIREMENT_LIMIT 5.0 /* seconds for an idle child to see its socket closed and exit */

/* --- end ------------------------------------------------------------------------------------- */

static void handle_closed(uv_handle_t *handle)
{
    struct compile_child *child = handle->data;

    if (--child->open_handles > 0)
        return;
    list_unlink(&child->link);
    child->options.operations->gone(child, &child->how);
    free(child->body);
    free(child);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, handle_closed);
}

static void close_all(struct compile_child *child)
{
    child->state = COMPILE_CHILD_ENDING;
    close_handle((uv_handle_t *)&child->pipe);
    close_handle((uv_handle_t *)&child->timer);
    close_handle((uv_handle_t *)&child->process);
}

static void on_timer(uv_timer_t *timer);

static void arm(struct compile_child *child, double seconds)
{
    if (!uv_is_closing((uv_handle_t *)&child->timer))
        (void)uv_timer_start(&child->timer, on_timer, (uint64_t)(seconds * 1000), 0);
}

/* From now on it is waited for. */
static void arm_limit(struct compile_child *child)
{
    uint64_t limit_ms = (uint64_t)(child->options.time_limit_seconds * 1000);
    uint64_t look_ms = MAX(limit_ms / COMPILE_CHILD_LOOKS, 1);

    child->looks = 0;
    if (!uv_is_closing((uv_handle_t *)&child->timer))
        (void)uv_timer_start(&child->timer, on_timer, look_ms, look_ms);
}

/* Ends a child that must not live on. The first reason stands. */
static void kill_child(struct compile_child *child)
{
    child->state = COMPILE_CHILD_ENDING;
    if (!child->has_exited)
        (void)uv_process_kill(&child->process, SIGKILL);
}

/* Closes the socket and waits for the exit. */
static void retire(struct compile_child *child)
{
    child->state = COMPILE_CHILD_ENDING;
    child->has_ended = true;
    close_handle((uv_handle_t *)&child->pipe);
    arm(child, RETIREMENT_LIMIT);
}

static void on_timer(uv_timer_t *timer)
{
    struct compile_child *child = timer->data;

    if (child->has_exited) { /* and nothing more came */
        close_all(child);
        return;
    }
    switch (child->state) {
    case COMPILE_CHILD_IDLE:
        retire(child);
        return;
    case COMPILE_CHILD_STARTING:
    case COMPILE_CHILD_BUSY:
        if (++child->looks < COMPILE_CHILD_LOOKS)
            return;
        (void)fault_set(&child->how, STATUS_COMPILE_TIMEOUT, "",
                        "the compiler was stopped at its time limit of %g s",
                        child->options.time_limit_seconds);
        kill_child(child);
        return;
    case COMPILE_CHILD_ENDING:
        kill_child(child);
        return;
    }
}

static void describe_exit(struct compile_child *child, int64_t status, int number)
{
    if (number)
        (void)fault_set(&child->how, STATUS_COMPILE_FAILED, "",
                        "the compiler died of signal %d (%s); its memory limit is %llu MiB", number,
                        strsignal(number),
                        (unsigned long long)child->options.memory_limit_bytes >> 20);
    else
        (void)fault_set(&child->how, STATUS_COMPILE_FAILED, "",
                        "the compiler exited with status %lld", (long long)status);
}

static void on_exit_of(uv_process_t *process, int64_t status, int number)
{
    struct compile_child *child = process->data;

    child->has_exited = true;
    if (child->state != COMPILE_CHILD_ENDING && child->how.status == STATUS_OK)
        describe_exit(child, status, number);
    if (child->state == COMPILE_CHILD_IDLE)
        child->state = COMPILE_CHILD_ENDING;
    /* Its last answer may still lie in the socket. */
    if (child->has_ended)
        close_all(child);
    else
        arm(child, DRAIN_SECONDS);
}

/* --- messages -------------------------------------------------------------------------------- */

static void violate(struct compile_child *child, const char *what)
{
    (void)fault_set(&child->how, STATUS_COMPILE_FAILED, "", "the compiler sent %s", what);
    kill_child(child);
}

/* After a whole message: what the child can be used for now. */
static void settle(struct compile_child *child)
{
    child->state = child->has_exited ? COMPILE_CHILD_ENDING : COMPILE_CHILD_IDLE;
    if (!child->has_exited)
        (void)uv_timer_stop(&child->timer);
}

static void terminate_fault(struct fault *fault)
{
    fault->argument[sizeof(fault->argument) - 1] = '\0';
    fault->message[sizeof(fault->message) - 1] = '\0';
}

static void take_hello(struct compile_child *child)
{
    struct compile_hello *hello = (void *)child->body;

    if (child->header.size < sizeof(hello->protocol) || hello->protocol != COMPILE_PROTOCOL) {
        violate(child,
                "the hello of another version: the program was replaced, restart the daemon");
        return;
    }
    if (child->header.size != sizeof(*hello) || child->state != COMPILE_CHILD_STARTING) {
        violate(child, "a hello that is none");
        return;
    }
    hello->identity.build[sizeof(hello->identity.build) - 1] = '\0';
    terminate_fault(&hello->fault);
    child->was_ready = true;
    child->identity = hello->identity;
    settle(child);
    child->options.operations->hello(child, hello);
}

static void take_result(struct compile_child *child)
{
    struct compile_result *result = (void *)child->body;

    if (child->header.size < sizeof(*result) || child->state != COMPILE_CHILD_BUSY ||
        result->cubin_size != child->header.size - sizeof(*result) ||
        (result->fault.status == STATUS_OK) != (result->cubin_size > 0)) {
        violate(child, "an answer that is none");
        return;
    }
    terminate_fault(&result->fault);
    settle(child);
    child->options.operations->result(child, result, child->body + sizeof(*result));
}

static void take_message(struct compile_child *child)
{
    uint8_t *body = child->body;

    if (child->header.kind == COMPILE_HELLO)
        take_hello(child);
    else
        take_result(child);
    free(body);
    child->body = NULL;
    child->header_size = 0;
    child->body_size = 0;
}

static void take_header(struct compile_child *child)
{
    const struct compile_header *header = &child->header;

    if (header->magic != COMPILE_MAGIC ||
        (header->kind != COMPILE_HELLO && header->kind != COMPILE_RESULT) || header->size == 0 ||
        header->size > COMPILE_BODY_MAX) {
        violate(child, "a message that is none");
        return;
    }
    child->body = malloc(header->size);
    if (!child->body)
        violate(child, "more than there is memory for");
}

/* Never past the message at hand, so that its body lies in memory of its own. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct compile_child *child = handle->data;

    (void)suggested;
    if (child->state == COMPILE_CHILD_ENDING) { /* what it still says has no reader */
        *buffer = uv_buf_init((char *)&child->header, sizeof(child->header));
    } else if (child->body) {
        buffer->base = (char *)child->body + child->body_size;
        buffer->len = child->header.size - child->body_size;
    } else {
        buffer->base = (char *)&child->header + child->header_size;
        buffer->len = sizeof(child->header) - child->header_size;
    }
}

static void on_end(struct compile_child *child)
{
    child->has_ended = true;
    if (child->has_exited)
        close_all(child);
    else /* dying, and its exit says of what; or it closed its socket, and has no more use */
        (void)uv_process_kill(&child->process, SIGKILL);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    struct compile_child *child = stream->data;

    (void)buffer;
    if (size < 0) {
        (void)uv_read_stop(stream);
        on_end(child);
        return;
    }
    if (child->state == COMPILE_CHILD_ENDING)
        return;
    if (child->body) {
        child->body_size += (size_t)size;
        if (child->body_size == child->header.size)
            take_message(child);
    } else {
        child->header_size += (size_t)size;
        if (child->header_size == sizeof(child->header))
            take_header(child);
    }
}

/* --- start and use --------------------------------------------------------------------------- */

static int spawn(struct compile_child *child)
{
    const struct compile_child_options *options = &child->options;
    char fd[16], memory[32];
    char *arguments[] = {
        (char *)options->program,
        "compile",
        "--socket",
        fd,
        "--memory",
        memory,
        "--kernels",
        (char *)options->kernels_directory,
        NULL,
    };
    uv_stdio_container_t stdio[] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&child->pipe},
    };
    uv_process_options_t process = {
        .file = options->program,
        .args = arguments,
        .exit_cb = on_exit_of,
        .stdio = stdio,
        .stdio_count = ARRAY_SIZE(stdio),
    };
    int r;

    static_assert(ARRAY_SIZE(stdio) == SOCKET_FD + 1, "the socket is the last descriptor");
    (void)snprintf(fd, sizeof(fd), "%d", SOCKET_FD);
    (void)snprintf(memory, sizeof(memory), "%llu", (unsigned long long)options->memory_limit_bytes);
    if (!options->kernels_directory)
        arguments[ARRAY_SIZE(arguments) - 3] = NULL;
    r = uv_spawn(options->loop, &child->process, &process);
    if (!r)
        r = uv_read_start((uv_stream_t *)&child->pipe, on_alloc, on_read);
    return r;
}

int compile_child_start(struct compile_child **ret_child,
                        const struct compile_child_options *options)
{
    struct compile_child *child = calloc(1, sizeof(*child));
    int r;

    if (!child)
        return error_origin(-ENOMEM);
    list_init(&child->link);
    child->options = *options;
    child->how = FAULT_NONE;
    child->process.data = child->pipe.data = child->timer.data = child;
    child->open_handles = 3;
    (void)uv_pipe_init(options->loop, &child->pipe, 0);
    (void)uv_timer_init(options->loop, &child->timer);
    r = spawn(child);
    if (r) {
        (void)fault_set(&child->how, STATUS_COMPILE_FAILED, "",
                        "the compiler '%s' cannot be started: %s", options->program,
                        uv_strerror(r));
        child->has_exited = true;
        close_all(child);
    } else {
        arm_limit(child);
    }
    *ret_child = child;
    return 0;
}

struct outgoing {
    uv_write_t request;
    struct compile_header header;
    struct compile_request body;
};

static void on_written(uv_write_t *request, int r)
{
    (void)r; /* a child that does not read is one that ends */
    free(request->data);
}

void compile_child_ask(struct compile_child *child, const struct compile_request *request)
{
    struct outgoing *out = malloc(sizeof(*out));
    uv_buf_t buffers[2];

    assert(child->state == COMPILE_CHILD_IDLE);
    child->state = COMPILE_CHILD_BUSY;
    arm_limit(child);
    if (!out) {
        violate(child, "nothing, for the front has no memory to ask");
        return;
    }
    out->request.data = out;
    out->body = *request;
    out->header = (struct compile_header){
        .magic = COMPILE_MAGIC,
        .kind = COMPILE_REQUEST,
        .size = sizeof(out->body),
    };
    buffers[0] = uv_buf_init((char *)&out->header, sizeof(out->header));
    buffers[1] = uv_buf_init((char *)&out->body, sizeof(out->body));
    if (uv_write(&out->request, (uv_stream_t *)&child->pipe, buffers, 2, on_written) != 0) {
        free(out);
        violate(child, "nothing, for its socket is closed");
    }
}

void compile_child_rest(struct compile_child *child, double seconds)
{
    assert(child->state == COMPILE_CHILD_IDLE);
    arm(child, seconds);
}

void compile_child_stop(struct compile_child *child)
{
    if (child->state != COMPILE_CHILD_ENDING)
        kill_child(child);
}
