/* PyTorch's stable interface for C, as much of it as a kernel needs. Its functions are found by name
 * in the process, so that no header of PyTorch is needed, and any release that has them is served.
 * https://docs.pytorch.org/docs/2.13/notes/libtorch_stable_abi.html
 *
 * A kernel gets its arguments on a stack of 64-bit values, which it owns, and leaves its results
 * there. A tensor is a handle, a double its bits, a bool one byte, and what may be missing a pointer
 * to a value on the heap, or null. */
#ifndef BACKENDCFG_TORCH_INTERFACE_H
#define BACKENDCFG_TORCH_INTERFACE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct AtenTensorOpaque *torch_tensor;    /* null, or owned by who holds it */
typedef struct TorchLibraryOpaque *torch_library; /* kernels, registered until it is deleted */
typedef void torch_kernel(uint64_t *stack, uint64_t arguments, uint64_t results);

/* FUNCTION(name in the struct, arguments, exported name). All return 0 where they succeed, but those
 * that say which number PyTorch has for a type. */
#define TORCH_FUNCTIONS(FUNCTION)                                                                  \
    FUNCTION(new_library,                                                                          \
             (const char *of, const char *key, const char *file, uint32_t line, torch_library *),  \
             "aoti_torch_library_init_impl")                                                       \
    FUNCTION(add_kernel, (torch_library, const char *name, torch_kernel *),                        \
             "aoti_torch_library_impl")                                                            \
    FUNCTION(delete_library, (torch_library), "aoti_torch_delete_library_object")                  \
    FUNCTION(delete_tensor, (torch_tensor), "aoti_torch_delete_tensor_object")                     \
    FUNCTION(get_is_defined, (torch_tensor, bool *), "aoti_torch_is_defined")                      \
    FUNCTION(get_data, (torch_tensor, void **), "aoti_torch_get_data_ptr")                         \
    FUNCTION(get_dimensions, (torch_tensor, int64_t *), "aoti_torch_get_dim")                      \
    FUNCTION(get_sizes, (torch_tensor, int64_t **), "aoti_torch_get_sizes")                        \
    FUNCTION(get_strides, (torch_tensor, int64_t **), "aoti_torch_get_strides")                    \
    FUNCTION(get_type, (torch_tensor, int32_t *), "aoti_torch_get_dtype")                          \
    FUNCTION(empty,                                                                                \
             (int64_t dimensions, const int64_t *sizes, const int64_t *strides, int32_t type,      \
              int32_t device, int32_t index, torch_tensor *),                                      \
             "aoti_torch_empty_strided")                                                           \
    FUNCTION(cpu, (void), "aoti_torch_device_type_cpu")                                            \
    FUNCTION(type_bool, (void), "aoti_torch_dtype_bool")                                           \
    FUNCTION(type_float32, (void), "aoti_torch_dtype_float32")                                     \
    FUNCTION(type_float64, (void), "aoti_torch_dtype_float64")                                     \
    FUNCTION(type_bfloat16, (void), "aoti_torch_dtype_bfloat16")                                   \
    FUNCTION(type_float16, (void), "aoti_torch_dtype_float16")                                     \
    FUNCTION(attention,                                                                            \
             (torch_tensor query, torch_tensor key, torch_tensor value, double dropout,            \
              int32_t is_causal, torch_tensor *mask, double *scale, torch_tensor *out,             \
              torch_tensor *logsumexp),                                                            \
             "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu")                         \
    FUNCTION(attention_backward,                                                                   \
             (torch_tensor grad_out, torch_tensor query, torch_tensor key, torch_tensor value,     \
              torch_tensor out, torch_tensor logsumexp, double dropout, int32_t is_causal,         \
              torch_tensor *mask, double *scale, torch_tensor *grad_query, torch_tensor *grad_key, \
              torch_tensor *grad_value),                                                           \
             "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward")                \
    FUNCTION(mm, (torch_tensor out, torch_tensor, torch_tensor), "aoti_torch_cpu_mm_out")          \
    FUNCTION(bmm, (torch_tensor out, torch_tensor, torch_tensor), "aoti_torch_cpu_bmm_out")

#define TORCH_POINTER(name, arguments, exported) int32_t(*name) arguments;
typedef struct {
    TORCH_FUNCTIONS(TORCH_POINTER)
} torch_interface;
#undef TORCH_POINTER

/* Filled in by the first bcfg_torch_serve or bcfg_torch_lacks. */
extern torch_interface bcfg_torch;

/* A kernel of ours, and the operator of `aten`, with its overload, whose kernel on the CPU it replaces. */
typedef struct {
    const char *operator;
    torch_kernel *kernel;
} bcfg_torch_kernel;

/* Kernels that are replaced together. */
typedef struct {
    const bcfg_torch_kernel *kernels; /* up to one without a name */
    torch_library library;            /* null while PyTorch has its own */
    atomic_bool is_on;                /* whether ours serve; else they pass every call on */
} bcfg_torch_route;

/* Registers the kernels where that is not done, by the file of `torch._C`, and lets them serve; with None
 * they pass every call on. NULL with an exception set, else None. */
PyObject *bcfg_torch_serve(bcfg_torch_route *route, PyObject *file);
/* Gives PyTorch its own kernels back. No other thread may be calling ours. Returns None. */
PyObject *bcfg_torch_restore(bcfg_torch_route *route);

/* A tensor's memory, which its handle keeps, to be read; strides in elements. */
typedef struct {
    char *data;
    int64_t dimensions;
    const int64_t *sizes, *strides;
    int32_t type;
} torch_array;

/* Whether a tensor has such memory. */
bool bcfg_torch_describe(torch_tensor tensor, torch_array *array);

/* A bcfg_element, -1 for a type that is none of the real ones. */
int32_t bcfg_torch_element(int32_t type);

/* A new tensor on the CPU of up to four dimensions, which lie in memory in the order of `steps`, the
 * largest outermost; writes its strides, in elements. NULL without memory. */
torch_tensor bcfg_torch_new(int dimensions, const int64_t *shape, const int64_t *steps,
                            int32_t element, int64_t *strides);

/* Take what may be missing off the stack: whether it was there, and its value. */
bool bcfg_torch_optional(uint64_t argument, uint64_t *value);

/* Raise RuntimeError in whatever called the operator: in C++, so it does not return. */
_Noreturn void bcfg_torch_raise(const char *text);
/* The same with the words of PyTorch's own function that has just failed. */
_Noreturn void bcfg_torch_raise_theirs(void);

#endif
