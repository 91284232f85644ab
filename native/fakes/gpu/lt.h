/* Products by descriptors, as cuBLASLt and hipBLASLt compute them: for their fakes. See recorded.h
 * and products.h.
 *
 * Descriptors check the sizes of what they are given. The heuristic proposes a divided algorithm,
 * where the setting split_k is above 1 and the preference's reduction schemes and workspace allow one,
 * and then an undivided one without a workspace. An algorithm only computes the problem that it was
 * found for, as a wrongly cached one would be refused or worse.
 *
 * The records of ...MatmulAlgoGetHeuristic and ...Matmul end with what the descriptors hold: of the
 * operation compute_type, scale_type, transa, transb (these as cuBLAS numbers them), epilogue, bias,
 * bias_type, pointer_mode, processors; of each layout, as a_type, a_order, a_rows, a_columns,
 * a_leading, a_batch, a_stride; then max_workspace and schemes of a preference, or split_k and scheme
 * of an algorithm.
 *
 * A fake defines before: LT(name) and NAME(name), a function and its name; N(name), a number of the
 * vendor's; SETTABLE, as described.h says; NEED(condition, code), to return a status of the vendor's;
 * ALGORITHM and HEURISTIC, the vendor's structs; WORKSPACE_ALIGNMENT; operation_of and compute_of,
 * cuBLAS's numbers of operations and compute types, -1 for none; OPERATION_N. After: pack and unpack.
 */
#ifndef LT_H
#define LT_H

/* Kinds of descriptors, and how many attributes one has. */
enum { OPERATION = 1, LAYOUT, PREFERENCE, ATTRIBUTES = 48 };
/* How divided sums are added up. */
enum { IN_PLACE = 1, IN_COMPUTE_TYPE = 2, IN_OUTPUT_TYPE = 4 };

#include "described.h"

/* What an algorithm holds. */
typedef struct {
    uint64_t id, split, scheme, needed, problem;
} remembered;

/* Into the vendor's struct, and out of it. */
static void pack(ALGORITHM *algorithm, const remembered *from);
static void unpack(const ALGORITHM *algorithm, remembered *into);

/* One byte of each handle is its address. */
static char handle_places[256], handle_live[256];

static int is_handle(const void *handle) {
    const char *place = handle;
    return place >= handle_places && place < handle_places + sizeof handle_places &&
           handle_live[place - handle_places];
}

int LT(Create)(void **handle) {
    ENTER(NAME(Create), P(handle))
    for (size_t at = 0; at < sizeof handle_live; at++)
        if (!handle_live[at]) {
            handle_live[at] = 1;
            *handle = &handle_places[at];
            return 0;
        }
    NEED(0, ALLOC_FAILED)
    return 0;
}

int LT(Destroy)(void *handle) {
    ENTER(NAME(Destroy), P(handle))
    NEED(is_handle(handle), NOT_INITIALIZED)
    handle_live[(char *)handle - handle_places] = 0;
    return 0;
}

