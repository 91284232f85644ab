/* Opening the libraries of devices: their symbols, their versions, and the list of those that
 * passed. */
#include "device/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name, *before;                     /* before: its name in older versions, or NULL */
    size_t offset;                                 /* in the table */
    bool required;
} symbol;

#define REQUIRED(result, name, parameters) {#name, NULL, offsetof(TABLE, name), true},
#define OPTIONAL(result, name, parameters) {#name, NULL, offsetof(TABLE, name), false},
#define VERSIONED(result, name, before, parameters) {#name, #before, offsetof(TABLE, name), true},

#define TABLE bcfg_cuda_table
static const symbol cuda_symbols[] = {BCFG_CUDA_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_cublas_table
static const symbol cublas_symbols[] = {BCFG_CUBLAS_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_cublaslt_table
static const symbol cublaslt_symbols[] = {BCFG_CUBLASLT_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_hip_table
static const symbol hip_symbols[] = {BCFG_HIP_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_hipblas_table
static const symbol hipblas_symbols[] = {BCFG_HIPBLAS_SYMBOLS(REQUIRED, OPTIONAL, VERSIONED)};
#undef TABLE
#define TABLE bcfg_hipblaslt_table
static const symbol hipblaslt_symbols[] = {BCFG_HIPBLASLT_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_cudnn_table
static const symbol cudnn_symbols[] = {BCFG_CUDNN_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE

/* Each asks a library for its version without a device; -1 when it does not say. */
static int64_t cuda_version(const void *table, void *handle) {
    (void)handle;
    int said = 0; /* 12040 is 12.4 */
    if (((const bcfg_cuda_table *)table)->cuDriverGetVersion(&said) != BCFG_CUDA_SUCCESS) return -1;
    return (int64_t)(said / 1000) * 10000 + (int64_t)(said % 1000 / 10) * 100;
}

static int64_t cublas_version(const void *table, void *handle) {
    (void)handle;
    const bcfg_cublas_table *cublas = table;
    int parts[3]; /* the library's properties 0, 1 and 2 */
    for (int part = 0; part < 3; part++)
        if (cublas->cublasGetProperty(part, &parts[part]) != BCFG_CUBLAS_STATUS_SUCCESS) return -1;
    return (int64_t)parts[0] * 10000 + (int64_t)parts[1] * 100 + parts[2];
}

static int64_t cublaslt_version(const void *table, void *handle) {
    (void)handle;
    return (int64_t)((const bcfg_cublaslt_table *)table)->cublasLtGetVersion();
}

/* Before 9 a major version had less room: 8907 is 8.9.7. */
static int64_t cudnn_version(const void *table, void *handle) {
    (void)handle;
    int64_t said = (int64_t)((const bcfg_cudnn_table *)table)->cudnnGetVersion();
    return said >= 90000 ? said : said / 1000 * 10000 + said % 1000;
}

/* By the library's own SONAME, libhipblas.so.2: PyTorch's wheels rename the files. */
static int64_t soname_version(const void *table, void *handle) {
    (void)table;
    const char *version = bcfg_soname_of(handle);
    version = version != NULL ? strstr(version, ".so.") : NULL;
    if (version == NULL) return -1;
    char *end;
    long major = strtol(version + strlen(".so."), &end, 10), minor = 0;
    if (end == version + strlen(".so.") || major < 0 || major > 9999) return -1;
    if (*end == '.') minor = strtol(end + 1, NULL, 10);
    return major * 10000 + (minor >= 0 && minor < 100 ? minor * 100 : 0);
}

enum { ANY_MAJOR = 9999 };

/* What is particular to one kind. Majors outside first to last have interfaces that nobody has
 * compared with ours. */
static const struct kind {
    const char *name;
    const symbol *symbols;
    size_t symbol_count, table_size;
    int64_t (*version)(const void *table, void *handle);
    int64_t first, last;                           /* majors; a last of ANY_MAJOR is none */
} kinds[BCFG_DEVICE_KINDS] = {
#define KIND(name, version, first, last)                                                           \
    {#name, name##_symbols, sizeof name##_symbols / sizeof *name##_symbols,                        \
     sizeof(bcfg_##name##_table), version, first, last}
    /* A driver serves every older interface, for ever. */
    [BCFG_CUDA] = KIND(cuda, cuda_version, 12, ANY_MAJOR),
    [BCFG_CUBLAS] = KIND(cublas, cublas_version, 12, 13),
    [BCFG_CUBLASLT] = KIND(cublaslt, cublaslt_version, 12, 13),
    [BCFG_HIP] = KIND(hip, soname_version, 6, 7),
    [BCFG_HIPBLAS] = KIND(hipblas, soname_version, 2, 3),
    [BCFG_HIPBLASLT] = KIND(hipblaslt, soname_version, 0, 1),
    [BCFG_CUDNN] = KIND(cudnn, cudnn_version, 9, 9),
};

static bcfg_device_library *_Atomic first_library;
static bcfg_device_library *last_library; /* appended to under the lock */

const char *bcfg_device_kind_name(int32_t kind) {
    return kind >= 0 && kind < BCFG_DEVICE_KINDS ? kinds[kind].name : NULL;
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
    library->table = calloc(1, kinds[kind].table_size);
    if (library->path && library->table) return library;
    discard(library);
    return NULL;
}

static bcfg_status known_version(const struct kind *kind, const bcfg_device_library *library,
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

/* Since which major version a VERSIONED symbol has its meaning under its own name. Only hipBLAS has
 * such: see abi_hipblas.h. */
enum { RENAMED_SINCE = 3 };

/* The function of a symbol; NULL where there is none in the meaning that we know. */
static void *function_of(void *handle, const symbol *wanted) {
    if (wanted->before == NULL) return dlsym(handle, wanted->name);
    void *address = dlsym(handle, wanted->before);
    if (address != NULL) return address;
    return soname_version(NULL, handle) >= RENAMED_SINCE * 10000 ? dlsym(handle, wanted->name)
                                                                 : NULL;
}

/* Looks every symbol up and asks the library for its version. */
static bcfg_status examine(bcfg_device_library *library, bcfg_error *error) {
    const struct kind *kind = &kinds[library->kind];
    void *handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        return bcfg_fail(error, BCFG_E_OPEN, "%s", reason != NULL ? reason : library->path);
    }
    for (size_t at = 0; at < kind->symbol_count; at++) {
        const symbol *wanted = &kind->symbols[at];
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
