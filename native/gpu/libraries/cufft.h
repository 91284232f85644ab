/* Fourier transforms by cuFFT: plans, and running them. */
#ifndef BACKENDCFG_DEVICE_CUFFT_H
#define BACKENDCFG_DEVICE_CUFFT_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/device/work.h"

enum { BCFG_TRANSFORM_RANK = 3 };

/* One side of a transform: the number x, y, z of signal b lies at
 * b * distance + ((x * embed[1] + y) * embed[2] + z) * stride, counted in numbers of `type`. */
typedef struct {
    long long embed[BCFG_TRANSFORM_RANK], stride, distance;
    int type;                          /* a cudaDataType */
} bcfg_transform_side;

typedef struct {
    int rank;
    long long sizes[BCFG_TRANSFORM_RANK], batch;
    bcfg_transform_side input, output;
    int execution;                     /* a cudaDataType */
} bcfg_transform;

/* A plan of cuFFT without a work area of its own: each run passes one. */
typedef struct {
    const bcfg_device_library *library, *driver;
    int32_t index;                     /* of the device */
    int plan;
    size_t bytes;                      /* that it needs to work in */
    pthread_mutex_t busy;              /* locked while the plan's stream is set and its work is launched */
    bool captured;                     /* under the lock: a graph may use its memory */
} bcfg_transform_plan;

/* The arguments of a run. The plan runs `count` times; input and output advance by strides in
 * bytes. */
typedef struct {
    void *input, *output, *area;
    int direction;                     /* CUFFT_FORWARD or CUFFT_INVERSE */
    int64_t count, input_stride, output_stride;
} bcfg_transform_run;

/* Makes a plan on a device. On failure nothing is left of it. The transform is read, not kept. */
bcfg_outcome bcfg_cufft_make(const bcfg_device_library *library, const bcfg_device_library *driver,
                             int32_t index, bcfg_transform *transform, bcfg_transform_plan *made,
                             bcfg_fault *fault);

/* Puts a plan's work on a stream. Threads that run one plan at once take turns. */
bcfg_outcome bcfg_cufft_run(bcfg_transform_plan *plan, const bcfg_work *work,
                            const bcfg_transform_run *run, bcfg_fault *fault);

/* Destroys a plan that nobody runs any more. In a forked process it is forgotten, and so is one that a
 * captured graph may refer to. */
void bcfg_cufft_destroy(bcfg_transform_plan *plan);

#endif
