/* A libhipblaslt that computes on memory of the host. See lt.h.
 *
 * A hipBLASLt has no reduction schemes to allow or refuse, fewer attributes, and no question about an
 * algorithm. Operations are HIPBLAS_OP_N, _T and _C: the 0, 1 and 2 of cuBLASLt are refused.
 *
 * Settings: split_k and workspace, of the divided algorithm; algorithms, how many the heuristic knows.
 */
#define SETTINGS SETTING(split_k, 1) SETTING(workspace, 65536) SETTING(algorithms, 8)
#include "recorded.h"

#include "gpu/abi_hipblaslt.h"
#include "hip_rules.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_HIPBLASLT_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

#undef NEED
#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_HIPBLAS_STATUS_##code;

#define LT(name) hipblasLt##name
#define NAME(name) "hipblasLt" #name
#define N(name) BCFG_HIPBLASLT_##name
#define ALGORITHM bcfg_hipblaslt_algorithm
#define HEURISTIC bcfg_hipblaslt_heuristic
#define OPERATION_N BCFG_HIPBLAS_OP_N
enum { WORKSPACE_ALIGNMENT = 16 };

/* What a descriptor holds of cuBLASLt's attributes that no user of hipBLASLt can set. */
enum {
    BCFG_HIPBLASLT_MATMUL_DESC_COMPUTE_TYPE = 40,
    BCFG_HIPBLASLT_MATMUL_DESC_SCALE_TYPE,
    BCFG_HIPBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
    BCFG_HIPBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
    BCFG_HIPBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
};

#define SETTABLE                                                                                   \
    ATTRIBUTE(OPERATION, MATMUL_DESC_POINTER_MODE, 4)                                              \
    ATTRIBUTE(OPERATION, MATMUL_DESC_TRANSA, 4)                                                    \
    ATTRIBUTE(OPERATION, MATMUL_DESC_TRANSB, 4)                                                    \
    ATTRIBUTE(OPERATION, MATMUL_DESC_EPILOGUE, 4)                                                  \
    ATTRIBUTE(OPERATION, MATMUL_DESC_BIAS_DATA_TYPE, 4)                                            \
    ATTRIBUTE(OPERATION, MATMUL_DESC_BIAS_POINTER, 8)                                              \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_TYPE, 4)                                                       \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_ORDER, 4)                                                      \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_BATCH_COUNT, 4)                                                \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_ROWS, 8)                                                       \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_COLS, 8)                                                       \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_LD, 8)                                                         \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8)                                       \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_MAX_WORKSPACE_BYTES, 8)                                      \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_SEARCH_MODE, 4)

static int operation_of(int operation) {
    return is_operation(operation) ? operation - BCFG_HIPBLAS_OP_N : -1;
}

static int compute_of(int compute) { return compute_of_cuda(compute); }

#include "lt.h"

/* A hash of the problem, the parts and the workspace: the struct has no room for more. */
static void pack(ALGORITHM *algorithm, const remembered *from) {
    memcpy(algorithm->data, &from->problem, 8);
    memcpy(algorithm->data + 8, &from->split, 8);
    algorithm->max_workspace = (size_t)from->needed;
}

static void unpack(const ALGORITHM *algorithm, remembered *into) {
    *into = (remembered){.scheme = IN_COMPUTE_TYPE, .needed = algorithm->max_workspace};
    memcpy(&into->problem, algorithm->data, 8);
    memcpy(&into->split, algorithm->data + 8, 8);
}

