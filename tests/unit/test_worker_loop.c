/* The loop over a device made for the test, in this process or a fork of it. */
#include "../../daemon/worker/worker_loop.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct slow_device {
    struct backend backend;
    uint64_t jobs[4];
    uint32_t held, most, looks;
    uint32_t rests, rests_after_one; /* that it wants before it takes more */
    int submit_result;
};

static struct slow_device *slow(const struct backend *backend)
{
    return container_of(backend, struct slow_device, backend);
}

static int slow_submit(struct backend *backend, const struct gemmd_command *command)
{
    struct slow_device *device = slow(backend);

    if (device->submit_result)
        return device->submit_result;
    if (device->rests > 0)
        return -EPROTO; /* it came to no rest yet */
    device->jobs[device->held++] = command->job;
    device->rests = steal(device->rests_after_one, 0);
    device->most = MAX(device->most, device->held);
    return 0;
}

static uint32_t slow_pending(const struct backend *backend)
{
    return slow(backend)->held;
}

static bool slow_wants_rest(const struct backend *backend)
{
    return slow(backend)->rests > 0;
}

static bool slow_is_eager(const struct backend *backend)
{
    return slow(backend)->held == 0 && slow(backend)->rests > 0;
}

/* Every third look finds something finished. One that finds nothing left is a rest. */
static int slow_reap(struct backend *backend, struct gemmd_completion *ret_completion)
{
    struct slow_device *device = slow(backend);

    if (device->held == 0)
        device->rests -= device->rests > 0;
    if (device->held == 0 || ++device->looks % 3 != 0)
        return 0;
    *ret_completion = (struct gemmd_completion){.job = device->jobs[0]};
    memmove(device->jobs, device->jobs + 1, sizeof(device->jobs) - sizeof(device->jobs[0]));
    device->held--;
    return 1;
}

static const struct backend_operations slow_operations = {
    .name = "slow",
    .submit = slow_submit,
    .pending = slow_pending,
    .depth = 3,
    .wants_rest = slow_wants_rest,
    .is_eager = slow_is_eager,
    .reap = slow_reap,
};

struct loop_scene {
    struct link front, worker;
    struct slow_device device;
    struct worker_loop loop;
};

static void scene_open(struct loop_scene *scene)
{
    struct link_fds fds;

    *scene = (struct loop_scene){.front = LINK_NULL, .worker = LINK_NULL};
    scene->device.backend.operations = &slow_operations;
    cr_assert_eq(link_create(&scene->front), 0);
    fds.memory = dup(scene->front.fds.memory);
    fds.command_event = dup(scene->front.fds.command_event);
    fds.completion_event = dup(scene->front.fds.completion_event);
    fds.socket = steal(scene->front.peer_socket, -1);
    cr_assert_eq(link_attach(&scene->worker, &fds), 0);
    worker_loop_init(&scene->loop, &scene->worker, &scene->device.backend);
}

static void scene_submit(struct loop_scene *scene, uint64_t jobs)
{
    for (uint64_t job = 0; job < jobs; job++) {
        const struct gemmd_command command = {.job = job};

        cr_assert_eq(link_submit(&scene->front, &command), 0);
    }
}

static void scene_close(struct loop_scene *scene)
{
    link_deinit(&scene->worker);
    link_deinit(&scene->front);
}

/* The loop in a process of its own takes what was submitted, and holds so many at most. */
static void expect_all_taken(struct loop_scene *scene, uint64_t jobs, uint32_t most)
{
    struct gemmd_completion completion;
    struct fault fault = FAULT_NONE;
    pid_t child;
    int status;

    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        fd_closep(&scene->front.fds.socket);
        _exit(worker_loop_run(&scene->loop, &fault) != 0 || scene->device.most != most);
    }
    for (uint64_t job = 0; job < jobs;)
        if (link_complete_next(&scene->front, &completion))
            cr_assert_eq(completion.job, job++);
    link_deinit(&scene->front);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

Test(worker_loop, holds_no_more_commands_than_the_device_takes)
{
    struct loop_scene scene;

    scene_open(&scene);
    scene_submit(&scene, LINK_COMMANDS);
    expect_all_taken(&scene, LINK_COMMANDS, 3);
    scene_close(&scene);
}

/* Nothing but the device's own end of work goes on then. */
Test(worker_loop, takes_no_commands_until_a_device_that_wants_to_rest_did, .timeout = 30)
{
    struct loop_scene scene;

    scene_open(&scene);
    scene.device.rests_after_one = 4;
    scene_submit(&scene, 3);
    expect_all_taken(&scene, 3, 2);
    scene_close(&scene);
}

Test(worker_loop, a_lost_device_ends_the_loop_with_the_reason)
{
    struct loop_scene scene;
    struct fault fault = FAULT_NONE;

    scene_open(&scene);
    scene.device.submit_result = -EIO;
    strcpy(scene.device.backend.device.name, "Test device");
    scene_submit(&scene, 1);
    cr_assert_eq(worker_loop_run(&scene.loop, &fault), -EIO);
    cr_assert_eq(fault.status, STATUS_GPU_FAULT);
    cr_assert(strstr(fault.message, "Test device"));
    scene_close(&scene);
}
