/* PyTorch's products of float32 on the CPU by our kernels: kernels of its operators `mm` and `bmm`, which it
 * calls without Python in between. What ours do not take is given to PyTorch's own functions, errors
 * included. */
#include "arrays.h"
#include "core/core.h"
#include "torch_interface.h"

/* Our kernels compute from so many multiplications on: LARGE are those of two matrices of 8 x 8. LARGE_LINE is for
 * one row or column, by a matrix of 8 MiB: MKL multiplies a smaller one faster, out of the cache. Measured where MKL
 * leaves AVX-512 unused. */
enum { LARGE = 1 << 9, LARGE_LINE = 1 << 21 };

typedef int32_t torch_product(torch_tensor out, torch_tensor a, torch_tensor b);

static bcfg_torch_route route; /* defined below, with its kernels */

static const int64_t one = 1, none = 0;

/* A matrix, or a batch of them, as an operand. */
static bcfg_operand operand(const torch_array *it, int64_t *batch_stride) {
    const int64_t size = sizeof(float), *last = it->strides + it->dimensions - 2;
    *batch_stride = it->dimensions == 3 ? it->strides[0] * size : 0;
    return (bcfg_operand){it->data, last[0] * size, last[1] * size, batch_stride};
}

/* The first byte of an array, and the one behind its last. */
static void ends(const torch_array *it, const char **first, const char **behind) {
    *first = it->data, *behind = it->data + sizeof(float);
    for (int64_t d = 0; d < it->dimensions; d++)
        *behind += (it->sizes[d] - 1) * it->strides[d] * (int64_t)sizeof(float);
}

static bool may_overlap(const torch_array *one, const torch_array *other) {
    const char *first, *behind, *other_first, *other_behind;
    ends(one, &first, &behind);
    ends(other, &other_first, &other_behind);
    return first < other_behind && other_first < behind;
}

/* Whether our kernel may write there: it has the shape of the product, each element has a place of its own,
 * and no operand uses the memory. */
static bool takes_result(const torch_array *out, const int64_t *shape, const torch_array *a,
                         const torch_array *b) {
    const int64_t dimensions = a->dimensions;
    if (out->type != a->type || out->dimensions != dimensions) return false;
    for (int64_t d = 0; d < dimensions; d++)
        if (out->sizes[d] != shape[d]) return false;
    /* Dense along rows or columns, as nearly every result is. */
    const int64_t *sizes = out->sizes + dimensions - 2, *strides = out->strides + dimensions - 2;
    const bool by_rows = strides[1] == 1 && strides[0] >= sizes[1];
    const bool by_columns = strides[0] == 1 && strides[1] >= sizes[0];
    const int64_t extent = by_rows ? strides[0] * sizes[0] : strides[1] * sizes[1];
    return (by_rows || by_columns) && (dimensions == 2 || out->strides[0] >= extent) &&
           !may_overlap(out, a) && !may_overlap(out, b);
}

/* What ours compute of two tensors, but for the result; and its shape. False for what is PyTorch's. */
static bool take(const torch_array *a, const torch_array *b, int64_t dimensions, int64_t strides[2],
                 int64_t shape[3], bcfg_product *product) {
    const int32_t type = bcfg_torch.type_float32();
    if (a->type != type || b->type != type || a->dimensions != dimensions ||
        b->dimensions != dimensions)
        return false;
    const int64_t *left = a->sizes + dimensions - 2, *right = b->sizes + dimensions - 2;
    if (left[1] != right[0] || (dimensions == 3 && a->sizes[0] != b->sizes[0])) return false;
    *product = (bcfg_product){.element = BCFG_FLOAT32, .batch_dimensions = 1,
                              .batch_shape = dimensions == 3 ? &a->sizes[0] : &one,
                              .m = left[0], .k = left[1], .n = right[1],
                              .a = operand(a, &strides[0]), .b = operand(b, &strides[1])};
    shape[0] = a->sizes[0], shape[dimensions - 2] = left[0], shape[dimensions - 1] = right[1];
    const double each = (double)product->m * (double)product->n * (double)product->k;
    if (product->m == 1 || product->n == 1) return each >= LARGE_LINE;
    return product->k > 1 && each * (double)product->batch_shape[0] >= LARGE;
}

/* A product, of two tensors that this owns, into `out` or, where that is NULL, a new one. */
static torch_tensor multiply(torch_tensor a, torch_tensor b, torch_tensor out, int64_t dimensions,
                             torch_product *theirs) {
    static const int64_t steps[] = {2, 1, 0};
    torch_array left, right, into;
    torch_tensor result = out;
    bcfg_product product;
    int64_t strides[3], shape[3], dense[3];
    bool done = false;
    if (atomic_load_explicit(&route.is_on, memory_order_relaxed) && bcfg_torch_describe(a, &left) &&
        bcfg_torch_describe(b, &right) && take(&left, &right, dimensions, strides, shape, &product)) {
        if (out == NULL)
            result = bcfg_torch_new((int)dimensions, shape, steps + 3 - dimensions, BCFG_FLOAT32, dense);
        if (result != NULL && bcfg_torch_describe(result, &into) &&
            takes_result(&into, shape, &left, &right)) {
            void *writable;
            product.c = operand(&into, &strides[2]);
            done = !bcfg_torch.get_data(result, &writable);
            product.c.data = writable;
            done = done && bcfg_native_product(bcfg_current(), &product, NULL, NULL) == BCFG_OK;
        }
    }
    int32_t failed = 0, type = 0;
    if (!done && result == NULL)
        failed = bcfg_torch.get_type(a, &type) ||
                 bcfg_torch.empty(1, &none, &one, type, bcfg_torch.cpu(), -1, &result);
    if (!done && !failed) failed = theirs(result, a, b);
    (void)bcfg_torch.delete_tensor(a);
    (void)bcfg_torch.delete_tensor(b);
    if (!failed) return result;
    if (result != NULL) (void)bcfg_torch.delete_tensor(result);
    bcfg_torch_raise_theirs();
}

#define OPERATOR(name, dimensions, out, theirs)                                                    \
    static void name(uint64_t *stack, uint64_t arguments, uint64_t results) {                      \
        (void)arguments, (void)results;                                                            \
        torch_tensor a = (torch_tensor)(uintptr_t)stack[0], b = (torch_tensor)(uintptr_t)stack[1]; \
        stack[0] = (uint64_t)(uintptr_t)multiply(a, b, out, dimensions, theirs);                   \
    }
#define RESULT (torch_tensor)(uintptr_t)stack[2]
OPERATOR(mm, 2, NULL, bcfg_torch.mm)
OPERATOR(mm_out, 2, RESULT, bcfg_torch.mm)
OPERATOR(bmm, 3, NULL, bcfg_torch.bmm)
OPERATOR(bmm_out, 3, RESULT, bcfg_torch.bmm)
#undef OPERATOR
#undef RESULT

static const bcfg_torch_kernel kernels[] = {
    {"mm", mm}, {"mm.out", mm_out}, {"bmm", bmm}, {"bmm.out", bmm_out}, {NULL, NULL}};

static bcfg_torch_route route = {.kernels = kernels};

PyObject *bcfg_serve_torch_products(PyObject *module, PyObject *file) {
    (void)module;
    return bcfg_torch_serve(&route, file);
}

PyObject *bcfg_restore_torch_products(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return bcfg_torch_restore(&route);
}
