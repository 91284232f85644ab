/* The backward pass of attention against its definition in float64: for every instruction set that
 * runs here, any number of threads, masks, groups of heads, dropout, layouts. */
#include "../src/core/team.h"
#include "../src/kernels/attention_backward.h"
#include "../src/kernels/philox.h"
#include "attention_check.h"

const char *fakes;

/* Between -1 and 1. */
static double number(void) { return (double)any_number() / 9.3e18; }

enum { GRAD_OUT, QUERY, KEY, VALUE, OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE, ARRAYS };

/* One problem in float64, and what is expected of it. */
typedef struct {
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    bool is_causal;
    mask_kind mask;
    double scale, dropout;
    uint64_t seed;
    double *numbers[ARRAYS], *logsumexp, *bias; /* dense; the bias is (batch, 1, queries, keys) */
} problem;

static int64_t shape(const problem *p, int which, int dimension) {
    bool of_keys = which == KEY || which == VALUE || which == GRAD_KEY || which == GRAD_VALUE;
    bool is_wide = which == GRAD_OUT || which == VALUE || which == OUT || which == GRAD_VALUE;
    return dimension == 0   ? p->batch
           : dimension == 1 ? (of_keys ? p->key_heads : p->heads)
           : dimension == 2 ? (of_keys ? p->keys : p->queries)
                            : (is_wide ? p->value_width : p->width);
}

static double *at(const problem *p, int which, int64_t b, int64_t h, int64_t i) {
    return p->numbers[which] +
           ((b * shape(p, which, 1) + h) * shape(p, which, 2) + i) * shape(p, which, 3);
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += a[d] * b[d];
    return sum;
}

/* One query: output, logsumexp, and its shares of the gradients. */
static void solve_row(problem *p, int64_t b, int64_t h, int64_t i) {
    int64_t kh = h / (p->heads / p->key_heads), row = (b * p->heads + h) * p->queries + i;
    double *score = malloc(sizeof(double) * (size_t)(p->keys + 1)), highest = -INFINITY, sum = 0;
    float *drop = malloc(sizeof(float) * (size_t)(p->keys + 64));
    double kept = bcfg_dropout_factor(p->dropout);
    bcfg_dropout_row(p->seed, p->dropout, (uint64_t)(b * p->heads + h), i, 0, p->keys, drop);
    for (int64_t j = 0; j < p->keys; j++) {
        score[j] = dot(at(p, QUERY, b, h, i), at(p, KEY, b, kh, j), p->width) * p->scale;
        if (p->mask != NO_MASK) score[j] += p->bias[(b * p->queries + i) * p->keys + j];
        if (p->is_causal && j > i) score[j] = -INFINITY;
        if (score[j] > highest) highest = score[j];
    }
    for (int64_t j = 0; j < p->keys; j++)
        sum += score[j] == -INFINITY ? 0 : exp(score[j] - highest);
    p->logsumexp[row] = sum > 0 ? highest + log(sum) : -INFINITY;
    for (int64_t j = 0; j < p->keys; j++) {
        score[j] = score[j] == -INFINITY ? 0 : exp(score[j] - p->logsumexp[row]);
        for (int64_t d = 0; d < p->value_width; d++)
            at(p, OUT, b, h, i)[d] += score[j] * drop[j] * kept * at(p, VALUE, b, kh, j)[d];
    }
    const double *g = at(p, GRAD_OUT, b, h, i);
    double delta = dot(g, at(p, OUT, b, h, i), p->value_width);
    for (int64_t j = 0; j < p->keys; j++) {
        double slope = dot(g, at(p, VALUE, b, kh, j), p->value_width) * drop[j] * kept - delta;
        slope *= score[j] * p->scale;
        for (int64_t d = 0; d < p->width; d++) {
            at(p, GRAD_QUERY, b, h, i)[d] += slope * at(p, KEY, b, kh, j)[d];
            at(p, GRAD_KEY, b, kh, j)[d] += slope * at(p, QUERY, b, h, i)[d];
        }
        for (int64_t d = 0; d < p->value_width; d++)
            at(p, GRAD_VALUE, b, kh, j)[d] += score[j] * drop[j] * kept * g[d];
    }
    free(score);
    free(drop);
}

