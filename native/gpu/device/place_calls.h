/* What a vendor's driver does for a place: place_cuda.c, place_hip.c. Each function returns the
 * driver's status, 0 for success, and leaves the name of what it called last in *function. */
#ifndef BACKENDCFG_DEVICE_PLACE_CALLS_H
#define BACKENDCFG_DEVICE_PLACE_CALLS_H

#include "gpu/device/place.h"

typedef struct {
    const char *(*name_of)(const bcfg_device_library *driver, int status);
    int (*start)(const bcfg_device_library *driver, int32_t index, void **context,
                 const char **function);
    int (*enter)(const bcfg_device_library *driver, int32_t index, void *context,
                 bcfg_visit *visit, const char **function);
    void (*leave)(const bcfg_device_library *driver, const bcfg_visit *visit);
    int (*order)(const bcfg_device_library *driver, void *before, void *after,
                 const char **function);
    int (*settle)(const bcfg_device_library *driver, void *stream, const char **function);
    bool (*captures)(const bcfg_device_library *driver, void *stream);
    int (*clear)(const bcfg_device_library *driver, void *memory, size_t bytes, void *stream,
                 const char **function);
    int (*allocate)(const bcfg_device_library *driver, size_t bytes, void **memory,
                    const char **function);
    void (*give_back)(const bcfg_device_library *driver, void *memory);
} bcfg_place_calls;

extern const bcfg_place_calls bcfg_cuda_calls, bcfg_hip_calls;

#endif
