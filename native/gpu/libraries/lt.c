/* Products by cuBLASLt and hipBLASLt, which are called by descriptors: the same functions with other
 * numbers. Descriptors and the heuristic's answer are cached for each kind of call, because both cost
 * more than a small product. */
#include "gpu/libraries/backend.h"

#include <stdlib.h>
#include <string.h>

static bool is_cublaslt(const bcfg_device_library *lt) { return lt->kind == BCFG_CUBLASLT; }

/* A number of whichever library `lt` is, and a function. */
#define N(name) (is_cublaslt(lt) ? BCFG_CUBLASLT_##name : BCFG_HIPBLASLT_##name)
#define STATUS(name) (is_cublaslt(lt) ? BCFG_CUBLAS_STATUS_##name : BCFG_HIPBLAS_STATUS_##name)
#define OP(name) (is_cublaslt(lt) ? BCFG_CUBLAS_OP_##name : BCFG_HIPBLAS_OP_##name)
#define CALL(name, ...)                                                                            \
    (is_cublaslt(lt) ? bcfg_cublaslt(lt)->cublasLt##name(__VA_ARGS__)                              \
                     : bcfg_hipblaslt(lt)->hipblasLt##name(__VA_ARGS__))
#define NAME(name) (is_cublaslt(lt) ? "cublasLt" #name : "hipblasLt" #name)

/* Calls a function if those before it succeeded, and leaves its name. Success is 0 in both. */
#define STEP(name, ...)                                                                            \
    do {                                                                                           \
        if (status == 0) {                                                                         \
            *function = NAME(name);                                                                \
            status = CALL(name, __VA_ARGS__);                                                      \
        }                                                                                          \
    } while (0)

enum { PLANS = 64, USUAL_ALIGNMENT = 256 };

/* What a heuristic's answer depends on. Compared as bytes, so that nothing here may be padding. */
typedef struct {
    int64_t m, n, k, batch, a_leading, b_leading, c_leading, a_stride, b_stride, c_stride;
    const bcfg_recipe *recipe;
    int32_t transpose_a, transpose_b;
    uint32_t a_alignment, b_alignment, c_alignment;
    uint32_t bias_alignment;           /* 0: there is no bias */
    uint64_t used;
} plan_key;

typedef struct {
    plan_key key;
    void *description, *a, *b, *c;
    union {
        bcfg_cublaslt_heuristic cublaslt;
        bcfg_hipblaslt_heuristic hipblaslt;
    } best;
    bool lacks;                        /* the heuristic knows no algorithm */
} plan;

typedef struct {
    plan plans[PLANS];
} all_plans; /* that a handle keeps */

static uint32_t alignment(const void *memory) {
    uint32_t most = USUAL_ALIGNMENT;
    while ((uintptr_t)memory % most != 0) most /= 2;
    return most;
}

static void discard(const bcfg_device_library *lt, plan *old) {
    if (old->description != NULL) (void)CALL(MatmulDescDestroy, old->description);
    void *layouts[3] = {old->a, old->b, old->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i] != NULL) (void)CALL(MatrixLayoutDestroy, layouts[i]);
    memset(old, 0, sizeof *old);
}

static int layout(const bcfg_device_library *lt, int type, int64_t rows, int64_t columns,
                  int64_t leading, int64_t batch, int64_t stride, void **made,
                  const char **function) {
    int status = 0;
    int32_t count = (int32_t)batch;
    STEP(MatrixLayoutCreate, made, type, (uint64_t)rows, (uint64_t)columns, leading);
    if (batch == 1) return status;
    STEP(MatrixLayoutSetAttribute, *made, N(MATRIX_LAYOUT_BATCH_COUNT), &count, sizeof count);
    STEP(MatrixLayoutSetAttribute, *made, N(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET), &stride,
         sizeof stride);
    return status;
}

/* Adds one number to each row of the column-major result. */
static int add_bias(const bcfg_device_library *lt, void *description, const bcfg_recipe_content *is,
                    const void *bias, const char **function) {
    int status = 0;
    int32_t epilogue = N(EPILOGUE_BIAS), type = is->data_type;
    STEP(MatmulDescSetAttribute, description, N(MATMUL_DESC_EPILOGUE), &epilogue, sizeof epilogue);
    STEP(MatmulDescSetAttribute, description, N(MATMUL_DESC_BIAS_DATA_TYPE), &type, sizeof type);
    STEP(MatmulDescSetAttribute, description, N(MATMUL_DESC_BIAS_POINTER), &bias, sizeof bias);
    return status;
}

