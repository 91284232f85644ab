/* Plans a row-major product as column-major calls that copy no operand. */
#include "gpu/products/gemm.h"

typedef struct {
    int64_t size, a, b, c;
} dimension;

static int64_t at_least(int64_t value, int64_t least) { return value < least ? least : value; }

/* Whether every matrix of a stack is aligned to its element, which GPUs need. */
static bool aligned(int64_t size, const bcfg_product *product, const bcfg_operand *operand) {
    uint64_t bits = (uint64_t)(uintptr_t)operand->data;
    for (int32_t d = 0; d < product->batch_dimensions; d++)
        if (product->batch_shape[d] > 1) bits |= (uint64_t)operand->batch_strides[d];
    return bits % (uint64_t)size == 0;
}

static bool view(int64_t size, const bcfg_product *product, const bcfg_operand *operand,
                 int64_t rows, int64_t columns, bcfg_view *seen) {
    bcfg_operand packed = *operand;
    if (rows == 0 || columns == 0) { /* nothing is read: its strides may be anything */
        packed.row_stride = size * at_least(columns, 1);
        packed.column_stride = size;
        operand = &packed;
    }
    return aligned(size, product, operand) &&
           bcfg_view_of(size, operand, operand->data, rows, columns, INT64_MAX, seen);
}

/* Whether two neighbouring dimensions can be one in all three arrays. */
static bool follows(const dimension *before, const dimension *here) {
    return before->a == here->a * here->size && before->b == here->b * here->size &&
           before->c == here->c * here->size;
}

/* The batch's dimensions without those of size 1, neighbours merged where all three arrays allow
 * it. */
static int32_t merge(const bcfg_product *product, dimension *merged) {
    int32_t count = 0;
    for (int32_t d = 0; d < product->batch_dimensions; d++) {
        if (product->batch_shape[d] == 1) continue;
        dimension here = {product->batch_shape[d], product->a.batch_strides[d],
                          product->b.batch_strides[d], product->c.batch_strides[d]};
        if (count > 0 && follows(&merged[count - 1], &here)) {
            here.size *= merged[count - 1].size;
            merged[count - 1] = here;
        } else {
            merged[count++] = here;
        }
    }
    return count;
}

typedef struct {
    bcfg_view a, b, c;
} views;

/* The operand whose strides BLAS cannot read or write; 0 when it can all. */
static char see(const bcfg_product *p, const bcfg_product *given, views *seen) {
    const int64_t size = bcfg_element_size[p->element];
    if (!view(size, given, &p->a, p->m, p->k, &seen->a)) return 'a';
    if (!view(size, given, &p->b, p->k, p->n, &seen->b)) return 'b';
    return view(size, given, &p->c, p->m, p->n, &seen->c) ? 0 : 'c';
}

/* A stack of matrices times one matrix is one product, where the rows of the stack follow each
 * other. */
static bool fold(const bcfg_product *product, const dimension *last, bcfg_product *folded) {
    if (last->b != 0) return false;
    *folded = *product;
    if (product->m == 1) {
        folded->a.row_stride = last->a;
        folded->c.row_stride = last->c;
    } else if (product->a.row_stride * product->m != last->a ||
               product->c.row_stride * product->m != last->c) {
        return false;
    }
    folded->m *= last->size;
    return true;
}

char bcfg_gemm_plan_of(const bcfg_product *product, bcfg_gemm_plan *plan) {
    bcfg_product p = *product;
    const int64_t size = bcfg_element_size[p.element];
    dimension batch[BCFG_DEVICE_DIMENSIONS], last = {1, 0, 0, 0};
    int32_t count = merge(product, batch);
    if (count > 0) last = batch[--count];
    views seen;
    if (last.size > 1 && fold(product, &last, &p) && see(&p, product, &seen) == 0) {
        last = (dimension){1, 0, 0, 0};
    } else {
        p = *product;
        char unreadable = see(&p, product, &seen);
        if (unreadable != 0) return unreadable;
    }
    const bcfg_view a = seen.a, b = seen.b, c = seen.c;
    plan->dimensions = count;
    bcfg_gemm_call *call = &plan->call;
    *call = (bcfg_gemm_call){.m = p.m, .n = p.n, .k = p.k, .batch = last.size};
    call->c = (void *)c.data;
    call->c_stride = last.c / size;
    /* A row-major matrix read by columns is its transpose, and (a b)' = b' a'. */
    bool by_rows = plan->by_rows = c.transpose == NO_TRANSPOSE;
    const bcfg_view *left = by_rows ? &b : &a, *right = by_rows ? &a : &b;
    for (int32_t d = 0; d < count; d++) {
        plan->index[d] = 0;
        plan->shape[d] = batch[d].size;
        plan->a[d] = by_rows ? batch[d].b : batch[d].a;
        plan->b[d] = by_rows ? batch[d].a : batch[d].b;
        plan->c[d] = batch[d].c;
    }
    if (by_rows) {
        call->m = p.n;
        call->n = p.m;
    }
    int untransposed = by_rows ? NO_TRANSPOSE : TRANSPOSE;
    call->transpose_a = left->transpose != untransposed;
    call->transpose_b = right->transpose != untransposed;
    call->a = left->data;
    call->b = right->data;
    call->a_stride = (by_rows ? last.b : last.a) / size;
    call->b_stride = (by_rows ? last.a : last.b) / size;
    /* With k = 0 a leading dimension may be too small for the rows that are not read. */
    call->a_leading = at_least(left->leading, call->transpose_a ? call->k : call->m);
    call->b_leading = at_least(right->leading, call->transpose_b ? call->n : call->k);
    call->a_leading = at_least(call->a_leading, 1);
    call->b_leading = at_least(call->b_leading, 1);
    call->c_leading = c.leading;
    return 0;
}
