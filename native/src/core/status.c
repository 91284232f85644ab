/* Errors, the lock, and the names of things. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "core.h"

uint32_t bcfg_abi(void) { return BCFG_ABI; }

bcfg_status bcfg_error_begin(bcfg_error *error) {
    if (error == NULL) return BCFG_OK;
    if (error->abi != BCFG_ABI || error->size != sizeof *error) return BCFG_E_ABI;
    error->detail[0] = '\0';
    return BCFG_OK;
}

bcfg_status bcfg_fail(bcfg_error *error, bcfg_status status, const char *format, ...) {
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->detail, sizeof error->detail, format, arguments);
        va_end(arguments);
    }
    return status;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void acquire(void) { (void)pthread_mutex_lock(&mutex); }
static void release(void) { (void)pthread_mutex_unlock(&mutex); }
static void watch_fork(void) { (void)pthread_atfork(acquire, release, release); }

void bcfg_lock(void) {
    (void)pthread_once(&once, watch_fork);
    acquire();
}

void bcfg_unlock(void) { release(); }

const char *bcfg_operation_name(int32_t operation) {
    static const char *const names[] = {
#define OPERATION(name, NAME, element, scalar) #name,
#include "operations.inc"
#undef OPERATION
    };
    return operation >= 0 && operation < BCFG_OPERATIONS ? names[operation] : NULL;
}
