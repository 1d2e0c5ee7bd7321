#include "peer.h"

#include <dlfcn.h>
#include <string.h>

/* Numbers of cublasLt.h, cublas_api.h and library_types.h, the same since CUDA 11. */
enum {
    OPERATION_N = 0,
    OPERATION_T = 1,
    DESCRIPTION_FIRST_OPERATION = 3,
    DESCRIPTION_SECOND_OPERATION = 4,
    PREFERENCE_WORKSPACE = 1,
    WORKSPACE_SIZE = 32 << 20,
};

struct peer_functions {
    int (*create)(void **handle);
    int (*description_create)(void **description, int compute, int scale);
    int (*description_set)(void *description, int attribute, const void *value, size_t size);
    int (*description_destroy)(void *description);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t size);
    int (*preference_destroy)(void *preference);
    int (*heuristic)(void *handle,
                     void *description,
                     void *a,
                     void *b,
                     void *c,
                     void *d,
                     void *preference,
                     int wanted,
                     struct peer_algorithm *results,
                     int *found);
    int (*multiply)(void *handle,
                    void *description,
                    const void *alpha,
                    const void *a,
                    void *a_layout,
                    const void *b,
                    void *b_layout,
                    const void *beta,
                    const void *c,
                    void *c_layout,
                    void *d,
                    void *d_layout,
                    const void *algorithm,
                    void *workspace,
                    size_t workspace_size,
                    CUstream stream);
};

_Static_assert(sizeof(struct peer_algorithm) == 96, "cublasLtMatmulHeuristicResult_t");

struct type {
    int input, output, compute, scale;
};

static struct type type_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return (struct type){14, 14, 68, 0};
    case DTYPE_FP16:
        return (struct type){2, 2, 68, 0};
    case DTYPE_FP64:
        return (struct type){1, 1, 70, 1};
    case DTYPE_INT8:
        return (struct type){3, 10, 72, 10};
    default:
        return (struct type){0, 0, 68, 0};
    }
}

static void *load_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
    void *library = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool find_functions(void *library, struct peer_functions *ret)
{
    const struct {
        const char *name;
        void *pointer;
    } functions[] = {
        {"cublasLtCreate", &ret->create},
        {"cublasLtMatmulDescCreate", &ret->description_create},
        {"cublasLtMatmulDescSetAttribute", &ret->description_set},
        {"cublasLtMatmulDescDestroy", &ret->description_destroy},
        {"cublasLtMatrixLayoutCreate", &ret->layout_create},
        {"cublasLtMatrixLayoutDestroy", &ret->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &ret->preference_create},
        {"cublasLtMatmulPreferenceSetAttribute", &ret->preference_set},
        {"cublasLtMatmulPreferenceDestroy", &ret->preference_destroy},
        {"cublasLtMatmulAlgoGetHeuristic", &ret->heuristic},
        {"cublasLtMatmul", &ret->multiply},
    };

    for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (!symbol)
            return false;
        memcpy(functions[i].pointer, &symbol, sizeof(symbol));
    }
    return true;
}

bool peer_open(struct peer *peer, struct gpu *gpu, const char **ret_why)
{
    static struct peer_functions functions;
    void *library = load_library();
    *peer = (struct peer){.functions = &functions};
    *ret_why = "no libcublasLt.so.13 or .12 here";
    if (!library || !find_functions(library, &functions))
        return false;
    *ret_why = "cublasLtCreate failed";
    if (functions.create(&peer->handle) != 0)
        return false;
    *ret_why = "no memory for its workspace";
    return GPU_CALL(gpu, MemAlloc)(&peer->workspace, WORKSPACE_SIZE) == CUDA_SUCCESS;
}

