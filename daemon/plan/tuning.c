#include "tuning.h"

#include "../core/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC         "gemmd tuning 1"
#define TEXT_LINE_MAX 320 /* class, configuration and two times */
#define FNV_START     14695981039346656037u
#define FNV_PRIME     1099511628211u

void tuning_init(struct tuning *tuning)
{
    *tuning = (struct tuning){0};
}

void tuning_deinit(struct tuning *tuning)
{
    free(tuning->entries);
    *tuning = (struct tuning){0};
}

/* --- classes --------------------------------------------------------------------------------- */

static uint64_t power_of_two_from(uint64_t value)
{
    uint64_t power = 1;

    while (power < value && power < (uint64_t)1 << 62)
        power *= 2;
    return power;
}

/* The end of the step that a size lies in. */
static uint64_t step_end(int64_t size)
{
    uint64_t value = (uint64_t)MAX(size, 1), octave = power_of_two_from(value), step;

    if (octave <= 8)
        return octave;
    step = MAX(octave / 16, 8u); /* the octave that ends there has eight steps */
    return (value + step - 1) / step * step;
}

struct tuning_class tuning_classify(const struct problem *problem, bool is_aligned)
{
    return (struct tuning_class){
        .input = problem->input,
        .output = problem->output,
        .trans_a = problem->trans_a,
        .trans_b = problem->trans_b,
        .is_aligned = is_aligned,
        .m = step_end(problem->m),
        .n = step_end(problem->n),
        .k = step_end(problem->k),
        .batch = power_of_two_from((uint64_t)MAX(problem->batch, 1)),
    };
}

bool tuning_class_equal(const struct tuning_class *a, const struct tuning_class *b)
{
    return a->input == b->input && a->output == b->output && a->trans_a == b->trans_a &&
           a->trans_b == b->trans_b && a->is_aligned == b->is_aligned && a->m == b->m &&
           a->n == b->n && a->k == b->k && a->batch == b->batch;
}

void tuning_class_to_text(const struct tuning_class *class, char ret_text[TUNING_CLASS_MAX])
{
    (void)snprintf(ret_text, TUNING_CLASS_MAX,
                   "%s.%s.%c%c.%s.%" PRIu64 "x%" PRIu64 "x%" PRIu64 ".b%" PRIu64,
                   dtype_name(class->input), dtype_name(class->output), class->trans_a ? 't' : 'n',
                   class->trans_b ? 't' : 'n', class->is_aligned ? "aligned" : "unaligned",
                   class->m, class->n, class->k, class->batch);
}

bool tuning_class_from_text(const char *text, struct tuning_class *ret_class)
{
    struct tuning_class class = {0};
    char input[8], output[8], layout[3], aligned[12], again[TUNING_CLASS_MAX];

    if (sscanf(text, "%7[^.].%7[^.].%2[nt].%11[^.].%" SCNu64 "x%" SCNu64 "x%" SCNu64 ".b%" SCNu64,
               input, output, layout, aligned, &class.m, &class.n, &class.k, &class.batch) != 8)
        return false;
    if (!dtype_from_name(input, strlen(input), &class.input) ||
        !dtype_from_name(output, strlen(output), &class.output))
        return false;
    class.trans_a = layout[0] == 't';
    class.trans_b = layout[1] == 't';
    class.is_aligned = strcmp(aligned, "aligned") == 0;
    /* What it prints as is what it is: a text with anything else in it is none. */
    tuning_class_to_text(&class, again);
    *ret_class = class;
    return strcmp(text, again) == 0;
}

/* --- the epoch ------------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * FNV_PRIME;
    return hash;
}

static uint64_t hash_entry(const struct tuning_entry *entry)
{
    char class[TUNING_CLASS_MAX], config[CONFIG_TEXT_MAX];
    uint64_t hash;

    tuning_class_to_text(&entry->class, class);
    config_to_text(&entry->config, config);
    hash = hash_bytes(FNV_START, class, strlen(class) + 1);
    hash = hash_bytes(hash, config, strlen(config));
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93; /* sums of what FNV leaves would cancel */
    return hash ^ hash >> 32;
}

static void name_epoch(struct tuning *tuning)
{
    uint64_t sum = 0;
    uint32_t folded;

    for (size_t i = 0; i < tuning->count; i++)
        sum += hash_entry(&tuning->entries[i]);
    folded = (uint32_t)(sum ^ sum >> 32);
    tuning->epoch = tuning->count == 0 ? 0 : MAX(folded, 1u);
}

/* --- content --------------------------------------------------------------------------------- */

static struct tuning_entry *find(const struct tuning *tuning, const struct tuning_class *class)
{
    for (size_t i = 0; i < tuning->count; i++)
        if (tuning_class_equal(&tuning->entries[i].class, class))
            return &tuning->entries[i];
    return NULL;
}

const struct tuning_entry *tuning_find(struct tuning *tuning, const struct tuning_class *class)
{
    struct tuning_entry *entry = find(tuning, class);

    if (entry)
        entry->asked = ++tuning->asked;
    return entry;
}

static struct tuning_entry *longest_unused(const struct tuning *tuning)
{
    struct tuning_entry *oldest = &tuning->entries[0];

    for (size_t i = 1; i < tuning->count; i++)
        if (tuning->entries[i].asked < oldest->asked)
            oldest = &tuning->entries[i];
    return oldest;
}

