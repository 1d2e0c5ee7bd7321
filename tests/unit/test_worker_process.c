/*
 * A worker's life as the front sees it: start, death, the next one, the spare, the end.
 */
#include "worker_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

TestSuite(worker_process, .init = start, .fini = stop, .timeout = 60);

/* No descriptor is free from here on. */
static void take_all_descriptors(struct rlimit *ret_before)
{
    struct rlimit none;
    int next = dup(STDIN_FILENO);

    (void)close(next);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, ret_before), 0);
    none = *ret_before;
    none.rlim_cur = (rlim_t)next;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
}

Test(worker_process, is_ready_after_its_hello)
{
    worker_start(&worker);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 1);
    cr_expect(worker_is_ready(&worker));
}

Test(worker_process, is_started_again_when_it_dies)
{
    worker_start(&worker);
    run_until(&readies, 1);
    process_ends(0, SIGSEGV);
    run_until(&readies, 2);
    cr_expect_eq(spawns, 2);
    cr_expect_eq(worker.deaths, 1);
    cr_expect(recovery_has_reached(&worker.recovery, RECOVERY_RESTORED));
}

/* Clients may give some back before the next attempt. */
Test(worker_process, is_started_once_there_are_descriptors_for_a_link)
{
    struct rlimit before;

    take_all_descriptors(&before);
    worker_start(&worker);
    cr_expect_eq(spawns, 0);
    cr_expect_neq(worker.failed_starts, 0);
    cr_expect_eq(failure.status, STATUS_OK, "one failure is not the end");
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 1);
    cr_expect(worker_is_ready(&worker));
    cr_expect_eq(worker.failed_starts, 1);
}

Test(worker_process, is_given_up_after_so_many_attempts_with_the_reason)
{
    struct rlimit before;
    unsigned never = 0;

    take_all_descriptors(&before);
    worker_start(&worker);
    run_until(&never, 1);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_expect_eq(spawns, 0);
    cr_expect_eq(worker.failed_starts, WORKER_START_ATTEMPTS);
    cr_expect_not_null(strstr(failure.message, "no link to it: Too many open files"), "%s",
                       failure.message);
}

/* What was never there will not come, also where CUDA's start takes long to say so. */
Test(worker_process, whose_first_hello_refuses_is_given_up_at_once_however_late_it_came)
{
    struct link_message hello = {.kind = LINK_HELLO};

    is_mute = true;
    worker_start(&worker);
    worker.started_ns -= 2 * WORKER_STARTED_NS;
    (void)fault_set(&hello.fault, STATUS_UNSUPPORTED, "device", "there is none");
    cr_assert_eq(link_send(&processes[0].link, &hello, NULL, 0), 0);
    while (!worker.is_lost)
        (void)uv_run(&loop, UV_RUN_ONCE);
    process_ends(0, 0);
    run_until(&spawns, 2);
    cr_expect_eq(spawns, 1);
    cr_expect_eq(failure.status, STATUS_UNSUPPORTED);
}

/* Or one client that asks for memory again and again would keep all others waiting. */
Test(worker_process, is_ready_once_all_is_restored_whatever_is_asked_for_meanwhile)
{
    struct memory old = {.kind = LINK_MEMORY_DEVICE_IPC, .size = 4096, .fd = -1}, new = old;

    worker_start(&worker);
    run_until(&readies, 1);
    cr_assert_eq(worker_memory_add(&worker, &old), 0);
    answer_map(0, &old);
    while (old.state != MEMORY_MAPPED)
        (void)uv_run(&loop, UV_RUN_ONCE);
    process_ends(0, SIGSEGV);
    while (worker.state != WORKER_RESTORING)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(worker_memory_add(&worker, &new), 0);
    run_for(2 * WORKER_LOOK_MS);
    cr_expect_eq(readies, 1, "not all is restored");
    answer_map(1, &old);
    while (readies < 2 && kills == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(readies, 2);
    worker_memory_remove(&worker, &old);
    worker_memory_remove(&worker, &new);
}

/* --- more memory than its socket takes at once ----------------------------------------------- */

enum { MANY = 400 }; /* on Linux it takes some 160 messages with a descriptor */

static struct memory many[MANY];

/* Asked for by a worker that says hello and reads nothing, with no descriptor left to the front. */
static void restore_many(struct rlimit *ret_before)
{
    is_mute = true;
    worker_start(&worker);
    for (size_t i = 0; i < MANY; i++) {
        many[i] = (struct memory){
            .kind = LINK_MEMORY_HOST, .size = 4096, .fd = memfd_create("memory", MFD_CLOEXEC)};
        cr_assert_geq(many[i].fd, 0);
        cr_assert_eq(ftruncate(many[i].fd, (off_t)i), 0);
        cr_assert_eq(worker_memory_add(&worker, &many[i]), 0);
    }
    take_all_descriptors(ret_before);
    say_hello(spawns - 1);
    while (worker.state != WORKER_RESTORING)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(many[MANY - 1].state, MEMORY_WANTED, "%s", many[MANY - 1].lost_reason);
    cr_assert_not(list_is_empty(&worker.outputs), "the socket took all");
}

/* The next message; its descriptor, to be closed, or -1. */
static int take_message(unsigned process, struct link_message *ret_message)
{
    int fd = -1;
    size_t n_fds;
    int r;

    while ((r = link_receive(&processes[process].link, ret_message, &fd, &n_fds)) == LINK_E_EMPTY)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(r, 0);
    return fd;
}

static void expect_map(unsigned process, uint64_t id, off_t bytes)
{
    struct link_message message;
    int fd = take_message(process, &message);
    struct stat status;

    cr_assert_eq(message.kind, LINK_MAP);
    cr_assert_eq(message.id, id);
    cr_assert_eq(fstat(fd, &status), 0);
    cr_assert_eq(status.st_size, bytes, "another memory's descriptor");
    (void)close(fd);
}

static void remove_many(void)
{
    for (size_t i = 0; i < MANY; i++)
        worker_memory_remove(&worker, &many[i]);
}

Test(worker_process, gets_all_memory_in_order_when_no_descriptor_is_free)
{
    struct rlimit before;

    restore_many(&before);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < MANY; i++) {
        cr_assert_eq(many[i].state, MEMORY_WANTED);
        expect_map(0, many[i].id, (off_t)i);
    }
    remove_many();
}

