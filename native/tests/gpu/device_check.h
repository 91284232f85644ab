/* What the tests of the device layer share: the fakes, what they recorded, and their failures. */
#ifndef BACKENDCFG_DEVICE_CHECK_H
#define BACKENDCFG_DEVICE_CHECK_H

#include <dlfcn.h>

#include "../check.h"
#include "gpu/device/work.h"

static inline const bcfg_device_library *fake_of(int32_t kind, const char *name) {
    char path[4096];
    bcfg_error error = NEW_ERROR;
    const bcfg_device_library *library = NULL;
    snprintf(path, sizeof path, "%s%s", fakes, name);
    CHECK(bcfg_device_open(kind, path, &library, &error) == BCFG_OK);
    return library;
}

static inline void *function_of(const bcfg_device_library *library, const char *name) {
    void *file = dlopen(library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    CHECK(file != NULL);
    void *address = dlsym(file, name);
    CHECK(address != NULL && dlclose(file) == 0);
    return address;
}

/* See native/fakes/gpu/recorded.h. */
static inline void reset(const bcfg_device_library *library) {
    void (*call)(void);
    void *address = function_of(library, "fake_reset");
    memcpy(&call, &address, sizeof call);
    call();
}

static inline void fail(const bcfg_device_library *library, const char *function, int status,
                        int skip, int count) {
    int (*call)(const char *, int, int, int);
    void *address = function_of(library, "fake_fail");
    memcpy(&call, &address, sizeof call);
    CHECK(call(function, status, skip, count) == 1);
}

static inline void set(const bcfg_device_library *library, const char *name, int64_t value) {
    int (*call)(const char *, int64_t);
    void *address = function_of(library, "fake_set");
    memcpy(&call, &address, sizeof call);
    CHECK(call(name, value) == 1);
}

static inline const char *record_of(const bcfg_device_library *library) {
    const char *(*call)(void);
    void *address = function_of(library, "fake_record");
    memcpy(&call, &address, sizeof call);
    return call();
}

/* How often a function was called since the last reset. */
static inline int calls_of(const bcfg_device_library *library, const char *function) {
    char wanted[96];
    int count = 0;
    snprintf(wanted, sizeof wanted, "\"function\": \"%s\"", function);
    for (const char *at = record_of(library); (at = strstr(at, wanted)) != NULL; at++) count++;
    return count;
}

#endif
