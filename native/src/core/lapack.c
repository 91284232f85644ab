/* Finds the providers that have LAPACK: looks its routines up and tries them, at the first use. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lapack.h"

static bcfg_lapack *last = &bcfg_reference_lapack; /* appended to under the lock */

static const bcfg_lapack *known(const bcfg_provider *provider) {
    const bcfg_lapack *at = &bcfg_reference_lapack;
    while (at != NULL && at->provider != provider)
        at = atomic_load_explicit(&at->next, memory_order_acquire);
    return at;
}

/* Fortran's names end in an underscore, before the suffix; MKL has them without it as well. */
static bool symbol(void *handle, const bcfg_provider *provider, char letter, const char *name,
                   bcfg_function *function, char *full, size_t size) {
    static const char *const ends[] = {"", "_"};
    for (int i = 1; i >= 0; i--) {
        int length = snprintf(full, size, "%s%c%s%s%s", provider->prefix, letter, name, ends[i],
                              provider->suffix);
        void *address = length > 0 && (size_t)length < size ? dlsym(handle, full) : NULL;
        if (address == NULL) continue;
        memcpy(function, &address, sizeof *function); /* ISO C has no cast from data to function */
        return true;
    }
    return false;
}

/* Fills the table. Returns the first routine that is missing, in `full`, or "" for none. */
static void look_up(void *handle, bcfg_lapack *lapack, char *full, size_t size) {
    static const struct {
        const char *real, *complex;
    } names[BCFG_ROUTINES] = {
#define ROUTINE(real, complex, NAME) {#real, #complex},
#include "lapack.inc"
#undef ROUTINE
    };
    for (int routine = 0; routine < BCFG_ROUTINES; routine++)
        for (int element = 0; element < 4; element++) {
            const char *name = element < 2 ? names[routine].real : names[routine].complex;
            if (!symbol(handle, lapack->provider, "sdcz"[element], name,
                        &lapack->functions[routine][element], full, size))
                return;
        }
    full[0] = '\0';
    void *address = dlsym(handle, "MKL_Set_Num_Threads_Local");
    memcpy(&lapack->set_own_threads, &address, sizeof address);
}

/* [1 3; 2 4] = P [1 0; 1/2 1] [2 4; 0 1], and [4 2; 2 5] = [2 0; 1 2] [2 0; 1 2]': exact in every
 * type. Pivots in integers of another width would stand elsewhere. */
#define CHECK(element, type, parts)                                                                \
    do {                                                                                           \
        type a[4 * parts] = {0}, b[4 * parts] = {0};                                               \
        int64_t pivots[4] = {0};                                                                   \
        for (int i = 0; i < 4; i++) a[i * parts] = product[i], b[i * parts] = definite[i];         \
        if (bcfg_getrf(lapack, element, 2, 2, a, 2, pivots) != 0) right = false;                   \
        if (bcfg_pivot(lapack, pivots, 0) != 2 || bcfg_pivot(lapack, pivots, 1) != 2)              \
            right = false;                                                                         \
        if (bcfg_potrf(lapack, element, 'L', 2, b) != 0) right = false;                            \
        for (int i = 0; i < 4 * parts; i++) {                                                      \
            if (a[i] != (i % parts ? 0 : factors[i / parts])) right = false;                       \
            if (i / parts != 2 && b[i] != (i % parts ? 0 : root[i / parts])) right = false;        \
        }                                                                                          \
    } while (0)

static bool factorises(const bcfg_lapack *lapack) {
    static const float product[4] = {1, 2, 3, 4}, factors[4] = {2, 0.5F, 4, 1};
    static const float definite[4] = {4, 2, 2, 5}, root[4] = {2, 1, 0, 2};
    bool right = true;
    CHECK(BCFG_FLOAT32, float, 1);
    CHECK(BCFG_FLOAT64, double, 1);
    CHECK(BCFG_COMPLEX64, float, 2);
    CHECK(BCFG_COMPLEX128, double, 2);
    return right;
}

static const char *examine(bcfg_lapack *lapack) {
    char full[256], reason[512];
    void *handle = dlopen(lapack->provider->path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == NULL) return "its file is no longer open";
    look_up(handle, lapack, full, sizeof full);
    if (full[0] != '\0') {
        (void)snprintf(reason, sizeof reason, "it has no LAPACK: no symbol %s", full);
        const char *kept = strdup(reason);
        return kept != NULL ? kept : "it has no LAPACK";
    }
    return factorises(lapack) ? "" : "it factorises a 2 by 2 matrix wrongly";
}

const bcfg_lapack *bcfg_lapack_of(const bcfg_provider *provider) {
    if (provider->path[0] == '\0') return &bcfg_reference_lapack; /* compiled in */
    const bcfg_lapack *found = known(provider);
    if (found != NULL) return found;
    static bcfg_lapack without_memory = {.lacking = "no memory for the table of its routines"};
    bcfg_lapack *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return &without_memory;
    fresh->provider = provider;
    fresh->interface = provider->interface;
    fresh->lacking = examine(fresh); /* without the lock: it calls the library */
    bcfg_lock();
    found = known(provider); /* another thread may have been faster */
    if (found == NULL) {
        atomic_store_explicit(&last->next, fresh, memory_order_release);
        found = last = fresh;
    }
    bcfg_unlock();
    if (found != fresh) free(fresh);
    return found;
}
