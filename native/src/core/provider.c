/* Opening libraries, and the list of those that passed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* All providers, oldest first; the two that are compiled in are the head. Appended to under the
 * lock. */
static bcfg_provider *last = &bcfg_native_provider;

const bcfg_provider *bcfg_next_provider(const bcfg_provider *previous) {
    if (previous == NULL) return &bcfg_reference_provider;
    return atomic_load_explicit(&previous->next, memory_order_acquire);
}

static const bcfg_provider *opened(const bcfg_library *library) {
    const bcfg_provider *provider = bcfg_next_provider(&bcfg_native_provider);
    for (; provider != NULL; provider = bcfg_next_provider(provider))
        if (strcmp(provider->path, library->path) == 0 &&
            strcmp(provider->prefix, library->prefix) == 0 &&
            strcmp(provider->suffix, library->suffix) == 0)
            return provider;
    return NULL;
}

static void discard(bcfg_provider *provider) {
    free(provider->name);
    free(provider->path);
    free(provider->prefix);
    free(provider->suffix);
    free(provider->calls);
    free(provider);
}

static bcfg_provider *allocate(const bcfg_library *library) {
    bcfg_provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL) return NULL;
    provider->name = strdup(library->name);
    provider->path = strdup(library->path);
    provider->prefix = strdup(library->prefix);
    provider->suffix = strdup(library->suffix);
    provider->calls = calloc(BCFG_COUNTERS * BCFG_OPERATIONS, sizeof *provider->calls);
    if (provider->name && provider->path && provider->prefix && provider->suffix && provider->calls)
        return provider;
    discard(provider);
    return NULL;
}

static bcfg_status symbol(void *handle, const bcfg_library *library, const char *name,
                          bcfg_function *function, bcfg_error *error) {
    char full[256];
    int length = snprintf(full, sizeof full, "%scblas_%s%s", library->prefix, name,
                          library->suffix);
    if (length < 0 || (size_t)length >= sizeof full)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "the prefix or suffix of %s is too long",
                         library->name);
    void *address = dlsym(handle, full);
    if (address == NULL)
        return bcfg_fail(error, BCFG_E_SYMBOL, "%s has no symbol %s", library->path, full);
    memcpy(function, &address, sizeof *function); /* ISO C has no cast from data to function */
    return BCFG_OK;
}

/* Looks every symbol up and calls the library to see what it is. */
static bcfg_status examine(const bcfg_library *library, bcfg_provider *provider,
                           bcfg_error *error) {
    void *handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        return bcfg_fail(error, BCFG_E_OPEN, "%s", reason != NULL ? reason : library->path);
    }
    for (int32_t operation = 0; operation < BCFG_BGEMM; operation++) {
        bcfg_status status = symbol(handle, library, bcfg_operation_name(operation),
                                    &provider->functions[operation], error);
        if (status != BCFG_OK) return status;
    }
    bcfg_function isamax;
    bcfg_status status = symbol(handle, library, "isamax", &isamax, error);
    if (status != BCFG_OK) return status;
    status = bcfg_probe_interface(isamax, &provider->interface);
    if (status != BCFG_OK)
        return bcfg_fail(error, status, "%s: isamax answers neither as LP64 nor as ILP64",
                         library->path);
    if (library->interface != BCFG_INTERFACE_UNKNOWN && library->interface != provider->interface)
        return bcfg_fail(error, BCFG_E_INTERFACE, "%s has %d-bit integers, not %d-bit ones",
                         library->path, provider->interface, library->interface);
    return bcfg_probe_products(provider, error);
}

bcfg_status bcfg_open(const bcfg_library *library, const bcfg_provider **provider,
                      bcfg_error *error) {
    bcfg_status status = bcfg_error_begin(error);
    if (status != BCFG_OK) return status;
    if (library == NULL || provider == NULL)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "library or provider is NULL");
    if (library->abi != BCFG_ABI || library->size != sizeof *library)
        return bcfg_fail(error, BCFG_E_ABI, "bcfg_library has another version or size");
    if (library->name == NULL || library->path == NULL || library->prefix == NULL ||
        library->suffix == NULL)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "a string of the library is NULL");
    if (library->path[0] != '/')
        return bcfg_fail(error, BCFG_E_ARGUMENT, "%s is not an absolute path", library->path);

    const bcfg_provider *known = opened(library);
    if (known == NULL) {
        bcfg_provider *fresh = allocate(library);
        if (fresh == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "out of memory");
        /* Without the lock: constructors of the library may do anything, fork included. */
        status = examine(library, fresh, error);
        if (status != BCFG_OK) {
            discard(fresh);
            return status;
        }
        bcfg_lock();
        known = opened(library); /* another thread may have been faster */
        if (known == NULL) {
            atomic_store_explicit(&last->next, fresh, memory_order_release);
            known = last = fresh;
        }
        bcfg_unlock();
        if (known != fresh) discard(fresh);
    }
    if (library->interface != BCFG_INTERFACE_UNKNOWN && library->interface != known->interface)
        return bcfg_fail(error, BCFG_E_INTERFACE, "%s has %d-bit integers, not %d-bit ones",
                         library->path, known->interface, library->interface);
    *provider = known;
    return BCFG_OK;
}

bcfg_status bcfg_describe(const bcfg_provider *provider, bcfg_description *description) {
    if (provider == NULL || description == NULL) return BCFG_E_ARGUMENT;
    if (description->abi != BCFG_ABI || description->size != sizeof *description)
        return BCFG_E_ABI;
    description->name = provider->name;
    description->path = provider->path;
    description->prefix = provider->prefix;
    description->suffix = provider->suffix;
    description->interface = provider->interface;
    uint64_t *counters[BCFG_COUNTERS] = {description->calls, description->by_speed,
                                         description->by_need};
    for (int counter = 0; counter < BCFG_COUNTERS; counter++)
        for (int32_t operation = 0; operation < BCFG_OPERATIONS; operation++)
            counters[counter][operation] = atomic_load_explicit(
                &provider->calls[counter * BCFG_OPERATIONS + operation], memory_order_relaxed);
    return BCFG_OK;
}

void bcfg_reset_calls(void) {
    const bcfg_provider *provider = NULL;
    while ((provider = bcfg_next_provider(provider)) != NULL)
        for (int at = 0; at < BCFG_COUNTERS * BCFG_OPERATIONS; at++)
            atomic_store_explicit(&provider->calls[at], 0, memory_order_relaxed);
}
