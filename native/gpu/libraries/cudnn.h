/* Operations by cuDNN's graph interface: whatever is described as descriptors, run by an engine
 * that was chosen among those that cuDNN names.
 *
 * A graph is handed in as data (a bcfg_cudnn_graph): Python describes it, once for each problem,
 * and gives each problem a number of its own. Then
 *
 *   bcfg_cudnn_engines   which engines there are, in cuDNN's order, with the notes of each
 *   bcfg_cudnn_prepare   makes the plan of one of them, by its place in that order; its workspace
 *   bcfg_cudnn_run       runs a plan that was made
 *   bcfg_cudnn_time      the same, and how long it took
 *
 * All belong to one handle of cuDNN, which is lent to one call at a time. Plans stay with their
 * handle, a bounded number of them: one that is gone, or was made for another handle, is made again
 * by bcfg_cudnn_prepare. On one device the order of engines is the same for every handle.
 */
#ifndef BACKENDCFG_DEVICE_CUDNN_H
#define BACKENDCFG_DEVICE_CUDNN_H

#include "gpu/device/work.h"

/* One attribute of a descriptor, with cuDNN's numbers. Where the type is CUDNN_TYPE_HANDLE the
 * values are not looked at: the handle is set. Where it is CUDNN_TYPE_BACKEND_DESCRIPTOR they are
 * int64_t, the places of descriptors that stand earlier in the graph. */
typedef struct {
    int32_t name, type;
    int64_t count;
    const void *values;
} bcfg_cudnn_attribute;

typedef struct {
    int32_t type;
    int32_t attribute_count;
    const bcfg_cudnn_attribute *attributes;
} bcfg_cudnn_descriptor;

/* The last descriptor is the operation graph. */
typedef struct {
    uint64_t number;                   /* of the problem: equal numbers are equal graphs */
    int32_t count;
    const bcfg_cudnn_descriptor *descriptors;
} bcfg_cudnn_graph;

enum { BCFG_CUDNN_DESCRIPTORS = 128, BCFG_CUDNN_ENGINES = 128 };

/* An engine with its knobs, as a heuristic names it. Notes are masks: bit n is note number n. */
typedef struct {
    int64_t index;                     /* in cuDNN's list of engines */
    uint32_t numerical, behaviour;
    bool is_fallback;                  /* named by the mode for what nothing else computes */
} bcfg_cudnn_engine;

/* A call with a handle that was taken for it (`session.handle` of work.h), and what failed. */
typedef struct {
    bcfg_handle *handle;
    bcfg_fault fault;
    char said[256];                    /* what cuDNN says besides about a failure of its own */
} bcfg_cudnn_call;

typedef struct {
    int32_t count;
    const int64_t *numbers;            /* of the tensors, as in the graph */
    void *const *pointers;
    void *workspace;                   /* NULL where the plan needs none */
} bcfg_cudnn_pack;

/* BCFG_DEVICE_FAULT leaves the fault in *call, and nothing else changed. */

/* Writes at most BCFG_CUDNN_ENGINES engines. Which of them is later prepared is its place there. */
bcfg_outcome bcfg_cudnn_engines(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                                bcfg_cudnn_engine *engines, int32_t *count);
/* An engine that does not take the problem fails with one of CUDNN_STATUS_NOT_SUPPORTED's: the next
 * may. A plan that is there already only says its workspace. */
bcfg_outcome bcfg_cudnn_prepare(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph, int32_t place,
                                int64_t *workspace);
/* *exists is false where the handle has no such plan, and then nothing was done. */
bcfg_outcome bcfg_cudnn_run(bcfg_cudnn_call *call, uint64_t number, int32_t place,
                            const bcfg_cudnn_pack *pack, bool *exists);
/* Runs it twice, the second time between two events, and waits. Not while a graph is captured. */
bcfg_outcome bcfg_cudnn_time(bcfg_cudnn_call *call, uint64_t number, int32_t place,
                             const bcfg_cudnn_pack *pack, bool *exists, float *milliseconds);

#endif
