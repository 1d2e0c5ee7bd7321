#include "../../daemon/plan/tuning.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE "arch 90, 132 multiprocessors, NVIDIA H200"

static struct problem product(int64_t m, int64_t n, int64_t k)
{
    return (struct problem){
        .input = DTYPE_BF16, .output = DTYPE_BF16, .m = m, .n = n, .k = k, .batch = 1, .alpha = 1};
}

static struct tuning_entry entry_for(int64_t m, size_t config)
{
    struct config configs[CONFIG_LIST_MAX];
    struct problem problem = product(m, 64, 64);

    cr_assert_gt(config_list(90, configs), config);
    return (struct tuning_entry){.class = tuning_classify(&problem, true),
                                 .config = configs[config],
                                 .seconds = 1.5e-6,
                                 .first_seconds = 2.5e-6};
}

static void set(struct tuning *tuning, int64_t m, size_t config)
{
    struct tuning_entry entry = entry_for(m, config);

    cr_assert_eq(tuning_set(tuning, &entry), 0);
}

static const struct tuning_entry *find(struct tuning *tuning, int64_t m)
{
    struct problem problem = product(m, 64, 64);
    struct tuning_class class = tuning_classify(&problem, true);

    return tuning_find(tuning, &class);
}

/* --- the fastest ----------------------------------------------------------------------------- */

Test(tuning, keeps_the_fastest_candidate)
{
    const double seconds[] = {20e-6, 19e-6, 18e-6, 18.5e-6};

    cr_expect_eq(tuning_winner(seconds, 4), 2);
    cr_expect_eq(tuning_winner(seconds, 2), 1);
    cr_expect_eq(tuning_winner(seconds, 1), 0);
}

Test(tuning, keeps_the_plans_own_choice_where_the_gain_is_noise)
{
    cr_expect_eq(tuning_winner((const double[]){20e-6, 19.7e-6}, 2), 0);
}

/* Of an H200: 64x64, 16x64, 64x128 and 128x128 at 256^3. */
Test(tuning, keeps_the_plans_own_choice_where_launches_are_what_was_timed)
{
    cr_expect_eq(tuning_winner((const double[]){5.02e-6, 5.58e-6, 4.88e-6, 4.82e-6}, 4), 0);
}

Test(tuning, takes_another_where_the_plans_own_choice_could_not_be_timed)
{
    cr_expect_eq(tuning_winner((const double[]){INFINITY, 5e-6}, 2), 1);
}

/* --- classes --------------------------------------------------------------------------------- */

Test(tuning, puts_sizes_of_one_step_into_one_class)
{
    static const struct {
        int64_t size;
        uint64_t end;
    } cases[] = {{1, 1},
                 {2, 2},
                 {3, 4},
                 {8, 8},
                 {9, 16},
                 {16, 16},
                 {17, 24},
                 {64, 64},
                 {65, 72},
                 {128, 128},
                 {129, 144},
                 {4096, 4096},
                 {4095, 4096},
                 {3840, 3840},
                 {3841, 4096},
                 {4097, 4608},
                 {1ll << 40, 1ull << 40}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct problem problem = product(cases[i].size, 64, 64);

        cr_expect_eq(tuning_classify(&problem, true).m, cases[i].end, "%lld",
                     (long long)cases[i].size);
    }
}

Test(tuning, never_spans_more_than_an_eighth_in_a_class_of_large_sizes)
{
    for (int64_t size = 129; size < 1 << 16; size += 7) {
        struct problem problem = product(size, 64, 64);
        uint64_t end = tuning_classify(&problem, true).m;

        cr_assert_geq(end, (uint64_t)size);
        cr_assert_lt((double)end, (double)size * 1.125);
    }
}

