#include "../../daemon/front/buffer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uv_loop_t loop;
static struct worker_process worker; /* never started: memory is only entered */
static struct quota quota;
static struct buffers buffers;
static struct handles handles;
static struct fault fault;
static const struct worker_operations nothing;

static void start(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(worker_init(&worker, &loop, "cpu", &nothing), 0);
    quota_init(&quota);
    buffers_init(&buffers, &worker, &quota);
}

static void stop(void)
{
    handles_deinit(&handles);
    buffers_deinit(&buffers);
    quota_deinit(&quota);
    cr_expect(list_is_empty(&worker.memories));
}

TestSuite(buffer, .init = start, .fini = stop);

static struct buffer_request request(const char *name, mode_t mode, uid_t uid, gid_t gid)
{
    return (struct buffer_request){.kind = BUFFER_HOST,
                                   .size = 4096,
                                   .name = name,
                                   .name_size = name ? strlen(name) : 0,
                                   .mode = mode,
                                   .is_writable = true,
                                   .uid = uid,
                                   .gid = gid,
                                   .fd = -1};
}

static struct buffer *make(const struct buffer_request *wanted)
{
    struct buffer *buffer = NULL;

    cr_assert_eq(buffer_new(&buffers, wanted, NULL, &buffer, &fault), 0, "%s", fault.message);
    buffer->is_made = true;
    return buffer;
}

static int open_as(const char *name, uid_t uid, gid_t gid, bool writable)
{
    struct buffer_request wanted = request(name, 0, uid, gid);
    struct buffer *buffer = NULL;
    int r;

    wanted.is_writable = writable;
    r = buffer_open(&buffers, &wanted, &buffer, &fault);
    (void)buffer_unref(buffer);
    return r;
}

Test(buffer, opens_like_a_file)
{
    static const struct {
        mode_t mode;
        uid_t uid;
        gid_t gid;
        bool may_read, may_write;
    } cases[] = {
        {0600, 10, 99, true, true},   {0600, 11, 20, false, false}, {0600, 0, 0, true, true},
        {0640, 11, 20, true, false},  {0640, 11, 21, false, false}, {0666, 11, 21, true, true},
        {0400, 10, 20, true, false},  {0066, 10, 20, false, false}, {0606, 11, 20, false, false},
        {0200, 10, 20, false, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buffer_request wanted = request("b", cases[i].mode, 10, 20);
        struct buffer *buffer = make(&wanted);

        cr_expect_eq(open_as("b", cases[i].uid, cases[i].gid, false) == 0, cases[i].may_read,
                     "case %zu", i);
        cr_expect_eq(open_as("b", cases[i].uid, cases[i].gid, true) == 0, cases[i].may_write,
                     "case %zu", i);
        buffer_forget_name(buffer);
        (void)buffer_unref(buffer);
    }
}

Test(buffer, is_not_found_before_its_creation_was_answered)
{
    struct buffer_request wanted = request("early", 0666, 1, 1);
    struct buffer *buffer = make(&wanted), *second = NULL;

    buffer->is_made = false;
    cr_expect_eq(open_as("early", 1, 1, false), BUFFER_E_FAULT);
    cr_expect_eq(fault.status, STATUS_NOT_FOUND);
    cr_expect_eq(buffer_new(&buffers, &wanted, NULL, &second, &fault), BUFFER_E_FAULT);
    cr_expect_eq(fault.status, STATUS_EXISTS);
    buffer_forget_name(buffer);
    (void)buffer_unref(buffer);
}

Test(buffer, charges_its_maker_until_its_last_user_is_gone)
{
    struct buffer_request wanted = request("kept", 0600, 7, 7);
    struct buffer *buffer = make(&wanted);
    struct buffer *job = buffer_ref(buffer);

    buffer_forget_name(buffer);
    (void)buffer_unref(buffer);
    cr_expect_eq(quota.used[QUOTA_HOST_BYTES], 4096);
    (void)buffer_unref(job);
    cr_expect_eq(quota.used[QUOTA_HOST_BYTES], 0);
    cr_expect_eq(quota.used[QUOTA_BUFFERS], 0);
}

Test(buffer, refuses_names_and_sizes_that_are_none)
{
    static const char *const names[] = {"",
                                        "a/b",
                                        "a b",
                                        "a\n",
                                        "\xc3\xa9",
                                        "0123456789012345678901234567890123456789"
                                        "0123456789012345678901234"};
    struct buffer *buffer = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct buffer_request wanted = request(names[i], 0600, 1, 1);

        cr_expect_eq(buffer_new(&buffers, &wanted, NULL, &buffer, &fault), BUFFER_E_FAULT);
        cr_expect_str_eq(fault.argument, "name");
    }
    struct buffer_request empty = request(NULL, 0600, 1, 1);

    empty.size = 0;
    cr_expect_eq(buffer_new(&buffers, &empty, NULL, &buffer, &fault), BUFFER_E_FAULT);
    cr_expect_str_eq(fault.argument, "size");
}

