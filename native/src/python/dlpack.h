/* The structs of DLPack 1.3 (github.com/dmlc/dlpack), which libraries share arrays by. */
#ifndef BACKENDCFG_DLPACK_H
#define BACKENDCFG_DLPACK_H

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
