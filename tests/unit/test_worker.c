#include "../../daemon/roles.h"
#include "../../daemon/worker/backend.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 30000

/* --- a front of our own ---------------------------------------------------------------------- */

struct front {
    struct link link;
    pid_t worker;
};

static void run_role(const struct link *link, const char *device)
{
    char numbers[4][16];
    char *argv[] = {
        "worker",          "--device",           (char *)device, "--memory", numbers[0],
        "--command-event", numbers[1],           "--socket",     numbers[2], "--log-level",
        "error",           "--completion-event", numbers[3],     NULL};

    close(link->fds.socket); /* as exec would */
    snprintf(numbers[0], sizeof(numbers[0]), "%d", link->fds.memory);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", link->fds.command_event);
    snprintf(numbers[2], sizeof(numbers[2]), "%d", link->peer_socket);
    snprintf(numbers[3], sizeof(numbers[3]), "%d", link->fds.completion_event);
    /* Not exit(): a leak checker in a forked child takes the parent's thread for its own. */
    _exit(worker_main(ARRAY_SIZE(argv) - 1, argv));
}

static void front_start(struct front *front, const char *device)
{
    front->link = LINK_NULL;
    cr_assert_eq(link_create(&front->link), 0);
    front->worker = fork();
    cr_assert_geq(front->worker, 0);
    if (front->worker == 0)
        run_role(&front->link, device);
    fd_closep(&front->link.peer_socket);
}

static int front_wait(struct front *front)
{
    int status = -1;

    cr_assert_eq(waitpid(front->worker, &status, 0), front->worker);
    link_deinit(&front->link);
    return status;
}

static struct link_message front_receive(struct front *front, uint32_t kind, int *ret_fd)
{
    struct pollfd wait = {.fd = front->link.fds.socket, .events = POLLIN};
    struct link_message message = {0};
    int fd = -1;
    size_t n = 0;

    cr_assert_eq(poll(&wait, 1, WAIT_MS), 1, "no message of kind %u", kind);
    cr_assert_eq(link_receive(&front->link, &message, &fd, &n), 0);
    cr_assert_eq(message.kind, kind);
    if (ret_fd)
        *ret_fd = fd;
    else
        cr_assert_eq(fd, -1);
    return message;
}

static void front_send(struct front *front, const struct link_message *message, int fd)
{
    cr_assert_eq(link_send(&front->link, message, &fd, fd >= 0), 0);
}

static struct gemmd_completion front_complete(struct front *front)
{
    struct pollfd wait = {.fd = front->link.fds.completion_event, .events = POLLIN};
    struct gemmd_completion completion;

    while (!link_complete_next(&front->link, &completion)) {
        if (!link_front_may_sleep(&front->link))
            continue;
        cr_assert_eq(poll(&wait, 1, WAIT_MS), 1, "no completion");
        link_front_awake(&front->link);
    }
    return completion;
}

static uint64_t front_create(struct front *front, uint64_t id, uint64_t size, int *ret_fd)
{
    const struct link_message request = {
        .kind = LINK_MAP, .memory_kind = LINK_MEMORY_DEVICE_CREATE, .id = id, .size = size};
    struct link_message reply;

    front_send(front, &request, -1);
    reply = front_receive(front, LINK_MAPPED, ret_fd);
    cr_assert_eq(reply.fault.status, STATUS_OK, "%s", reply.fault.message);
    cr_assert_eq(reply.id, id);
    return reply.address;
}

static void front_quit(struct front *front)
{
    const struct link_message quit = {.kind = LINK_QUIT};

    front_send(front, &quit, -1);
    cr_assert_eq(front_wait(front), 0);
}

static void submit_zero(struct front *front, uint64_t job, uint64_t address, uint64_t size)
{
    struct gemmd_command command = {.kind = GEMMD_COMMAND_ZERO, .job = job};

    command.body.copy.destination = address;
    command.body.copy.size = size;
    cr_assert_eq(link_submit(&front->link, &command), 0);
}

/* --- the role -------------------------------------------------------------------------------- */

