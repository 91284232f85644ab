/* Opens the libraries of devices, checks them and lists those that passed. */
#include "gpu/device/kinds.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static bcfg_device_library *_Atomic first_library;
static bcfg_device_library *last_library; /* appended to under the lock */

const char *bcfg_device_kind_name(int32_t kind) {
    const bcfg_library_kind *known = bcfg_library_kind_of(kind);
    return known != NULL ? known->name : NULL;
}

static const bcfg_device_library *opened(int32_t kind, const char *path) {
    const bcfg_device_library *library =
        atomic_load_explicit(&first_library, memory_order_acquire);
    for (; library != NULL; library = atomic_load_explicit(&library->next, memory_order_acquire))
        if (library->kind == kind && strcmp(library->path, path) == 0) return library;
    return NULL;
}

static void discard(bcfg_device_library *library) {
    free(library->path);
    free(library->table);
    free(library);
}

static bcfg_device_library *allocate(int32_t kind, const char *path) {
    bcfg_device_library *library = calloc(1, sizeof *library);
    if (library == NULL) return NULL;
    library->kind = kind;
    library->path = strdup(path);
    library->table = calloc(1, bcfg_library_kind_of(kind)->table_size);
    if (library->path && library->table) return library;
    discard(library);
    return NULL;
}

static bcfg_status known_version(const bcfg_library_kind *kind, const bcfg_device_library *library,
                                 bcfg_error *error) {
    int64_t major = library->version / 10000, minor = library->version / 100 % 100;
    if (library->version < 0)
        return bcfg_fail(error, BCFG_E_INTERFACE, "%s does not say its version", library->path);
    if (major < kind->first)
        return bcfg_fail(error, BCFG_E_INTERFACE,
                         "%s has version %lld.%lld; %lld is the oldest that is served",
                         library->path, (long long)major, (long long)minor,
                         (long long)kind->first);
    if (major > kind->last)
        return bcfg_fail(error, BCFG_E_INTERFACE,
                         "%s has version %lld.%lld; %lld is the newest whose interface is known",
                         library->path, (long long)major, (long long)minor, (long long)kind->last);
    return BCFG_OK;
}

/* The first major version in which a VERSIONED symbol has the new meaning under its own name. Only
 * hipBLAS has such symbols: see abi_hipblas.h. */
enum { RENAMED_SINCE = 3 };

/* The function of a symbol; NULL where the library has none with the meaning that we expect. */
static void *function_of(void *handle, const bcfg_library_symbol *wanted) {
    if (wanted->before == NULL) return dlsym(handle, wanted->name);
    void *address = dlsym(handle, wanted->before);
    if (address != NULL) return address;
    return bcfg_soname_version(handle) >= RENAMED_SINCE * 10000 ? dlsym(handle, wanted->name)
                                                                 : NULL;
}

/* Looks every symbol up and asks the library for its version. */
static bcfg_status examine(bcfg_device_library *library, bcfg_error *error) {
    const bcfg_library_kind *kind = bcfg_library_kind_of(library->kind);
    void *handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        return bcfg_fail(error, BCFG_E_OPEN, "%s", reason != NULL ? reason : library->path);
    }
    for (size_t at = 0; at < kind->symbol_count; at++) {
        const bcfg_library_symbol *wanted = &kind->symbols[at];
        void *address = function_of(handle, wanted);
        if (address == NULL && wanted->required)
            return bcfg_fail(error, BCFG_E_SYMBOL, "%s has no symbol %s", library->path,
                             wanted->before != NULL ? wanted->before : wanted->name);
        memcpy((char *)library->table + wanted->offset, &address, sizeof address);
    }
    library->version = kind->version(library->table, handle);
    return known_version(kind, library, error);
}

bcfg_status bcfg_device_open(int32_t kind, const char *path, const bcfg_device_library **library,
                             bcfg_error *error) {
    bcfg_status status = bcfg_error_begin(error);
    if (status != BCFG_OK) return status;
    if (path == NULL || library == NULL)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "path or library is NULL");
    if (bcfg_device_kind_name(kind) == NULL)
        return bcfg_fail(error, BCFG_E_ARGUMENT, "there is no kind %d of libraries", (int)kind);
    if (path[0] != '/')
        return bcfg_fail(error, BCFG_E_ARGUMENT, "%s is not an absolute path", path);

    const bcfg_device_library *known = opened(kind, path);
    if (known == NULL) {
        bcfg_device_library *fresh = allocate(kind, path);
        if (fresh == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "out of memory");
        /* Without the lock: constructors of the library may do anything, fork included. */
        status = examine(fresh, error);
        if (status != BCFG_OK) {
            discard(fresh);
            return status;
        }
        bcfg_lock();
        known = opened(kind, path); /* another thread may have been faster */
        if (known == NULL) {
            if (last_library == NULL)
                atomic_store_explicit(&first_library, fresh, memory_order_release);
            else
                atomic_store_explicit(&last_library->next, fresh, memory_order_release);
            known = last_library = fresh;
        }
        bcfg_unlock();
        if (known != fresh) discard(fresh);
    }
    *library = known;
    return BCFG_OK;
}

bcfg_status bcfg_device_describe(const bcfg_device_library *library,
                                 bcfg_device_description *description) {
    if (library == NULL || description == NULL) return BCFG_E_ARGUMENT;
    if (description->abi != BCFG_ABI || description->size != sizeof *description)
        return BCFG_E_ABI;
    description->path = library->path;
    description->kind = library->kind;
    description->version = library->version;
    return BCFG_OK;
}
