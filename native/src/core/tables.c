/* What many snapshots share: the orders of providers, and who is the fastest. Interned by content,
 * so that a program that sweeps a flag pays for the flag's values alone. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

static struct bcfg_tables *all; /* under the lock */

static bool same_classes(const uint8_t *mine, const uint8_t *theirs) {
    if (mine == NULL || theirs == NULL) return mine == theirs;
    return memcmp(mine, theirs, BCFG_SIZE_CLASSES) == 0;
}

static const uint8_t *factorisation(const bcfg_content *content, int i) {
    return content->factorisations != NULL ? content->factorisations[i] : NULL;
}

static bool equal(const struct bcfg_tables *tables, const bcfg_content *content) {
    for (int i = 0; i < BCFG_OPERATIONS; i++) {
        const bcfg_order *mine = &tables->orders[i], *theirs = &content->orders[i];
        if (mine->count != theirs->count || !same_classes(mine->preferred, theirs->preferred))
            return false;
        for (uint32_t j = 0; j < mine->count; j++)
            if (mine->providers[j] != theirs->providers[j]) return false;
    }
    for (int i = 0; i < BCFG_MEASURED; i++)
        if (!same_classes(tables->factorisations[i], factorisation(content, i))) return false;
    return true;
}

static const uint8_t *copy_classes(const uint8_t *from, uint8_t **to) {
    if (from == NULL) return NULL;
    uint8_t *copied = memcpy(*to, from, BCFG_SIZE_CLASSES);
    *to += BCFG_SIZE_CLASSES;
    return copied;
}

/* A copy of the content's tables in one block; NULL when out of memory. */
static struct bcfg_tables *copy(const bcfg_content *content) {
    size_t pointers = 0, rows = 0;
    for (int i = 0; i < BCFG_OPERATIONS; i++) {
        pointers += content->orders[i].count;
        rows += content->orders[i].preferred != NULL;
    }
    for (int i = 0; i < BCFG_MEASURED; i++) rows += factorisation(content, i) != NULL;
    struct bcfg_tables *tables =
        malloc(sizeof *tables + pointers * sizeof(void *) + rows * BCFG_SIZE_CLASSES);
    if (tables == NULL) return NULL;
    const bcfg_provider **providers = (const bcfg_provider **)(tables + 1);
    uint8_t *classes = (uint8_t *)(providers + pointers);
    for (int i = 0; i < BCFG_OPERATIONS; i++) {
        const bcfg_order *order = &content->orders[i];
        tables->orders[i] =
            (bcfg_order){providers, order->count, copy_classes(order->preferred, &classes)};
        for (uint32_t j = 0; j < order->count; j++) *providers++ = order->providers[j];
    }
    for (int i = 0; i < BCFG_MEASURED; i++)
        tables->factorisations[i] = copy_classes(factorisation(content, i), &classes);
    return tables;
}

static bcfg_status check_classes(const uint8_t *classes, uint32_t count, const char *name,
                                 bcfg_error *error) {
    for (int j = 0; classes != NULL && j < BCFG_SIZE_CLASSES; j++)
        if (classes[j] != BCFG_NOT_MEASURED && classes[j] >= count)
            return bcfg_fail(error, BCFG_E_ARGUMENT, "%s has no provider %u for size class %d",
                             name, classes[j], j);
    return BCFG_OK;
}

bcfg_status bcfg_check_tables(const bcfg_content *content, bcfg_error *error) {
#define FACTORISATION(real, complex, NAME) "s" #real, "d" #real, "c" #complex, "z" #complex,
    static const char *const names[BCFG_MEASURED] = {
#include "factorisations.inc"
    };
#undef FACTORISATION
    for (int i = 0; i < BCFG_OPERATIONS; i++) {
        const bcfg_order *order = &content->orders[i];
        const char *name = bcfg_operation_name(i);
        for (uint32_t j = 0; j < order->count; j++)
            if (order->providers == NULL || order->providers[j] == NULL)
                return bcfg_fail(error, BCFG_E_ARGUMENT, "provider %u for %s is NULL", j, name);
        bcfg_status status = check_classes(order->preferred, order->count, name, error);
        if (status != BCFG_OK) return status;
    }
    for (int i = 0; i < BCFG_MEASURED; i++) {
        uint32_t count = content->orders[BCFG_SGEMM + i % 4].count;
        bcfg_status status = check_classes(factorisation(content, i), count, names[i], error);
        if (status != BCFG_OK) return status;
    }
    return BCFG_OK;
}

const struct bcfg_tables *bcfg_intern_tables(const bcfg_content *content) {
    struct bcfg_tables *found = all;
    while (found != NULL && !equal(found, content)) found = found->next;
    if (found == NULL && (found = copy(content)) != NULL) {
        found->next = all;
        all = found;
    }
    return found;
}
