#include "../../client/npy.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/test_npy.XXXXXX";
static char path[64];

static void make_directory(void)
{
    cr_assert(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/array.npy", directory);
}

static void remove_directory(void)
{
    (void)unlink(path);
    (void)rmdir(directory);
}

TestSuite(npy, .init = make_directory, .fini = remove_directory);

/* A file with this version, header text and `data` zero bytes. */
static void put_file(int version, const char *header, size_t data)
{
    FILE *file = fopen(path, "w");
    size_t length = strlen(header);

    fprintf(file, "\x93NUMPY%c%c%c%c", version, 0, (int)(length & 0xff), (int)(length >> 8));
    if (version > 1)
        fprintf(file, "%c%c", 0, 0);
    fputs(header, file);
    for (size_t i = 0; i < data; i++)
        fputc((int)i, file);
    fclose(file);
}

static void assert_reads(int version, const char *header, size_t data, struct npy *ret_npy)
{
    struct fault fault = FAULT_NONE;

    put_file(version, header, data);
    cr_assert_eq(npy_read(path, ret_npy, &fault), 0, "%s: %s", header, fault.message);
}

static void assert_refused(const char *why)
{
    struct npy npy = NPY_NULL;
    struct fault fault = FAULT_NONE;

    cr_assert_eq(npy_read(path, &npy, &fault), NPY_E_REFUSED);
    cr_assert_str_eq(fault.argument, path);
    cr_assert(strstr(fault.message, path), "%s", fault.message);
    cr_assert(strstr(fault.message, why), "no '%s' in: %s", why, fault.message);
    cr_assert_null(npy.data);
}

static void assert_refuses(const char *header, size_t data, const char *why)
{
    put_file(1, header, data);
    assert_refused(why);
}

Test(npy, reads_versions_1_to_3)
{
    for (int version = 1; version <= 3; version++) {
        struct npy npy;

        assert_reads(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }    \n",
                     48, &npy);
        cr_assert_eq(npy.dtype, DTYPE_FP32);
        cr_assert_eq(npy.ndim, 2);
        cr_assert_eq(npy.shape[0], 3);
        cr_assert_eq(npy.shape[1], 4);
        cr_assert_not(npy.fortran);
        cr_assert_eq(npy.size, 48);
        cr_assert_eq(((uint8_t *)npy.data)[47], 47);
        npy_deinit(&npy);
    }
}

Test(npy, reads_every_type)
{
    static const struct {
        const char *descr;
        enum dtype dtype;
        size_t size;
    } types[] = {
        {"<f2", DTYPE_FP16, 2}, {"<f4", DTYPE_FP32, 4}, {"<f8", DTYPE_FP64, 8},
        {"|i1", DTYPE_INT8, 1}, {"<i1", DTYPE_INT8, 1}, {"<i4", DTYPE_INT32, 4},
        {"<V2", DTYPE_BF16, 2}, {"|V2", DTYPE_BF16, 2}, {"bfloat16", DTYPE_BF16, 2},
        {"<u2", DTYPE_NONE, 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        struct npy npy;
        char header[128];

        snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (6,)}",
                 types[i].descr);
        assert_reads(1, header, 6 * types[i].size, &npy);
        cr_assert_eq(npy.dtype, types[i].dtype, "%s", types[i].descr);
        cr_assert_eq(npy.size, 6 * types[i].size);
        npy_deinit(&npy);
    }
}

Test(npy, accepts_the_forms_that_writers_use)
{
    static const char *const headers[] = {
        "{'shape': (3, 4), 'descr': '<f4', 'fortran_order': True}",
        "{\"descr\":\"<f4\",\"fortran_order\":True,\"shape\":(3,4)}\n",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3L, 4L,), }",
    };

    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        struct npy npy;

        assert_reads(1, headers[i], 48, &npy);
        cr_assert(npy.fortran);
        cr_assert_eq(npy.shape[1], 4);
        npy_deinit(&npy);
    }
}

Test(npy, reads_scalars_and_empty_arrays)
{
    struct npy npy;

    assert_reads(1, "{'descr': '<f8', 'fortran_order': True, 'shape': ()}", 8, &npy);
    cr_assert_eq(npy.ndim, 0);
    cr_assert_eq(npy.size, 8);
    cr_assert_not(npy.fortran);
    npy_deinit(&npy);
    assert_reads(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5)}", 0, &npy);
    cr_assert_eq(npy.size, 0);
    npy_deinit(&npy);
}

Test(npy, refuses_big_endian_with_the_remedy)
{
    assert_refuses("{'descr': '>f4', 'fortran_order': False, 'shape': (3,)}", 12,
                   "big-endian ('>f4'); only little-endian ones are read: save array.astype('<f4'");
}

Test(npy, refuses_types_it_does_not_know)
{
    assert_refuses("{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", 24, "'<c8'");
    assert_refuses("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,)}", 24,
                   "plain type");
}

Test(npy, refuses_headers_of_another_form)
{
    static const char *const headers[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} trailing",
        "{'descr': '<f4', 'fortran_order': False 'shape': (3,)}",
        "{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4aaaaaaaaaaaaaaaaaaaaaaaaaa', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
        assert_refuses(headers[i], 64, "header");
}