/* A reader's descriptor: not writable, and not to be opened again for writing by others. */
Test(buffer, export_for_reading_cannot_be_written)
{
    struct buffer_request wanted = request(NULL, 0600, 1, 1);
    struct buffer *buffer = make(&wanted);
    int reading = -1, writing = -1;

    cr_assert_eq(buffer_export(buffer, false, &reading), 0);
    cr_assert_eq(buffer_export(buffer, true, &writing), 0);
    cr_expect_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, reading, 0), MAP_FAILED);
    cr_expect_neq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, writing, 0), MAP_FAILED);
    cr_expect_lt(ftruncate(writing, 0), 0);
    (void)close(reading);
    (void)close(writing);
    (void)buffer_unref(buffer);
}

Test(buffer, memfd_of_a_client_is_held_to_its_claims)
{
    int read_only, fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), pipe_fds[2];
    char path[40];

    cr_assert_eq(ftruncate(fd, 4096), 0);
    cr_expect_eq(buffer_check_memfd(fd, 4096, true, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    cr_expect_eq(buffer_check_memfd(fd, 4096, true, &fault), STATUS_OK);
    cr_expect_eq(buffer_check_memfd(fd, 4097, true, &fault), STATUS_INVALID_ARGUMENT);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_only = open(path, O_RDONLY | O_CLOEXEC);
    cr_expect_eq(buffer_check_memfd(read_only, 4096, true, &fault), STATUS_INVALID_ARGUMENT);
    cr_expect_eq(buffer_check_memfd(read_only, 4096, false, &fault), STATUS_OK);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    cr_expect_eq(buffer_check_memfd(fd, 4096, true, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(pipe(pipe_fds), 0);
    cr_expect_eq(buffer_check_memfd(pipe_fds[0], 1, false, &fault), STATUS_INVALID_ARGUMENT);
}

Test(buffer, handle_of_a_freed_buffer_means_nothing)
{
    struct buffer_request wanted = request(NULL, 0600, 1, 1);
    uint64_t first, second;

    cr_assert_eq(handles_add(&handles, make(&wanted), true, true, &first, &fault), 0);
    handles_remove(&handles, handles_find(&handles, first), 1);
    cr_assert_eq(handles_add(&handles, make(&wanted), true, true, &second, &fault), 0);
    cr_expect_neq(first, second);
    cr_expect_null(handles_find(&handles, first));
    cr_expect_not_null(handles_find(&handles, second));
    cr_expect_null(handles_find(&handles, UINT64_MAX));
    cr_expect_null(handles_find(&handles, 0));
}

Test(buffer, handles_stay_what_they_are_while_others_come_and_go)
{
    struct buffer_request wanted = request(NULL, 0600, 1, 1);
    uint64_t ids[40];

    for (int i = 0; i < 40; i++)
        cr_assert_eq(handles_add(&handles, make(&wanted), true, true, &ids[i], &fault), 0);
    for (int i = 0; i < 40; i += 3)
        handles_remove(&handles, handles_find(&handles, ids[i]), 1);
    for (int i = 0; i < 40; i += 3)
        cr_assert_eq(handles_add(&handles, make(&wanted), true, true, &ids[i], &fault), 0);
    for (int i = 0; i < 40; i++)
        cr_expect_not_null(handles_find(&handles, ids[i]));
    cr_expect_eq(handles.count, 40);
}

Test(buffer, name_goes_with_its_makers_handle_or_with_its_owner_later)
{
    struct buffer_request wanted = request("n", 0666, 5, 5);
    struct handles other = {0};
    uint64_t mine, theirs;
    struct buffer *buffer = make(&wanted);

    cr_assert_eq(handles_add(&handles, buffer, true, true, &mine, &fault), 0);
    cr_assert_eq(handles_add(&other, buffer_ref(buffer), true, false, &theirs, &fault), 0);
    handles_deinit(&handles); /* the maker's connection is lost */
    cr_expect_eq(open_as("n", 5, 5, true), 0);
    handles_remove(&other, handles_find(&other, theirs), 6); /* a stranger leaves it */
    cr_expect_eq(open_as("n", 5, 5, true), 0);
    struct buffer_request again = request("n", 0, 5, 5);

    cr_assert_eq(buffer_open(&buffers, &again, &buffer, &fault), 0);
    cr_assert_eq(handles_add(&other, buffer, true, false, &theirs, &fault), 0);
    handles_remove(&other, handles_find(&other, theirs), 5);
    cr_expect_eq(open_as("n", 5, 5, true), BUFFER_E_FAULT);
    handles_deinit(&other);
}

Test(buffer, registrations_of_one_memfd_are_one_memory)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct buffer_request wanted = request(NULL, 0600, 1, 1);
    struct buffer *one, *two, *other = make(&wanted);

    cr_assert_eq(ftruncate(fd, 4096), 0);
    wanted.fd = dup(fd);
    one = make(&wanted);
    wanted.fd = dup(fd);
    two = make(&wanted);
    cr_expect(buffer_is_same_memory(one, two));
    cr_expect(buffer_is_same_memory(other, other));
    cr_expect_not(buffer_is_same_memory(one, other));
    (void)buffer_unref(one);
    (void)buffer_unref(two);
    (void)buffer_unref(other);
    (void)close(fd);
}
