/* abi_cudnn.h - what we use of cuDNN, libcudnn.so.9: its backend, or graph, interface.
 *
 * Source: cudnn_graph.h of cuDNN 9.28. `native/abi/check.py` compares this file with the vendor's
 * header. Handles, streams and descriptors are `void *`, enumerations int.
 *
 * Everything is a descriptor of some type: it is created, given attributes by name, finalised, and
 * then read. An attribute has a type of its own and a count of values.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUDNN_H
#define BACKENDCFG_DEVICE_ABI_CUDNN_H

#include <stddef.h>
#include <stdint.h>

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_CUDNN_STATUS_CONSTANTS(CONSTANT)                                                      \
    CONSTANT(CUDNN_STATUS_SUCCESS, 0)                                                              \
    CONSTANT(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                   \
    CONSTANT(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, 1008)                                         \
    CONSTANT(CUDNN_STATUS_BAD_PARAM, 2000)                                                         \
    CONSTANT(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)                                            \
    CONSTANT(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                                           \
    CONSTANT(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, 2008)                                          \
    CONSTANT(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)                                          \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                     \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, 3001)                                       \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, 3002)                                               \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, 3003)                                           \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, 3004)                                              \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, 3007)                                       \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE, 3009)                              \
    CONSTANT(CUDNN_STATUS_NOT_SUPPORTED_PADDING, 3011)                                             \
    CONSTANT(CUDNN_STATUS_INTERNAL_ERROR, 4000)                                                    \
    CONSTANT(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                             \
    CONSTANT(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)                           \
    CONSTANT(CUDNN_STATUS_EXECUTION_FAILED, 5000)

#define BCFG_CUDNN_CONSTANTS(CONSTANT)                                                             \
    CONSTANT(CUDNN_DATA_FLOAT, 0)                                                                  \
    CONSTANT(CUDNN_DATA_DOUBLE, 1)                                                                 \
    CONSTANT(CUDNN_DATA_HALF, 2)                                                                   \
    CONSTANT(CUDNN_DATA_BFLOAT16, 9)                                                               \
    CONSTANT(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                              \
    CONSTANT(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                                   \
    CONSTANT(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                \
    CONSTANT(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                               \
    CONSTANT(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                           \
    CONSTANT(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                           \
    CONSTANT(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                          \
    CONSTANT(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                            \
    CONSTANT(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                  \
    CONSTANT(CUDNN_TYPE_HANDLE, 0)                                                                 \
    CONSTANT(CUDNN_TYPE_DATA_TYPE, 1)                                                              \
    CONSTANT(CUDNN_TYPE_BOOLEAN, 2)                                                                \
    CONSTANT(CUDNN_TYPE_INT64, 3)                                                                  \
    CONSTANT(CUDNN_TYPE_FLOAT, 4)                                                                  \
    CONSTANT(CUDNN_TYPE_DOUBLE, 5)                                                                 \
    CONSTANT(CUDNN_TYPE_VOID_PTR, 6)                                                               \
    CONSTANT(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                                       \
    CONSTANT(CUDNN_TYPE_HEUR_MODE, 8)                                                              \
    CONSTANT(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                                        \
    CONSTANT(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                    \
    CONSTANT(CUDNN_TYPE_BEHAVIOR_NOTE, 19)                                                         \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                                \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                                \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                                \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                           \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                                            \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                             \
    CONSTANT(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                             \
    CONSTANT(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                      \
    CONSTANT(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                           \
    CONSTANT(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                   \
    CONSTANT(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                                     \
    CONSTANT(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                                                \
    CONSTANT(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                         \
    CONSTANT(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                        \
    CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                  \
    CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                   \
    CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                              \
    CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                      \
    CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                      \
    CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                      \
    CONSTANT(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                                \
    CONSTANT(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                   \
    CONSTANT(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                \
    CONSTANT(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                     \
    CONSTANT(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                    \
    CONSTANT(CUDNN_ATTR_TENSOR_STRIDES, 903)                                                       \
    CONSTANT(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                     \
    CONSTANT(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                                    \
    CONSTANT(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                                                   \
    CONSTANT(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                             \
    CONSTANT(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                          \
    CONSTANT(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                              \
    CONSTANT(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                                                 \
    CONSTANT(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                               \
    CONSTANT(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 1305)                                                \
    CONSTANT(CUDNN_CROSS_CORRELATION, 1)                                                           \
    CONSTANT(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                                  \
    CONSTANT(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                          \
    CONSTANT(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                                  \
    CONSTANT(CUDNN_NUMERICAL_NOTE_FFT, 3)                                                          \
    CONSTANT(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                                             \
    CONSTANT(CUDNN_NUMERICAL_NOTE_WINOGRAD, 5)                                                     \
    CONSTANT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, 6)                                            \
    CONSTANT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, 7)                                            \
    CONSTANT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8)                                          \
    CONSTANT(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 0)                                           \
    CONSTANT(CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER, 1)                               \
    CONSTANT(CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER, 2)                                 \
    CONSTANT(CUDNN_HEUR_MODE_FALLBACK, 2)                                                          \
    CONSTANT(CUDNN_HEUR_MODE_A, 3)

/* What attention is described with. */
#define BCFG_CUDNN_ATTENTION_CONSTANTS(CONSTANT)                                                   \
    CONSTANT(CUDNN_DATA_INT32, 4)                                                                  \
    CONSTANT(CUDNN_DATA_BOOLEAN, 11)                                                               \
    CONSTANT(CUDNN_TYPE_POINTWISE_MODE, 14)                                                        \
    CONSTANT(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                                               \
    CONSTANT(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                                \
    CONSTANT(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                     \
    CONSTANT(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                                                  \
    CONSTANT(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                        \
    CONSTANT(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                                               \
    CONSTANT(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                     \
    CONSTANT(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                                       \
    CONSTANT(CUDNN_ATTR_POINTWISE_MODE, 0)                                                         \
    CONSTANT(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                                    \
    CONSTANT(CUDNN_ATTR_POINTWISE_AXIS, 9)                                                         \
    CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                    \
    CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                            \
    CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                            \
    CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                            \
    CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                                            \
    CONSTANT(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                                                    \
    CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                                              \
    CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                                              \
    CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                                              \
    CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                                               \
    CONSTANT(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                                                  \
    CONSTANT(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                                                 \
    CONSTANT(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                                           \
    CONSTANT(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                                           \
    CONSTANT(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                                            \
    CONSTANT(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                                             \
    CONSTANT(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)                                             \
    CONSTANT(CUDNN_POINTWISE_ADD, 0)                                                               \
    CONSTANT(CUDNN_POINTWISE_MUL, 1)                                                               \
    CONSTANT(CUDNN_POINTWISE_DIV, 6)                                                               \
    CONSTANT(CUDNN_POINTWISE_SUB, 9)                                                               \
    CONSTANT(CUDNN_POINTWISE_EXP, 13)                                                              \
    CONSTANT(CUDNN_POINTWISE_LOG, 15)                                                              \
    CONSTANT(CUDNN_POINTWISE_IDENTITY, 21)                                                         \
    CONSTANT(CUDNN_POINTWISE_CMP_GE, 303)                                                          \
    CONSTANT(CUDNN_POINTWISE_GEN_INDEX, 501)                                                       \
    CONSTANT(CUDNN_POINTWISE_BINARY_SELECT, 601)                                                   \
    CONSTANT(CUDNN_REDUCE_TENSOR_ADD, 0)                                                           \
    CONSTANT(CUDNN_REDUCE_TENSOR_MAX, 3)

#define BCFG_CUDNN_SINCE_9_1_CONSTANTS(CONSTANT)                                                   \
    CONSTANT(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, 9)

#define BCFG_CUDNN_SINCE_9_5_CONSTANTS(CONSTANT)                                                   \
    CONSTANT(CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API, 3)                                \
    CONSTANT(CUDNN_BEHAVIOR_NOTE_CUBLASLT_DEPENDENCY, 4)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUDNN_STATUS_CONSTANTS(CONSTANT)
    BCFG_CUDNN_CONSTANTS(CONSTANT)
    BCFG_CUDNN_ATTENTION_CONSTANTS(CONSTANT)
    BCFG_CUDNN_SINCE_9_1_CONSTANTS(CONSTANT)
    BCFG_CUDNN_SINCE_9_5_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_CUDNN_SYMBOLS(REQUIRED, OPTIONAL)                                                     \
    REQUIRED(size_t, cudnnGetVersion, (void))                                                      \
    REQUIRED(const char *, cudnnGetErrorString, (int status))                                      \
    REQUIRED(void, cudnnGetLastErrorString, (char *message, size_t bytes))                         \
    REQUIRED(int, cudnnCreate, (void **handle))                                                    \
    REQUIRED(int, cudnnDestroy, (void *handle))                                                    \
    REQUIRED(int, cudnnSetStream, (void *handle, void *stream))                                    \
    REQUIRED(int, cudnnBackendCreateDescriptor, (int type, void **descriptor))                     \
    REQUIRED(int, cudnnBackendDestroyDescriptor, (void *descriptor))                               \
    REQUIRED(int, cudnnBackendSetAttribute,                                                        \
             (void *descriptor, int name, int type, int64_t count, const void *values))            \
    REQUIRED(int, cudnnBackendFinalize, (void *descriptor))                                        \
    REQUIRED(int, cudnnBackendGetAttribute,                                                        \
             (void *descriptor, int name, int type, int64_t room, int64_t *count,                  \
              void *values))                                                                       \
    REQUIRED(int, cudnnBackendExecute, (void *handle, void *plan, void *pack))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUDNN_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cudnn_table;

#endif
