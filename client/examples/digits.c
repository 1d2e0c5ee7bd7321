/*
 * Two processes classify handwritten digits with one copy of the weights.
 *
 *   digits --data DIR --share NAME --half 0 --owner &  digits --data DIR --share NAME --half 1
 *
 * The owner makes a device buffer under NAME and writes the weights; the other opens it by name.
 * Each multiplies its half of the images (plain memory) by the shared weights, counts how often the
 * largest of ten scores is the right digit, and holds every score against a product in double.
 */
#include <err.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../daemon/core/dtype.h"
#include "../npy.h"
#include <gemmd.h>

#define WARM_RUNS    200
#define OPEN_SECONDS 30 /* how long the second process waits for the first */
#define READY        1  /* what the byte behind the weights says once they are written */

struct options {
    const char *socket, *directory, *share;
    int half;
    bool is_owner;
};

/* One half of the images with its labels, the classifier, and the scores. */
struct task {
    struct npy images, labels, weights;
    int64_t first, count, features, classes;
    float *scores;
};

struct outcome {
    double accuracy, worst; /* largest error, as a part of the bound */
    double cold_seconds, warm_seconds;
    gemmd_result result; /* of the first product */
};

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void check(gemmd *daemon, gemmd_status status, const char *what)
{
    if (status != GEMMD_OK)
        errx(1, "%s: %s: %s", what, gemmd_strerror(status), gemmd_last_error(daemon)->message);
}

/* --- input ----------------------------------------------------------------------------------- */

static struct npy load(const char *directory, const char *name, enum dtype dtype)
{
    char path[4096];
    struct npy npy;
    struct fault fault;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (npy_read(path, &npy, &fault) != 0)
        errx(1, "%s", fault.message);
    if (npy.dtype != dtype || npy.fortran)
        errx(1, "%s: expected %s in C order", path, dtype_name(dtype));
    return npy;
}

static void load_task(const struct options *options, struct task *ret)
{
    struct task task = {
        .images = load(options->directory, "images.npy", DTYPE_FP16),
        .labels = load(options->directory, "labels.npy", DTYPE_INT8),
        .weights = load(options->directory, "weights.npy", DTYPE_FP16),
    };
    int64_t images = task.images.shape[0];

    if (task.images.ndim != 2 || task.weights.ndim != 2 || task.labels.ndim != 1 ||
        task.images.shape[1] != task.weights.shape[0] || task.labels.shape[0] != images)
        errx(1, "the shapes in %s do not fit together", options->directory);
    task.features = task.images.shape[1];
    task.classes = task.weights.shape[1];
    task.first = options->half == 0 ? 0 : images / 2;
    task.count = options->half == 0 ? images / 2 : images - images / 2;
    task.scores = calloc((size_t)(task.count * task.classes), sizeof(float));
    if (!task.scores)
        errx(1, "out of memory");
    *ret = task;
}

static void task_deinit(struct task *task)
{
    npy_deinit(&task->images);
    npy_deinit(&task->labels);
    npy_deinit(&task->weights);
    free(task->scores);
}

/* --- the shared weights ---------------------------------------------------------------------- */

/* The byte behind the weights is written last: a name exists before its content does. */
static gemmd_buffer *share_weights(gemmd *daemon, const char *name, const struct npy *weights)
{
    unsigned char ready = READY;
    gemmd_buffer *buffer;
    gemmd_status status;

    status = gemmd_buffer_create(daemon, GEMMD_DEVICE, weights->size + 1, name, 0600, &buffer);
    if (status == GEMMD_EXISTS) /* left by an earlier run */
        status = gemmd_buffer_open(daemon, name, true, &buffer);
    check(daemon, status, "sharing the weights");
    check(daemon, gemmd_buffer_write(buffer, 0, weights->data, weights->size), "writing them");
    check(daemon, gemmd_buffer_write(buffer, weights->size, &ready, 1), "writing them");
    return buffer;
}

static bool weights_are_ready(gemmd *daemon, gemmd_buffer *buffer, const struct npy *weights)
{
    unsigned char ready = 0;

    if (gemmd_buffer_size(buffer) < weights->size + 1)
        errx(1, "the shared buffer is too small for these weights");
    check(daemon, gemmd_buffer_read(buffer, weights->size, &ready, 1), "reading the weights");
    return ready == READY;
}

static gemmd_buffer *find_weights(gemmd *daemon, const char *name, const struct npy *weights)
{
    double end = now() + OPEN_SECONDS;
    gemmd_buffer *buffer = NULL;
    gemmd_status status;

    do {
        const struct timespec pause = {.tv_nsec = 5000000};

        status = buffer ? GEMMD_OK : gemmd_buffer_open(daemon, name, false, &buffer);
        if (status == GEMMD_OK && weights_are_ready(daemon, buffer, weights))
            return buffer;
        if (status != GEMMD_OK && status != GEMMD_NOT_FOUND)
            check(daemon, status, "opening the weights");
        (void)nanosleep(&pause, NULL);
    } while (now() < end);
    errx(1, "nobody shared %s within %d s: start one process with --owner", name, OPEN_SECONDS);
}

/* --- work ------------------------------------------------------------------------------------ */

