/* Products of 2:4 sparse matrices by cuSPARSELt. Plans are cached with the handle, each with all
 * that it was made of, because the library does not document which of it a plan still reads. */
#include "gpu/libraries/cusparselt.h"

#include <stdlib.h>
#include <string.h>

enum { PLANS = 32, ALIGNMENT = 16 };

typedef struct {
    _Alignas(16) unsigned char bytes[BCFG_CUSPARSELT_BYTES];
} opaque;

typedef struct {
    bcfg_sparse_product key;
    opaque a, b, d, product, selection, plan;
    int made;                          /* how many of these, in the order of `make` */
} kept_plan;

typedef struct {
    kept_plan *plans[PLANS];
    int next;                          /* the place to reuse when all are full: the oldest */
} all_plans; /* that a handle keeps */

static const char *name_of(const bcfg_device_library *library, int status) {
    return bcfg_cusparselt(library)->cusparseLtGetErrorName(status);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    (void)stream; /* it is passed with each call */
    *function = "cusparseLtInit";
    opaque *made = aligned_alloc(ALIGNMENT, sizeof *made);
    if (made == NULL) return BCFG_CUSPARSE_STATUS_ALLOC_FAILED;
    memset(made, 0, sizeof *made);
    int status = bcfg_cusparselt(library)->cusparseLtInit(made);
    if (status != BCFG_CUSPARSE_STATUS_SUCCESS) free(made);
    else *handle = made;
    return status;
}

/* Calls a function if those before it succeeded, and leaves its name. */
#define STEP(name, ...)                                                                            \
    do {                                                                                           \
        if (status == BCFG_CUSPARSE_STATUS_SUCCESS) {                                              \
            *function = #name;                                                                     \
            status = lt->name(__VA_ARGS__);                                                        \
        }                                                                                          \
    } while (0)

static void discard(const bcfg_cusparselt_table *lt, kept_plan *old) {
    if (old == NULL) return;
    if (old->made > 4) (void)lt->cusparseLtMatmulPlanDestroy(&old->plan);
    if (old->made > 3 && lt->cusparseLtMatmulAlgSelectionDestroy != NULL)
        (void)lt->cusparseLtMatmulAlgSelectionDestroy(&old->selection);
    opaque *matrices[] = {&old->a, &old->b, &old->d};
    for (int i = 0; i < 3 && i < old->made; i++)
        (void)lt->cusparseLtMatDescriptorDestroy(matrices[i]);
    free(old);
}

static void destroy(const bcfg_handle *handle) {
    const bcfg_cusparselt_table *lt = bcfg_cusparselt(handle->library);
    all_plans *kept = handle->kept;
    for (int i = 0; kept != NULL && i < PLANS; i++) discard(lt, kept->plans[i]);
    free(kept);
    (void)lt->cusparseLtDestroy(handle->handle);
    free(handle->handle);
}

const bcfg_vendor bcfg_cusparselt_vendor = {name_of, create, destroy};

static int select_algorithm(const bcfg_cusparselt_table *lt, const void *handle, kept_plan *it,
                            const char **function) {
    const bcfg_sparse_product *is = &it->key;
    int status = BCFG_CUSPARSE_STATUS_SUCCESS;
    STEP(cusparseLtMatmulAlgSetAttribute, handle, &it->selection,
         BCFG_CUSPARSELT_MATMUL_ALG_CONFIG_ID, &is->algorithm, sizeof is->algorithm);
    if (is->split_k == 1) return status;
    STEP(cusparseLtMatmulAlgSetAttribute, handle, &it->selection, BCFG_CUSPARSELT_MATMUL_SPLIT_K,
         &is->split_k, sizeof is->split_k);
    if (is->split_k_mode == 0) return status;
    STEP(cusparseLtMatmulAlgSetAttribute, handle, &it->selection,
         BCFG_CUSPARSELT_MATMUL_SPLIT_K_MODE, &is->split_k_mode, sizeof is->split_k_mode);
    return status;
}

