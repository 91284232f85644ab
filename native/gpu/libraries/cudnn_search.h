/* What cudnn.c and cudnn_search.c share: calls of cuDNN, and the engines that it names. */
#ifndef BACKENDCFG_DEVICE_CUDNN_SEARCH_H
#define BACKENDCFG_DEVICE_CUDNN_SEARCH_H

#include "gpu/libraries/cudnn.h"

static inline const bcfg_cudnn_table *bcfg_cudnn_of(const bcfg_cudnn_call *call) {
    return bcfg_cudnn(call->handle->library);
}

/* The outcome of a function of cuDNN's. What it says is asked at once: it is of the latest. */
bcfg_outcome bcfg_cudnn_said(bcfg_cudnn_call *call, const char *function, int status);

#define CUDNN(name, ...) bcfg_cudnn_said(call, #name, bcfg_cudnn_of(call)->name(__VA_ARGS__))
/* Each step runs when those before it succeeded. */
#define STEP(name, ...)                                                                            \
    do {                                                                                           \
        if (outcome == BCFG_DEVICE_OK) outcome = CUDNN(name, __VA_ARGS__);                         \
    } while (0)

/* NULL is made where it fails, and may be destroyed. */
bcfg_outcome bcfg_cudnn_make(bcfg_cudnn_call *call, int type, void **made);
void bcfg_cudnn_destroy(const bcfg_cudnn_call *call, void *descriptor);

/* A graph, and the configurations of engines that the heuristics name for it. */
typedef struct {
    uint64_t number;                   /* of the problem */
    int32_t descriptor_count, engine_count;
    void *descriptors[BCFG_CUDNN_DESCRIPTORS], *configurations[BCFG_CUDNN_ENGINES];
    bcfg_cudnn_engine engines[BCFG_CUDNN_ENGINES];
} bcfg_cudnn_search;

/* Fills in a search of zeros. Whatever comes of it, bcfg_cudnn_forget must follow. */
bcfg_outcome bcfg_cudnn_look(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                             bcfg_cudnn_search *fresh);
/* Destroys what it holds; not its own memory. */
void bcfg_cudnn_forget(const bcfg_cudnn_call *call, bcfg_cudnn_search *old);

#endif