static const void *images_of(const struct task *task)
{
    return (const char *)task->images.data +
           (size_t)(task->first * task->features) * dtype_size(DTYPE_FP16);
}

static void multiply(gemmd *daemon, gemmd_buffer *weights, struct task *task, struct outcome *ret)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    double start = now();

    product.input = GEMMD_FP16;
    product.output = GEMMD_FP32;
    product.m = task->count;
    product.n = task->classes;
    product.k = task->features;
    product.a.data = (void *)(uintptr_t)images_of(task);
    product.b.buffer = weights;
    product.d.data = task->scores;

    ret->result.size = sizeof(ret->result);
    check(daemon, gemmd_gemm(daemon, &product, &ret->result), "the product");
    ret->cold_seconds = now() - start;
    start = now();
    for (int i = 0; i < WARM_RUNS; i++)
        check(daemon, gemmd_gemm(daemon, &product, NULL), "the product");
    ret->warm_seconds = (now() - start) / WARM_RUNS;
}

static int best_class(const struct task *task, int64_t image)
{
    const float *scores = task->scores + image * task->classes;
    int best = 0;

    for (int i = 1; i < task->classes; i++) {
        if (scores[i] > scores[best])
            best = i;
    }
    return best;
}

static double accuracy_of(const struct task *task)
{
    const int8_t *labels = (const int8_t *)task->labels.data + task->first;
    int64_t right = 0;

    for (int64_t i = 0; i < task->count; i++)
        right += best_class(task, i) == labels[i];
    return (double)right / (double)task->count;
}

/* How far one score is from the product in double, as a part of what the format allows. */
static double error_of(const struct task *task, int64_t image, int64_t class)
{
    double sum = 0, absolute = 0, bound, got = task->scores[image * task->classes + class];

    for (int64_t i = 0; i < task->features; i++) {
        double term =
            dtype_load(DTYPE_FP16, images_of(task), (size_t)(image * task->features + i)) *
            dtype_load(DTYPE_FP16, task->weights.data, (size_t)(i * task->classes + class));

        sum += term;
        absolute += fabs(term);
    }
    bound = dtype_error_bound(DTYPE_FP16, DTYPE_FP32, task->features, sum, absolute, 0);
    return isfinite(got) ? fabs(got - sum) / bound : INFINITY;
}

static double worst_error_of(const struct task *task)
{
    double worst = 0;

    for (int64_t image = 0; image < task->count; image++) {
        for (int64_t class = 0; class < task->classes; class ++)
            worst = fmax(worst, error_of(task, image, class));
    }
    return worst;
}

static void report(const struct options *options, const struct task *task, const struct outcome *o)
{
    printf("half %d: %lld images, accuracy %.1f %% (%s)\n", options->half, (long long)task->count,
           100 * o->accuracy,
           options->half == 0 ? "the half the classifier was trained on" : "never seen before");
    printf("        weights: %zu bytes of device memory, shared as \"%s\" (%s)\n",
           task->weights.size, options->share,
           options->is_owner ? "written by this process" : "opened by name");
    printf("        against fp64: largest error %.3f of the bound\n", o->worst);
    printf("        configuration %s\n", o->result.configuration);
    printf("        cold %.2f ms (compiling %.2f ms), warm %.1f us\n", 1e3 * o->cold_seconds,
           1e3 * o->result.compile_seconds, 1e6 * o->warm_seconds);
}

/* --- command line ---------------------------------------------------------------------------- */

static void usage(FILE *file)
{
    fputs("usage: digits --data DIR --share NAME --half 0|1 [--owner] [--socket PATH]\n", file);
}

static struct options parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},
        {"data", required_argument, NULL, 'd'},
        {"share", required_argument, NULL, 'n'},
        {"half", required_argument, NULL, 'h'},
        {"owner", no_argument, NULL, 'o'},
        {"help", no_argument, NULL, '?' + 256},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.half = -1};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 's')
            options.socket = optarg;
        else if (option == 'd')
            options.directory = optarg;
        else if (option == 'n')
            options.share = optarg;
        else if (option == 'h' && (!strcmp(optarg, "0") || !strcmp(optarg, "1")))
            options.half = optarg[0] - '0';
        else if (option == 'o')
            options.is_owner = true;
        else {
            usage(option == '?' + 256 ? stdout : stderr);
            exit(option == '?' + 256 ? 0 : 2);
        }
    }
    if (!options.directory || !options.share || options.half < 0 || optind < argc) {
        usage(stderr);
        exit(2);
    }
    return options;
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    struct outcome outcome = {0};
    struct task task;
    gemmd *daemon;
    gemmd_error error;
    gemmd_buffer *weights;

    load_task(&options, &task);
    if (gemmd_connect(options.socket, &daemon, &error) != GEMMD_OK)
        errx(3, "%s", error.message);
    weights = options.is_owner ? share_weights(daemon, options.share, &task.weights)
                               : find_weights(daemon, options.share, &task.weights);
    multiply(daemon, weights, &task, &outcome);
    /* The buffer is not freed: its name must outlive this process, the other may come later. */
    gemmd_close(daemon);

    outcome.accuracy = accuracy_of(&task);
    outcome.worst = worst_error_of(&task);
    report(&options, &task, &outcome);
    task_deinit(&task);
    return outcome.worst <= 1 ? 0 : 1;
}