static int make(const bcfg_cusparselt_table *lt, const void *handle, kept_plan *it,
                const char **function) {
    const bcfg_sparse_product *is = &it->key;
    int status = BCFG_CUSPARSE_STATUS_SUCCESS, row = BCFG_CUSPARSE_ORDER_ROW;
#define MADE if (status == BCFG_CUSPARSE_STATUS_SUCCESS) it->made++
    STEP(cusparseLtStructuredDescriptorInit, handle, &it->a, is->m, is->k, is->k, ALIGNMENT,
         is->type, row, BCFG_CUSPARSELT_SPARSITY_50_PERCENT);
    MADE;
    STEP(cusparseLtDenseDescriptorInit, handle, &it->b, is->transposes_b ? is->n : is->k,
         is->transposes_b ? is->k : is->n, is->b_leading, ALIGNMENT, is->type, row);
    MADE;
    STEP(cusparseLtDenseDescriptorInit, handle, &it->d, is->m, is->n, is->n, ALIGNMENT,
         is->result_type, row);
    MADE;
    STEP(cusparseLtMatmulDescriptorInit, handle, &it->product,
         BCFG_CUSPARSE_OPERATION_NON_TRANSPOSE,
         is->transposes_b ? BCFG_CUSPARSE_OPERATION_TRANSPOSE
                          : BCFG_CUSPARSE_OPERATION_NON_TRANSPOSE,
         &it->a, &it->b, &it->d, &it->d, is->compute);
    if (is->bias != NULL)
        STEP(cusparseLtMatmulDescSetAttribute, handle, &it->product,
             BCFG_CUSPARSELT_MATMUL_BIAS_POINTER, &is->bias, sizeof is->bias);
    STEP(cusparseLtMatmulAlgSelectionInit, handle, &it->selection, &it->product,
         BCFG_CUSPARSELT_MATMUL_ALG_DEFAULT);
    MADE;
    if (status == BCFG_CUSPARSE_STATUS_SUCCESS)
        status = select_algorithm(lt, handle, it, function);
    STEP(cusparseLtMatmulPlanInit, handle, &it->plan, &it->product, &it->selection);
    MADE;
#undef MADE
    return status;
}

static bcfg_outcome fresh(bcfg_handle *handle, const bcfg_sparse_product *product,
                          kept_plan **made, bcfg_fault *fault) {
    const bcfg_cusparselt_table *lt = bcfg_cusparselt(handle->library);
    kept_plan *it = aligned_alloc(ALIGNMENT, sizeof *it);
    if (it == NULL) return BCFG_DEVICE_MEMORY;
    memset(it, 0, sizeof *it);
    it->key = *product;
    const char *function = "";
    int status = make(lt, handle->handle, it, &function);
    if (status == BCFG_CUSPARSE_STATUS_SUCCESS) {
        *made = it;
        return BCFG_DEVICE_OK;
    }
    discard(lt, it);
    return bcfg_library_fault(handle->library, function, status, fault);
}

