/* Who serves a product, by the snapshot's tables: who can (the symbol is there, every size fits its
 * integers), then who was measured to be the fastest for the class of sizes, then the order. Without
 * a measurement this is the conservative rule: the first of the order that can. The explanation is
 * made by the same functions as the choice. */
#include "core.h"

static bcfg_verdict ability(const bcfg_provider *provider, int32_t operation, int64_t m, int64_t n,
                            int64_t k) {
    if (!bcfg_serves(provider, operation)) return BCFG_LACKS;
    if (provider->interface == BCFG_LP64 && (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX))
        return BCFG_TOO_LARGE;
    return BCFG_SERVES;
}

static bool valid(const bcfg_snapshot *snapshot, int32_t operation) {
    return snapshot != NULL && operation >= 0 && operation < BCFG_OPERATIONS;
}

uint32_t bcfg_size_class(int64_t m, int64_t n, int64_t k) {
    int64_t product;
    if (m <= 0 || n <= 0 || k <= 0) return 0;
    if (__builtin_mul_overflow(m, n, &product) || __builtin_mul_overflow(product, k, &product))
        return 62;
    return 63 - (uint32_t)__builtin_clzll((unsigned long long)product);
}

int32_t bcfg_pick(const bcfg_snapshot *snapshot, int32_t operation, int64_t m, int64_t n, int64_t k,
                  bcfg_reason *reason) {
    const bcfg_order *order = &snapshot->tables->orders[operation];
    const bcfg_provider *const *providers = order->providers;
    const uint8_t *preferred = order->preferred;
    if (preferred != NULL) {
        uint32_t at = preferred[bcfg_size_class(m, n, k)];
        if (at != BCFG_NOT_MEASURED && at != 0 &&
            ability(providers[at], operation, m, n, k) == BCFG_SERVES) {
            *reason = BCFG_FASTEST;
            return (int32_t)at;
        }
    }
    for (uint32_t i = 0; i < order->count; i++)
        if (ability(providers[i], operation, m, n, k) == BCFG_SERVES) {
            *reason = i == 0 ? BCFG_FIRST : BCFG_ABLE;
            return (int32_t)i;
        }
    return -1;
}

int32_t bcfg_choose(const bcfg_snapshot *snapshot, int32_t operation, int64_t m, int64_t n,
                    int64_t k) {
    bcfg_reason reason;
    return valid(snapshot, operation) ? bcfg_pick(snapshot, operation, m, n, k, &reason) : -1;
}

int32_t bcfg_choice_reason(const bcfg_snapshot *snapshot, int32_t operation, int64_t m, int64_t n,
                           int64_t k) {
    bcfg_reason reason = BCFG_FIRST;
    if (!valid(snapshot, operation) || bcfg_pick(snapshot, operation, m, n, k, &reason) < 0)
        return -1;
    return (int32_t)reason;
}

const bcfg_provider *bcfg_ordered(const bcfg_snapshot *snapshot, int32_t operation,
                                  uint32_t index) {
    if (!valid(snapshot, operation)) return NULL;
    const bcfg_order *order = &snapshot->tables->orders[operation];
    return index < order->count ? order->providers[index] : NULL;
}

bcfg_verdict bcfg_judge(const bcfg_snapshot *snapshot, int32_t operation,
                        const bcfg_provider *provider, int64_t m, int64_t n, int64_t k) {
    const bcfg_provider *at;
    for (uint32_t i = 0; (at = bcfg_ordered(snapshot, operation, i)) != NULL; i++) {
        if (at != provider) continue;
        bcfg_verdict able = ability(provider, operation, m, n, k);
        if (able != BCFG_SERVES) return able;
        return bcfg_choose(snapshot, operation, m, n, k) == (int32_t)i ? BCFG_SERVES : BCFG_BEHIND;
    }
    return BCFG_NOT_LISTED;
}
