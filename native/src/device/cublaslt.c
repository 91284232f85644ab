/* Products by cuBLASLt: descriptors and the heuristic's answer are kept for each kind of call, because
 * both cost more than a small product. */
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"

enum { PLANS = 64, USUAL_ALIGNMENT = 256 };

/* What a heuristic's answer depends on. Compared as bytes, so that nothing here may be padding. */
typedef struct {
    int64_t m, n, k, batch, a_leading, b_leading, c_leading, a_stride, b_stride, c_stride;
    const bcfg_recipe *recipe;
    int32_t transpose_a, transpose_b;
    uint32_t a_alignment, b_alignment, c_alignment, used;
} plan_key;

typedef struct {
    plan_key key;
    void *description, *a, *b, *c;
    bcfg_cublaslt_heuristic best;
} plan;

typedef struct {
    plan plans[PLANS];
} all_plans; /* that a handle keeps */

static uint32_t alignment(const void *memory) {
    uint32_t most = USUAL_ALIGNMENT;
    while ((uintptr_t)memory % most != 0) most /= 2;
    return most;
}

static void discard(const bcfg_cublaslt_table *lt, plan *old) {
    if (old->description != NULL) (void)lt->cublasLtMatmulDescDestroy(old->description);
    void *layouts[3] = {old->a, old->b, old->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i] != NULL) (void)lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    memset(old, 0, sizeof *old);
}

/* Each step runs when those before it succeeded, and leaves its name. */
#define STEP(name, ...)                                                                            \
    do {                                                                                           \
        if (status == BCFG_CUBLAS_STATUS_SUCCESS) {                                                \
            *function = #name;                                                                     \
            status = lt->name(__VA_ARGS__);                                                        \
        }                                                                                          \
    } while (0)

