/* How a library is called for one element type on one device: made in Python from the flags
 * (backendcfg/gpu/products/gemm.py), interned here, and kept with the snapshot it follows from. */
#ifndef BACKENDCFG_DEVICE_RECIPE_H
#define BACKENDCFG_DEVICE_RECIPE_H

#include "gpu/device/library.h"

/* Kinds of places, with DLPack's numbers, and how many devices of a kind a snapshot knows. */
enum { BCFG_PLACE_CUDA = 2, BCFG_PLACE_ROCM = 10, BCFG_PLACES = 16 };

/* Numbers of the library's own ABI where not said otherwise; equal content is one recipe. */
typedef struct {
    const bcfg_device_library *library; /* that multiplies */
    const bcfg_device_library *driver;  /* that knows contexts, streams and memory */
    /* Serves the calls that this library has no algorithm for; NULL for none. */
    const struct bcfg_recipe *fallback;
    /* Serves products that add a vector to each row; NULL for none, or for this one. */
    const struct bcfg_recipe *adder;
    int64_t workspace;                  /* bytes */
    int32_t element;                    /* a bcfg_element */
    int32_t reason;                     /* a bcfg_reason: why this library */
    int32_t data_type, compute_type, scale_type, math_mode, atomics, algorithm, reduction;
    int32_t unused;                     /* 0: no padding, so that contents can be compared */
} bcfg_recipe_content;

typedef struct bcfg_recipe {
    bcfg_recipe_content is;
    const struct bcfg_recipe *next;     /* in the list of all */
    _Atomic uint64_t *calls;
} bcfg_recipe;

/* Whether a library can add a vector in the call that multiplies. */
static inline bool bcfg_can_add(const bcfg_recipe *recipe) {
    return recipe->is.library->kind == BCFG_CUBLASLT || recipe->is.library->kind == BCFG_HIPBLASLT;
}

/* The recipe with this content, made when there is none yet; NULL when out of memory. */
const bcfg_recipe *bcfg_recipe_intern(const bcfg_recipe_content *content);

/* The recipe after `previous`, the newest for NULL; NULL after the last. */
const bcfg_recipe *bcfg_recipe_next(const bcfg_recipe *previous);

/* Sets every counter to zero. */
void bcfg_recipe_reset(void);

/* Whether an address is that of a recipe. */
bool bcfg_recipe_known(const bcfg_recipe *recipe);

/* The recipe that is cached with a snapshot for one device; NULL where none is. */
const bcfg_recipe *bcfg_recipe_of(const bcfg_snapshot *snapshot, int32_t kind, int32_t index,
                                  int32_t element);
/* Caches it. Does nothing for devices beyond the last that a snapshot has room for, or when out of
 * memory. */
void bcfg_recipe_keep(const bcfg_snapshot *snapshot, int32_t kind, int32_t index, int32_t element,
                      const bcfg_recipe *recipe);

#endif