static int describe(const bcfg_device_library *lt, const bcfg_recipe_content *is,
                    const bcfg_gemm_call *call, plan *fresh, const char **function) {
    int status = 0;
    int32_t a = call->transpose_a ? OP(T) : OP(N);
    int32_t b = call->transpose_b ? OP(T) : OP(N);
    STEP(MatmulDescCreate, &fresh->description, is->compute_type, is->scale_type);
    STEP(MatmulDescSetAttribute, fresh->description, N(MATMUL_DESC_TRANSA), &a, sizeof a);
    STEP(MatmulDescSetAttribute, fresh->description, N(MATMUL_DESC_TRANSB), &b, sizeof b);
    if (status == 0 && call->bias != NULL)
        status = add_bias(lt, fresh->description, is, call->bias, function);
    if (status != 0) return status;
    const int64_t sizes[3][2] = {
        {call->transpose_a ? call->k : call->m, call->transpose_a ? call->m : call->k},
        {call->transpose_b ? call->n : call->k, call->transpose_b ? call->k : call->n},
        {call->m, call->n},
    };
    const int64_t leading[3] = {call->a_leading, call->b_leading, call->c_leading};
    const int64_t strides[3] = {call->a_stride, call->b_stride, call->c_stride};
    void **made[3] = {&fresh->a, &fresh->b, &fresh->c};
    for (int i = 0; i < 3 && status == 0; i++)
        status = layout(lt, is->data_type, sizes[i][0], sizes[i][1], leading[i], call->batch,
                        strides[i], made[i], function);
    return status;
}

static uint32_t least(uint32_t left, uint32_t right) { return left < right ? left : right; }

/* Tells a preference what the recipe forbids, and how the operands are aligned. hipBLASLt can be told
 * neither. */