static int layout(const bcfg_cublaslt_table *lt, int type, int64_t rows, int64_t columns,
                  int64_t leading, int64_t batch, int64_t stride, void **made,
                  const char **function) {
    int status = BCFG_CUBLAS_STATUS_SUCCESS;
    int32_t count = (int32_t)batch;
    STEP(cublasLtMatrixLayoutCreate, made, type, (uint64_t)rows, (uint64_t)columns, leading);
    if (batch == 1) return status;
    STEP(cublasLtMatrixLayoutSetAttribute, *made, BCFG_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
         sizeof count);
    STEP(cublasLtMatrixLayoutSetAttribute, *made,
         BCFG_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return status;
}

static int describe(const bcfg_cublaslt_table *lt, const bcfg_recipe_content *is,
                    const bcfg_gemm_call *call, plan *fresh, const char **function) {
    int status = BCFG_CUBLAS_STATUS_SUCCESS;
    int32_t a = call->transpose_a ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    int32_t b = call->transpose_b ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    STEP(cublasLtMatmulDescCreate, &fresh->description, is->compute_type, is->scale_type);
    STEP(cublasLtMatmulDescSetAttribute, fresh->description, BCFG_CUBLASLT_MATMUL_DESC_TRANSA, &a,
         sizeof a);
    STEP(cublasLtMatmulDescSetAttribute, fresh->description, BCFG_CUBLASLT_MATMUL_DESC_TRANSB, &b,
         sizeof b);
    if (status != BCFG_CUBLAS_STATUS_SUCCESS) return status;
    const int64_t sizes[3][2] = {
        {call->transpose_a ? call->k : call->m, call->transpose_a ? call->m : call->k},
        {call->transpose_b ? call->n : call->k, call->transpose_b ? call->k : call->n},
        {call->m, call->n},
    };
    const int64_t leading[3] = {call->a_leading, call->b_leading, call->c_leading};
    const int64_t strides[3] = {call->a_stride, call->b_stride, call->c_stride};
    void **made[3] = {&fresh->a, &fresh->b, &fresh->c};
    for (int i = 0; i < 3 && status == BCFG_CUBLAS_STATUS_SUCCESS; i++)
        status = layout(lt, is->data_type, sizes[i][0], sizes[i][1], leading[i], call->batch,
                        strides[i], made[i], function);
    return status;
}

/* Asks the heuristic, within the limits of the recipe. */
static int ask(const bcfg_cublaslt_table *lt, void *handle, const bcfg_recipe_content *is,
               plan *fresh, const char **function) {
    int status = BCFG_CUBLAS_STATUS_SUCCESS, found = 0;
    void *preference = NULL;
    uint64_t workspace = (uint64_t)is->workspace;
    uint32_t mask = (uint32_t)is->reduction;
    static const int attributes[3] = {BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                      BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                      BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    const uint32_t aligned[3] = {fresh->key.a_alignment, fresh->key.b_alignment,
                                 fresh->key.c_alignment};
    STEP(cublasLtMatmulPreferenceCreate, &preference);
    STEP(cublasLtMatmulPreferenceSetAttribute, preference,
         BCFG_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    STEP(cublasLtMatmulPreferenceSetAttribute, preference,
         BCFG_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, sizeof mask);
    for (int i = 0; i < 3; i++)
        STEP(cublasLtMatmulPreferenceSetAttribute, preference, attributes[i], &aligned[i],
             sizeof aligned[i]);
    STEP(cublasLtMatmulPreferenceSetAttribute, preference,
         BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &aligned[2], sizeof aligned[2]);
    STEP(cublasLtMatmulAlgoGetHeuristic, handle, fresh->description, fresh->a, fresh->b, fresh->c,
         fresh->c, preference, 1, &fresh->best, &found);
    if (preference != NULL) (void)lt->cublasLtMatmulPreferenceDestroy(preference);
    if (status == BCFG_CUBLAS_STATUS_SUCCESS && found == 0) return BCFG_CUBLAS_STATUS_NOT_SUPPORTED;
    return status == BCFG_CUBLAS_STATUS_SUCCESS ? fresh->best.status : status;
}

static uint64_t mix(const plan_key *key) {
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15, hash ^= hash >> 29;
    return hash;
}

static const char *name_of(const bcfg_device_library *library, int status) {
    return bcfg_cublaslt(library)->cublasLtGetStatusName(status);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    (void)stream; /* each call names its stream */
    *function = "cublasLtCreate";
    return bcfg_cublaslt(library)->cublasLtCreate(handle);
}

static int multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                    const void *beta, const char **function) {
    const bcfg_recipe_content *is = &lease->recipe->is;
    const bcfg_cublaslt_table *lt = bcfg_cublaslt(is->library);
    bcfg_handle *handle = lease->handle;
    *function = "cublasLtMatmul";
    if (call->batch > INT32_MAX) return BCFG_CUBLAS_STATUS_INVALID_VALUE;
    if (handle->kept == NULL && (handle->kept = calloc(1, sizeof(all_plans))) == NULL)
        return BCFG_CUBLAS_STATUS_ALLOC_FAILED;
    plan_key key = {
        call->m, call->n, call->k, call->batch, call->a_leading, call->b_leading, call->c_leading,
        call->a_stride, call->b_stride, call->c_stride, lease->recipe, call->transpose_a,
        call->transpose_b, alignment(call->a), alignment(call->b), alignment(call->c), 1,
    };
    plan *at = &((all_plans *)handle->kept)->plans[mix(&key) % PLANS];
    if (memcmp(&at->key, &key, sizeof key) != 0) {
        discard(lt, at);
        plan fresh = {.key = key};
        int status = describe(lt, is, call, &fresh, function);
        if (status == BCFG_CUBLAS_STATUS_SUCCESS)
            status = ask(lt, handle->handle, is, &fresh, function);
        if (status != BCFG_CUBLAS_STATUS_SUCCESS) {
            discard(lt, &fresh);
            return status;
        }
        *at = fresh;
    }
    *function = "cublasLtMatmul";
    return lt->cublasLtMatmul(handle->handle, at->description, alpha, call->a, at->a, call->b,
                              at->b, beta, call->c, at->c, call->c, at->c, &at->best.algorithm,
                              handle->workspace, (size_t)handle->workspace_bytes, handle->stream);
}

const bcfg_vendor bcfg_cublaslt_vendor = {name_of, create};
const bcfg_backend bcfg_cublaslt_backend = {NULL, NULL, NULL, multiply};
