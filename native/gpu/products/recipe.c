/* Recipes: interned by content, kept with the snapshots that they follow from. */
#include "gpu/products/recipe.h"

#include <stdlib.h>
#include <string.h>

static const bcfg_recipe *_Atomic all;

const bcfg_recipe *bcfg_recipe_next(const bcfg_recipe *previous) {
    if (previous != NULL) return previous->next;
    return atomic_load_explicit(&all, memory_order_acquire);
}

bool bcfg_recipe_known(const bcfg_recipe *recipe) {
    const bcfg_recipe *at = NULL;
    while ((at = bcfg_recipe_next(at)) != NULL)
        if (at == recipe) return true;
    return false;
}

const bcfg_recipe *bcfg_recipe_intern(const bcfg_recipe_content *content) {
    bcfg_lock();
    const bcfg_recipe *found = NULL;
    while ((found = bcfg_recipe_next(found)) != NULL)
        if (memcmp(&found->is, content, sizeof *content) == 0) break;
    if (found == NULL) {
        bcfg_recipe *fresh = calloc(1, sizeof *fresh);
        _Atomic uint64_t *calls = calloc(1, sizeof *calls);
        if (fresh != NULL && calls != NULL) {
            fresh->is = *content;
            fresh->calls = calls;
            fresh->next = atomic_load_explicit(&all, memory_order_relaxed);
            atomic_store_explicit(&all, fresh, memory_order_release);
            found = fresh;
        } else {
            free(fresh);
            free((void *)calls);
        }
    }
    bcfg_unlock();
    return found;
}

void bcfg_recipe_reset(void) {
    const bcfg_recipe *at = NULL;
    while ((at = bcfg_recipe_next(at)) != NULL)
        atomic_store_explicit(at->calls, 0, memory_order_relaxed);
}

/* The recipes of a snapshot, by kind of place, device and element. */
typedef struct bcfg_kept {
    const bcfg_recipe *_Atomic recipes[2][BCFG_PLACES][BCFG_ELEMENTS];
} kept;

static const bcfg_recipe *_Atomic *slot(kept *of, int32_t kind, int32_t index, int32_t element) {
    if (of == NULL || (kind != BCFG_PLACE_CUDA && kind != BCFG_PLACE_ROCM) || index < 0 ||
        index >= BCFG_PLACES || element < 0 || element >= BCFG_ELEMENTS)
        return NULL;
    return &of->recipes[kind == BCFG_PLACE_ROCM][index][element];
}

const bcfg_recipe *bcfg_recipe_of(const bcfg_snapshot *snapshot, int32_t kind, int32_t index,
                                  int32_t element) {
    kept *of = atomic_load_explicit(bcfg_snapshot_kept(snapshot), memory_order_acquire);
    const bcfg_recipe *_Atomic *at = slot(of, kind, index, element);
    return at == NULL ? NULL : atomic_load_explicit(at, memory_order_acquire);
}

void bcfg_recipe_keep(const bcfg_snapshot *snapshot, int32_t kind, int32_t index, int32_t element,
                      const bcfg_recipe *recipe) {
    struct bcfg_kept *_Atomic *where = bcfg_snapshot_kept(snapshot);
    kept *of = atomic_load_explicit(where, memory_order_acquire);
    if (of == NULL) {
        kept *fresh = calloc(1, sizeof *fresh);
        if (fresh == NULL) return;
        if (atomic_compare_exchange_strong(where, &of, fresh))
            of = fresh;
        else
            free(fresh);
    }
    const bcfg_recipe *_Atomic *at = slot(of, kind, index, element);
    if (at != NULL) atomic_store_explicit(at, recipe, memory_order_release);
}
