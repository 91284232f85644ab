/* Attention on host memory, as the engines of cuDNN's fake compute it: a graph of products,
 * reductions and operations on each number is run as it was described, one operation after the other,
 * so that a graph that says something else gives other numbers.
 *
 * cuDNN knows attention by its operations, and so does the fake: a graph that is not made of those of
 * `attention` or `gradients`, or is of widths that are no multiples of 8, has no engine. That is what
 * cuDNN 9.28 was seen to do with graphs for devices that were only described to it. So were engines 1
 * and 2. Engine 3 is the fake's own: one that may give other bits from run to run.
 */
#ifndef ATTENTION_GRAPH_H
#define ATTENTION_GRAPH_H

enum { WHOLE = 1, IN_TURNS, AT_RANDOM };           /* the engines */
enum { MOST_TENSORS = 64, FOUR = 4 };

#define ATTENTION_RULES                                                                            \
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, 1, 1, ONE)                                  \
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, 1, 1, ONE)                                  \
    RULE(POINTWISE, POINTWISE_AXIS, INT64, 1, 1, 0, ONE)                                           \
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, 1, 1,      \
         N(BACKEND_POINTWISE_DESCRIPTOR))                                                          \
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, 1, 1,              \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, 1, 0,              \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1, 1, 0,              \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, 1, 1,              \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, 1, 1, ONE)                                        \
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1, 1, 1,                    \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1, 1, 1,                    \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1, 1, 1,                    \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1, 1, 1,                     \
         N(BACKEND_MATMUL_DESCRIPTOR))                                                             \
    RULE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, 1, 1, ONE)                     \
    RULE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, 1, 1, ONE)                                  \
    RULE(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1, 1, 1,              \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1, 1, 1,              \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1, 1, 1,               \
         N(BACKEND_REDUCTION_DESCRIPTOR))                                                          \
    RULE(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, 1, 1, 1,                  \
         N(BACKEND_TENSOR_DESCRIPTOR))                                                             \
    RULE(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, 1, 1, 1,                  \
         N(BACKEND_TENSOR_DESCRIPTOR))

/* A tensor while a graph runs: its memory, or that of a virtual one. */
typedef struct {
    tensor is;
    void *memory;
    int is_virtual, is_written;
} array;

typedef struct {
    array all[MOST_TENSORS];
    int count;
} arrays;

