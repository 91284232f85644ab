/* Snapshots: interned by content, published by one store. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

static const struct bcfg_snapshot *_Atomic all;
static const struct bcfg_snapshot *_Atomic published;
static const struct bcfg_snapshot *_Atomic fallback;

#define FLAG(name, NAME, kind, choices) 0,
static const int64_t zeros[] = {
#include "backendcfg_flags.inc"
};
#undef FLAG

static const bcfg_provider *const only_reference[] = {&bcfg_reference_provider};
static const bcfg_provider *const only_native[] = {&bcfg_native_provider};
#define ORDER_VALUE only_reference
#define ORDER_POINTER only_reference
#define ORDER_OWN only_native
#define OPERATION(name, NAME, element, scalar) {ORDER_##scalar, 1, NULL},
static struct bcfg_snapshot builtin = {
    .values = zeros,
    .orders = {
#include "operations.inc"
    },
};
#undef OPERATION

static bool equal(const struct bcfg_snapshot *snapshot, const bcfg_content *content) {
    if (content->value_count != 0 &&
        memcmp(snapshot->values, content->values, content->value_count * sizeof *zeros) != 0)
        return false;
    for (int32_t i = 0; i < BCFG_OPERATIONS; i++) {
        const bcfg_order *order = &content->orders[i];
        if (snapshot->orders[i].count != order->count) return false;
        for (uint32_t j = 0; j < order->count; j++)
            if (snapshot->orders[i].providers[j] != order->providers[j]) return false;
        const uint8_t *mine = snapshot->orders[i].preferred, *theirs = order->preferred;
        if ((mine == NULL) != (theirs == NULL) ||
            (mine != NULL && memcmp(mine, theirs, BCFG_SIZE_CLASSES) != 0))
            return false;
    }
    return true;
}

/* A copy of the content in one block; NULL when out of memory. */
static struct bcfg_snapshot *copy(const bcfg_content *content) {
    size_t pointers = 0, classes = 0;
    for (int32_t i = 0; i < BCFG_OPERATIONS; i++) {
        pointers += content->orders[i].count;
        classes += content->orders[i].preferred != NULL ? BCFG_SIZE_CLASSES : 0;
    }
    size_t size = sizeof(struct bcfg_snapshot) + content->value_count * sizeof *zeros;
    struct bcfg_snapshot *snapshot = malloc(size + pointers * sizeof(void *) + classes);
    if (snapshot == NULL) return NULL;
    int64_t *values = (int64_t *)(snapshot + 1);
    const bcfg_provider **providers = (const bcfg_provider **)(values + content->value_count);
    uint8_t *preferred = (uint8_t *)(providers + pointers);
    for (uint32_t i = 0; i < content->value_count; i++) values[i] = content->values[i];
    snapshot->values = values;
    atomic_init(&snapshot->kept, NULL);
    for (int32_t i = 0; i < BCFG_OPERATIONS; i++) {
        snapshot->orders[i].providers = providers;
        snapshot->orders[i].count = content->orders[i].count;
        for (uint32_t j = 0; j < content->orders[i].count; j++)
            *providers++ = content->orders[i].providers[j];
        snapshot->orders[i].preferred = NULL;
        if (content->orders[i].preferred == NULL) continue;
        memcpy(preferred, content->orders[i].preferred, BCFG_SIZE_CLASSES);
        snapshot->orders[i].preferred = preferred;
        preferred += BCFG_SIZE_CLASSES;
    }
    return snapshot;
}

bcfg_status bcfg_intern(const bcfg_content *content, const bcfg_snapshot **snapshot,
                        bcfg_error *error) {
    bcfg_status status = bcfg_error_begin(error);
    if (status != BCFG_OK) return status;
    if (content == NULL || snapshot == NULL)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "content or snapshot is NULL");
    if (content->abi != BCFG_ABI || content->size != sizeof *content)
        return bcfg_fail(error, BCFG_E_ABI, "bcfg_content has another version or size");
    if (content->value_count != bcfg_flag_count() || content->order_count != BCFG_OPERATIONS)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "%u values and %u orders, not %u and %d",
                         content->value_count, content->order_count, bcfg_flag_count(),
                         BCFG_OPERATIONS);
    if ((content->value_count != 0 && content->values == NULL) || content->orders == NULL)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "values or orders is NULL");
    for (int32_t i = 0; i < BCFG_OPERATIONS; i++)
        for (uint32_t j = 0; j < content->orders[i].count; j++)
            if (content->orders[i].providers == NULL || content->orders[i].providers[j] == NULL)
                return bcfg_fail(error, BCFG_E_ARGUMENT, "provider %u for %s is NULL", j,
                                 bcfg_operation_name(i));
    for (int32_t i = 0; i < BCFG_OPERATIONS; i++)
        for (int j = 0; content->orders[i].preferred != NULL && j < BCFG_SIZE_CLASSES; j++) {
            uint32_t at = content->orders[i].preferred[j];
            if (at != BCFG_NOT_MEASURED && at >= content->orders[i].count)
                return bcfg_fail(error, BCFG_E_ARGUMENT, "%s has no provider %u for size class %d",
                                 bcfg_operation_name(i), at, j);
        }
    bcfg_lock();
    const struct bcfg_snapshot *head = atomic_load_explicit(&all, memory_order_relaxed);
    const struct bcfg_snapshot *found = head;
    while (found != NULL && !equal(found, content)) found = found->next;
    if (found == NULL) {
        struct bcfg_snapshot *fresh = copy(content);
        if (fresh != NULL) {
            fresh->next = head;
            atomic_store_explicit(&all, fresh, memory_order_release);
        }
        found = fresh;
    }
    bcfg_unlock();
    if (found == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "out of memory");
    *snapshot = found;
    return BCFG_OK;
}

int32_t bcfg_snapshot_known(const bcfg_snapshot *snapshot) {
    const struct bcfg_snapshot *at = atomic_load_explicit(&all, memory_order_acquire);
    while (at != NULL && at != snapshot) at = at->next;
    return at != NULL || snapshot == &builtin;
}

void bcfg_publish(const bcfg_snapshot *snapshot) {
    atomic_store_explicit(&published, snapshot, memory_order_release);
}

void bcfg_set_default(const bcfg_snapshot *snapshot) {
    atomic_store_explicit(&fallback, snapshot, memory_order_release);
}

const bcfg_snapshot *bcfg_current(void) {
    const bcfg_snapshot *snapshot = atomic_load_explicit(&published, memory_order_acquire);
    if (snapshot == NULL) snapshot = atomic_load_explicit(&fallback, memory_order_acquire);
    return snapshot != NULL ? snapshot : &builtin;
}

struct bcfg_kept *_Atomic *bcfg_snapshot_kept(const bcfg_snapshot *snapshot) {
    return &((struct bcfg_snapshot *)snapshot)->kept; /* none lies in memory that is constant */
}

int64_t bcfg_value(const bcfg_snapshot *snapshot, uint32_t id) {
    return snapshot != NULL && id < bcfg_flag_count() ? snapshot->values[id] : 0;
}
