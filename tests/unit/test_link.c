#include "../../daemon/link/link.h"

#include "../../daemon/link/link_memory.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 20000 /* far over any pause of a busy machine: reached only by a lost wake-up */

struct pair {
    struct link front, worker;
};

/* Both ends in this process, each with a mapping of its own. */
static void pair_open(struct pair *pair)
{
    struct link_fds fds;

    pair->front = LINK_NULL;
    pair->worker = LINK_NULL;
    cr_assert_eq(link_create(&pair->front), 0);
    fds.memory = dup(pair->front.fds.memory);
    fds.command_event = dup(pair->front.fds.command_event);
    fds.completion_event = dup(pair->front.fds.completion_event);
    fds.socket = steal(pair->front.peer_socket, -1);
    cr_assert_eq(link_attach(&pair->worker, &fds), 0);
}

static void pair_close(struct pair *pair)
{
    link_deinit(&pair->worker);
    link_deinit(&pair->front);
}

static void submit(struct link *front, uint64_t job)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_ZERO, .job = job, .kernel = ~job};

    command.body.copy.destination = job * 3;
    cr_assert_eq(link_submit(front, &command), 0);
}

static void complete(struct link *worker, uint64_t job)
{
    struct gemmd_completion completion = {.job = job, .started_ns = ~job};

    cr_assert_eq(link_complete(worker, &completion), 0);
}

static void cross_over(struct pair *pair, uint64_t job)
{
    struct gemmd_command command;
    struct gemmd_completion completion;

    submit(&pair->front, job);
    cr_assert(link_command_next(&pair->worker, &command));
    cr_assert_eq(command.job, job);
    cr_assert_eq(command.kernel, ~job);
    cr_assert_eq(command.body.copy.destination, job * 3);
    complete(&pair->worker, job);
    cr_assert(link_complete_next(&pair->front, &completion));
    cr_assert_eq(completion.job, job);
    cr_assert_eq(completion.started_ns, ~job);
}

Test(link, memory_cannot_be_resized)
{
    struct pair pair;

    pair_open(&pair);
    cr_assert_lt(ftruncate(pair.front.fds.memory, 4096), 0);
    cr_assert_lt(ftruncate(pair.front.fds.memory, 1 << 30), 0);
    pair_close(&pair);
}

