#include "session_worker.h"

#include "../../daemon/link/link.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>

#define TAKEN_MAX LINK_COMMANDS

static struct {
    struct link link; /* the worker's end */
    bool is_alive, is_killed, is_lost;
    uv_process_t *process;
    uv_exit_cb exit_cb;
    struct gemmd_command taken[TAKEN_MAX];
    size_t taken_count;
    int pid;
} fake = {.link = {.peer_socket = -1}};

int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options);
int __wrap_uv_process_kill(uv_process_t *process, int signal_number);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat);
int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat);

static void fake_exit(int64_t status, int signal_number)
{
    uv_exit_cb exit_cb = steal(fake.exit_cb, NULL);

    if (!fake.is_alive)
        return;
    fake.is_alive = fake.is_killed = fake.is_lost = false;
    fake.taken_count = 0;
    link_deinit(&fake.link); /* as a process's end closes its descriptors */
    fake.link = LINK_NULL;
    exit_cb(fake.process, status, signal_number);
}

void fake_worker_reset(void)
{
    link_deinit(&fake.link);
    memset(&fake, 0, sizeof(fake));
    fake.link = LINK_NULL;
}

/* A handle that uv_close() takes and that no process stands behind. */
static void handle_init(uv_loop_t *loop, uv_process_t *process)
{
    static_assert(sizeof(uv_idle_t) <= sizeof(uv_process_t), "it is made in its place");
    (void)uv_idle_init(loop, (uv_idle_t *)process);
    process->pid = 1000000 + ++fake.pid;
}

static void hello(void)
{
    struct link_message message = {.kind = LINK_HELLO,
                                   .device = {.kind = LINK_DEVICE_CPU,
                                              .multiprocessors = 2,
                                              .memory = 1u << 30,
                                              .allocation_unit = 4096,
                                              .name = "fuzz",
                                              .driver = "none"}};

    (void)link_send(&fake.link, &message, NULL, 0);
}

int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options)
{
    struct link_fds fds;

    handle_init(loop, process);
    if (options->stdio_count < 7 || fake.is_alive)
        return UV_ENOENT; /* a compiler */
    fds = (struct link_fds){
        .memory = fcntl(options->stdio[3].data.fd, F_DUPFD_CLOEXEC, 0),
        .command_event = fcntl(options->stdio[4].data.fd, F_DUPFD_CLOEXEC, 0),
        .completion_event = fcntl(options->stdio[5].data.fd, F_DUPFD_CLOEXEC, 0),
        .socket = fcntl(options->stdio[6].data.fd, F_DUPFD_CLOEXEC, 0),
    };
    if (link_attach(&fake.link, &fds) != 0)
        return UV_EIO;
    fake.process = process;
    fake.exit_cb = options->exit_cb;
    fake.is_alive = true;
    hello();
    return 0;
}

int __wrap_uv_process_kill(uv_process_t *process, int signal_number)
{
    if (fake.is_alive && process == fake.process && signal_number == SIGKILL)
        fake.is_killed = true;
    return 0;
}

/* What is only waited for (the pause before a worker is started again, a look at who works) comes
 * at once, or an input would take most of its time for nothing. What ends somebody keeps its time.
 */
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat)
{
    return __real_uv_timer_start(timer, callback, ms < 2000 ? MIN(ms, 1u) : ms, repeat);
}

/* --- messages -------------------------------------------------------------------------------- */

static void answer_map(const struct link_message *request, bool is_refused)
{
    struct link_message answer = {.kind = LINK_MAPPED, .id = request->id};
    cleanup(fd_closep) int fd = -1;

    if (is_refused)
        (void)fault_set(&answer.fault, STATUS_OUT_OF_MEMORY, "size", "no memory for that");
    else
        answer.address = request->id << 40;
    if (request->memory_kind == LINK_MEMORY_DEVICE_CREATE && !is_refused)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    (void)link_send(&fake.link, &answer, &fd, fd >= 0 ? 1 : 0);
}

/* True when there was a message. */
static bool receive(bool is_refused)
{
    struct link_message message;
    cleanup(fd_closep) int fd = -1;
    size_t n_fds = 0;

    if (!fake.is_alive || link_receive(&fake.link, &message, &fd, &n_fds) != 0)
        return false;
    if (message.kind == LINK_MAP)
        answer_map(&message, is_refused);
    if (message.kind == LINK_UNMAP) {
        struct link_message answer = {.kind = LINK_UNMAPPED, .id = message.id};

        (void)link_send(&fake.link, &answer, NULL, 0);
    }
    if (message.kind == LINK_QUIT)
        fake_exit(0, 0);
    return true;
}

/* --- commands -------------------------------------------------------------------------------- */

static bool take(void)
{
    if (!fake.is_alive || fake.taken_count == TAKEN_MAX ||
        !link_command_next(&fake.link, &fake.taken[fake.taken_count]))
        return false;
    fake.taken_count++;
    return true;
}

static bool complete(size_t index, enum status status)
{
    struct gemmd_completion completion = {
        .status = (gemmd_u32)status, .started_ns = 1, .finished_ns = 2};

    if (!fake.is_alive || index >= fake.taken_count)
        return false;
    completion.job = fake.taken[index].job;
    fake.taken_count--;
    memmove(&fake.taken[index], &fake.taken[index + 1],
            (fake.taken_count - index) * sizeof(fake.taken[0]));
    (void)link_complete(&fake.link, &completion);
    return true;
}

/* Its device is lost, and it says so; whether it then ends is another choice. */
static void say_lost(void)
{
    struct link_message lost = {.kind = LINK_LOST};

    (void)fault_set(&lost.fault, STATUS_GPU_FAULT, "", "an illegal address");
    if (!fake.is_alive)
        return;
    (void)link_send(&fake.link, &lost, NULL, 0);
    fake.is_lost = true;
}

/* The completions of a track may overtake those of another. */
static void complete_one(struct session_input *input)
{
    static const enum status statuses[] = {STATUS_OK, STATUS_OK, STATUS_OUT_OF_MEMORY,
                                           STATUS_GPU_FAULT};

    size_t index =
        fake.taken_count > 0 ? input_below(input, (unsigned)MIN(fake.taken_count, 200u)) : 0;

    (void)complete(index, statuses[input_below(input, ARRAY_SIZE(statuses))]);
}

void fake_worker_act(struct session_input *input)
{
    switch (input_below(input, 8)) {
    case 0:
    case 1:
        (void)receive(false);
        break;
    case 2:
        (void)receive(true);
        break;
    case 3:
    case 4:
        (void)take();
        break;
    case 5:
        complete_one(input);
        break;
    case 6:
        say_lost();
        break;
    default:
        fake_exit(0, SIGSEGV);
        break;
    }
}

bool fake_worker_work(void)
{
    bool is_any = false;

    if (fake.is_killed || fake.is_lost) {
        fake_exit(fake.is_killed ? 0 : 2, fake.is_killed ? SIGKILL : 0);
        return true;
    }
    while (receive(false))
        is_any = true;
    while (take())
        is_any = true;
    while (complete(0, STATUS_OK))
        is_any = true;
    return is_any;
}
