/* abi_cudnn_attention.h - what attention uses of cuDNN's graph interface besides abi_cudnn.h.
 *
 * Source: cudnn_graph.h of cuDNN 9.28, where all of these are said to be there since 9.0.
 * `native/abi/check.py` compares this file with the vendor's header. The graph itself is described by
 * backendcfg/dispatch/cudnn_attention.py, with the same numbers; C needs them for the double alone.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUDNN_ATTENTION_H
#define BACKENDCFG_DEVICE_ABI_CUDNN_ATTENTION_H

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
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
    CONSTANT(CUDNN_POINTWISE_ADD, 0)                                                               \
    CONSTANT(CUDNN_POINTWISE_MUL, 1)                                                               \
    CONSTANT(CUDNN_POINTWISE_DIV, 6)                                                               \
    CONSTANT(CUDNN_POINTWISE_SUB, 9)                                                               \
    CONSTANT(CUDNN_POINTWISE_EXP, 13)                                                              \
    CONSTANT(CUDNN_POINTWISE_LOG, 15)                                                              \
    CONSTANT(CUDNN_POINTWISE_CMP_GE, 303)                                                          \
    CONSTANT(CUDNN_POINTWISE_GEN_INDEX, 501)                                                       \
    CONSTANT(CUDNN_POINTWISE_BINARY_SELECT, 601)                                                   \
    CONSTANT(CUDNN_REDUCE_TENSOR_ADD, 0)                                                           \
    CONSTANT(CUDNN_REDUCE_TENSOR_MAX, 3)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUDNN_ATTENTION_CONSTANTS(CONSTANT)
#undef CONSTANT
};

#endif