Test(tuning, keeps_what_needs_another_kernel_in_another_class)
{
    struct problem base = product(512, 512, 512), other = base;
    struct tuning_class class = tuning_classify(&base, true), apart;

    apart = tuning_classify(&base, false);
    cr_expect_not(tuning_class_equal(&class, &apart));
    other.trans_b = true;
    apart = tuning_classify(&other, true);
    cr_expect_not(tuning_class_equal(&class, &apart));
    other = base;
    other.output = DTYPE_FP32;
    apart = tuning_classify(&other, true);
    cr_expect_not(tuning_class_equal(&class, &apart));
    other = base;
    other.alpha = 3;
    apart = tuning_classify(&other, true);
    cr_expect(tuning_class_equal(&class, &apart));
}

Test(tuning, reads_back_the_text_of_a_class_and_no_other)
{
    static const char *const wrong[] = {
        "",
        "bf16",
        "bf16.bf16.nt.aligned.1x2x3",
        "bf16.bf16.nt.aligned.1x2x3.b1 ",
        "bf16.bf16.nt.maybe.1x2x3.b1",
        "bf16.bf17.nt.aligned.1x2x3.b1",
        "bf16.bf16.nt.aligned.01x2x3.b1",
        "bf16.bf16.nt.aligned.-1x2x3.b1",
        "bf16.bf16.nx.aligned.1x2x3.b1",
        "bf16.bf16.ntt.aligned.1x2x3.b1",
    };
    struct problem problem = product(4096, 2112, 7168);
    struct tuning_class class, again;
    char text[TUNING_CLASS_MAX];

    problem.trans_b = true;
    class = tuning_classify(&problem, true);
    tuning_class_to_text(&class, text);
    cr_expect_str_eq(text, "bf16.bf16.nt.aligned.4096x2304x7168.b1");
    cr_assert(tuning_class_from_text(text, &again));
    cr_expect(tuning_class_equal(&class, &again));
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        cr_expect_not(tuning_class_from_text(wrong[i], &again), "%s", wrong[i]);
}

/* --- content --------------------------------------------------------------------------------- */

Test(tuning, finds_what_was_set_last)
{
    struct tuning tuning;
    struct tuning_entry second = entry_for(64, 5);

    tuning_init(&tuning);
    cr_expect_null(find(&tuning, 64));
    set(&tuning, 64, 3);
    set(&tuning, 128, 4);
    set(&tuning, 64, 5);
    cr_expect_eq(tuning.count, 2);
    cr_expect(config_equal(&find(&tuning, 64)->config, &second.config));
    cr_expect_null(find(&tuning, 256));
    tuning_deinit(&tuning);
}

Test(tuning, names_the_same_content_by_the_same_epoch_and_other_content_by_another)
{
    struct tuning one, other;
    uint32_t before;

    tuning_init(&one);
    tuning_init(&other);
    cr_expect_eq(one.epoch, 0);
    set(&one, 64, 3);
    before = one.epoch;
    cr_expect_neq(before, 0);
    set(&one, 128, 4);
    cr_expect_neq(one.epoch, before);
    set(&other, 128, 4);
    set(&other, 64, 3);
    cr_expect_eq(one.epoch, other.epoch, "in whatever order");
    set(&other, 64, 5);
    cr_expect_neq(one.epoch, other.epoch);
    set(&other, 64, 3);
    cr_expect_eq(one.epoch, other.epoch);
    tuning_deinit(&one);
    tuning_deinit(&other);
}

Test(tuning, does_not_change_its_epoch_for_times_alone)
{
    struct tuning tuning;
    struct tuning_entry entry = entry_for(64, 3);
    uint32_t before;

    tuning_init(&tuning);
    set(&tuning, 64, 3);
    before = tuning.epoch;
    entry.seconds *= 2;
    cr_assert_eq(tuning_set(&tuning, &entry), 0);
    cr_expect_eq(tuning.epoch, before);
    tuning_deinit(&tuning);
}