/* The answer is counted on, and what follows names it. */
Test(worker_process, gets_memory_that_is_freed_before_the_socket_took_it_and_then_its_end)
{
    const size_t last = MANY - 1;
    struct link_message message;
    struct rlimit before;

    restore_many(&before);
    worker_memory_remove(&worker, &many[last]);
    cr_expect_eq(many[last].fd, -1);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < MANY; i++)
        expect_map(0, many[i].id, (off_t)i);
    cr_expect_eq(take_message(0, &message), -1);
    cr_expect_eq(message.kind, LINK_UNMAP);
    cr_expect_eq(message.id, many[last].id);
    list_init(&many[last].link);
    remove_many();
}

Test(worker_process, that_dies_before_its_socket_took_all_leaves_all_to_the_next_one)
{
    const size_t freed = MANY - 1;
    struct rlimit before;

    restore_many(&before);
    worker_memory_remove(&worker, &many[freed]);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    process_ends(0, SIGKILL);
    cr_expect(list_is_empty(&worker.outputs));
    run_until(&spawns, 2);
    say_hello(1);
    for (size_t i = 0; i < freed; i++)
        expect_map(1, many[i].id, (off_t)i);
    list_init(&many[freed].link);
    remove_many();
}

/* Its number may be another process's by then. */
Test(worker_process, that_ended_in_time_is_not_killed_while_its_spare_takes_longer)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    run_until(&covers, 1);
    worker_close(&worker);
    process_ends(0, 0);
    run_for(2 * WORKER_QUIT_MS);
    cr_expect_eq(kills, 1, "the spare alone");
}

/* --- one that stands by ---------------------------------------------------------------------- */

static void start_on_a_large_gpu(void)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    run_until(&readies, 1);
    run_until(&spawns, 2);
}

Test(worker_process, has_no_spare_where_its_context_would_be_a_large_part_of_the_device)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY - 1};
    worker_start(&worker);
    run_until(&readies, 1);
    cr_expect_eq(spawns, 1);
    cr_expect(worker_is_covered(&worker), "none will come, so nobody waits for it");
}

Test(worker_process, has_a_spare_that_is_stopped_until_it_is_needed)
{
    start_on_a_large_gpu();
    cr_expect_not(worker_is_covered(&worker));
    run_until(&covers, 1);
    cr_expect(worker_is_covered(&worker));
    cr_expect(processes[1].is_stopped);
    process_ends(0, SIGSEGV);
    run_until(&readies, 2);
    cr_expect_not(processes[1].is_stopped);
    cr_expect_eq(&worker.handles->process, processes[1].handle);
    run_until(&covers, 2);
    cr_expect_eq(spawns, 3, "the next spare");
    cr_expect(processes[2].is_stopped);
}

Test(worker_process, takes_a_spare_that_has_not_said_hello_yet)
{
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    is_mute = true;
    run_until(&readies, 1);
    process_ends(0, SIGSEGV);
    while (worker.state != WORKER_STARTING)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(spawns, 2);
    say_hello(1);
    run_until(&readies, 2);
    cr_expect(worker_is_ready(&worker));
}

Test(worker_process, outlives_its_spare)
{
    start_on_a_large_gpu();
    run_until(&covers, 1);
    process_ends(1, SIGKILL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect(worker_is_ready(&worker));
    cr_expect_eq(worker.deaths, 0);
    process_ends(0, SIGSEGV);
    run_until(&readies, 2);
    cr_expect_eq(spawns, 4, "a worker anew, and a spare");
}

/* A device for one process alone says so in the spare's hello. The spare is killed, and not yet
 * reaped. */
static void start_with_a_spare_that_is_refused(void)
{
    struct link_message hello = {.kind = LINK_HELLO};

    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    is_mute = true;
    run_until(&readies, 1);
    (void)fault_set(&hello.fault, STATUS_UNSUPPORTED, "device", "it is another's");
    cr_assert_eq(link_send(&processes[1].link, &hello, NULL, 0), 0);
    run_until(&kills, 1);
}

Test(worker_process, does_without_a_spare_that_is_refused_its_device)
{
    start_with_a_spare_that_is_refused();
    process_ends(1, SIGKILL);
    cr_expect(worker_is_covered(&worker));
    cr_expect(worker_is_ready(&worker));
}

Test(worker_process, takes_no_spare_that_was_refused_its_device)
{
    start_with_a_spare_that_is_refused();
    cr_expect(worker_is_covered(&worker), "by none, so nobody waits for it");
    is_mute = false;
    process_ends(0, SIGSEGV);
    while (worker.state != WORKER_STARTING)
        (void)uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(spawns, 3, "a worker anew");
    run_until(&readies, 2);
    cr_expect_eq(worker.deaths, 1);
    process_ends(1, SIGKILL);
}

Test(worker_process, is_not_waited_for_as_a_spare_for_ever)
{
    is_mute = true;
    device = (struct link_device){.kind = LINK_DEVICE_CUDA, .memory = WORKER_SPARE_MEMORY};
    worker_start(&worker);
    say_hello(0);
    run_until(&covers, 1);
    cr_expect_eq(spawns, 2);
    cr_expect(worker_is_covered(&worker));
}
