#include "../../daemon/jit/sources.h"
#include "scratch.h"

#include <criterion/criterion.h>

static void check_order(const struct sources *sources)
{
    for (size_t i = 1; i < sources->count; i++)
        cr_assert_lt(strcmp(sources->files[i - 1].name, sources->files[i].name), 0, "%s before %s",
                     sources->files[i - 1].name, sources->files[i].name);
}

Test(sources, embeds_the_shared_headers)
{
    cleanup(sources_deinit) struct sources sources = SOURCES_NULL;
    const struct source_file *job;

    cr_assert_eq(sources_open(&sources, NULL), 0);
    cr_assert(sources.is_embedded);
    job = sources_find(&sources, "abi/job.h");
    cr_assert_not_null(job);
    cr_assert_eq(strlen(job->text), job->size);
    cr_assert_not_null(strstr(job->text, "struct gemmd_feed {"));
}

Test(sources, embedded_and_directory_are_the_same)
{
    cleanup(sources_deinit) struct sources embedded = SOURCES_NULL, read = SOURCES_NULL;

    if (access(KERNELS_SRC, R_OK) < 0)
        cr_skip_test("the source tree is not on this machine");
    cr_assert_eq(sources_open(&embedded, NULL), 0);
    cr_assert_eq(sources_open(&read, KERNELS_SRC), 0);
    cr_assert(!read.is_embedded);
    cr_assert_eq(read.count, embedded.count);
    for (size_t i = 0; i < read.count; i++) {
        cr_assert_str_eq(read.files[i].name, embedded.files[i].name);
        cr_assert_eq(read.files[i].size, embedded.files[i].size);
        cr_assert_eq(memcmp(read.files[i].text, embedded.files[i].text, read.files[i].size), 0);
    }
    check_order(&embedded);
    check_order(&read);
}

Test(sources, takes_kernel_files_only_and_sorts_them)
{
    static const char *const expected[] = {"abi/job.h", "base/a.cuh", "base/deep/b.cuh", "e.cu"};
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(sources_deinit) struct sources sources = SOURCES_NULL;

    scratch_write_text(&scratch, "e.cu", "e");
    scratch_write_text(&scratch, "base/deep/b.cuh", "b");
    scratch_write_text(&scratch, "base/a.cuh", "");
    scratch_write_text(&scratch, "abi/job.h", "j");
    scratch_write_text(&scratch, "base/other.h", "not in abi/");
    scratch_write_text(&scratch, "CMakeLists.txt", "no kernel file");
    scratch_write_text(&scratch, "base/.a.cuh.swp", "an editor's");
    scratch_write_text(&scratch, ".hidden.cuh", "an editor's");

    cr_assert_eq(sources_open(&sources, scratch.path), 0);
    cr_assert_eq(sources.count, ARRAY_SIZE(expected));
    for (size_t i = 0; i < sources.count; i++)
        cr_assert_str_eq(sources.files[i].name, expected[i]);
    cr_assert_str_eq(sources_find(&sources, "base/deep/b.cuh")->text, "b");
    cr_assert_eq(sources_find(&sources, "base/a.cuh")->size, 0);
    cr_assert_null(sources_find(&sources, "base/missing.cuh"));
}

Test(sources, refuses_what_is_no_kernel_directory)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct sources sources = SOURCES_NULL;

    scratch_write_text(&scratch, "readme", "text");
    cr_assert_eq(sources_open(&sources, scratch.path), SOURCES_E_EMPTY);
    cr_assert_eq(sources_open(&sources, scratch_path(&scratch, "missing").text), -ENOENT);
    cr_assert_eq(sources_open(&sources, scratch_path(&scratch, "readme").text), -ENOTDIR);
    cr_assert_null(sources.files, "outputs are written on success only");
}

Test(sources, bounds_the_size_of_a_file)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct sources sources = SOURCES_NULL;

    scratch_write_text(&scratch, "a.cu", "a");
    cr_assert_eq(truncate(scratch_path(&scratch, "a.cu").text, SOURCES_FILE_MAX + 1), 0);
    cr_assert_eq(sources_open(&sources, scratch.path), SOURCES_E_TOO_LARGE);
}

Test(sources, bounds_the_number_of_files)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    struct sources sources = SOURCES_NULL;

    for (unsigned i = 0; i <= SOURCES_COUNT_MAX; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "%u.cuh", i);
        scratch_write_text(&scratch, name, "");
    }
    cr_assert_eq(sources_open(&sources, scratch.path), SOURCES_E_TOO_LARGE);
}

Test(sources, survives_a_loop_of_links)
{
    cleanup(scratch_remove) struct scratch scratch = scratch_new();
    cleanup(sources_deinit) struct sources sources = SOURCES_NULL;

    scratch_write_text(&scratch, "a/b.cuh", "b");
    cr_assert_eq(symlink("..", scratch_path(&scratch, "a/up").text), 0);
    cr_assert_eq(sources_open(&sources, scratch.path), 0);
}
