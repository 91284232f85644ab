/* Products by hipBLASLt: the functions of cuBLASLt with other numbers. */
#define LT(name) hipblasLt##name
#define N(name) BCFG_HIPBLASLT_##name
#define STATUS(name) BCFG_HIPBLAS_STATUS_##name
#define OP(name) BCFG_HIPBLAS_OP_##name
#define TABLE bcfg_hipblaslt_table
#define TABLE_OF(library) bcfg_hipblaslt(library)
#define HEURISTIC bcfg_hipblaslt_heuristic
#include "gpu/libraries/lt.h"

/* It can be told neither which reductions nor which alignments. */
static int limit(const bcfg_hipblaslt_table *lt, void *preference, const bcfg_recipe_content *is,
                 const plan_key *key, const char **function) {
    (void)lt, (void)preference, (void)is, (void)key, (void)function;
    return BCFG_HIPBLAS_STATUS_SUCCESS;
}

/* Its statuses are hipBLAS's, and it has no function that names them. */
static const char *name_of(const bcfg_device_library *library, int status) {
    (void)library;
    static const struct {
        int status;
        const char *name;
    } known[] = {
#define NAMED(name) {BCFG_HIPBLAS_STATUS_##name, "HIPBLAS_STATUS_" #name}
        NAMED(NOT_INITIALIZED), NAMED(ALLOC_FAILED),     NAMED(INVALID_VALUE),
        NAMED(MAPPING_ERROR),   NAMED(EXECUTION_FAILED), NAMED(INTERNAL_ERROR),
        NAMED(NOT_SUPPORTED),   NAMED(ARCH_MISMATCH),    NAMED(HANDLE_IS_NULLPTR),
        NAMED(INVALID_ENUM),    NAMED(UNKNOWN),
#undef NAMED
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at].status == status) return known[at].name;
    return NULL;
}

const bcfg_vendor bcfg_hipblaslt_vendor = {name_of, create, destroy};
const bcfg_backend bcfg_hipblaslt_backend = {NULL, NULL, NULL, multiply,
                                             BCFG_HIPBLAS_STATUS_NOT_SUPPORTED};
