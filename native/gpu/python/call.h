/* One product of device arrays, from its arguments to its result. */
#ifndef BACKENDCFG_DEVICE_CALL_H
#define BACKENDCFG_DEVICE_CALL_H

#include "gpu/python/device.h"

enum { DEVICE_A, DEVICE_B, DEVICE_ADDED, DEVICE_OUT, DEVICE_ARGUMENTS };

typedef struct {
    const char *name;
    int dimensions;                    /* of its operands; 0 for NumPy's rules of matmul */
    const char *arguments[DEVICE_ARGUMENTS];
} DeviceOperation;

typedef struct {
    const DeviceOperation *operation;
    PyObject *given[DEVICE_ARGUMENTS]; /* borrowed; None where not given */
    bool viewed[DEVICE_ARGUMENTS];      /* whether `arrays` holds it */
    DeviceArray arrays[DEVICE_ARGUMENTS];
    PyObject *owned[DEVICE_ARGUMENTS]; /* arrays made on the way; NULL */
    double alpha[2], beta[2];
    int32_t dimensions;                /* of the result */
    int64_t shape[BCFG_DEVICE_DIMENSIONS];
    bool has_rows, has_columns;        /* of the result: not where an operand is a vector */
    bcfg_product product;
    int64_t batch_shape[BCFG_DEVICE_DIMENSIONS], a_strides[BCFG_DEVICE_DIMENSIONS],
        b_strides[BCFG_DEVICE_DIMENSIONS], c_strides[BCFG_DEVICE_DIMENSIONS];
} DeviceCall;

/* Raises InvalidArgumentError by way of Python; always -1. */
int bcfg_device_refused(const DeviceCall *call, const char *reason, const char *detail);
/* shape.c: places, elements and shapes fit; fills in the product but for its operands. */
int bcfg_device_fit(DeviceCall *call);
/* An operand of the product from an argument. */
bcfg_operand bcfg_device_operand(const DeviceCall *call, int argument, int64_t *strides,
                                 bool has_rows, bool has_columns);
/* Checks `out`: it can hold the result, and shares nothing with what is read. */
int bcfg_device_fit_out(DeviceCall *call);

#endif