static int64_t count(const problem *p, int which) {
    int64_t all = 1;
    for (int d = 0; d < 4; d++) all *= shape(p, which, d);
    return all;
}

static void pose(problem *p) {
    for (int a = 0; a < ARRAYS; a++) {
        p->numbers[a] = calloc((size_t)count(p, a) + 1, sizeof(double));
        for (int64_t i = 0; a <= VALUE && i < count(p, a); i++)
            p->numbers[a][i] = (float)number();
    }
    p->logsumexp = calloc((size_t)(p->batch * p->heads * p->queries) + 1, sizeof(double));
    p->bias = calloc((size_t)(p->batch * p->queries * p->keys) + 1, sizeof(double));
    for (int64_t i = 0; i < p->batch * p->queries * p->keys; i++) {
        bool blind = p->keys > 0 && i / p->keys % 7 == 3; /* such a query sees nothing */
        p->bias[i] = p->mask == ADDED ? (float)number() : 0;
        if (blind || (p->mask == BOOLS && number() < 0)) p->bias[i] = -INFINITY;
    }
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->queries; i++) solve_row(p, b, h, i);
}

static void forget(problem *p) {
    for (int a = 0; a < ARRAYS; a++) free(p->numbers[a]);
    free(p->logsumexp);
    free(p->bias);
}

/* --- running it ----------------------------------------------------------------------------- */

/* A copy, to be freed; a gradient is NaN until it is computed. */
static attention_array lay(const problem *p, int which, int32_t element, bool strided) {
    int64_t s[4];
    for (int d = 0; d < 4; d++) s[d] = shape(p, which, d);
    char *memory = calloc((size_t)(count(p, which) * (strided ? 2 : 1) * size_of(element) + 8), 1);
    return lay_out(memory, s, element, strided, which >= GRAD_QUERY ? NULL : p->numbers[which]);
}

/* The gradients as float64, one after the other. */
static double *run(const problem *p, int32_t element, bool strided, int32_t threads) {
    int32_t real = element == BCFG_FLOAT64 ? BCFG_FLOAT64 : BCFG_FLOAT32;
    int64_t size = size_of(real); /* of logsumexp and of an added mask */
    attention_array arrays[ARRAYS];
    for (int a = 0; a < ARRAYS; a++) arrays[a] = lay(p, a, element, strided);
    int64_t rows = p->batch * p->heads * p->queries, scores = p->batch * p->queries * p->keys;
    char *logsumexp = malloc((size_t)(rows * size + 8)), *mask = malloc((size_t)(scores * size + 8));
    for (int64_t i = 0; i < rows; i++) store(real, logsumexp + i * size, p->logsumexp[i]);
    backward_job job = {
        .in = {.element = element, .mask_element = p->mask == BOOLS ? ATTENTION_BOOL : real,
               .batch = p->batch, .heads = p->heads, .key_heads = p->key_heads,
               .queries = p->queries, .keys = p->keys, .width = p->width,
               .value_width = p->value_width, .is_causal = p->is_causal, .scale = p->scale,
               .dropout = p->dropout, .seed = p->seed, .query = arrays[QUERY], .key = arrays[KEY],
               .value = arrays[VALUE],
               .mask = lay_mask(mask, p->mask, real, scores, p->queries, p->keys, p->bias)},
        .grad_out = arrays[GRAD_OUT], .out = arrays[OUT], .grad_query = arrays[GRAD_QUERY],
        .grad_key = arrays[GRAD_KEY], .grad_value = arrays[GRAD_VALUE],
        .logsumexp = {logsumexp, {p->heads * p->queries * size, p->queries * size, size, 0}}};
    bcfg_error error = NEW_ERROR;
    CHECK(bcfg_attention_backward(&job, threads, &error) == BCFG_OK);
    int64_t total = 1;
    for (int a = GRAD_QUERY; a < ARRAYS; a++) total += count(p, a);
    double *found = malloc((size_t)total * sizeof(double)), *to = found;
    for (int a = GRAD_QUERY; a < ARRAYS; a++)
        for (int64_t b = 0; b < shape(p, a, 0); b++)
            for (int64_t h = 0; h < shape(p, a, 1); h++)
                for (int64_t l = 0; l < shape(p, a, 2); l++)
                    for (int64_t d = 0; d < shape(p, a, 3); d++)
                        *to++ = load(element, place(&arrays[a], b, h, l, d));
    for (int a = 0; a < ARRAYS; a++) free(arrays[a].data);
    free(logsumexp);
    free(mask);
    return found;
}

