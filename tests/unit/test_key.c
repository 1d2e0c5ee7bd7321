#include "../../daemon/jit/key.h"
#include "fake_kernels.h"

#include <criterion/criterion.h>

static const struct compiler_identity compiler = {.major = 13, .minor = 0, .build = "id-1"};

static struct source_file files[] = {
    {.name = "base/a.cuh", .text = "aa", .size = 2},
    {.name = "entry/e.cu", .text = "e", .size = 1},
};

static const struct sources sources = {.files = files, .count = ARRAY_SIZE(files)};

static struct key key_of(const struct sources *with,
                         const struct config *config,
                         const struct compiler_identity *identity)
{
    struct key key;

    key_compute(&key, with, config, identity);
    return key;
}

static struct key key_of_files(const char *name0, const char *text0, const char *text1)
{
    struct source_file changed[] = {
        {.name = name0, .text = text0, .size = strlen(text0)},
        {.name = files[1].name, .text = text1, .size = strlen(text1)},
    };
    struct sources with = {.files = changed, .count = 2};
    struct config config = fake_config(90);

    return key_of(&with, &config, &compiler);
}

static void check_differ(struct key a, struct key b, const char *what)
{
    cr_assert(!key_equal(&a, &b), "%s must be in the key", what);
}

Test(key, is_the_same_for_the_same_content)
{
    struct config config = fake_config(90);
    struct key a = key_of(&sources, &config, &compiler), b = key_of_files("base/a.cuh", "aa", "e");

    cr_assert(key_equal(&a, &b));
}

Test(key, covers_every_byte_and_name_of_the_kernel_files)
{
    struct key base = key_of_files("base/a.cuh", "aa", "e");

    check_differ(base, key_of_files("base/a.cuh", "ab", "e"), "a file's bytes");
    check_differ(base, key_of_files("base/b.cuh", "aa", "e"), "a file's name");
    check_differ(base, key_of_files("base/a.cuh", "aae", ""), "the border between files");
    check_differ(base, key_of_files("base/a.cuh", "aa\n", "e"), "a file's length");
}

Test(key, covers_the_compiler)
{
    struct config config = fake_config(90);
    struct key base = key_of(&sources, &config, &compiler);
    struct compiler_identity other = compiler;

    other.minor = 1;
    check_differ(base, key_of(&sources, &config, &other), "the compiler's version");
    other = compiler;
    other.build[3] = '2';
    check_differ(base, key_of(&sources, &config, &other), "the compiler's build");
}

Test(key, differs_between_all_configurations)
{
    static const uint32_t archs[] = {80, 90, 100};
    static struct key keys[ARRAY_SIZE(archs) * CONFIG_LIST_MAX];
    size_t count = 0;

    for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
        struct config configs[CONFIG_LIST_MAX];
        size_t listed = config_list(archs[a], configs);

        for (size_t i = 0; i < listed; i++)
            keys[count++] = key_of(&sources, &configs[i], &compiler);
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            check_differ(keys[i], keys[k], "every field of a configuration");
}

Test(key, text_goes_both_ways)
{
    struct config config = fake_config(80);
    struct key key = key_of(&sources, &config, &compiler), back;
    char text[KEY_TEXT_SIZE];

    key_to_text(&key, text);
    cr_assert_eq(strlen(text), KEY_TEXT_SIZE - 1);
    cr_assert(key_from_text(text, &back));
    cr_assert(key_equal(&key, &back));
}

Test(key, refuses_text_that_is_no_key)
{
    static const char *const texts[] = {
        "",
        "0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0",
        "0123456789ABCDEF0123456789abcdef",
        "0123456789abcdef0123456789abcdeg",
        "../3456789abcdef0123456789abcdef",
    };
    struct key key;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        cr_assert(!key_from_text(texts[i], &key), "'%s'", texts[i]);
}

Test(key, options_name_the_architecture_first)
{
    struct config config = fake_config(90);
    struct key_options options;

    key_options_init(&options, &config);
    cr_assert_str_eq(options.text[0], "--gpu-architecture=sm_90a");
    cr_assert_gt(options.count, options.defines.count);
    cr_assert_leq(options.count, KEY_OPTIONS_MAX);
}
