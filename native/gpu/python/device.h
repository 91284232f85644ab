/* Views of arrays on devices, and the functions of the module that compute with them. */
#ifndef BACKENDCFG_PYTHON_DEVICE_H
#define BACKENDCFG_PYTHON_DEVICE_H

#include "gpu/products/gemm.h"
#include "gpu/device/kernel.h"
#include "python/dlpack.h"
#include "python/glue.h"

/* Types besides those of bcfg_element: masks, indices and memory to work in. */
typedef enum {
    DEVICE_BOOL = BCFG_ELEMENTS,
    DEVICE_INT8,
    DEVICE_UINT8,
    DEVICE_INT32,
    DEVICE_INT64,
    DEVICE_TYPES
} DeviceType;

/* A view of an array on a device. */
typedef struct {
    PyObject *object;                  /* as passed; borrowed */
    PyObject *holder;                  /* what else keeps the memory alive; owned, or NULL */
    const DLExchange *exchange;        /* NULL where another protocol described it */
    int32_t kind, index;               /* the device, with DLPack's numbers */
    int32_t type;                      /* a bcfg_element or a DeviceType; -1 for another */
    int32_t element;                   /* a bcfg_element, or -1 for another type */
    int32_t dimensions;
    bool read_only;
    bool synchronizes;                 /* its library names no stream: the call waits for the device */
    bool lazy;                         /* the array was a lazy conjugate or negative: this is a copy */
    void *stream;                      /* that its work is ordered on */
    char *data;
    int64_t shape[BCFG_DEVICE_DIMENSIONS], strides[BCFG_DEVICE_DIMENSIONS]; /* in bytes */
} DeviceArray;

/* Python callables that backendcfg.ops hands in; NULL before that. */
typedef struct {
    PyObject *refuse;  /* (operation, reason, detail, names, values): raises */
    PyObject *failed;  /* (operation, library, (function, status, name), sizes, element): raises */
    PyObject *place;   /* (pointer) -> the CUDA device that it belongs to */
    PyObject *recipe;  /* (operation, snapshot, kind, index, element) -> address of a recipe */
    PyObject *make;    /* (like, shape, element, kind, index) -> an array of the same library */
    PyObject *dense;   /* (operation, name, value) -> the same, its rows one after the other */
    PyObject *copy;    /* (operation, target, source): puts a source, broadcast, into a target */
    PyObject *finite;  /* (operation, result): raises where it holds NaN or infinity */
    PyObject *stream;  /* (value, index) -> the stream that its library works on, or None */
} DeviceCallbacks;
extern DeviceCallbacks bcfg_device_callbacks;

/* exchange.c: a view by the table of functions of the value's type. 1 made, 0 not a device array or
 * no such table, -1 with an exception set. `*known` says whether the table answered. */
int bcfg_view_by_exchange(PyObject *value, DeviceArray *view, bool *known);
/* An uninitialised array like another but for its shape, by the library that owns that; new
 * reference, NULL with an exception set. *made borrows it. */
PyObject *bcfg_make_by_exchange(const DeviceArray *like, int32_t dimensions, const int64_t *shape,
                                DeviceArray *made);
/* The values of a lazy conjugate or negative, computed by its library: a new reference, or NULL,
 * with no exception where the array is not lazy. The value must have PyTorch's `is_conj` and
 * `is_neg`. */
PyObject *bcfg_resolved(PyObject *value, int32_t element);
/* Workspaces from the allocator of the library that owns an array. */
bcfg_allocator bcfg_allocator_of(const DeviceArray *array);

/* protocols.c: a view by `__cuda_array_interface__`, else by `__dlpack__`. The same results. */
int bcfg_view_by_protocol(PyObject *value, DeviceArray *view);

/* A view by any of these. 1 made, 0 no device array, -1 with an exception set. */
int bcfg_view_device(PyObject *value, DeviceArray *view);
void bcfg_release_view(DeviceArray *view);

/* Shape, strides and memory of a tensor of DLPack's: 1, or -1 with an exception set. */
int bcfg_read_dlpack(const DLTensor *tensor, DeviceArray *view);
/* A type of DLPack's as a bcfg_element or DeviceType, or -1; and setting both numbers of an array. */
int32_t bcfg_type_of_dlpack(DLDataType type);
void bcfg_set_type(DeviceArray *array, int32_t type);

/* The name of a bcfg_element or DeviceType, "float32"; "" for none. Static storage. */
const char *bcfg_device_element(int32_t type);
/* The type of that name, or -1. */
int32_t bcfg_device_type(const char *name);

/* work.c: a bcfg_work with the streams of a tuple. 0, or -1 with an exception set. */
enum { DEVICE_OTHERS = 16 };
typedef struct {
    bcfg_work is;
    void *others[DEVICE_OTHERS];
} DeviceWork;
int bcfg_parse_streams(PyObject *tuple, DeviceWork *work);
/* None, or what failed: (function, status, its name); "" for the function where a fork is to blame.
 * NULL with an exception set where the host has no memory. New reference. */
PyObject *bcfg_fault_object(bcfg_outcome outcome, const bcfg_fault *fault);

/* Functions of the module for the bounds of a call that Python makes. */
PyObject *bcfg_device_begin(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *bcfg_device_end(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *bcfg_device_soname(PyObject *module, PyObject *handle);

/* product.c. `added` and `out` may be None; Py_NotImplemented where nothing is on a device. */
PyObject *bcfg_device_multiply(const char *operation, PyObject *a, PyObject *b, PyObject *added,
                               PyObject *out, PyObject *alpha, PyObject *beta);

/* kernel.c: functions of the module for our own kernels. */
PyObject *bcfg_device_array(PyObject *module, PyObject *value);
PyObject *bcfg_device_holds(PyObject *module, PyObject *value);
PyObject *bcfg_device_make(PyObject *module, PyObject *arguments);
PyObject *bcfg_device_kernel(PyObject *module, PyObject *arguments);
PyObject *bcfg_device_launch(PyObject *module, PyObject *arguments);

/* memory.c: functions of the module for memory of the driver's. */
PyObject *bcfg_device_memory(PyObject *module, PyObject *arguments);
PyObject *bcfg_device_lend(PyObject *module, PyObject *arguments);
extern PyMethodDef bcfg_device_methods[];
#endif
