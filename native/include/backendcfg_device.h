/* backendcfg_device.h - libraries that compute on devices: opening them, for ctypes.
 *
 * The rules are those of backendcfg.h. A library is opened by its absolute path, checked, kept for
 * ever and never closed; asking twice for the same file gives the same library. Nothing here makes
 * a context on a device, nor initialises a driver.
 */
#ifndef BACKENDCFG_DEVICE_H
#define BACKENDCFG_DEVICE_H

#include "backendcfg.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The libraries that are known. The numbers are part of the ABI. */
typedef enum {
    BCFG_CUDA = 0,         /* the CUDA driver, libcuda.so.1 */
    BCFG_CUBLAS = 1,
    BCFG_CUBLASLT = 2,
    BCFG_HIP = 3,          /* the HIP runtime, libamdhip64.so */
    BCFG_HIPBLAS = 4,
    BCFG_HIPBLASLT = 5,
    BCFG_DEVICE_KINDS
} bcfg_device_kind;

/* An opened library and its functions. Opaque, immutable, never freed. */
typedef struct bcfg_device_library bcfg_device_library;

/* What bcfg_device_describe says. `path` lives as long as the process.
 *   kind     a bcfg_device_kind
 *   version  10000 * major + 100 * minor + patch, as CUDA's libraries say it: 130100 is 13.1.0.
 *            AMD's cannot be asked without a device: of theirs it is what their SONAME says
 */
typedef struct {
    uint32_t abi, size;
    const char *path;
    int32_t kind;
    int64_t version;
} bcfg_device_description;

/* The name of a kind, "cublas"; NULL for another number. Static storage. */
BCFG_API const char *bcfg_device_kind_name(int32_t kind);

/* Opens the file at an absolute path as a library of one kind: RTLD_NOW | RTLD_LOCAL, every required
 * symbol present, its version one that we know. Functions whose meaning changed under one name are
 * taken in the meaning that we know, or the library is refused. *library is written only on success.
 *
 * Constructors of the library run. One that is not yet in the process should be opened in a child
 * process first.
 *
 * Errors: BCFG_E_ABI, _ARGUMENT, _MEMORY, _OPEN, _SYMBOL; _INTERFACE when its version is not known. */
BCFG_API bcfg_status bcfg_device_open(int32_t kind, const char *path,
                                      const bcfg_device_library **library, bcfg_error *error);

/* Fills in a description, whose abi and size the caller has set. Errors: BCFG_E_ABI, _ARGUMENT. */
BCFG_API bcfg_status bcfg_device_describe(const bcfg_device_library *library,
                                          bcfg_device_description *description);

#ifdef __cplusplus
}
#endif
#endif
