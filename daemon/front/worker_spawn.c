/*
 * Starts a process of the worker's role, at the end of a link that was made for it.
 */
#include "worker_internal.h"

#include "../core/log.h"

#include <inttypes.h>
#include <stdio.h>

const char *worker_device_argument(const struct worker_process *worker)
{
    return worker->pinned[0] != '\0' ? worker->pinned : worker->selector;
}

int worker_spawn(struct worker_handles *handles, struct link *link, uv_exit_cb exited)
{
    const struct worker_process *worker = handles->worker;
    /* Numbers 3 to 6 in the child, as its arguments say. */
    uv_stdio_container_t stdio[] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 1},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = link->fds.memory},
        {.flags = UV_INHERIT_FD, .data.fd = link->fds.command_event},
        {.flags = UV_INHERIT_FD, .data.fd = link->fds.completion_event},
        {.flags = UV_INHERIT_FD, .data.fd = link->peer_socket},
    };
    char scratch[24];
    char *arguments[] = {
        (char *)"gemmd",
        (char *)"worker",
        (char *)"--device",
        (char *)worker_device_argument(worker),
        (char *)"--memory",
        (char *)"3",
        (char *)"--command-event",
        (char *)"4",
        (char *)"--completion-event",
        (char *)"5",
        (char *)"--socket",
        (char *)"6",
        (char *)"--log-level",
        (char *)log_level_name(log_level()),
        (char *)"--scratch",
        scratch,
        NULL,
    };
    uv_process_options_t options = {
        .file = "/proc/self/exe",
        .args = arguments,
        .exit_cb = exited,
        .stdio = stdio,
        .stdio_count = ARRAY_SIZE(stdio),
        .flags = UV_PROCESS_DETACHED, /* ^C is for the front, which then drains */
    };
    int r;

    (void)snprintf(scratch, sizeof(scratch), "%" PRIu64, worker->scratch);
    (void)uv_poll_init(worker->loop, &handles->socket_poll, link->fds.socket);
    (void)uv_poll_init(worker->loop, &handles->event_poll, link->fds.completion_event);
    handles->is_open = true;
    r = uv_spawn(worker->loop, &handles->process, &options);
    if (r == 0)
        fd_closep(&link->peer_socket);
    return r;
}

static void handle_closed(struct worker_handles *handles)
{
    if (--handles->closing > 0)
        return;
    handles->is_open = false;
    handles->closed(handles);
}

static void process_closed(uv_handle_t *handle)
{
    handle_closed(container_of(handle, struct worker_handles, process));
}

static void socket_poll_closed(uv_handle_t *handle)
{
    handle_closed(container_of(handle, struct worker_handles, socket_poll));
}

static void event_poll_closed(uv_handle_t *handle)
{
    handle_closed(container_of(handle, struct worker_handles, event_poll));
}

/* uv_process_t is in use also after a failed spawn, until it is closed. */
void worker_handles_close(struct worker_handles *handles,
                          void (*closed)(struct worker_handles *handles))
{
    handles->closing = 3;
    handles->closed = closed;
    uv_close((uv_handle_t *)&handles->process, process_closed);
    uv_close((uv_handle_t *)&handles->socket_poll, socket_poll_closed);
    uv_close((uv_handle_t *)&handles->event_poll, event_poll_closed);
}
