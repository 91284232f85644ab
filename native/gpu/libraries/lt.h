/* Products by descriptors, as cuBLASLt and hipBLASLt compute them: the part that both share. The
 * descriptors and the heuristic's answer are kept for each kind of call, because both cost more than
 * a small product.
 *
 * A file that includes this defines before: LT(name), a function of the table; N(name), a number of
 * the vendor's; STATUS(name), a status; OP(name), of an operand; TABLE and TABLE_OF(library);
 * HEURISTIC, the vendor's struct. And after: limit.
 */
#ifndef BACKENDCFG_DEVICE_LT_H
#define BACKENDCFG_DEVICE_LT_H

#include <stdlib.h>
#include <string.h>

#include "gpu/libraries/backend.h"

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
    HEURISTIC best;
    bool lacks;                        /* the heuristic knows no algorithm */
} plan;

typedef struct {
    plan plans[PLANS];
} all_plans; /* that a handle keeps */

/* Each step runs when those before it succeeded, and leaves its name. */
#define TEXT(name) #name
#define NAME(name) TEXT(name)
#define STEP(name, ...)                                                                            \
    do {                                                                                           \
        if (status == STATUS(SUCCESS)) {                                                           \
            *function = NAME(LT(name));                                                            \
            status = lt->LT(name)(__VA_ARGS__);                                                    \
        }                                                                                          \
    } while (0)

/* Says to a preference what the recipe forbids, and how the operands lie. */
static int limit(const TABLE *lt, void *preference, const bcfg_recipe_content *is,
                 const plan_key *key, const char **function);

static uint32_t alignment(const void *memory) {
    uint32_t most = USUAL_ALIGNMENT;
    while ((uintptr_t)memory % most != 0) most /= 2;
    return most;
}

static void discard(const TABLE *lt, plan *old) {
    if (old->description != NULL) (void)lt->LT(MatmulDescDestroy)(old->description);
    void *layouts[3] = {old->a, old->b, old->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i] != NULL) (void)lt->LT(MatrixLayoutDestroy)(layouts[i]);
    memset(old, 0, sizeof *old);
}

static int layout(const TABLE *lt, int type, int64_t rows, int64_t columns, int64_t leading,
                  int64_t batch, int64_t stride, void **made, const char **function) {
    int status = STATUS(SUCCESS);
    int32_t count = (int32_t)batch;
    STEP(MatrixLayoutCreate, made, type, (uint64_t)rows, (uint64_t)columns, leading);
    if (batch == 1) return status;
    STEP(MatrixLayoutSetAttribute, *made, N(MATRIX_LAYOUT_BATCH_COUNT), &count, sizeof count);
    STEP(MatrixLayoutSetAttribute, *made, N(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET), &stride,
         sizeof stride);
    return status;
}

/* One number for each row of the column-major result is added. */
static int add_bias(const TABLE *lt, void *description, const bcfg_recipe_content *is,
                    const void *bias, const char **function) {
    int status = STATUS(SUCCESS);
    int32_t epilogue = N(EPILOGUE_BIAS), type = is->data_type;
    STEP(MatmulDescSetAttribute, description, N(MATMUL_DESC_EPILOGUE), &epilogue, sizeof epilogue);
    STEP(MatmulDescSetAttribute, description, N(MATMUL_DESC_BIAS_DATA_TYPE), &type, sizeof type);
    STEP(MatmulDescSetAttribute, description, N(MATMUL_DESC_BIAS_POINTER), &bias, sizeof bias);
    return status;
}