Test(worker, cpu_says_hello_and_quits)
{
    struct front front;
    struct link_message hello;

    front_start(&front, "cpu");
    hello = front_receive(&front, LINK_HELLO, NULL);
    cr_assert_eq(hello.fault.status, STATUS_OK);
    cr_assert_eq(hello.device.kind, LINK_DEVICE_CPU);
    cr_assert_str_eq(hello.device.note, "", "what was asked for needs no excuse");
    front_quit(&front);
}

Test(worker, auto_takes_a_gpu_or_says_why_not)
{
    struct front front;
    struct link_message hello;

    front_start(&front, "auto");
    hello = front_receive(&front, LINK_HELLO, NULL);
    cr_assert_eq(hello.fault.status, STATUS_OK);
    cr_assert(hello.device.kind == LINK_DEVICE_CUDA || strlen(hello.device.note) > 10);
    front_quit(&front);
}

Test(worker, a_device_that_is_not_there_is_refused_with_the_reason)
{
    static const char *const devices[] = {"cuda:4096", "GPU-no-such-one", "tpu", ""};

    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        struct front front;
        struct link_message hello;
        int status;

        front_start(&front, devices[i]);
        hello = front_receive(&front, LINK_HELLO, NULL);
        cr_assert_neq(hello.fault.status, STATUS_OK, "%s", devices[i]);
        cr_assert_str_eq(hello.fault.argument, "device");
        cr_assert_gt(strlen(hello.fault.message), 10);
        status = front_wait(&front);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

Test(worker, arguments_that_name_no_link_are_refused)
{
    char *missing[] = {"worker", "--device", "cpu", NULL};
    char *words[] = {"worker", "--memory", "x", NULL};
    char *closed[] = {"worker", "--memory", "900", "--command-event",
                      "901",    "--socket", "902", "--completion-event",
                      "903",    NULL};

    cr_assert_eq(worker_main(3, missing), 1);
    cr_assert_eq(worker_main(3, words), 1);
    cr_assert_eq(worker_main(9, closed), 1);
}

Test(worker, computes_a_product_in_memory_that_outlives_it)
{
    struct front front;
    struct gemmd_command command = {.kind = GEMMD_COMMAND_GEMM, .job = 77};
    struct gemmd_completion completion;
    float *values;
    uint64_t address;
    int fd = -1;

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);
    address = front_create(&front, 5, 4096, &fd);
    values = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(values, MAP_FAILED);
    values[0] = 3;
    values[1] = 7;
    command.body.gemm = (struct gemmd_job){.a = address,
                                           .b = address + 4,
                                           .d = address + 8,
                                           .m = 1,
                                           .n = 1,
                                           .k = 1,
                                           .batch = 1,
                                           .lda = 1,
                                           .ldb = 1,
                                           .ldc = 1,
                                           .ldd = 1,
                                           .alpha = 2,
                                           .input = 3,
                                           .output = 3};
    cr_assert_eq(link_submit(&front.link, &command), 0);
    completion = front_complete(&front);
    cr_assert_eq(completion.job, 77);
    cr_assert_eq(completion.status, STATUS_OK);
    cr_assert_gt(completion.started_ns, 0);
    cr_assert_leq(completion.started_ns, completion.finished_ns);
    kill(front.worker, SIGKILL);
    (void)front_wait(&front);
    cr_assert_eq(values[2], 42);
}

Test(worker, answers_messages_while_commands_stream)
{
    struct front front;
    uint64_t address, written = 0, read = 0;
    int fd = -1;

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);
    address = front_create(&front, 1, 4096, &fd);
    for (uint64_t id = 2; id < 20; id++) {
        const struct link_message unmap = {.kind = LINK_UNMAP, .id = id};
        struct gemmd_completion completion;
        int other = -1;

        while (link_room(&front.link) > 0)
            submit_zero(&front, written++, address, 4096);
        (void)front_create(&front, id, 4096, &other);
        front_send(&front, &unmap, -1);
        cr_assert_eq(front_receive(&front, LINK_UNMAPPED, NULL).id, id);
        close(other);
        while (link_complete_next(&front.link, &completion))
            cr_assert_eq(completion.job, read++);
    }
    while (read < written)
        cr_assert_eq(front_complete(&front).job, read++);
    front_quit(&front);
}

