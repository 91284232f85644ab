/* One kind of library: its symbols, how to ask for its version, and which versions are supported. */
#ifndef BACKENDCFG_DEVICE_KINDS_H
#define BACKENDCFG_DEVICE_KINDS_H

#include "gpu/device/library.h"

typedef struct {
    const char *name, *before;         /* before: its name in older versions, or NULL */
    size_t offset;                     /* in the table */
    bool required;
} bcfg_library_symbol;

/* Major versions outside first to last are refused: their headers were not compared with ours. */
typedef struct {
    const char *name;
    const bcfg_library_symbol *symbols;
    size_t symbol_count, table_size;
    /* Asked without a device: 10000 * major + 100 * minor + patch; -1 when it does not say. */
    int64_t (*version)(const void *table, void *handle);
    int64_t first, last;
} bcfg_library_kind;

/* NULL for another number than a bcfg_device_kind, or one that is not built in. */
const bcfg_library_kind *bcfg_library_kind_of(int32_t kind);

/* What a library's own SONAME says, libhipblas.so.2: PyTorch's wheels rename the files. -1 for nothing. */
int64_t bcfg_soname_version(void *handle);

#endif
