/* What the tests share. A failed CHECK prints its line and makes the program exit with 1. */
#ifndef BACKENDCFG_CHECK_H
#define BACKENDCFG_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backendcfg.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define NEW_ERROR {.abi = BCFG_ABI, .size = sizeof(bcfg_error)}

/* The folder of the test libraries, with a slash at its end: the first argument of a test. */
extern const char *fakes;

static inline bcfg_status open_fake(const char *name, const char *prefix, const char *suffix,
                                      int32_t interface, const bcfg_provider **provider,
                                      bcfg_error *error) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", fakes, name);
    bcfg_library library = {BCFG_ABI, sizeof library, name, path, prefix, suffix, interface};
    return bcfg_open(&library, provider, error);
}

/* A snapshot whose every operation has one order, and one preference or NULL. */
static inline const bcfg_snapshot *preferring(const bcfg_provider *const *providers,
                                              uint32_t count, const int64_t *values,
                                              const uint8_t *preferred) {
    bcfg_order orders[BCFG_OPERATIONS];
    for (int i = 0; i < BCFG_OPERATIONS; i++) orders[i] = (bcfg_order){providers, count, preferred};
    bcfg_content content = {BCFG_ABI, sizeof content, values, bcfg_flag_count(), BCFG_OPERATIONS,
                            orders, NULL};
    bcfg_error error = NEW_ERROR;
    const bcfg_snapshot *snapshot = NULL;
    CHECK(bcfg_intern(&content, &snapshot, &error) == BCFG_OK);
    return snapshot;
}

static inline const bcfg_snapshot *snapshot_of(const bcfg_provider *const *providers,
                                               uint32_t count, const int64_t *values) {
    return preferring(providers, count, values, NULL);
}

#endif