Test(worker, refusals_are_answers_and_it_goes_on)
{
    struct front front;
    struct link_message request = {.kind = LINK_LOAD, .id = 8, .size = 5};
    struct link_message reply;
    int cubin = memfd_create("cubin", MFD_CLOEXEC);

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);

    front_send(&front, &request, cubin);
    reply = front_receive(&front, LINK_LOADED, NULL);
    cr_assert_eq(reply.fault.status, STATUS_INTERNAL, "shorter than announced");

    cr_assert_eq(write(cubin, "cubin", 5), 5);
    front_send(&front, &request, cubin);
    reply = front_receive(&front, LINK_LOADED, NULL);
    cr_assert_eq(reply.id, 8);
    cr_assert_eq(reply.fault.status, STATUS_UNSUPPORTED, "no kernels on a CPU");

    request = (struct link_message){
        .kind = LINK_MAP, .memory_kind = LINK_MEMORY_HOST, .id = 9, .size = 4096};
    front_send(&front, &request, -1);
    reply = front_receive(&front, LINK_MAPPED, NULL);
    cr_assert_eq(reply.id, 9);
    cr_assert_neq(reply.fault.status, STATUS_OK, "no descriptor");

    submit_zero(&front, 1, 0, 0);
    cr_assert_eq(front_complete(&front).status, STATUS_OK);
    close(cubin);
    front_quit(&front);
}

Test(worker, quit_finishes_what_was_taken)
{
    struct front front;
    const struct link_message quit = {.kind = LINK_QUIT};
    struct gemmd_completion completion;
    uint64_t answered = 0;

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);
    for (uint64_t job = 0; job < 100; job++)
        submit_zero(&front, job, 0, 0);
    front_send(&front, &quit, -1);
    while (waitpid(front.worker, NULL, WNOHANG) == 0)
        usleep(1000);
    while (link_complete_next(&front.link, &completion))
        answered++;
    cr_assert_eq(answered, link_commands_taken(&front.link));
    link_deinit(&front.link);
}

Test(worker, leaves_quietly_when_the_front_is_gone)
{
    struct front front;

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);
    fd_closep(&front.link.fds.socket);
    cr_assert_eq(front_wait(&front), 0);
}

/* A front that is killed, between the worker and this test. */
Test(worker, no_orphan_stays_when_the_front_is_killed)
{
    struct pollfd wait = {.events = POLLHUP};
    int ends[2];
    pid_t middle;

    cr_assert_eq(pipe(ends), 0);
    middle = fork();
    if (middle == 0) {
        struct front front;

        front_start(&front, "cpu"); /* inherits the pipe's end: it closes when the worker ends */
        (void)front_receive(&front, LINK_HELLO, NULL);
        raise(SIGKILL);
    }
    close(ends[1]);
    wait.fd = ends[0];
    cr_assert_eq(waitpid(middle, NULL, 0), middle);
    cr_assert_eq(poll(&wait, 1, WAIT_MS), 1);
    close(ends[0]);
}

Test(worker, leaves_signals_of_the_terminal_to_the_front)
{
    struct front front;

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);
    kill(front.worker, SIGINT);
    kill(front.worker, SIGTERM);
    submit_zero(&front, 1, 0, 0);
    cr_assert_eq(front_complete(&front).job, 1);
    front_quit(&front);
}

static long context_switches(pid_t pid)
{
    char path[64], line[128];
    long count = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        (void)sscanf(line, "voluntary_ctxt_switches: %ld", &count);
    if (file)
        fclose(file);
    return count;
}

Test(worker, does_not_wake_up_while_there_is_nothing_to_do)
{
    struct front front;
    bool is_quiet = false;

    front_start(&front, "cpu");
    (void)front_receive(&front, LINK_HELLO, NULL);
    submit_zero(&front, 1, 0, 0);
    (void)front_complete(&front);
    /* On a busy machine it may still be on its way to sleep; what wakes now and then is seen in
     * each of these times. */
    for (int i = 0; i < 20 && !is_quiet; i++) {
        long before = context_switches(front.worker);
        uint64_t beat = link_heartbeat(&front.link);

        usleep(500000);
        is_quiet = context_switches(front.worker) == before && link_heartbeat(&front.link) == beat;
    }
    cr_assert(is_quiet);
    front_quit(&front);
}
