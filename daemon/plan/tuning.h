/*
 * The tuning database: for a class of shapes, the configuration that was the fastest when the best
 * few of the plan were timed. In memory here, and as the text of its file; who times and who writes
 * the file is elsewhere (front/tuner.h, front/tuning_store.h).
 *
 * The epoch names the content: 0 while there is none, else a fingerprint of all classes and their
 * configurations, in any order. So two daemons with one epoch choose alike, and a database that was
 * lost and made anew has the same epoch only when it says the same.
 *
 * At most TUNING_CLASSES_MAX classes: beyond that the one that was longest not asked for goes. Pure
 * C, no files, no CUDA.
 *
 * Owner: the server. Thread: loop.
 */
#pragma once

#include "../core/problem.h"
#include "config.h"

#define TUNING_CLASSES_MAX 1024 /* shapes of many models, and a file of 150 KiB */
#define TUNING_TEXT_MAX    (512u << 10)
#define TUNING_CLASS_MAX   96 /* with the zero, as text */
#define TUNING_DEVICE_MAX  160

/* What shapes have in common that one configuration is for. Sizes are the ends of steps of an
 * eighth of an octave, and of at least 8. */
struct tuning_class {
    enum dtype input, output;
    bool trans_a, trans_b;
    bool is_aligned; /* every row starts on 16 bytes */
    uint64_t m, n, k, batch;
};

struct tuning_entry {
    struct tuning_class class;
    struct config config;
    double seconds;       /* of that configuration, when it was timed */
    double first_seconds; /* of the plan's own choice, then */
    uint64_t asked;       /* when it was last found, in the database's own count */
};

struct tuning {
    struct tuning_entry *entries; /* owned */
    size_t count, capacity;
    uint64_t asked;
    uint32_t epoch;
};

void tuning_init(struct tuning *tuning);
void tuning_deinit(struct tuning *tuning);

struct tuning_class tuning_classify(const struct problem *problem, bool is_aligned);
bool tuning_class_equal(const struct tuning_class *a, const struct tuning_class *b);
/* "bf16.bf16.nt.aligned.4096x4096x4096.b1" */
void tuning_class_to_text(const struct tuning_class *class, char ret_text[TUNING_CLASS_MAX]);
bool tuning_class_from_text(const char *text, struct tuning_class *ret_class);

/* NULL: not tuned. Counts as a use. */
const struct tuning_entry *tuning_find(struct tuning *tuning, const struct tuning_class *class);
/* Adds or replaces; `asked` is ignored. < 0 only for lack of memory. */
int tuning_set(struct tuning *tuning, const struct tuning_entry *entry);

/* Of candidates launched again and again, the plan's own choice first: that one, unless another is
 * faster by more than noise, and unless it takes no longer than a launch costs the host. Then all
 * that are as short seem to take the same (4.7 to 5.6 us on an H200, for kernels of 2.0), and who
 * is first among them is chance. INFINITY: it could not be timed. */
#define TUNING_GAIN           0.98
#define TUNING_LAUNCH_SECONDS 6e-6
size_t tuning_winner(const double *seconds, size_t count);

/* The file: a line that says what it is, one for the device, a line for each class from the longest
 * unused on, and a checksum. Owned by the caller; NULL: no memory. */
char *tuning_to_text(const struct tuning *tuning, const char *device);
/* Fills an empty database. Lines whose class or configuration this version does not know are left
 * out. < 0 for lack of memory. */
int tuning_from_text(struct tuning *tuning, const char *text, size_t size, const char *device);

enum {
    TUNING_E_DAMAGED = 1, /* cut, altered, or no such file */
    TUNING_E_OTHER,       /* of another version or device */
};
