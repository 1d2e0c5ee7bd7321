#include "../../daemon/worker/backend.h"
#include "../../daemon/worker/cpu_memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct backend *device_open(void)
{
    struct backend *backend = NULL;
    struct fault fault = FAULT_NONE;

    cr_assert_eq(backend_cpu_open(&backend, &fault), 0, "%s", fault.message);
    return backend;
}

static struct gemmd_completion execute(struct backend *backend, const struct gemmd_command *command)
{
    struct gemmd_completion completion = {0};

    cr_assert_eq(backend->operations->submit(backend, command), 0);
    cr_assert_eq(backend->operations->pending(backend), 1);
    cr_assert_eq(backend->operations->reap(backend, &completion), 1);
    cr_assert_eq(backend->operations->reap(backend, &completion), 0);
    cr_assert_eq(completion.job, command->job);
    cr_assert_leq(completion.started_ns, completion.finished_ns);
    return completion;
}

Test(backend_cpu, device_says_what_it_is)
{
    struct backend *backend = device_open();

    cr_assert_eq(backend->device.kind, LINK_DEVICE_CPU);
    cr_assert_geq(backend->device.multiprocessors, 1);
    cr_assert_gt(backend->device.memory, 1u << 20);
    cr_assert_gt(strlen(backend->device.name), 0);
    cr_assert_gt(strlen(backend->device.driver), 0);
    backend->operations->close(backend);
}

Test(backend_cpu, device_memory_is_zeroed_sealed_and_shared_by_its_descriptor)
{
    struct backend *backend = device_open();
    struct link_message request = {
        .memory_kind = LINK_MEMORY_DEVICE_CREATE, .id = 1, .size = 100000};
    struct fault fault = FAULT_NONE;
    uint64_t first = 0, second = 0;
    int fd = -1;

    cr_assert_eq(backend->operations->map(backend, &request, &fd, &first, &fault), 0);
    cr_assert_geq(fd, 0);
    cr_assert(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
    for (int i = 0; i < 100000; i++)
        cr_assert_eq(((char *)(uintptr_t)first)[i], 0);
    strcpy((char *)(uintptr_t)first + 99000, "kept");
    backend->operations->unmap(backend, 1);

    request.memory_kind = LINK_MEMORY_DEVICE_IMPORT;
    request.id = 2;
    cr_assert_eq(backend->operations->map(backend, &request, &fd, &second, &fault), 0);
    cr_assert_eq(fd, -1, "consumed");
    cr_assert_str_eq((char *)(uintptr_t)second + 99000, "kept");
    backend->operations->close(backend);
}

Test(backend_cpu, host_memory_is_mapped_read_only_unless_asked)
{
    struct backend *backend = device_open();
    struct link_message request = {.memory_kind = LINK_MEMORY_HOST, .id = 1, .size = 4096};
    struct fault fault = FAULT_NONE;
    uint64_t address = 0;
    int fd, null = open("/dev/zero", O_RDONLY);

    for (uint32_t writable = 0; writable < 2; writable++) {
        fd = memfd_create("host", MFD_CLOEXEC);
        cr_assert_eq(ftruncate(fd, 4096), 0);
        request.id = request.writable = writable;
        cr_assert_eq(backend->operations->map(backend, &request, &fd, &address, &fault), 0);
        cr_assert_eq(fd, -1, "consumed");
        cr_assert_eq(read(null, (void *)(uintptr_t)address, 1), writable ? 1 : -1);
    }
    close(null);
    backend->operations->close(backend);
}

Test(backend_cpu, a_size_beyond_the_descriptor_is_refused_by_name)
{
    static const uint64_t sizes[] = {0, 4097, UINT64_MAX};
    struct backend *backend = device_open();
    int fd = memfd_create("host", MFD_CLOEXEC);

    cr_assert_eq(ftruncate(fd, 4096), 0);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct link_message request = {.memory_kind = LINK_MEMORY_HOST, .size = sizes[i]};
        struct fault fault = FAULT_NONE;
        uint64_t address;

        cr_assert_eq(backend->operations->map(backend, &request, &fd, &address, &fault),
                     BACKEND_E_FAULT);
        cr_assert_str_eq(fault.argument, "size");
        cr_assert_eq(fault.status, STATUS_INVALID_ARGUMENT);
        cr_assert_geq(fd, 0, "not consumed");
    }
    close(fd);
    backend->operations->close(backend);
}

