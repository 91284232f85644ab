/* The kinds of libraries of devices. */
#include "gpu/device/kinds.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRED(result, name, parameters) {#name, NULL, offsetof(TABLE, name), true},
#define OPTIONAL(result, name, parameters) {#name, NULL, offsetof(TABLE, name), false},
#define VERSIONED(result, name, before, parameters) {#name, #before, offsetof(TABLE, name), true},

#define TABLE bcfg_cuda_table
static const bcfg_library_symbol cuda_symbols[] = {BCFG_CUDA_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_cublas_table
static const bcfg_library_symbol cublas_symbols[] = {BCFG_CUBLAS_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_cublaslt_table
static const bcfg_library_symbol cublaslt_symbols[] = {BCFG_CUBLASLT_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_hip_table
static const bcfg_library_symbol hip_symbols[] = {BCFG_HIP_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE
#define TABLE bcfg_hipblas_table
static const bcfg_library_symbol hipblas_symbols[] = {
    BCFG_HIPBLAS_SYMBOLS(REQUIRED, OPTIONAL, VERSIONED)};
#undef TABLE
#define TABLE bcfg_hipblaslt_table
static const bcfg_library_symbol hipblaslt_symbols[] = {BCFG_HIPBLASLT_SYMBOLS(REQUIRED, OPTIONAL)};
#undef TABLE

static int64_t cuda_version(const void *table, void *handle) {
    (void)handle;
    int said = 0; /* 12040 is 12.4 */
    if (((const bcfg_cuda_table *)table)->cuDriverGetVersion(&said) != BCFG_CUDA_SUCCESS) return -1;
    return (int64_t)(said / 1000) * 10000 + (int64_t)(said % 1000 / 10) * 100;
}

/* The version of a library that has it as three properties. */
static int64_t properties(int (*property_of)(int property, int *value)) {
    int parts[3];
    for (int part = 0; part < 3; part++)
        if (property_of(part, &parts[part]) != 0) return -1;
    return (int64_t)parts[0] * 10000 + (int64_t)parts[1] * 100 + parts[2];
}

static int64_t cublas_version(const void *table, void *handle) {
    (void)handle;
    return properties(((const bcfg_cublas_table *)table)->cublasGetProperty);
}

static int64_t cublaslt_version(const void *table, void *handle) {
    (void)handle;
    return (int64_t)((const bcfg_cublaslt_table *)table)->cublasLtGetVersion();
}

int64_t bcfg_soname_version(void *handle) {
    const char *version = bcfg_soname_of(handle);
    version = version != NULL ? strstr(version, ".so.") : NULL;
    if (version == NULL) return -1;
    char *end;
    long major = strtol(version + strlen(".so."), &end, 10), minor = 0;
    if (end == version + strlen(".so.") || major < 0 || major > 9999) return -1;
    if (*end == '.') minor = strtol(end + 1, NULL, 10);
    return major * 10000 + (minor >= 0 && minor < 100 ? minor * 100 : 0);
}

static int64_t soname_version(const void *table, void *handle) {
    (void)table;
    return bcfg_soname_version(handle);
}

enum { ANY_MAJOR = 9999 };

static const bcfg_library_kind kinds[BCFG_DEVICE_KINDS] = {
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
};

const bcfg_library_kind *bcfg_library_kind_of(int32_t kind) {
    bool known = kind >= 0 && kind < BCFG_DEVICE_KINDS && kinds[kind].name != NULL;
    return known ? &kinds[kind] : NULL;
}