Test(npy, refuses_shapes_that_overflow)
{
    assert_refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
                   16, "64-bit");
    assert_refuses("{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,)}", 16,
                   "64-bit");
}

Test(npy, refuses_less_data_than_the_shape_needs)
{
    assert_refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}", 47,
                   "47 bytes of data where its shape needs 48");
    /* claims 4 TB: refused before any of it is reserved */
    assert_refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}", 4,
                   "needs 4000000000000");
}

Test(npy, refuses_what_is_not_npy)
{
    FILE *file = fopen(path, "w");

    fputs("PK\x03\x04 a zip file, as .npz is", file);
    fclose(file);
    assert_refused("not a .npy file");
    put_file(4, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 12);
    assert_refused("version is 4.0");
}

Test(npy, refuses_long_header_claims)
{
    FILE *file = fopen(path, "w");

    fwrite("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 1, 14, file);
    fclose(file);
    assert_refused("claims 4294967295 bytes; at most 10000");
}

Test(npy, refuses_every_cut_of_a_file)
{
    char whole[256];
    size_t size;
    FILE *file;

    put_file(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n", 8);
    file = fopen(path, "r");
    size = fread(whole, 1, sizeof(whole), file);
    fclose(file);
    for (size_t cut = 0; cut < size; cut++) {
        file = fopen(path, "w");
        fwrite(whole, 1, cut, file);
        fclose(file);
        assert_refused("it");
    }
}

Test(npy, refuses_missing_files_directories_and_fifos)
{
    struct npy npy;
    struct fault fault;

    assert_refused("No such file");
    cr_assert_eq(npy_read(directory, &npy, &fault), NPY_E_REFUSED);
    cr_assert(strstr(fault.message, "not a regular file"), "%s", fault.message);
    cr_assert_eq(mkfifo(path, 0600), 0);
    assert_refused("not a regular file");
}

Test(npy, reads_what_it_wrote)
{
    for (int i = DTYPE_BF16; i < DTYPE_COUNT; i++) {
        struct npy out, in;
        struct fault fault;
        struct stat status;

        cr_assert_eq(npy_new((enum dtype)i, 3, (int64_t[]){2, 3, 5}, &out, &fault), 0);
        for (size_t j = 0; j < 30; j++)
            dtype_store(out.dtype, out.data, j, (double)j - 15);
        out.fortran = i & 1;
        cr_assert_eq(npy_write(path, &out, &fault), 0);
        cr_assert_eq(npy_read(path, &in, &fault), 0, "%s", fault.message);
        cr_assert_eq(in.dtype, out.dtype);
        cr_assert_eq(in.ndim, 3);
        cr_assert_eq(in.shape[2], 5);
        cr_assert_eq(in.fortran, out.fortran);
        cr_assert_arr_eq(in.data, out.data, out.size);
        cr_assert_eq(stat(path, &status), 0);
        cr_assert_eq((status.st_size - (off_t)out.size) % 64, 0); /* numpy can map it */
        npy_deinit(&in);
        npy_deinit(&out);
    }
}

static int write_floats(const char *where, int64_t count, struct fault *ret_fault)
{
    struct npy npy;
    int r;

    cr_assert_eq(npy_new(DTYPE_FP32, 1, &count, &npy, ret_fault), 0);
    r = npy_write(where, &npy, ret_fault);
    npy_deinit(&npy);
    return r;
}

Test(npy, removes_a_file_it_could_not_write_whole)
{
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    struct fault fault;

    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(write_floats(path, 4096, &fault), NPY_E_REFUSED);
    cr_assert(strstr(fault.message, "File too large"), "%s", fault.message);
    cr_assert_neq(access(path, F_OK), 0);
}

Test(npy, leaves_devices_where_they_are)
{
    struct fault fault;

    cr_assert_eq(write_floats("/dev/full", 3, &fault), NPY_E_REFUSED);
    cr_assert(strstr(fault.message, "No space left"), "%s", fault.message);
    cr_assert_eq(access("/dev/full", F_OK), 0);
}

Test(npy, names_opaque_elements_only)
{
    struct fault fault;
    struct npy npy;

    assert_reads(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}", 6, &npy);
    cr_assert_eq(npy_view(&npy, DTYPE_FP32, &fault), NPY_E_REFUSED);
    cr_assert_eq(npy_view(&npy, DTYPE_BF16, &fault), 0);
    cr_assert_eq(npy.dtype, DTYPE_BF16);
    npy_deinit(&npy);

    assert_reads(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}", 6, &npy);
    cr_assert_eq(npy_view(&npy, DTYPE_BF16, &fault), NPY_E_REFUSED);
    cr_assert(strstr(fault.message, "'<f2' cannot be taken as bf16"), "%s", fault.message);
    npy_deinit(&npy);
}

Test(npy, writes_shapes_as_python_does)
{
    struct npy npy = {.ndim = 0, .shape = {3, 4}};
    char text[32];

    npy_shape_text(&npy, text, sizeof(text));
    cr_assert_str_eq(text, "()");
    npy.ndim = 1;
    npy_shape_text(&npy, text, sizeof(text));
    cr_assert_str_eq(text, "(3,)");
    npy.ndim = 2;
    npy_shape_text(&npy, text, sizeof(text));
    cr_assert_str_eq(text, "(3, 4)");
}