Test(backend_cpu, more_memory_than_there_is_is_refused)
{
    struct backend *backend = device_open();

    for (int shift = 45; shift < 64; shift += 9) {
        struct link_message request = {.memory_kind = LINK_MEMORY_DEVICE_CREATE,
                                       .size = 1ull << shift};
        struct fault fault = FAULT_NONE;
        uint64_t address;
        int fd = -1;

        cr_assert_eq(backend->operations->map(backend, &request, &fd, &address, &fault),
                     BACKEND_E_FAULT);
        cr_assert_eq(fault.status, STATUS_OUT_OF_MEMORY);
        cr_assert_eq(fd, -1);
    }
    backend->operations->close(backend);
}

/* A tree like /proc and /sys/fs/cgroup, below a directory of its own. */
static void write_file(const char *root, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    cr_assert(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

Test(backend_cpu, available_memory_is_what_machine_and_control_groups_leave)
{
    char root[] = "/tmp/gemmd-test-XXXXXX", cgroup[64], command[64];
    uint64_t available;

    cr_assert(mkdtemp(root));
    snprintf(cgroup, sizeof(cgroup), "%s/cgroup", root);
    write_file(root, "meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n");
    cr_assert_eq(cpu_memory_available(root, cgroup), 5000 * 1024, "no control groups at all");

    write_file(root, "self/cgroup", "4:memory:/old\n0::/slice/unit\n");
    write_file(root, "cgroup/slice/unit/memory.max", "max\n");
    write_file(root, "cgroup/slice/unit/memory.current", "123\n");
    cr_assert_eq(cpu_memory_available(root, cgroup), 5000 * 1024, "groups without a limit");

    write_file(root, "cgroup/slice/memory.max", "1000000\n");
    write_file(root, "cgroup/slice/memory.current", "900000\n");
    write_file(root, "cgroup/slice/memory.stat",
               "file 9\ninactive_file 300000\nactive_file 5000\n");
    available = cpu_memory_available(root, cgroup);
    cr_assert_eq(available, 1000000 - (900000 - 305000), "the limit of a group further up");

    write_file(root, "cgroup/slice/memory.max", "1000\n");
    cr_assert_eq(cpu_memory_available(root, cgroup), 0, "a group over its limit");
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

Test(backend_cpu, kernels_are_refused_and_unknown_memory_is_ignored)
{
    struct backend *backend = device_open();
    struct link_message request = {.id = 3};
    struct fault fault = FAULT_NONE;

    cr_assert_eq(backend->operations->load(backend, &request, "cubin", &fault), BACKEND_E_FAULT);
    cr_assert_eq(fault.status, STATUS_UNSUPPORTED);
    backend->operations->unload(backend, 3);
    backend->operations->unmap(backend, 12345);
    backend->operations->close(backend);
}

Test(backend_cpu, copies_and_zero_fills)
{
    struct backend *backend = device_open();
    char bytes[64] = "the quick brown fox";
    struct gemmd_command command = {.kind = GEMMD_COMMAND_COPY, .job = 9};

    command.body.copy.source = (uintptr_t)bytes;
    command.body.copy.destination = (uintptr_t)(bytes + 4); /* overlapping, as memmove */
    command.body.copy.size = 20;
    cr_assert_eq(execute(backend, &command).status, STATUS_OK);
    cr_assert_str_eq(bytes + 4, "the quick brown fox");
    command.kind = GEMMD_COMMAND_ZERO;
    cr_assert_eq(execute(backend, &command).status, STATUS_OK);
    cr_assert_eq(bytes[3], ' ');
    cr_assert_eq(bytes[4], 0);
    cr_assert_eq(bytes[22], 0);
    command.body.copy.size = 0;
    command.body.copy.destination = 0;
    cr_assert_eq(execute(backend, &command).status, STATUS_OK);
    command.kind = 99;
    cr_assert_eq(execute(backend, &command).status, STATUS_UNSUPPORTED);
    backend->operations->close(backend);
}
