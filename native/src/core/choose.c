/* Who serves a product. The conservative rule: the first provider in the snapshot's order whose
 * integers hold every size. The explanation is made by the same functions as the choice. */
#include "core.h"

static bool fits(const bcfg_provider *provider, int64_t m, int64_t n, int64_t k) {
    return provider->interface != BCFG_LP64 ||
           (m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX);
}

static bool valid(const bcfg_snapshot *snapshot, int32_t operation) {
    return snapshot != NULL && operation >= 0 && operation < BCFG_OPERATIONS;
}

int32_t bcfg_choose(const bcfg_snapshot *snapshot, int32_t operation, int64_t m, int64_t n,
                    int64_t k) {
    if (!valid(snapshot, operation)) return -1;
    for (uint32_t i = 0; i < snapshot->orders[operation].count; i++)
        if (fits(snapshot->orders[operation].providers[i], m, n, k)) return (int32_t)i;
    return -1;
}

const bcfg_provider *bcfg_ordered(const bcfg_snapshot *snapshot, int32_t operation,
                                  uint32_t index) {
    if (!valid(snapshot, operation) || index >= snapshot->orders[operation].count) return NULL;
    return snapshot->orders[operation].providers[index];
}

bcfg_verdict bcfg_judge(const bcfg_snapshot *snapshot, int32_t operation,
                        const bcfg_provider *provider, int64_t m, int64_t n, int64_t k) {
    const bcfg_provider *at;
    for (uint32_t i = 0; (at = bcfg_ordered(snapshot, operation, i)) != NULL; i++) {
        if (at != provider) continue;
        if (!fits(provider, m, n, k)) return BCFG_TOO_LARGE;
        return bcfg_choose(snapshot, operation, m, n, k) == (int32_t)i ? BCFG_SERVES : BCFG_BEHIND;
    }
    return BCFG_NOT_LISTED;
}