/* A setter and a destructor of one kind, and perhaps a getter. */
#define SETTER(prefix, kind, word)                                                                 \
    int LT(prefix##Destroy)(void *word) {                                                          \
        ENTER(NAME(prefix##Destroy), P(word))                                                      \
        return destroy(word, kind);                                                                \
    }                                                                                              \
    int LT(prefix##SetAttribute)(void *word, int attribute, const void *value, size_t bytes) {     \
        ENTER(NAME(prefix##SetAttribute), P(word), I(attribute), V(value), I(bytes))               \
        return set(word, kind, attribute, value, bytes);                                           \
    }
#define GETTER(prefix, kind, word)                                                                 \
    int LT(prefix##GetAttribute)(void *word, int attribute, void *value, size_t bytes,             \
                             size_t *written) {                                                    \
        ENTER(NAME(prefix##GetAttribute), P(word), I(attribute), P(value), I(bytes), P(written))   \
        return get(word, kind, attribute, value, bytes, written);                                  \
    }
SETTER(MatmulDesc, OPERATION, description)
GETTER(MatmulDesc, OPERATION, description)
SETTER(MatrixLayout, LAYOUT, layout)
GETTER(MatrixLayout, LAYOUT, layout)
SETTER(MatmulPreference, PREFERENCE, preference)

int LT(MatmulDescCreate)(void **description, int compute_type, int scale_type) {
    ENTER(NAME(MatmulDescCreate), P(description), I(compute_type), I(scale_type))
    described *made;
    status = create(description, OPERATION, &made);
    if (status != 0) return status;
    made->values[N(MATMUL_DESC_COMPUTE_TYPE)] = compute_type;
    made->values[N(MATMUL_DESC_SCALE_TYPE)] = scale_type;
    made->values[N(MATMUL_DESC_TRANSA)] = made->values[N(MATMUL_DESC_TRANSB)] = OPERATION_N;
    made->values[N(MATMUL_DESC_EPILOGUE)] = N(EPILOGUE_DEFAULT);
    made->values[N(MATMUL_DESC_BIAS_DATA_TYPE)] = -1;
    return 0;
}

int LT(MatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns,
                           int64_t leading) {
    ENTER(NAME(MatrixLayoutCreate), P(layout), I(type), I(rows), I(columns), I(leading))
    described *made;
    status = create(layout, LAYOUT, &made);
    if (status != 0) return status;
    made->values[N(MATRIX_LAYOUT_TYPE)] = type;
    made->values[N(MATRIX_LAYOUT_ROWS)] = (int64_t)rows;
    made->values[N(MATRIX_LAYOUT_COLS)] = (int64_t)columns;
    made->values[N(MATRIX_LAYOUT_LD)] = leading;
    made->values[N(MATRIX_LAYOUT_BATCH_COUNT)] = 1;
    return 0;
}

int LT(MatmulPreferenceCreate)(void **preference) {
    ENTER(NAME(MatmulPreferenceCreate), P(preference))
    described *made;
    status = create(preference, PREFERENCE, &made);
    if (status != 0) return status;
    made->values[N(MATMUL_PREF_REDUCTION_SCHEME_MASK)] = 7;
    return 0;
}

/* A layout as it is used. */
typedef struct {
    int type, order, batch, padding;               /* no byte is left to chance: see fingerprint */
    int64_t rows, columns, leading, stride;
} matrix;

static int matrix_of(const void *place, matrix *into) {
    const described *known = place;
    NEED(known && known->kind == LAYOUT, INVALID_VALUE)
    const int64_t *values = known->values;
    *into = (matrix){.type = (int)values[N(MATRIX_LAYOUT_TYPE)],
                     .order = (int)values[N(MATRIX_LAYOUT_ORDER)],
                     .batch = (int)values[N(MATRIX_LAYOUT_BATCH_COUNT)],
                     .rows = values[N(MATRIX_LAYOUT_ROWS)],
                     .columns = values[N(MATRIX_LAYOUT_COLS)],
                     .leading = values[N(MATRIX_LAYOUT_LD)],
                     .stride = values[N(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)]};
    int64_t least = into->order == N(ORDER_ROW) ? into->columns : into->rows;
    NEED(into->leading >= least && into->leading > 0, INVALID_VALUE)
    return 0;
}

/* Everything that the descriptors of a product say. */
typedef struct {
    int compute, scale, transa, transb, epilogue, bias_type, pointer_mode, processors;
    const void *bias;
    int64_t bias_stride;
    matrix a, b, c, d;
} problem;

static int problem_of(const void *description, const void *a, const void *b, const void *c,
                      const void *d, problem *into) {
    memset(into, 0, sizeof *into);
    const described *known = description;
    NEED(known && known->kind == OPERATION, INVALID_VALUE)
    const int64_t *values = known->values;
    into->compute = compute_of((int)values[N(MATMUL_DESC_COMPUTE_TYPE)]);
    into->scale = (int)values[N(MATMUL_DESC_SCALE_TYPE)];
    into->transa = operation_of((int)values[N(MATMUL_DESC_TRANSA)]);
    into->transb = operation_of((int)values[N(MATMUL_DESC_TRANSB)]);
    into->epilogue = (int)values[N(MATMUL_DESC_EPILOGUE)];
    into->bias_type = (int)values[N(MATMUL_DESC_BIAS_DATA_TYPE)];
    into->pointer_mode = (int)values[N(MATMUL_DESC_POINTER_MODE)];
    into->processors = (int)values[N(MATMUL_DESC_SM_COUNT_TARGET)];
    into->bias = (const void *)(intptr_t)values[N(MATMUL_DESC_BIAS_POINTER)];
    into->bias_stride = values[N(MATMUL_DESC_BIAS_BATCH_STRIDE)];
    const void *const places[] = {a, b, c, d};
    matrix *const matrices[] = {&into->a, &into->b, &into->c, &into->d};
    for (int at = 0; at < 4; at++) {
        int status = matrix_of(places[at], matrices[at]);
        if (status != 0) return status;
    }
    return 0;
}

static void sizes(const problem *it, int64_t *m, int64_t *n, int64_t *k) {
    *m = it->transa ? it->a.columns : it->a.rows;
    *k = it->transa ? it->a.rows : it->a.columns;
    *n = it->transb ? it->b.rows : it->b.columns;
}

static int check(const problem *it) {
    int64_t m, n, k;
    sizes(it, &m, &n, &k);
    NEED(it->transa >= 0 && it->transb >= 0, INVALID_VALUE)
    NEED((it->transb ? it->b.columns : it->b.rows) == k, INVALID_VALUE)
    NEED(it->c.rows == m && it->c.columns == n && it->d.rows == m && it->d.columns == n,
         INVALID_VALUE)
    NEED(it->a.batch == it->d.batch && it->b.batch == it->d.batch && it->c.batch == it->d.batch,
         INVALID_VALUE)
    NEED(it->c.type == it->d.type && is_supported(it->compute, it->a.type, it->b.type, it->d.type),
         NOT_SUPPORTED)
    NEED(it->scale == scale_of(it->compute, it->d.type), NOT_SUPPORTED)
    NEED(!is_complex(it->d.type) || it->epilogue == N(EPILOGUE_DEFAULT), NOT_SUPPORTED)
    NEED((it->epilogue & ~(1 | 2 | 4 | 32)) == 0, NOT_SUPPORTED)
    return 0;
}

/* What an algorithm remembers of the problem that it was found for; where its numbers lie is not
 * part of it. */
static uint64_t fingerprint(const problem *it) {
    problem plain = *it;
    plain.bias = plain.bias ? (const void *)1 : NULL;
    uint64_t hash = 14695981039346656037u;
    for (size_t at = 0; at < sizeof plain; at++)
        hash = (hash ^ ((const unsigned char *)&plain)[at]) * 1099511628211u;
    return hash;
}

/* The words of a problem behind a record. */
#define OF_MATRIX(x)                                                                               \
    I(it.x.type), I(it.x.order), I(it.x.rows), I(it.x.columns), I(it.x.leading), I(it.x.batch),    \
        I(it.x.stride)
#define WORDS_OF_MATRIX(x)                                                                         \
    ", I(" x "_type), I(" x "_order), I(" x "_rows), I(" x "_columns), I(" x "_leading), I(" x     \
    "_batch), I(" x "_stride)"
#define PROBLEM_VALUES                                                                             \
    I(it.compute), I(it.scale), I(it.transa), I(it.transb), I(it.epilogue), P(it.bias),            \
        I(it.bias_type), I(it.pointer_mode), I(it.processors), OF_MATRIX(a), OF_MATRIX(b),         \
        OF_MATRIX(c), OF_MATRIX(d)
#define PROBLEM_WORDS                                                                              \
    "I(compute_type), I(scale_type), I(transa), I(transb), I(epilogue), P(bias), I(bias_type), "   \
    "I(pointer_mode), I(processors)" WORDS_OF_MATRIX("a") WORDS_OF_MATRIX("b")                     \
        WORDS_OF_MATRIX("c") WORDS_OF_MATRIX("d")

static void propose(HEURISTIC *found, const problem *it, uint64_t id, int64_t split, int64_t scheme,
                    int64_t needed) {
    memset(found, 0, sizeof *found);
    pack(&found->algorithm, &(remembered){id, (uint64_t)split, (uint64_t)scheme, (uint64_t)needed,
                                          fingerprint(it)});
    found->workspace = (size_t)needed;
    found->waves = 1.0f;
}

int LT(MatmulAlgoGetHeuristic)(void *handle, void *description, void *a, void *b, void *c, void *d,
                               void *preference, int wanted, HEURISTIC *found, int *count) {
    problem it;
    int wrong = problem_of(description, a, b, c, d, &it);
    const described *asked = preference;
    int known = asked && asked->kind == PREFERENCE;
    int64_t most = known ? asked->values[N(MATMUL_PREF_MAX_WORKSPACE_BYTES)] : 0;
    int64_t schemes = known ? asked->values[N(MATMUL_PREF_REDUCTION_SCHEME_MASK)] : 0;
#define MORE PROBLEM_VALUES, I(most), I(schemes)
    int status = RECORD_WITH(MORE, PROBLEM_WORDS ", I(max_workspace), I(schemes)",
                             NAME(MatmulAlgoGetHeuristic), P(handle), P(description),
                             P(preference), I(wanted), P(found), P(count));
#undef MORE
    if (status != 0) return status;
    NEED(is_handle(handle), NOT_INITIALIZED)
    NEED(wrong == 0 && known && wanted > 0 && found && count, INVALID_VALUE)
    *count = 0;
    status = check(&it);
    if (status != 0 || setting_algorithms == 0) return status;
    int64_t scheme = schemes & IN_OUTPUT_TYPE;
    if (!scheme) scheme = schemes & IN_COMPUTE_TYPE;
    if (!scheme) scheme = schemes & IN_PLACE;
    if (setting_split_k > 1 && scheme && setting_workspace <= most)
        propose(&found[(*count)++], &it, 67, setting_split_k, scheme, setting_workspace);
    if (*count < wanted) propose(&found[(*count)++], &it, 66, 1, 0, 0);
    return 0;
}

static operand placed(const void *data, const matrix *it, int transposed, int conjugate) {
    int64_t row = it->order == N(ORDER_ROW) ? it->leading : 1;
    int64_t column = it->order == N(ORDER_ROW) ? 1 : it->leading;
    return (operand){data, it->type, transposed ? column : row, transposed ? row : column,
                     conjugate};
}

static const void *batched(const void *data, const matrix *it, int64_t at) {
    return (const char *)data + at * it->stride * (int64_t)size_of(it->type);
}

static void compute(const problem *it, const remembered *chosen, number alpha, const void *a,
                    const void *b, number beta, const void *c, void *d) {
    int64_t m, n, k;
    sizes(it, &m, &n, &k);
    int bias_type = it->bias_type < 0 ? it->d.type : it->bias_type;
    ending last = {NULL, bias_type, it->epilogue & 2 ? RELU : it->epilogue & 32 ? GELU : NOTHING};
    division divided = UNDIVIDED;
    if (chosen->split > 1)
        divided = (division){(int)chosen->split,
                             chosen->scheme == IN_OUTPUT_TYPE ? it->d.type : it->scale};
    for (int64_t at = 0; at < it->d.batch; at++) {
        if (it->epilogue & N(EPILOGUE_BIAS))
            last.bias = (const char *)it->bias + at * it->bias_stride * (int64_t)size_of(bias_type);
        multiply(m, n, k, alpha,
                 placed(batched(a, &it->a, at), &it->a, it->transa, it->transa == 2),
                 placed(batched(b, &it->b, at), &it->b, it->transb, it->transb == 2), beta,
                 placed(batched(c, &it->c, at), &it->c, 0, 0),
                 placed(batched(d, &it->d, at), &it->d, 0, 0), rounding_of(it->compute), divided,
                 last);
    }
}

/* Alpha and beta as they are read: one or two numbers. */
static argument scalar(const void *value, int scale) {
    if (value == NULL) return P(NULL);
    number read = read_number(value, 0, scale);
    return (argument){.kind = FLOATS, .parts = is_complex(scale) ? 2 : 1,
                      .floats = {read.real, read.imaginary}};
}
#define F(value) scalar(value, it.scale)

int LT(Matmul)(void *handle, void *description, const void *alpha, const void *a, void *a_layout,
               const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
               void *d, void *d_layout, const ALGORITHM *algorithm, void *workspace,
               size_t workspace_bytes, void *stream) {
    problem it;
    int wrong = problem_of(description, a_layout, b_layout, c_layout, d_layout, &it);
    remembered chosen = {0};
    if (algorithm) unpack(algorithm, &chosen);
#define MORE PROBLEM_VALUES, I(chosen.split), I(chosen.scheme)
    int status = RECORD_WITH(MORE, PROBLEM_WORDS ", I(split_k), I(scheme)", NAME(Matmul),
                             P(handle), P(description), F(alpha), P(a), P(a_layout), P(b),
                             P(b_layout), F(beta), P(c), P(c_layout), P(d), P(d_layout),
                             P(algorithm), P(workspace), I(workspace_bytes), P(stream));
#undef MORE
    if (status != 0) return status;
    NEED(is_handle(handle), NOT_INITIALIZED)
    NEED(wrong == 0 && alpha && beta && a && b && c && d, INVALID_VALUE)
    status = check(&it);
    if (status != 0) return status;
    NEED(!(it.epilogue & N(EPILOGUE_BIAS)) || it.bias, INVALID_VALUE)
    NEED((uintptr_t)workspace % WORKSPACE_ALIGNMENT == 0, INVALID_VALUE)
    if (algorithm) {
        NEED(chosen.problem == fingerprint(&it), INVALID_VALUE)
        NEED(chosen.needed == 0 || (workspace && workspace_bytes >= chosen.needed), INVALID_VALUE)
    }
    compute(&it, &chosen, read_number(alpha, 0, it.scale), a, b, read_number(beta, 0, it.scale),
            c, d);
    return 0;
}

#endif