/* What an operation is, in one letter: of a mode, a product or a reduction. */
static char letter_of(const descriptor *operation) {
    const descriptor *how;
    switch (operation->type) {
    case N(BACKEND_OPERATION_MATMUL_DESCRIPTOR): return 'x';
    case N(BACKEND_OPERATION_RESHAPE_DESCRIPTOR): return 't';
    case N(BACKEND_OPERATION_REDUCTION_DESCRIPTOR):
        how = referred(operation, N(ATTR_OPERATION_REDUCTION_DESC));
        switch (value_of(how, N(ATTR_REDUCTION_OPERATOR), -1)) {
        case N(REDUCE_TENSOR_MAX): return 'M';
        case N(REDUCE_TENSOR_ADD): return 'S';
        default: return '?';
        }
    case N(BACKEND_OPERATION_POINTWISE_DESCRIPTOR):
        how = referred(operation, N(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
        switch (value_of(how, N(ATTR_POINTWISE_MODE), -1)) {
        case N(POINTWISE_MUL): return '*';
        case N(POINTWISE_ADD): return '+';
        case N(POINTWISE_SUB): return '-';
        case N(POINTWISE_DIV): return '/';
        case N(POINTWISE_EXP): return 'e';
        case N(POINTWISE_LOG): return 'l';
        case N(POINTWISE_IDENTITY): return '=';
        case N(POINTWISE_CMP_GE): return '>';
        case N(POINTWISE_GEN_INDEX): return 'i';
        case N(POINTWISE_BINARY_SELECT): return 's';
        default: return '?';
        }
    default: return '?';
    }
}

/* Whether operations are those of a pattern, in which what is in parentheses may be absent. */
static int matches(const char *found, const char *pattern) {
    for (; *pattern != '(' && *pattern != '\0'; pattern++)
        if (*pattern != ')' && *found++ != *pattern) return 0;
    if (*pattern == '\0') return *found == '\0';
    return matches(found, pattern + 1) || matches(found, strchr(pattern, ')'));
}

static const char attention[] = "x*(+)(ii>s)M-eSl+/x";
static const char gradients[] = "*S*x*(+)-(ii>s)etx(S)x-**tx(S)tx(=)";

static int is_of(const descriptor *graph, const char *pattern) {
    int64_t count;
    const int64_t *operations = values_of(graph, N(ATTR_OPERATIONGRAPH_OPS), &count);
    char found[MOST_TENSORS] = "";
    for (int64_t at = 0; at < count && at < MOST_TENSORS - 1; at++)
        found[at] = letter_of((const descriptor *)(intptr_t)operations[at]);
    return matches(found, pattern);
}

/* Whether heads are as wide as its engines take them: along what lies side by side in memory. */
static int are_widths_whole(const descriptor *graph) {
    static const int sides[] = {N(ATTR_OPERATION_MATMUL_ADESC), N(ATTR_OPERATION_MATMUL_BDESC)};
    int64_t count;
    const int64_t *operations = values_of(graph, N(ATTR_OPERATIONGRAPH_OPS), &count);
    for (int64_t at = 0; at < 2 * count; at++) {
        const descriptor *operation = (const descriptor *)(intptr_t)operations[at / 2];
        if (letter_of(operation) != 'x') continue;
        const descriptor *of = referred(operation, sides[at % 2]);
        tensor is = tensor_of(of);
        int64_t width = is.sizes[is.strides[3] == 1 ? 3 : 2];
        if (!value_of(of, N(ATTR_TENSOR_IS_VIRTUAL), 0) && width % 8) return 0;
    }
    return 1;
}

/* The queries: what its first product multiplies. */
static tensor queries_of(const descriptor *graph) {
    int64_t count, at = 0;
    const int64_t *operations = values_of(graph, N(ATTR_OPERATIONGRAPH_OPS), &count);
    while (letter_of((const descriptor *)(intptr_t)operations[at]) != 'x') at++;
    const descriptor *product = (const descriptor *)(intptr_t)operations[at];
    return tensor_of(referred(product, N(ATTR_OPERATION_MATMUL_ADESC)));
}

static engine about_attention(int number) {
    uint32_t compiled = 1u << N(BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    uint32_t cores = 1u << N(NUMERICAL_NOTE_TENSOR_CORE);
    uint32_t varies = number == AT_RANDOM ? 1u << N(NUMERICAL_NOTE_NONDETERMINISTIC) : 0;
    return (engine){cores | varies, compiled, number == WHOLE ? 0 : 256, 1};
}

static int name_attention(const descriptor *graph, int64_t mode, int *engines) {
    static const int usual[] = {AT_RANDOM, IN_TURNS, WHOLE};
    if (!is_of(graph, attention) && !is_of(graph, gradients)) return 0;
    if (mode == N(HEUR_MODE_FALLBACK) || !are_widths_whole(graph)) return 0;
    memcpy(engines, usual, sizeof usual);
    return 3;
}

static int take_attention(const descriptor *graph, int engine) {
    tensor query = queries_of(graph);
    NEED((setting_untrained >> engine & 1) == 0 || !is_of(graph, gradients), NOT_SUPPORTED)
    NEED(engine != IN_TURNS || query.sizes[2] > 1, NOT_SUPPORTED_SHAPE)
    NEED(query.type == N(DATA_HALF) || query.type == N(DATA_BFLOAT16), NOT_SUPPORTED_DATA_TYPE)
    return 0;
}

static int64_t offset_of(const array *of, const int64_t at[FOUR]) {
    int64_t offset = 0;
    for (int axis = 0; axis < FOUR; axis++) { /* what is broadcast has one number along an axis */
        int64_t place = of->is.sizes[axis] == 1 ? 0 : at[axis];
        offset += place * of->is.strides[axis];
    }
    return offset;
}

static float read_array(const array *of, const int64_t at[FOUR]) {
    return (float)read_number(of->memory, offset_of(of, at), type_of(of->is.type)).real;
}

static void write_array(array *of, const int64_t at[FOUR], float value) {
    write_number(of->memory, offset_of(of, at), type_of(of->is.type), (number){value, 0});
}

/* The array of a tensor that an operation refers to; NULL for none. */
static array *array_of(arrays *known, const descriptor *operation, int name, pointer_of *pointer,
                       const void *pack) {
    const descriptor *of = referred(operation, name);
    if (of == NULL) return NULL;
    tensor is = tensor_of(of);
    for (int at = 0; at < known->count; at++)
        if (known->all[at].is.number == is.number) return &known->all[at];
    if (known->count == MOST_TENSORS) return NULL;
    array *made = &known->all[known->count++];
    *made = (array){.is = is, .is_virtual = (int)value_of(of, N(ATTR_TENSOR_IS_VIRTUAL), 0)};
    int64_t reach = 1;
    for (int axis = 0; axis < is.rank; axis++) reach += (is.sizes[axis] - 1) * is.strides[axis];
    made->memory = made->is_virtual ? malloc(8 * (size_t)reach) : pointer(pack, is.number);
    made->is_written = !made->is_virtual;
    return made;
}

/* Calls a function for every place of an array. */
#define EACH(of, at)                                                                               \
    for (int64_t at[FOUR] = {0}; at[0] < (of)->is.sizes[0]; at[0]++)                               \
        for (at[1] = 0; at[1] < (of)->is.sizes[1]; at[1]++)                                        \
            for (at[2] = 0; at[2] < (of)->is.sizes[2]; at[2]++)                                    \
                for (at[3] = 0; at[3] < (of)->is.sizes[3]; at[3]++)

static int run_product(array *a, array *b, array *c) {
    NEED(a && b && c && a->memory && b->memory && c->memory, BAD_PARAM_NULL_POINTER)
    NEED(a->is_written && b->is_written, BAD_PARAM)
    NEED(a->is.sizes[3] == b->is.sizes[2] && c->is.sizes[3] == b->is.sizes[3], BAD_PARAM)
    NEED(b->is.sizes[1] > 0 && c->is.sizes[1] % b->is.sizes[1] == 0, BAD_PARAM)
    int64_t group = c->is.sizes[1] / b->is.sizes[1];
    EACH(c, at) {
        float sum = 0;
        for (int64_t k = 0; k < a->is.sizes[3]; k++) {
            const int64_t left[FOUR] = {at[0], at[1], at[2], k};
            const int64_t right[FOUR] = {at[0], at[1] / group, k, at[3]};
            sum += read_array(a, left) * read_array(b, right);
        }
        write_array(c, at, sum);
    }
    return 0;
}

/* Over so many numbers of each axis as follow each other: all of it, or the heads of a group. */
static int run_reduction(char how, const array *x, array *y) {
    NEED(x && y && x->memory && y->memory && x->is_written, BAD_PARAM)
    NEED(how == 'M' || how == 'S', BAD_PARAM)
    int64_t reach[FOUR];
    for (int axis = 0; axis < FOUR; axis++) {
        reach[axis] = x->is.sizes[axis] / y->is.sizes[axis];
        NEED(x->is.sizes[axis] == reach[axis] * y->is.sizes[axis], BAD_PARAM)
    }
    EACH(y, at) {
        float found = how == 'M' ? -INFINITY : 0;
        for (int64_t k = 0; k < reach[0] * reach[1] * reach[2] * reach[3]; k++) {
            int64_t each[FOUR], left = k;
            for (int axis = FOUR; axis-- > 0; left /= reach[axis])
                each[axis] = at[axis] * reach[axis] + left % reach[axis];
            float value = read_array(x, each);
            found = how == 'S' ? found + value : value > found || isnan(value) ? value : found;
        }
        write_array(y, at, found);
    }
    return 0;
}

/* Rows and columns change places: the same memory, were it not for the type of the numbers. */
static int run_reshape(const array *x, array *y) {
    NEED(x && y && x->memory && y->memory && x->is_written, BAD_PARAM)
    for (int axis = 0; axis < FOUR; axis++) {
        int other = axis < 2 ? axis : 5 - axis;
        NEED(x->is.sizes[axis] == y->is.sizes[other], BAD_PARAM)
        NEED(x->is.strides[axis] == y->is.strides[other], BAD_PARAM)
    }
    EACH(y, at) {
        const int64_t from[FOUR] = {at[0], at[1], at[3], at[2]};
        write_array(y, at, read_array(x, from));
    }
    return 0;
}

static int run_pointwise(char how, int64_t axis, array *x, array *b, array *t, array *y) {
    NEED(x && y && x->memory && y->memory && x->is_written, BAD_PARAM)
    NEED(strchr("eli=", how) || (b && b->memory && b->is_written), BAD_PARAM)
    NEED(how != 's' || (t && t->memory && t->is_written), BAD_PARAM)
    NEED(how != 'i' || (axis >= 0 && axis < FOUR), BAD_PARAM)
    EACH(y, at) {
        float first = read_array(x, at), second = b ? read_array(b, at) : 0, found = NAN;
        switch (how) {
        case '*': found = first * second; break;
        case '+': found = first + second; break;
        case '-': found = first - second; break;
        case '/': found = first / second; break;
        case 'e': found = expf(first); break;
        case 'l': found = logf(first); break;
        case '=': found = first; break;
        case '>': found = first >= second; break;
        case 'i': found = (float)at[axis]; break;
        case 's': found = read_array(t, at) != 0 ? first : second; break;
        default: break;
        }
        write_array(y, at, found);
    }
    return 0;
}

static int run_operation(arrays *known, const descriptor *operation, pointer_of *pointer,
                         const void *pack) {
    int status;
    array *out;
    char how = letter_of(operation);
#define ARRAY(name) array_of(known, operation, N(ATTR_OPERATION_##name), pointer, pack)
    if (how == 'x') {
        out = ARRAY(MATMUL_CDESC);
        status = run_product(ARRAY(MATMUL_ADESC), ARRAY(MATMUL_BDESC), out);
    } else if (how == 'M' || how == 'S') {
        out = ARRAY(REDUCTION_YDESC);
        status = run_reduction(how, ARRAY(REDUCTION_XDESC), out);
    } else if (how == 't') {
        out = ARRAY(RESHAPE_YDESC);
        status = run_reshape(ARRAY(RESHAPE_XDESC), out);
    } else {
        const descriptor *mode = referred(operation, N(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
        out = ARRAY(POINTWISE_YDESC);
        status = run_pointwise(how, value_of(mode, N(ATTR_POINTWISE_AXIS), -1),
                               ARRAY(POINTWISE_XDESC), ARRAY(POINTWISE_BDESC),
                               ARRAY(POINTWISE_TDESC), out);
    }
#undef ARRAY
    if (out) out->is_written = 1;
    return status;
}

static int run_attention(const descriptor *graph, int engine, pointer_of *pointer,
                         const void *pack) {
    int64_t count;
    int status = 0;
    const int64_t *operations = values_of(graph, N(ATTR_OPERATIONGRAPH_OPS), &count);
    arrays known = {.count = 0};
    (void)engine;
    for (int64_t at = 0; at < count && status == 0; at++)
        status = run_operation(&known, (const descriptor *)(intptr_t)operations[at], pointer, pack);
    for (int at = 0; at < known.count; at++)
        if (known.all[at].is_virtual) free(known.all[at].memory);
    return status;
}

#endif
