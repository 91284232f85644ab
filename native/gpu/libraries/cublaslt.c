/* Products by cuBLASLt. */
#define LT(name) cublasLt##name
#define N(name) BCFG_CUBLASLT_##name
#define STATUS(name) BCFG_CUBLAS_STATUS_##name
#define OP(name) BCFG_CUBLAS_OP_##name
#define TABLE bcfg_cublaslt_table
#define TABLE_OF(library) bcfg_cublaslt(library)
#define HEURISTIC bcfg_cublaslt_heuristic
#include "gpu/libraries/lt.h"

static uint32_t least(uint32_t left, uint32_t right) { return left < right ? left : right; }

static int limit(const bcfg_cublaslt_table *lt, void *preference, const bcfg_recipe_content *is,
                 const plan_key *key, const char **function) {
    int status = BCFG_CUBLAS_STATUS_SUCCESS;
    uint32_t mask = (uint32_t)is->reduction;
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

static const char *name_of(const bcfg_device_library *library, int status) {
    return bcfg_cublaslt(library)->cublasLtGetStatusName(status);
}

const bcfg_vendor bcfg_cublaslt_vendor = {name_of, create, destroy};
const bcfg_backend bcfg_cublaslt_backend = {NULL, NULL, NULL, multiply,
                                            BCFG_CUBLAS_STATUS_NOT_SUPPORTED};