static int grow(struct tuning *tuning)
{
    size_t capacity = MAX(2 * tuning->capacity, 32u);
    struct tuning_entry *entries = realloc(tuning->entries, capacity * sizeof(*entries));

    if (!entries)
        return error_origin(-ENOMEM);
    tuning->entries = entries;
    tuning->capacity = capacity;
    return 0;
}

static int put(struct tuning *tuning, const struct tuning_entry *entry)
{
    struct tuning_entry *place = find(tuning, &entry->class);
    int r = 0;

    if (!place && tuning->count == TUNING_CLASSES_MAX)
        place = longest_unused(tuning);
    if (!place && tuning->count == tuning->capacity)
        r = grow(tuning);
    if (r < 0)
        return error_trace(r);
    if (!place)
        place = &tuning->entries[tuning->count++];
    *place = *entry;
    place->asked = ++tuning->asked;
    return 0;
}

int tuning_set(struct tuning *tuning, const struct tuning_entry *entry)
{
    int r = put(tuning, entry);

    name_epoch(tuning);
    return error_trace(r);
}

size_t tuning_winner(const double *seconds, size_t count)
{
    size_t winner = 0;

    for (size_t i = 1; i < count; i++)
        if (seconds[i] < seconds[winner])
            winner = i;
    if (seconds[0] < TUNING_LAUNCH_SECONDS || seconds[winner] >= TUNING_GAIN * seconds[0])
        return 0;
    return winner;
}

/* --- the file's text ------------------------------------------------------------------------- */

static int compare_asked(const void *a, const void *b)
{
    const struct tuning_entry *x = *(struct tuning_entry *const *)a;
    const struct tuning_entry *y = *(struct tuning_entry *const *)b;

    return (x->asked > y->asked) - (x->asked < y->asked);
}

static void print_entry(FILE *file, const struct tuning_entry *entry)
{
    char class[TUNING_CLASS_MAX], config[CONFIG_TEXT_MAX];

    tuning_class_to_text(&entry->class, class);
    config_to_text(&entry->config, config);
    fprintf(file, "%s %s %.4e %.4e\n", class, config, entry->seconds, entry->first_seconds);
}

char *tuning_to_text(const struct tuning *tuning, const char *device)
{
    cleanup(freep) const struct tuning_entry **order = calloc(tuning->count + 1, sizeof(*order));
    char *text = NULL;
    size_t size = 0;
    FILE *file = order ? open_memstream(&text, &size) : NULL;

    if (!file)
        return NULL;
    for (size_t i = 0; i < tuning->count; i++)
        order[i] = &tuning->entries[i];
    qsort(order, tuning->count, sizeof(*order), compare_asked);
    fprintf(file, MAGIC "\ndevice %s\n", device);
    for (size_t i = 0; i < tuning->count; i++)
        print_entry(file, order[i]);
    (void)fflush(file);
    fprintf(file, "sum %016" PRIx64 "\n", hash_bytes(FNV_START, text, size));
    if (fclose(file) == 0)
        return text;
    free(text);
    return NULL;
}

#define SUM_LINE (sizeof("sum 0123456789abcdef\n") - 1)

static bool is_intact(const char *text, size_t size)
{
    char sum[SUM_LINE + 1];

    if (size < SUM_LINE)
        return false;
    (void)snprintf(sum, sizeof(sum), "sum %016" PRIx64 "\n",
                   hash_bytes(FNV_START, text, size - SUM_LINE));
    return memcmp(sum, text + size - SUM_LINE, SUM_LINE) == 0;
}

/* The next line without its end, copied; false at the end of the text or for one that is too long.
 */
static bool next_line(const char **text, const char *end, char ret_line[TEXT_LINE_MAX])
{
    const char *newline = memchr(*text, '\n', (size_t)(end - *text));

    if (!newline || newline - *text >= TEXT_LINE_MAX)
        return false;
    memcpy(ret_line, *text, (size_t)(newline - *text));
    ret_line[newline - *text] = '\0';
    *text = newline + 1;
    return true;
}

static bool parse_entry(char *line, struct tuning_entry *ret_entry)
{
    char *class = strsep(&line, " "), *config = strsep(&line, " ");

    return line && tuning_class_from_text(class, &ret_entry->class) &&
           config_from_text(config, &ret_entry->config) &&
           sscanf(line, "%lf %lf", &ret_entry->seconds, &ret_entry->first_seconds) == 2;
}

int tuning_from_text(struct tuning *tuning, const char *text, size_t size, const char *device)
{
    const char *end;
    char line[TEXT_LINE_MAX], expected[TUNING_DEVICE_MAX + 8];
    int r = 0;

    /* A version says itself before anything else about the file can be known. */
    if (size < sizeof(MAGIC) || memcmp(text, "gemmd tuning ", 13) != 0)
        return TUNING_E_DAMAGED;
    if (memcmp(text, MAGIC "\n", sizeof(MAGIC)) != 0)
        return TUNING_E_OTHER;
    if (!is_intact(text, size))
        return TUNING_E_DAMAGED;
    end = text + size - SUM_LINE;
    (void)snprintf(expected, sizeof(expected), "device %s", device);
    (void)next_line(&text, end, line);
    if (!next_line(&text, end, line) || strcmp(line, expected) != 0)
        return TUNING_E_OTHER;
    while (r == 0 && next_line(&text, end, line)) {
        struct tuning_entry entry = {0};

        if (parse_entry(line, &entry))
            r = put(tuning, &entry);
    }
    name_epoch(tuning);
    return error_trace(r);
}