/* Column-major, B comes first: what is stored row-major with `trans` is not transposed there. */
static int describe(struct peer *peer, const struct shape *shape)
{
    const struct peer_functions *f = peer->functions;
    struct type type = type_of(shape->dtype);
    int first = shape->trans_b ? OPERATION_T : OPERATION_N;
    int second = shape->trans_a ? OPERATION_T : OPERATION_N;
    uint64_t m = (uint64_t)shape->m, n = (uint64_t)shape->n, k = (uint64_t)shape->k;
    uint64_t b_rows = shape->trans_b ? k : n, b_columns = shape->trans_b ? n : k;
    uint64_t a_rows = shape->trans_a ? m : k, a_columns = shape->trans_a ? k : m;
    int r = f->description_create(&peer->description, type.compute, type.scale);
    if (!r)
        r = f->description_set(peer->description, DESCRIPTION_FIRST_OPERATION, &first,
                               sizeof(first));
    if (!r)
        r = f->description_set(peer->description, DESCRIPTION_SECOND_OPERATION, &second,
                               sizeof(second));
    if (!r)
        r = f->layout_create(&peer->first, type.input, b_rows, b_columns, (int64_t)b_rows);
    if (!r)
        r = f->layout_create(&peer->second, type.input, a_rows, a_columns, (int64_t)a_rows);
    return r ? r : f->layout_create(&peer->result, type.output, n, m, (int64_t)n);
}

static int ask(struct peer *peer)
{
    const struct peer_functions *f = peer->functions;
    void *preference = NULL;
    size_t workspace = WORKSPACE_SIZE;
    int found = 0;
    int r = f->preference_create(&preference);
    if (!r)
        r = f->preference_set(preference, PREFERENCE_WORKSPACE, &workspace, sizeof(workspace));
    if (!r)
        r = f->heuristic(peer->handle, peer->description, peer->first, peer->second, peer->result,
                         peer->result, preference, PEER_ALGORITHMS_MAX, peer->algorithms, &found);
    if (preference)
        (void)f->preference_destroy(preference);
    peer->count = r == 0 && found > 0 ? (size_t)found : 0;
    return r;
}

bool peer_begin(struct peer *peer, const struct shape *shape, const struct peer_buffers *sets)
{
    peer->dtype = shape->dtype;
    peer->sets = sets;
    peer->chosen = 0;
    peer->count = 0;
    if (describe(peer, shape) == 0 && ask(peer) == 0 && peer->count > 0)
        return true;
    peer_end(peer);
    return false;
}

void peer_end(struct peer *peer)
{
    void **layouts[] = {&peer->first, &peer->second, &peer->result};
    for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
        if (*layouts[i])
            (void)peer->functions->layout_destroy(*layouts[i]);
        *layouts[i] = NULL;
    }
    if (peer->description)
        (void)peer->functions->description_destroy(peer->description);
    peer->description = NULL;
}

int peer_launch(void *context, CUstream stream, size_t set)
{
    static const float one_f = 1, zero_f = 0;
    static const double one_d = 1, zero_d = 0;
    static const int32_t one_i = 1, zero_i = 0;
    struct peer *peer = context;
    const struct peer_buffers *buffers = &peer->sets[set];
    const struct peer_algorithm *algorithm = &peer->algorithms[peer->chosen];
    const void *one = peer->dtype == DTYPE_FP64   ? (const void *)&one_d
                      : peer->dtype == DTYPE_INT8 ? (const void *)&one_i
                                                  : (const void *)&one_f;
    const void *zero = peer->dtype == DTYPE_FP64   ? (const void *)&zero_d
                       : peer->dtype == DTYPE_INT8 ? (const void *)&zero_i
                                                   : (const void *)&zero_f;
    void *d = (void *)(uintptr_t)buffers->d;
    return peer->functions->multiply(
        peer->handle, peer->description, one, (const void *)(uintptr_t)buffers->b, peer->first,
        (const void *)(uintptr_t)buffers->a, peer->second, zero, d, peer->result, d, peer->result,
        algorithm->algorithm, (void *)(uintptr_t)peer->workspace, WORKSPACE_SIZE, stream);
}