Test(link, attach_refuses_memory_that_is_no_link)
{
    struct link worker = LINK_NULL;
    struct link_fds fds = {.memory = memfd_create("other", MFD_ALLOW_SEALING | MFD_CLOEXEC)};

    cr_assert_eq(link_attach(&worker, &fds), LINK_E_BROKEN, "empty and unsealed");
    cr_assert_eq(ftruncate(fds.memory, sizeof(struct link_memory)), 0);
    cr_assert_eq(link_attach(&worker, &fds), LINK_E_BROKEN, "unsealed");
    cr_assert_eq(fcntl(fds.memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    cr_assert_eq(link_attach(&worker, &fds), LINK_E_BROKEN, "no magic number");
    close(fds.memory);
}

Test(link, commands_and_completions_keep_their_order_over_many_wraps)
{
    struct pair pair;
    struct gemmd_command command;
    struct gemmd_completion completion;
    uint64_t written = 0, taken = 0, answered = 0, read = 0;

    pair_open(&pair);
    srand(7);
    while (read < 100 * LINK_COMMANDS) {
        for (int n = rand() % 300; n > 0 && link_room(&pair.front) > 0; n--)
            submit(&pair.front, written++);
        for (int n = rand() % 300; n > 0 && link_command_next(&pair.worker, &command); n--)
            cr_assert_eq(command.job, taken++);
        for (int n = rand() % 300; n > 0 && answered < taken; n--)
            complete(&pair.worker, answered++);
        for (int n = rand() % 300; n > 0 && link_complete_next(&pair.front, &completion); n--)
            cr_assert_eq(completion.job, read++);
        cr_assert_eq(link_commands_taken(&pair.front), taken);
    }
    pair_close(&pair);
}

Test(link, a_full_ring_has_no_room_until_a_completion_is_read)
{
    struct pair pair;
    struct gemmd_command command;
    struct gemmd_completion completion;

    pair_open(&pair);
    cr_assert_eq(link_room(&pair.front), LINK_COMMANDS);
    for (uint64_t i = 0; i < LINK_COMMANDS; i++)
        submit(&pair.front, i);
    cr_assert_eq(link_room(&pair.front), 0);
    for (uint64_t i = 0; i < LINK_COMMANDS; i++) {
        cr_assert(link_command_next(&pair.worker, &command));
        complete(&pair.worker, i);
    }
    cr_assert_not(link_command_next(&pair.worker, &command));
    cr_assert_eq(link_room(&pair.front), 0, "answered is not read: the completion ring is full");
    cr_assert(link_complete_next(&pair.front, &completion));
    cr_assert_eq(link_room(&pair.front), 1);
    pair_close(&pair);
}

Test(link, hot_sides_make_no_system_call)
{
    struct pair pair;

    pair_open(&pair);
    for (uint64_t i = 0; i < 10000; i++)
        cross_over(&pair, i);
    cr_assert_eq(pair.front.system_calls, 0);
    cr_assert_eq(pair.worker.system_calls, 0);
    pair_close(&pair);
}

Test(link, a_sleeper_is_woken_by_one_system_call_whatever_follows)
{
    struct pair pair;
    struct pollfd wait = {.events = POLLIN};

    pair_open(&pair);
    wait.fd = pair.worker.fds.command_event;
    cr_expect_not(link_worker_sleeps(&pair.front));
    cr_assert(link_worker_may_sleep(&pair.worker));
    cr_expect(link_worker_sleeps(&pair.front));
    cr_assert_eq(poll(&wait, 1, 0), 0);
    for (uint64_t i = 0; i < 10; i++)
        submit(&pair.front, i);
    cr_assert_eq(pair.front.system_calls, 1);
    cr_expect_not(link_worker_sleeps(&pair.front));
    cr_assert_eq(poll(&wait, 1, 0), 1);
    link_worker_awake(&pair.worker);
    cr_assert_eq(poll(&wait, 1, 0), 0);
    pair_close(&pair);
}

Test(link, sleeping_is_refused_while_there_is_work)
{
    struct pair pair;
    struct gemmd_command command;

    pair_open(&pair);
    submit(&pair.front, 1);
    cr_assert_not(link_worker_may_sleep(&pair.worker));
    cr_assert(link_command_next(&pair.worker, &command));
    cr_assert(link_worker_may_sleep(&pair.worker));
    cr_assert(link_front_may_sleep(&pair.front));
    link_front_awake(&pair.front);
    complete(&pair.worker, 1);
    cr_assert_not(link_front_may_sleep(&pair.front));
    pair_close(&pair);
}

/* The other process: answers every command, sleeping whenever there is none. */
static void echo(struct pair *pair)
{
    struct pollfd wait = {.fd = pair->worker.fds.command_event, .events = POLLIN};
    struct gemmd_command command;

    for (;;) {
        if (link_command_next(&pair->worker, &command)) {
            struct gemmd_completion completion = {.job = command.job};

            if (command.job == UINT64_MAX)
                _exit(0);
            if (link_complete(&pair->worker, &completion) != 0)
                _exit(1);
        } else if (link_worker_may_sleep(&pair->worker)) {
            if (poll(&wait, 1, WAIT_MS) != 1)
                _exit(2);
            link_worker_awake(&pair->worker);
        }
    }
}

static void await_completion(struct link *front, uint64_t job)
{
    struct pollfd wait = {.fd = front->fds.completion_event, .events = POLLIN};
    struct gemmd_completion completion;

    while (!link_complete_next(front, &completion)) {
        if (!link_front_may_sleep(front))
            continue;
        cr_assert_eq(poll(&wait, 1, WAIT_MS), 1, "wake-up lost at job %lu", job);
        link_front_awake(front);
    }
    cr_assert_eq(completion.job, job);
}

Test(link, two_processes_that_sleep_at_every_turn_lose_no_wake_up)
{
    struct pair pair;
    pid_t child;
    int status;

    pair_open(&pair);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        echo(&pair);
    for (uint64_t i = 0; i < 100000; i++) {
        submit(&pair.front, i);
        await_completion(&pair.front, i);
    }
    submit(&pair.front, UINT64_MAX);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    pair_close(&pair);
}

Test(link, what_a_killed_worker_took_and_answered_stays_readable)
{
    struct pair pair;
    struct gemmd_completion completion;
    struct gemmd_command command;
    int status;
    pid_t child;

    pair_open(&pair);
    for (uint64_t i = 0; i < 5; i++)
        submit(&pair.front, i);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        for (uint64_t i = 0; i < 3; i++)
            (void)link_command_next(&pair.worker, &command);
        link_beat(&pair.worker);
        (void)link_complete(&pair.worker, &(struct gemmd_completion){.job = 0});
        raise(SIGKILL);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(link_commands_taken(&pair.front), 3);
    cr_assert_eq(link_heartbeat(&pair.front), 1);
    cr_assert(link_complete_next(&pair.front, &completion));
    cr_assert_not(link_complete_next(&pair.front, &completion));
    pair_close(&pair);
}

Test(link, nonsense_in_shared_memory_leads_nobody_outside_the_rings)
{
    struct pair pair;
    struct gemmd_completion completion;

    pair_open(&pair);
    for (int round = 0; round < 200; round++) {
        uint32_t *words = (uint32_t *)pair.worker.memory;

        for (size_t i = 0; i < sizeof(struct link_memory) / sizeof(*words); i++)
            words[i] = round % 2 ? (uint32_t)rand() : (uint32_t)round;
        cr_assert_leq(link_commands_taken(&pair.front), pair.front.commands_written);
        if (link_room(&pair.front) > 0)
            submit(&pair.front, 1);
        (void)link_complete_next(&pair.front, &completion);
        cr_assert_leq(link_room(&pair.front), LINK_COMMANDS);
        (void)link_front_may_sleep(&pair.front);
        (void)link_message_waiting(&pair.front);
        link_front_awake(&pair.front);
    }
    pair_close(&pair);
}

Test(link, answers_to_nothing_are_not_taken_and_do_not_keep_the_front_awake)
{
    struct pair pair;
    struct gemmd_completion completion;

    pair_open(&pair);
    for (uint64_t i = 0; i < LINK_COMPLETIONS; i++)
        pair.worker.memory->completions[i].sequence = i + 1;
    cr_assert_not(link_complete_next(&pair.front, &completion));
    cr_assert(link_front_may_sleep(&pair.front));
    pair_close(&pair);
}

Test(link, a_message_brings_its_descriptor_close_on_exec)
{
    struct pair pair;
    struct link_message message = {.kind = LINK_MAP, .id = 42}, got;
    int fd = memfd_create("sent", MFD_CLOEXEC), received = -1;
    struct stat a, b;
    size_t n;

    pair_open(&pair);
    memset(message.configuration, 'x', sizeof(message.configuration));
    cr_assert_not(link_message_waiting(&pair.worker));
    cr_assert_eq(link_receive(&pair.worker, &got, &received, &n), LINK_E_EMPTY);
    cr_assert_eq(link_send(&pair.front, &message, &fd, 1), 0);
    cr_assert(link_message_waiting(&pair.worker));
    cr_assert_eq(link_receive(&pair.worker, &got, &received, &n), 0);
    cr_assert_not(link_message_waiting(&pair.worker));
    cr_assert_eq(got.id, 42);
    cr_assert_eq(strlen(got.configuration), sizeof(got.configuration) - 1, "texts end");
    cr_assert_eq(n, 1);
    cr_assert(fcntl(received, F_GETFD) & FD_CLOEXEC);
    cr_assert(fstat(fd, &a) == 0 && fstat(received, &b) == 0);
    cr_assert_eq(a.st_ino, b.st_ino);
    close(fd);
    close(received);
    pair_close(&pair);
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void send_raw(int socket, const void *bytes, size_t size, const int *fds, size_t n_fds)
{
    char control[256] = {0};
    struct iovec vector = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};

    if (n_fds > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        CMSG_FIRSTHDR(&header)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&header)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&header)->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), fds, n_fds * sizeof(int));
    }
    cr_assert_eq(sendmsg(socket, &header, 0), (ssize_t)size);
}

