/* Snapshots: interned by content, published by one store. A snapshot has the values of its flags and
 * five pointers; the tables are shared. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* Snapshots are found by the hash of their content, and by that of their address: a program that
 * sweeps a flag makes thousands. The heads are stored under the lock and read without. */
enum { CHAINS = 1024 };
static const struct bcfg_snapshot *_Atomic alike[CHAINS], *_Atomic near[CHAINS];
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
static const struct bcfg_tables only = {
    .orders = {
#include "operations.inc"
    },
};
#undef OPERATION
static struct bcfg_snapshot builtin = {.values = zeros, .tables = &only};

static uint64_t mixed(uint64_t hash, uint64_t more) {
    hash = (hash ^ more) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

static uint32_t chain_of(const bcfg_content *content, const struct bcfg_tables *tables) {
    uint64_t hash = mixed(0, (uintptr_t)tables);
    for (uint32_t i = 0; i < content->value_count; i++)
        hash = mixed(hash, (uint64_t)content->values[i]);
    return (uint32_t)(hash % CHAINS);
}

static uint32_t chain_at(const bcfg_snapshot *snapshot) {
    return (uint32_t)(mixed(0, (uintptr_t)snapshot) % CHAINS);
}

static bool equal(const struct bcfg_snapshot *snapshot, const bcfg_content *content,
                  const struct bcfg_tables *tables) {
    return snapshot->tables == tables &&
           (content->value_count == 0 ||
            memcmp(snapshot->values, content->values, content->value_count * sizeof *zeros) == 0);
}

/* The snapshot with this content, found or made; NULL when out of memory. Under the lock. */
static const struct bcfg_snapshot *interned(const bcfg_content *content) {
    const struct bcfg_tables *tables = bcfg_intern_tables(content);
    if (tables == NULL) return NULL;
    uint32_t chain = chain_of(content, tables);
    const struct bcfg_snapshot *head = atomic_load_explicit(&alike[chain], memory_order_relaxed);
    for (const struct bcfg_snapshot *found = head; found != NULL; found = found->next_alike)
        if (equal(found, content, tables)) return found;
    struct bcfg_snapshot *fresh =
        malloc(sizeof *fresh + content->value_count * sizeof *zeros);
    if (fresh == NULL) return NULL;
    int64_t *values = (int64_t *)(fresh + 1);
    for (uint32_t i = 0; i < content->value_count; i++) values[i] = content->values[i];
    uint32_t place = chain_at(fresh);
    fresh->next_alike = head;
    fresh->next_near = atomic_load_explicit(&near[place], memory_order_relaxed);
    atomic_init(&fresh->kept, NULL);
    fresh->values = values;
    fresh->tables = tables;
    atomic_store_explicit(&alike[chain], fresh, memory_order_relaxed);
    atomic_store_explicit(&near[place], fresh, memory_order_release);
    return fresh;
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
    status = bcfg_check_tables(content, error);
    if (status != BCFG_OK) return status;
    bcfg_lock();
    const struct bcfg_snapshot *found = interned(content);
    bcfg_unlock();
    if (found == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "out of memory");
    *snapshot = found;
    return BCFG_OK;
}

int32_t bcfg_snapshot_known(const bcfg_snapshot *snapshot) {
    const struct bcfg_snapshot *at =
        atomic_load_explicit(&near[chain_at(snapshot)], memory_order_acquire);
    while (at != NULL && at != snapshot) at = at->next_near;
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
    return &((struct bcfg_snapshot *)snapshot)->kept; /* no snapshot lies in read-only memory */
}

int64_t bcfg_value(const bcfg_snapshot *snapshot, uint32_t id) {
    return snapshot != NULL && id < bcfg_flag_count() ? snapshot->values[id] : 0;
}