static bcfg_outcome plan_of(bcfg_handle *handle, const bcfg_sparse_product *product,
                            kept_plan **found, bcfg_fault *fault) {
    if (handle->kept == NULL && (handle->kept = calloc(1, sizeof(all_plans))) == NULL)
        return BCFG_DEVICE_MEMORY;
    all_plans *all = handle->kept;
    for (int i = 0; i < PLANS && all->plans[i] != NULL; i++)
        if (memcmp(&all->plans[i]->key, product, sizeof *product) == 0) {
            *found = all->plans[i];
            return BCFG_DEVICE_OK;
        }
    bcfg_outcome outcome = fresh(handle, product, found, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    discard(bcfg_cusparselt(handle->library), all->plans[all->next]);
    all->plans[all->next] = *found;
    all->next = (all->next + 1) % PLANS;
    return BCFG_DEVICE_OK;
}

/* The three functions that need only a matrix. */
typedef struct {
    const void *dense;
    int *invalid;
    void *compressed, *buffer;
    size_t *bytes, *buffer_bytes;
} preparation;

static int prepare(bcfg_session *session, const bcfg_sparse_matrix *matrix, const preparation *is,
                   const char **function) {
    const bcfg_cusparselt_table *lt = bcfg_cusparselt(session->work->library);
    const void *handle = session->handle->handle;
    void *stream = session->work->stream;
    int status = BCFG_CUSPARSE_STATUS_SUCCESS, plain = BCFG_CUSPARSE_OPERATION_NON_TRANSPOSE;
    opaque sparse = {{0}};
    STEP(cusparseLtStructuredDescriptorInit, handle, &sparse, matrix->rows, matrix->columns,
         matrix->leading, ALIGNMENT, matrix->type, BCFG_CUSPARSE_ORDER_ROW,
         BCFG_CUSPARSELT_SPARSITY_50_PERCENT);
    if (status != BCFG_CUSPARSE_STATUS_SUCCESS) return status;
    if (is->bytes != NULL)
        STEP(cusparseLtSpMMACompressedSize2, handle, &sparse, is->bytes, is->buffer_bytes);
    else if (is->invalid != NULL)
        STEP(cusparseLtSpMMAPruneCheck2, handle, &sparse, 1, plain, is->dense, is->invalid, stream);
    else
        STEP(cusparseLtSpMMACompress2, handle, &sparse, 1, plain, is->dense, is->compressed,
             is->buffer, stream);
    (void)lt->cusparseLtMatDescriptorDestroy(&sparse);
    return status;
}

static bcfg_outcome prepared(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                             const preparation *is, bcfg_fault *fault) {
    bcfg_session session;
    bcfg_outcome outcome = bcfg_work_begin(work, &session, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    const char *function = "";
    int status = prepare(&session, matrix, is, &function);
    if (status != BCFG_CUSPARSE_STATUS_SUCCESS)
        outcome = bcfg_library_fault(work->library, function, status, fault);
    return bcfg_work_end(&session, outcome, fault);
}

bcfg_outcome bcfg_cusparselt_sizes(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                                   size_t *bytes, size_t *buffer, bcfg_fault *fault) {
    return prepared(work, matrix, &(preparation){.bytes = bytes, .buffer_bytes = buffer}, fault);
}

bcfg_outcome bcfg_cusparselt_check(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                                   const void *dense, int *invalid, bcfg_fault *fault) {
    return prepared(work, matrix, &(preparation){.dense = dense, .invalid = invalid}, fault);
}

bcfg_outcome bcfg_cusparselt_compress(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                                      const void *dense, void *compressed, void *buffer,
                                      bcfg_fault *fault) {
    const preparation is = {.dense = dense, .compressed = compressed, .buffer = buffer};
    return prepared(work, matrix, &is, fault);
}

bcfg_outcome bcfg_cusparselt_area(const bcfg_work *work, const bcfg_sparse_product *product,
                                  size_t *bytes, bcfg_fault *fault) {
    bcfg_session session;
    bcfg_outcome outcome = bcfg_work_begin(work, &session, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    kept_plan *plan = NULL;
    outcome = plan_of(session.handle, product, &plan, fault);
    if (outcome == BCFG_DEVICE_OK) {
        int status = bcfg_cusparselt(work->library)
                         ->cusparseLtMatmulGetWorkspace(session.handle->handle, &plan->plan, bytes);
        if (status != BCFG_CUSPARSE_STATUS_SUCCESS)
            outcome = bcfg_library_fault(work->library, "cusparseLtMatmulGetWorkspace", status,
                                         fault);
    }
    return bcfg_work_end(&session, outcome, fault);
}

static const float one = 1, zero = 0;

bcfg_outcome bcfg_cusparselt_multiply(const bcfg_work *work, const bcfg_sparse_product *product,
                                      const bcfg_sparse_operands *operands, bcfg_fault *fault) {
    bcfg_session session;
    bcfg_outcome outcome = bcfg_work_begin(work, &session, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    kept_plan *plan = NULL;
    outcome = plan_of(session.handle, product, &plan, fault);
    if (outcome == BCFG_DEVICE_OK) {
        void *stream = work->stream;
        int status = bcfg_cusparselt(work->library)
                         ->cusparseLtMatmul(session.handle->handle, &plan->plan, &one, operands->a,
                                            operands->b, &zero, operands->d, operands->d,
                                            operands->area, &stream, 1);
        if (status != BCFG_CUSPARSE_STATUS_SUCCESS)
            outcome = bcfg_library_fault(work->library, "cusparseLtMatmul", status, fault);
    }
    return bcfg_work_end(&session, outcome, fault);
}

static int search(const bcfg_session *session, kept_plan *it, const bcfg_sparse_operands *operands,
                  bcfg_sparse_found *found, const char **function) {
    const bcfg_cusparselt_table *lt = bcfg_cusparselt(session->work->library);
    const void *handle = session->handle->handle;
    void *stream = session->work->stream;
    int status = BCFG_CUSPARSE_STATUS_SUCCESS;
    STEP(cusparseLtMatmulSearch, handle, &it->plan, &one, operands->a, operands->b, &zero,
         operands->d, operands->d, operands->area, &stream, 1);
    const struct {
        int attribute, *value;
    } asked[] = {{BCFG_CUSPARSELT_MATMUL_ALG_CONFIG_ID, &found->algorithm},
                 {BCFG_CUSPARSELT_MATMUL_SPLIT_K, &found->split_k},
                 {BCFG_CUSPARSELT_MATMUL_SPLIT_K_MODE, &found->split_k_mode},
                 {BCFG_CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID, &found->most}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        STEP(cusparseLtMatmulAlgGetAttribute, handle, &it->selection, asked[i].attribute,
             asked[i].value, sizeof *asked[i].value);
    return status;
}

bcfg_outcome bcfg_cusparselt_search(const bcfg_work *work, const bcfg_sparse_product *product,
                                    const bcfg_sparse_operands *operands,
                                    bcfg_sparse_found *found, bcfg_fault *fault) {
    bcfg_session session;
    bcfg_outcome outcome = bcfg_work_begin(work, &session, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    kept_plan *plan = NULL;
    /* A plan that is not cached, because the search changes it. */
    outcome = fresh(session.handle, product, &plan, fault);
    if (outcome == BCFG_DEVICE_OK) {
        const char *function = "";
        int status = search(&session, plan, operands, found, &function);
        if (status != BCFG_CUSPARSE_STATUS_SUCCESS)
            outcome = bcfg_library_fault(work->library, function, status, fault);
        discard(bcfg_cusparselt(work->library), plan);
    }
    return bcfg_work_end(&session, outcome, fault);
}