Test(tuning, is_bounded_and_forgets_what_was_longest_not_asked_for)
{
    struct tuning tuning;

    tuning_init(&tuning);
    for (int64_t i = 0; i < TUNING_CLASSES_MAX; i++) /* classes apart: 2^0 ... by two sizes */
        set(&tuning, 1024 + 64 * i * 32, 3);
    size_t full = tuning.count;
    for (int64_t i = 0; tuning.count < TUNING_CLASSES_MAX; i++) {
        struct tuning_entry entry = entry_for(64, 3);

        entry.class.batch = (uint64_t)i + 2;
        cr_assert_eq(tuning_set(&tuning, &entry), 0);
    }
    cr_assert_gt(full, 1);
    cr_assert_not_null(find(&tuning, 1024));
    set(&tuning, 16, 4);
    cr_expect_eq(tuning.count, TUNING_CLASSES_MAX);
    cr_expect_not_null(find(&tuning, 1024), "it was asked for");
    cr_expect_not_null(find(&tuning, 16));
    cr_expect_null(find(&tuning, 1024 + 64 * 32), "the next oldest");
    tuning_deinit(&tuning);
}

/* --- the file -------------------------------------------------------------------------------- */

static char *text_of_three(void)
{
    struct tuning tuning;
    char *text;

    tuning_init(&tuning);
    set(&tuning, 64, 3);
    set(&tuning, 128, 4);
    set(&tuning, 256, 5);
    text = tuning_to_text(&tuning, DEVICE);
    tuning_deinit(&tuning);
    cr_assert_not_null(text);
    return text;
}

static int read_text(const char *text, size_t size, const char *device, struct tuning *ret_tuning)
{
    tuning_init(ret_tuning);
    return tuning_from_text(ret_tuning, text, size, device);
}

Test(tuning, reads_back_the_file_that_it_wrote)
{
    struct tuning tuning;
    char *text = text_of_three(), *again;

    cr_assert_eq(read_text(text, strlen(text), DEVICE, &tuning), 0);
    cr_expect_eq(tuning.count, 3);
    cr_expect_neq(tuning.epoch, 0);
    cr_expect_float_eq(find(&tuning, 64)->first_seconds, 2.5e-6, 1e-12);
    tuning_deinit(&tuning);
    cr_assert_eq(read_text(text, strlen(text), DEVICE, &tuning), 0);
    again = tuning_to_text(&tuning, DEVICE);
    cr_expect_str_eq(text, again);
    free(again);
    free(text);
    tuning_deinit(&tuning);
}

Test(tuning, refuses_a_file_with_any_byte_altered_or_any_end_cut)
{
    char *text = text_of_three();
    size_t size = strlen(text);

    for (size_t i = 0; i < size; i++) {
        struct tuning tuning;

        text[i] ^= 1;
        cr_assert_neq(read_text(text, size, DEVICE, &tuning), 0, "byte %zu", i);
        cr_assert_eq(tuning.count, 0);
        text[i] ^= 1;
        cr_assert_neq(read_text(text, i, DEVICE, &tuning), 0, "cut to %zu", i);
        tuning_deinit(&tuning);
    }
    free(text);
}

Test(tuning, refuses_the_file_of_another_device_or_version)
{
    struct tuning tuning;
    char *text = text_of_three();

    cr_expect_eq(read_text(text, strlen(text), "arch 80", &tuning), TUNING_E_OTHER);
    text[strlen("gemmd tuning ")] = '2';
    cr_expect_eq(read_text(text, strlen(text), DEVICE, &tuning), TUNING_E_OTHER);
    free(text);
}

Test(tuning, writes_and_reads_a_database_with_nothing_in_it)
{
    struct tuning tuning, read;
    char *text;

    tuning_init(&tuning);
    text = tuning_to_text(&tuning, DEVICE);
    cr_assert_eq(read_text(text, strlen(text), DEVICE, &read), 0);
    cr_expect_eq(read.count, 0);
    cr_expect_eq(read.epoch, 0);
    free(text);
}
