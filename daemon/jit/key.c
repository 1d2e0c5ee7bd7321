#include "key.h"

#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack: a key cannot fail for lack of memory */
#include <xxhash.h>

void key_options_init(struct key_options *options, const struct config *config)
{
    const char *architecture = config_architecture(config->arch);
    size_t n = 0;

    assert(architecture);
    config_to_defines(config, &options->defines);
    (void)snprintf(options->architecture, sizeof(options->architecture), "--gpu-architecture=%s",
                   architecture);
    options->text[n++] = options->architecture;
    (void)snprintf(options->optimization, sizeof(options->optimization), "--ptxas-options=-O%u",
                   config_optimization(config));
    options->text[n++] = options->optimization;
    options->text[n++] = "-std=c++17";
    options->text[n++] = "--ptxas-options=-v"; /* registers, shared memory and spills in the log */
    for (size_t i = 0; i < options->defines.count; i++)
        options->text[n++] = options->defines.text[i];
    options->count = n;
}

static void add_u64(XXH3_state_t *state, uint64_t value)
{
    uint8_t bytes[8];

    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    (void)XXH3_128bits_update(state, bytes, sizeof(bytes));
}

/* With its length in front, so that no two lists of parts run together to the same bytes. */
static void add_bytes(XXH3_state_t *state, const void *bytes, size_t size)
{
    add_u64(state, size);
    (void)XXH3_128bits_update(state, bytes, size);
}

static void add_text(XXH3_state_t *state, const char *text)
{
    add_bytes(state, text, strlen(text));
}

static void add_sources(XXH3_state_t *state, const struct sources *sources)
{
    add_u64(state, sources->count);
    for (size_t i = 0; i < sources->count; i++) {
        add_text(state, sources->files[i].name);
        add_bytes(state, sources->files[i].text, sources->files[i].size);
    }
}

static void add_options(XXH3_state_t *state, const struct config *config)
{
    struct key_options options;

    key_options_init(&options, config);
    add_u64(state, options.count);
    for (size_t i = 0; i < options.count; i++)
        add_text(state, options.text[i]);
}

void key_compute(struct key *ret_key,
                 const struct sources *sources,
                 const struct config *config,
                 const struct compiler_identity *compiler)
{
    XXH3_state_t storage, *state = &storage;
    XXH128_canonical_t digest;

    XXH3_INITSTATE(state);
    (void)XXH3_128bits_reset(state);
    add_u64(state, KEY_FORMAT_VERSION);
    add_sources(state, sources);
    add_text(state, config_source(config));
    add_options(state, config);
    add_u64(state, compiler->major);
    add_u64(state, compiler->minor);
    add_bytes(state, compiler->build, strnlen(compiler->build, sizeof(compiler->build)));
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));

    static_assert(sizeof(digest.digest) == sizeof(ret_key->bytes), "a key is one XXH3-128");
    memcpy(ret_key->bytes, digest.digest, sizeof(ret_key->bytes));
}

bool key_equal(const struct key *a, const struct key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

void key_to_text(const struct key *key, char ret_text[KEY_TEXT_SIZE])
{
    for (size_t i = 0; i < sizeof(key->bytes); i++)
        (void)snprintf(ret_text + 2 * i, 3, "%02x", key->bytes[i]);
}

static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}

bool key_from_text(const char *text, struct key *ret_key)
{
    struct key key;

    if (strnlen(text, KEY_TEXT_SIZE) != KEY_TEXT_SIZE - 1)
        return false;
    for (size_t i = 0; i < sizeof(key.bytes); i++) {
        int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        key.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret_key = key;
    return true;
}