static void compare(const problem *p, const double *found, double bound) {
    for (int a = GRAD_QUERY; a < ARRAYS; found += count(p, a), a++) {
        double most = 1;
        for (int64_t i = 0; i < count(p, a); i++) most = fmax(most, fabs(p->numbers[a][i]));
        for (int64_t i = 0; i < count(p, a); i++)
            CHECK(fabs(found[i] - p->numbers[a][i]) <= bound * most);
    }
}

static void check(problem p) {
    pose(&p);
    size_t bytes = 0;
    for (int a = GRAD_QUERY; a < ARRAYS; a++) bytes += (size_t)count(&p, a) * sizeof(double);
    static const double bounds[] = {[BCFG_FLOAT32] = 4e-6,
                                    [BCFG_FLOAT64] = 1e-13,
                                    [BCFG_BFLOAT16] = 3e-2};
    for (int element = BCFG_FLOAT32; element <= BCFG_BFLOAT16; element++) {
        if (element == BCFG_COMPLEX64 || element == BCFG_COMPLEX128) continue;
        CHECK(bcfg_force_isa(0) == BCFG_OK);
        double *expected = run(&p, element, false, 1);
        compare(&p, expected, bounds[element]);
        for (int32_t isa = 0; bcfg_isa_name(isa) != NULL; isa++) {
            if (!bcfg_isa_available(isa)) continue;
            CHECK(bcfg_force_isa(isa) == BCFG_OK);
            if (element == BCFG_BFLOAT16) { /* its pairs are multiplied where there are such */
                free(expected);
                expected = run(&p, element, false, 1);
                compare(&p, expected, bounds[element]);
            }
            uint64_t before = bcfg_isa_served(isa);
            for (int way = 0; way < 3; way++) {
                double *found = run(&p, element, way == 2, way == 0 ? 1 : 3);
                CHECK(memcmp(found, expected, bytes) == 0);
                free(found);
            }
            CHECK(bcfg_isa_served(isa) >= before + 3);
        }
        free(expected);
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
    forget(&p);
}

int main(int arguments, char **values) {
    CHECK(arguments == 2);
    fakes = values[1];
    for (int mask = NO_MASK; mask < MASKS; mask++) {
        for (int is_causal = 0; is_causal < 2; is_causal++)
            check((problem){2, 2, 1, 131, 150, 20, 36, is_causal, (mask_kind)mask, 0.3, 0, 0,
                            {0}, 0, 0});
        check((problem){1, 4, 2, 40, 300, 33, 7, false, (mask_kind)mask, 0.2, 0.25, 1u << 31,
                        {0}, 0, 0});
    }
    check((problem){1, 1, 1, 300, 200, 64, 64, true, NO_MASK, 0.125, 0, 0, {0}, 0, 0});
    check((problem){1, 3, 1, 5, 107, 12, 26, true, NO_MASK, 0.5, 0, 0, {0}, 0, 0});
    check((problem){1, 2, 2, 1, 700, 16, 16, false, NO_MASK, 0.25, 0, 0, {0}, 0, 0});
    check((problem){1, 2, 1, 9, 11, 4, 4, false, NO_MASK, 0.5, 1, 3, {0}, 0, 0});
    check((problem){1, 2, 1, 3, 0, 4, 4, false, NO_MASK, 0.5, 0, 0, {0}, 0, 0});
    check((problem){1, 2, 1, 0, 3, 4, 4, true, NO_MASK, 0.5, 0, 0, {0}, 0, 0});
    check((problem){0, 2, 2, 3, 3, 4, 4, false, NO_MASK, 0.5, 0, 0, {0}, 0, 0});
    check((problem){1, 1, 1, 3, 5, 0, 4, false, NO_MASK, 0.5, 0, 0, {0}, 0, 0});
    check((problem){1, 1, 1, 3, 5, 4, 0, false, NO_MASK, 0.5, 0, 0, {0}, 0, 0});
    return 0;
}