static int describe(const TABLE *lt, const bcfg_recipe_content *is, const bcfg_gemm_call *call,
                    plan *fresh, const char **function) {
    int status = STATUS(SUCCESS);
    int32_t a = call->transpose_a ? OP(T) : OP(N);
    int32_t b = call->transpose_b ? OP(T) : OP(N);
    STEP(MatmulDescCreate, &fresh->description, is->compute_type, is->scale_type);
    STEP(MatmulDescSetAttribute, fresh->description, N(MATMUL_DESC_TRANSA), &a, sizeof a);
    STEP(MatmulDescSetAttribute, fresh->description, N(MATMUL_DESC_TRANSB), &b, sizeof b);
    if (status == STATUS(SUCCESS) && call->bias != NULL)
        status = add_bias(lt, fresh->description, is, call->bias, function);
    if (status != STATUS(SUCCESS)) return status;
    const int64_t sizes[3][2] = {
        {call->transpose_a ? call->k : call->m, call->transpose_a ? call->m : call->k},
        {call->transpose_b ? call->n : call->k, call->transpose_b ? call->k : call->n},
        {call->m, call->n},
    };
    const int64_t leading[3] = {call->a_leading, call->b_leading, call->c_leading};
    const int64_t strides[3] = {call->a_stride, call->b_stride, call->c_stride};
    void **made[3] = {&fresh->a, &fresh->b, &fresh->c};
    for (int i = 0; i < 3 && status == STATUS(SUCCESS); i++)
        status = layout(lt, is->data_type, sizes[i][0], sizes[i][1], leading[i], call->batch,
                        strides[i], made[i], function);
    return status;
}

/* Asks the heuristic, within the limits of the recipe. */
static int ask(const TABLE *lt, void *handle, const bcfg_recipe_content *is, plan *fresh,
               const char **function) {
    int status = STATUS(SUCCESS), found = 0;
    void *preference = NULL;
    uint64_t workspace = (uint64_t)is->workspace;
    STEP(MatmulPreferenceCreate, &preference);
    STEP(MatmulPreferenceSetAttribute, preference, N(MATMUL_PREF_MAX_WORKSPACE_BYTES), &workspace,
         sizeof workspace);
    if (status == STATUS(SUCCESS)) status = limit(lt, preference, is, &fresh->key, function);
    STEP(MatmulAlgoGetHeuristic, handle, fresh->description, fresh->a, fresh->b, fresh->c, fresh->c,
         preference, 1, &fresh->best, &found);
    if (preference != NULL) (void)lt->LT(MatmulPreferenceDestroy)(preference);
    if (status == STATUS(SUCCESS)) status = found == 0 ? STATUS(NOT_SUPPORTED) : fresh->best.status;
    return status;
}

static uint64_t mix(const plan_key *key) {
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15, hash ^= hash >> 29;
    return hash;
}

/* What is kept for a call, made where nothing is. */
static int find(const TABLE *lt, const bcfg_lease *lease, const bcfg_gemm_call *call, plan **found,
                const char **function) {
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
        bool described = status == STATUS(SUCCESS);
        if (described) status = ask(lt, handle->handle, is, &fresh, function);
        /* That there is none is an answer too, and asking again costs as much. */
        fresh.lacks = described && status == STATUS(NOT_SUPPORTED);
        if (status != STATUS(SUCCESS) && !fresh.lacks) {
            discard(lt, &fresh);
            return status;
        }
        *at = fresh;
    }
    *function = NAME(LT(MatmulAlgoGetHeuristic));
    return at->lacks ? STATUS(NOT_SUPPORTED) : STATUS(SUCCESS);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    (void)stream; /* each call names its stream */
    *function = NAME(LT(Create));
    return TABLE_OF(library)->LT(Create)(handle);
}

static void destroy(const bcfg_handle *handle) {
    const TABLE *lt = TABLE_OF(handle->library);
    all_plans *kept = handle->kept;
    for (int i = 0; kept != NULL && i < PLANS; i++) discard(lt, &kept->plans[i]);
    free(kept);
    (void)lt->LT(Destroy)(handle->handle);
}

static int multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function) {
    const TABLE *lt = TABLE_OF(lease->recipe->is.library);
    bcfg_handle *handle = lease->handle;
    *function = NAME(LT(Matmul));
    if (call->batch > INT32_MAX) return STATUS(INVALID_VALUE);
    if (call->k == 0) return STATUS(NOT_SUPPORTED); /* nobody promises layouts without numbers */
    plan *at = NULL;
    int status = find(lt, lease, call, &at, function);
    if (call->bias != NULL) /* the description may be kept from another vector */
        STEP(MatmulDescSetAttribute, at->description, N(MATMUL_DESC_BIAS_POINTER), &call->bias,
             sizeof call->bias);
    STEP(Matmul, handle->handle, at->description, alpha, call->a, at->a, call->b, at->b, beta,
         call->c, at->c, call->c, at->c, &at->best.algorithm, handle->workspace,
         (size_t)handle->workspace_bytes, handle->stream);
    return status;
}

#endif
