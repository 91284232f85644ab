/* The handles of vendors' libraries, each bound to one device and one stream and lent to one call at
 * a time. A handle stays with its stream, because its memory is written by what was put there. */
#ifndef BACKENDCFG_DEVICE_HANDLE_H
#define BACKENDCFG_DEVICE_HANDLE_H

#include "gpu/device/place.h"

typedef struct bcfg_handle {
    struct bcfg_handle *next;          /* in the list of all */
    const bcfg_device_library *library, *driver;
    int32_t index;                     /* of the device */
    void *stream;
    bool busy;                         /* under the lock */
    bool captured;                     /* the same: a graph may write into its memory, so it stays */
    uint64_t used;                     /* the same: when it was returned, counted in returns */
    void *handle;                      /* the library's */
    void *kept;                        /* what the library's own file caches with it; NULL at first */
    int32_t math_mode, atomics;        /* as last set; -1 before that */
    void *workspace, *holder;          /* see lease.h */
    int64_t workspace_bytes;
    void (*release)(void *holder);
    bool workspace_captured;           /* a graph may write there, so it is never freed */
} bcfg_handle;

/* What each library's file implements. Each function returns the library's status, 0 for success,
 * and writes the name of the last function that it called to *function. */
typedef struct {
    /* The name of a status, static; NULL where the library knows none. */
    const char *(*name_of)(const bcfg_device_library *library, int status);
    /* A handle that puts its work on a stream. Nothing is left of it on failure. */
    int (*create)(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function);
    /* Destroys the handle and what the library's file caches with it. Failures are ignored: nobody
     * uses the handle any more. */
    void (*destroy)(const bcfg_handle *handle);
} bcfg_vendor;

/* How many handles of one library may lie idle on one device when another is made. A program may make
 * streams without end, and each handle has a workspace; PyTorch takes turns among 32 streams. */
enum { BCFG_IDLE_HANDLES = 64 };

extern const bcfg_vendor bcfg_blas_vendor, bcfg_lt_vendor;

/* Borrows the handle of a library for a device and a stream. The device must be current. Only the
 * first call on a stream makes a handle, in some milliseconds. Where too many are idle, the least
 * recently used one is destroyed first, which waits for the device; never one that a captured graph
 * may refer to, and not while the stream is captured. The caller must hold no lock that work on the
 * device may wait for. bcfg_handle_give must follow. */
bcfg_outcome bcfg_handle_take(const bcfg_device_library *library, const bcfg_device_library *driver,
                              int32_t index, void *stream, bcfg_handle **taken, bcfg_fault *fault);
void bcfg_handle_give(bcfg_handle *handle);

/* Frees a workspace by the allocator that made it. A framework's allocator reuses it in stream
 * order; the driver waits for the device. Without a function to release it, it is the driver's
 * memory. */
void bcfg_workspace_return(const bcfg_device_library *driver, void *memory, void *holder,
                           void (*release)(void *holder));

/* Fills in a fault of a library and returns BCFG_DEVICE_FAULT. */
bcfg_outcome bcfg_library_fault(const bcfg_device_library *library, const char *function,
                                int status, bcfg_fault *fault);

#endif
