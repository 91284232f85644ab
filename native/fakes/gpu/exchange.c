/* A library of arrays whose table of C functions says that they are on a device: every function is
 * another table's, but for the device. So PyTorch's own table, and what it does to its tensors, can
 * be tested and timed where there is no GPU.
 *
 * fake_exchange(original) makes the table; its capsule is the caller's business. fake_stream is
 * what is current. */
#include <stddef.h>

#include "../../src/python/dlpack.h"

#define API __attribute__((visibility("default")))
enum { HOST = 1, CUDA = 2, ALIGNMENT = 256 };

API void *fake_stream;
static const DLExchange *original;

static int allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                    void (*set_error)(void *, const char *, const char *)) {
    DLTensor on_host = *prototype;
    on_host.device = (DLDevice){HOST, 0};
    /* Bytes are for a workspace, which the allocator of a device aligns more than the host's. */
    int64_t bytes = prototype->dimensions == 1 ? prototype->shape[0] + ALIGNMENT : 0;
    int is_workspace = prototype->dimensions == 1 && prototype->type.bits == 8;
    if (is_workspace) on_host.shape = &bytes;
    int status = original->allocate(&on_host, out, context, set_error);
    if (status != 0) return status;
    DLTensor *made = &(*out)->tensor;
    made->device = prototype->device;
    if (is_workspace) made->data = (char *)made->data + -(uintptr_t)made->data % ALIGNMENT;
    return 0;
}

static int managed_from_object(void *object, DLManagedTensorVersioned **out) {
    int status = original->managed_from_object(object, out);
    if (status == 0) (*out)->tensor.device = (DLDevice){CUDA, 0};
    return status;
}

static int object_from_managed(DLManagedTensorVersioned *tensor, void **object) {
    tensor->tensor.device = (DLDevice){HOST, 0};
    return original->object_from_managed(tensor, object);
}

static int tensor_from_object(void *object, DLTensor *out) {
    int status = original->tensor_from_object(object, out);
    if (status == 0) out->device = (DLDevice){CUDA, 0};
    return status;
}

static int current_stream(int32_t kind, int32_t index, void **stream) {
    (void)kind, (void)index;
    *stream = fake_stream;
    return 0;
}

API const void *fake_exchange(const void *table) {
    static DLExchange made;
    original = table;
    made = (DLExchange){{1, 3, NULL},        allocate,           managed_from_object,
                        object_from_managed, tensor_from_object, current_stream};
    return &made;
}