static int limit(const bcfg_device_library *lt, void *preference, const bcfg_recipe_content *is,
                 const plan_key *key, const char **function) {
    int status = 0;
    uint32_t mask = (uint32_t)is->reduction;
    if (!is_cublaslt(lt)) return 0;
    STEP(MatmulPreferenceSetAttribute, preference, BCFG_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         &mask, sizeof mask);
    static const int attributes[4] = {BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                      BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                      BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                      BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    /* The bias has no attribute of its own: an algorithm reads it as it writes d. */
    uint32_t d = key->bias_alignment == 0 ? key->c_alignment
                                          : least(key->c_alignment, key->bias_alignment);
    const uint32_t aligned[4] = {key->a_alignment, key->b_alignment, key->c_alignment, d};
    for (int i = 0; i < 4; i++)
        STEP(MatmulPreferenceSetAttribute, preference, attributes[i], &aligned[i],
             sizeof aligned[i]);
    return status;
}

/* Asks the heuristic, within the limits of the recipe. */
static int ask(const bcfg_device_library *lt, void *handle, const bcfg_recipe_content *is,
               plan *fresh, const char **function) {
    int status = 0, found = 0;
    void *preference = NULL;
    uint64_t workspace = (uint64_t)is->workspace;
    STEP(MatmulPreferenceCreate, &preference);
    STEP(MatmulPreferenceSetAttribute, preference, N(MATMUL_PREF_MAX_WORKSPACE_BYTES), &workspace,
         sizeof workspace);
    if (status == 0) status = limit(lt, preference, is, &fresh->key, function);
    if (status == 0) {
        *function = NAME(MatmulAlgoGetHeuristic);
        status = is_cublaslt(lt)
                     ? bcfg_cublaslt(lt)->cublasLtMatmulAlgoGetHeuristic(
                           handle, fresh->description, fresh->a, fresh->b, fresh->c, fresh->c,
                           preference, 1, &fresh->best.cublaslt, &found)
                     : bcfg_hipblaslt(lt)->hipblasLtMatmulAlgoGetHeuristic(
                           handle, fresh->description, fresh->a, fresh->b, fresh->c, fresh->c,
                           preference, 1, &fresh->best.hipblaslt, &found);
    }
    if (preference != NULL) (void)CALL(MatmulPreferenceDestroy, preference);
    if (status != 0) return status;
    if (found == 0) return STATUS(NOT_SUPPORTED);
    return is_cublaslt(lt) ? fresh->best.cublaslt.status : fresh->best.hipblaslt.status;
}

static uint64_t mix(const plan_key *key) {
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15, hash ^= hash >> 29;
    return hash;
}

/* The cached plan of a call, made where there is none. */
static int find(const bcfg_device_library *lt, const bcfg_lease *lease, const bcfg_gemm_call *call,
                plan **found, const char **function) {
    bcfg_handle *handle = lease->handle;
    if (handle->kept == NULL && (handle->kept = calloc(1, sizeof(all_plans))) == NULL)
        return STATUS(ALLOC_FAILED);
    plan_key key = {
        call->m, call->n, call->k, call->batch, call->a_leading, call->b_leading, call->c_leading,
        call->a_stride, call->b_stride, call->c_stride, lease->recipe, call->transpose_a,
        call->transpose_b, alignment(call->a), alignment(call->b), alignment(call->c),
        call->bias == NULL ? 0 : alignment(call->bias), 1,
    };
    plan *at = *found = &((all_plans *)handle->kept)->plans[mix(&key) % PLANS];
    if (memcmp(&at->key, &key, sizeof key) != 0) {
        const bcfg_recipe_content *is = &lease->recipe->is;
        discard(lt, at);
        plan fresh = {.key = key};
        int status = describe(lt, is, call, &fresh, function);
        bool described = status == 0;
        if (described) status = ask(lt, handle->handle, is, &fresh, function);
        /* Cache also that there is no algorithm: asking again costs as much. */
        fresh.lacks = described && status == STATUS(NOT_SUPPORTED);
        if (status != 0 && !fresh.lacks) {
            discard(lt, &fresh);
            return status;
        }
        *at = fresh;
    }
    *function = NAME(MatmulAlgoGetHeuristic);
    return at->lacks ? STATUS(NOT_SUPPORTED) : 0;
}

static int create(const bcfg_device_library *lt, void *stream, void **handle,
                  const char **function) {
    (void)stream; /* each call names its stream */
    *function = NAME(Create);
    return CALL(Create, handle);
}

static void destroy(const bcfg_handle *handle) {
    const bcfg_device_library *lt = handle->library;
    all_plans *kept = handle->kept;
    for (int i = 0; kept != NULL && i < PLANS; i++) discard(lt, &kept->plans[i]);
    free(kept);
    (void)CALL(Destroy, handle->handle);
}

static int multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function) {
    const bcfg_device_library *lt = lease->recipe->is.library;
    bcfg_handle *handle = lease->handle;
    *function = NAME(Matmul);
    if (call->batch > INT32_MAX) return STATUS(INVALID_VALUE);
    if (call->k == 0) return STATUS(NOT_SUPPORTED); /* layouts with no elements are not documented */
    plan *at = NULL;
    int status = find(lt, lease, call, &at, function);
    if (call->bias != NULL) /* the cached descriptor may point to another vector */
        STEP(MatmulDescSetAttribute, at->description, N(MATMUL_DESC_BIAS_POINTER), &call->bias,
             sizeof call->bias);
    if (status != 0) return status;
    *function = NAME(Matmul);
    const size_t bytes = (size_t)handle->workspace_bytes;
    if (is_cublaslt(lt))
        return bcfg_cublaslt(lt)->cublasLtMatmul(
            handle->handle, at->description, alpha, call->a, at->a, call->b, at->b, beta, call->c,
            at->c, call->c, at->c, &at->best.cublaslt.algorithm, handle->workspace, bytes,
            handle->stream);
    return bcfg_hipblaslt(lt)->hipblasLtMatmul(
        handle->handle, at->description, alpha, call->a, at->a, call->b, at->b, beta, call->c,
        at->c, call->c, at->c, &at->best.hipblaslt.algorithm, handle->workspace, bytes,
        handle->stream);
}

/* hipBLASLt's statuses are hipBLAS's, and it has no function that names them. */
static const char *name_of(const bcfg_device_library *lt, int status) {
    if (is_cublaslt(lt)) return bcfg_cublaslt(lt)->cublasLtGetStatusName(status);
    switch (status) {
#define CONSTANT(name, value) case value: return #name;
        BCFG_HIPBLAS_STATUS_CONSTANTS(CONSTANT)
#undef CONSTANT
    default: return NULL;
    }
}

const bcfg_vendor bcfg_lt_vendor = {name_of, create, destroy};
const bcfg_backend bcfg_cublaslt_backend = {NULL, NULL, NULL, multiply,
                                            BCFG_CUBLAS_STATUS_NOT_SUPPORTED};
const bcfg_backend bcfg_hipblaslt_backend = {NULL, NULL, NULL, multiply,
                                             BCFG_HIPBLAS_STATUS_NOT_SUPPORTED};
