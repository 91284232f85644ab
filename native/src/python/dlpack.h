/* The structs of DLPack 1.3 (github.com/dmlc/dlpack), which libraries share arrays by. */
#ifndef BACKENDCFG_DLPACK_H
#define BACKENDCFG_DLPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int32_t type, id;
} DLDevice;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t dimensions;
    DLDataType type;
    int64_t *shape, *strides; /* strides in elements; NULL for rows one after the other */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor tensor;
} DLManagedTensorVersioned;

/* Fills in the sizes and the strides in bytes of a tensor whose dimensions fit the two arrays.
 *
 * What it says of itself is checked as far as numbers can be: whether `data` is memory of so many
 * bytes only its owner knows. Returns why it cannot be read, or NULL. */
static inline const char *bcfg_dlpack_layout(const DLTensor *tensor, int64_t *shape,
                                             int64_t *strides, bool *empty) {
    int64_t size = tensor->type.bits / 8, step = size;
    if (tensor->dimensions > 0 && tensor->shape == NULL) return "it has dimensions and no shape";
    *empty = false;
    for (int d = 0; d < tensor->dimensions; d++) {
        shape[d] = tensor->shape[d];
        if (shape[d] < 0) return "its shape is negative";
        *empty = *empty || shape[d] == 0;
    }
    for (int d = tensor->dimensions - 1; d >= 0; d--) {
        strides[d] = step;
        if (!*empty && __builtin_mul_overflow(step, shape[d], &step))
            return "its size does not fit 64 bits";
        if (tensor->strides != NULL &&
            __builtin_mul_overflow(tensor->strides[d], size, &strides[d]))
            return "its strides do not fit 64 bits";
    }
    return NULL;
}

/* Whether bytes from `low` to `high` around an address, both of a view that is not empty, can be
 * memory at all. No process has 2 ** 56 bytes; an address may have a tag above them. */
static inline bool bcfg_can_be_memory(const void *data, uint64_t offset, const int64_t *shape,
                                      const int64_t *strides, int dimensions, int64_t size) {
    const int64_t most = INT64_C(1) << 56;
    int64_t low = 0, high = size, reach;
    uintptr_t at, end;
    if (offset >= (uint64_t)most) return false;
    if (__builtin_add_overflow((uintptr_t)data, offset, &at)) return false;
    for (int d = 0; d < dimensions; d++) {
        if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach)) return false;
        if (reach > most || reach < -most) return false;
        *(reach < 0 ? &low : &high) += reach;
        if (high - low > most) return false;
    }
    return at >= (uintptr_t)-low && !__builtin_add_overflow(at, (uintptr_t)high, &end);
}

/* What a type of arrays offers under `__dlpack_c_exchange_api__`, in a capsule of this name. The
 * functions return 0, or -1 with an exception set; none waits for a device. */
#define DLPACK_EXCHANGE_API "dlpack_exchange_api"

typedef struct DLExchangeHeader {
    uint32_t major, minor;
    struct DLExchangeHeader *previous; /* of an older major version, or NULL */
} DLExchangeHeader;

typedef struct {
    DLExchangeHeader header;
    /* A new array of the prototype's type, shape and device. */
    int (*allocate)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message));
    int (*managed_from_object)(void *object, DLManagedTensorVersioned **out);
    int (*object_from_managed)(DLManagedTensorVersioned *tensor, void **object); /* steals it */
    /* Borrowed: good until control returns to the owner. NULL where there is none. */
    int (*tensor_from_object)(void *object, DLTensor *out);
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
} DLExchange;

#endif
