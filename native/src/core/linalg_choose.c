/* Who serves linear algebra: who can (a usable LAPACK, sizes that its integers hold), then who was
 * measured to be the fastest, then the order of the profile. What is compiled in goes first where
 * matrices are small, and where the profile promises bits that do not depend on threads, if the
 * order lists it at all. */
#include "linalg.h"

#define FLAG(name, NAME, kind, choices) FLAG_##NAME,
enum {
#include "backendcfg_flags.inc"
};
#undef FLAG

static const int32_t small_sizes[BCFG_LINEAR_OPERATIONS][2] = {
#define LINEAR(name, NAME, real, complex, by) [BCFG_##NAME] = {real, complex},
#include "linalg.inc"
#undef LINEAR
};
static const int32_t factorisations[BCFG_LINEAR_OPERATIONS] = {
#define LINEAR(name, NAME, real, complex, by) [BCFG_##NAME] = BCFG_BY_##by,
#include "linalg.inc"
#undef LINEAR
};

int32_t bcfg_linalg_measured_by(int32_t operation, int32_t element) {
    return 4 * factorisations[operation] + element;
}

/* Whether a provider is compiled in: `native` and `reference` have no file. */
static bool is_ours(const bcfg_provider *provider) { return provider->path[0] == '\0'; }

/* Whether the tier forbids a library that computes with its own threads. */
static bool varies(const bcfg_snapshot *snapshot, int64_t most) {
    int64_t tier = snapshot->values[FLAG_DETERMINISM_TIER];
    if (tier == TIER_CROSS_MACHINE) return true;
    return tier == TIER_THREAD_INVARIANT && most > BCFG_LIBRARY_ALONE &&
           snapshot->values[FLAG_THREADS_COUNT] != 1;
}

typedef struct {
    int64_t most;
    bool is_small, is_varying;
} Sizes;

/* Whether a provider can serve, wherever it stands in the order. */
static bcfg_linear_verdict judge(const bcfg_provider *provider, const Sizes *sizes, bool alone) {
    if (is_ours(provider)) {
        bool wanted = provider == &bcfg_reference_provider || sizes->is_small || sizes->is_varying;
        return wanted || alone ? BCFG_LINEAR_SERVES : BCFG_LINEAR_PRODUCTS;
    }
    if (sizes->is_varying) return BCFG_LINEAR_VARIES;
    if (sizes->is_small) return BCFG_LINEAR_SLOWER;
    if (provider->interface == BCFG_LP64 && sizes->most > INT32_MAX) return BCFG_LINEAR_TOO_LARGE;
    return bcfg_lapack_of(provider)->lacking[0] == '\0' ? BCFG_LINEAR_SERVES : BCFG_LINEAR_LACKS;
}

/* The position of the provider that was measured to be the fastest; -1 where nothing was measured,
 * or where it is the first or cannot serve. */
static int64_t fastest(const bcfg_snapshot *snapshot, int32_t operation, int32_t element, int64_t m,
                       int64_t n, const Sizes *sizes) {
    int32_t by = bcfg_linalg_measured_by(operation, element);
    const uint8_t *row = snapshot->tables->factorisations[by];
    if (row == NULL || sizes->is_small || sizes->is_varying) return -1;
    uint32_t at = row[bcfg_size_class(m, n, m < n ? m : n)];
    if (at == 0 || at == BCFG_NOT_MEASURED) return -1;
    const bcfg_provider *provider = bcfg_ordered(snapshot, BCFG_SGEMM + element, at);
    return judge(provider, sizes, false) == BCFG_LINEAR_SERVES ? (int64_t)at : -1;
}

static int32_t reason(int64_t at, int64_t fastest, const Sizes *sizes) {
    if (at == fastest) return BCFG_LINEAR_FASTEST;
    if (at == 0) return BCFG_LINEAR_FIRST;
    if (sizes->is_varying) return BCFG_LINEAR_STEADY;
    return sizes->is_small ? BCFG_LINEAR_SMALL : BCFG_LINEAR_ABLE;
}

const bcfg_lapack *bcfg_linalg_choose(const bcfg_snapshot *snapshot, int32_t operation,
                                      int32_t element, int64_t m, int64_t n, int64_t k,
                                      int32_t *verdicts, bcfg_linear_choice *choice) {
    int32_t products = BCFG_SGEMM + element;
    int64_t most = m > n ? m : n, small = small_sizes[operation][element >= BCFG_COMPLEX64];
    bool listed = false;
    const bcfg_provider *provider, *chosen = NULL;
    for (uint32_t i = 0; (provider = bcfg_ordered(snapshot, products, i)) != NULL; i++)
        listed = listed || is_ours(provider);
    Sizes sizes = {most > k ? most : k, listed && most <= small, false};
    sizes.is_varying = listed && varies(snapshot, sizes.most);
    int64_t by_speed = fastest(snapshot, operation, element, m, n, &sizes);
    bcfg_linear_choice found = {NULL, BCFG_LINEAR_FIRST};
    /* A second time for an order that has nothing else than our kernels for products. */
    for (int alone = 0; alone < 2 && chosen == NULL; alone++)
        for (uint32_t i = 0; (provider = bcfg_ordered(snapshot, products, i)) != NULL; i++) {
            int32_t verdict = BCFG_LINEAR_BEHIND;
            if (chosen == NULL) verdict = judge(provider, &sizes, alone == 1);
            if (verdict == BCFG_LINEAR_SERVES && by_speed > i) verdict = BCFG_LINEAR_BEHIND;
            if (verdict == BCFG_LINEAR_SERVES) {
                chosen = provider;
                found.provider = provider;
                found.why = reason(i, by_speed, &sizes);
            }
            if (verdicts != NULL) verdicts[i] = verdict;
            if (chosen != NULL && verdicts == NULL) break;
        }
    if (choice != NULL) *choice = found;
    return chosen != NULL ? bcfg_lapack_of(chosen) : NULL;
}