Test(link, what_is_no_message_is_broken_and_leaks_no_descriptor)
{
    struct pair pair;
    struct link_message good = {.kind = LINK_MAPPED}, bad = {.kind = 99}, got;
    char large[sizeof(struct link_message) + 1] = {LINK_MAPPED};
    int fds[3] = {0, 1, 2}, received, before;
    size_t n;

    pair_open(&pair);
    before = open_descriptors();
    send_raw(pair.worker.fds.socket, &good, 8, fds, 1);
    send_raw(pair.worker.fds.socket, large, sizeof(large), NULL, 0);
    send_raw(pair.worker.fds.socket, &bad, sizeof(bad), fds, 1);
    send_raw(pair.worker.fds.socket, &good, sizeof(good), fds, 2);
    send_raw(pair.worker.fds.socket, &good, sizeof(good), fds, 3);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(link_receive(&pair.front, &got, &received, &n), LINK_E_BROKEN, "case %d", i);
    cr_assert_eq(link_receive(&pair.front, &got, &received, &n), LINK_E_EMPTY);
    cr_assert_eq(open_descriptors(), before);
    pair_close(&pair);
}

Test(link, a_peer_that_is_gone_is_closed_for_both_directions)
{
    struct pair pair;
    struct link_message message = {.kind = LINK_QUIT}, got;
    int fd;
    size_t n;

    pair_open(&pair);
    link_deinit(&pair.worker);
    cr_assert_eq(link_send(&pair.front, &message, NULL, 0), LINK_E_CLOSED);
    cr_assert_eq(link_receive(&pair.front, &got, &fd, &n), LINK_E_CLOSED);
    pair_close(&pair);
}

Test(link, a_peer_that_does_not_read_gives_again)
{
    struct pair pair;
    struct link_message message = {.kind = LINK_UNLOAD};
    int r = 0;

    pair_open(&pair);
    for (int i = 0; i < 10000 && r == 0; i++)
        r = link_send(&pair.front, &message, NULL, 0);
    cr_assert_eq(r, -EAGAIN);
    pair_close(&pair);
}
