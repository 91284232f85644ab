/* The forward pass of attention against its definition in float64: for every instruction set that
 * runs here, every element, any number of threads, masks, groups of heads, dropout, layouts. Arrays
 * end where their memory ends, so that a sanitizer sees what is read behind them. */
#include "../src/core/team.h"
#include "../src/kernels/attention.h"
#include "../src/kernels/philox.h"
#include "attention_check.h"

const char *fakes;

/* Between -1 and 1, a multiple of 1/64: every element holds it exactly. */
static double number(void) {
    return (double)((uint64_t)any_number() % 129) / 64 - 1;
}

enum { QUERY, KEY, VALUE, ARRAYS };
typedef enum { DENSE, SPREAD, UNALIGNED, LAYOUTS } layout;

typedef struct {
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    bool is_causal;
    mask_kind mask;
    double scale, dropout;
    double *numbers[ARRAYS], *bias; /* dense; the bias is (batch, 1, queries, keys) */
    double *out, *logsumexp;
} problem;

static void shape(const problem *p, int which, int64_t s[4]) {
    int64_t of_query[] = {p->batch, p->heads, p->queries, p->width};
    int64_t of_key[] = {p->batch, p->key_heads, p->keys,
                        which == KEY ? p->width : p->value_width};
    memcpy(s, which == QUERY ? of_query : of_key, sizeof of_query);
}

static int64_t count(const problem *p, int which) {
    int64_t s[4];
    shape(p, which, s);
    return s[0] * s[1] * s[2] * s[3];
}

static void pose(problem *p) {
    for (int a = 0; a < ARRAYS; a++) {
        p->numbers[a] = calloc((size_t)count(p, a) + 1, sizeof(double));
        for (int64_t i = 0; i < count(p, a); i++) p->numbers[a][i] = number();
    }
    int64_t rows = p->batch * p->heads * p->queries, scores = p->batch * p->queries * p->keys;
    p->bias = calloc((size_t)scores + 1, sizeof(double));
    for (int64_t i = 0; i < scores; i++) {
        bool blind = i / p->keys % 7 == 3; /* such a query sees nothing */
        p->bias[i] = p->mask == ADDED ? number() : 0;
        if (p->mask != NO_MASK && (blind || (p->mask == BOOLS && number() < 0)))
            p->bias[i] = -INFINITY;
    }
    p->out = calloc((size_t)(rows * p->value_width) + 1, sizeof(double));
    p->logsumexp = calloc((size_t)rows + 1, sizeof(double));
    double *score = calloc((size_t)p->keys + 1, sizeof(double));
    float *drop = calloc((size_t)p->keys + 64, sizeof(float));
    for (int64_t row = 0; row < rows; row++) {
        int64_t head = row / p->queries, i = row % p->queries, b = head / p->heads;
        int64_t kh = b * p->key_heads + head % p->heads / (p->heads / p->key_heads);
        const double *query = p->numbers[QUERY] + row * p->width;
        bcfg_dropout_row(9, p->dropout, (uint64_t)head, i, 0, p->keys, drop);
        for (int64_t j = 0; j < p->keys; j++) drop[j] *= (float)bcfg_dropout_factor(p->dropout);
        double highest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < p->keys; j++) {
            const double *key = p->numbers[KEY] + (kh * p->keys + j) * p->width;
            score[j] = p->bias[(b * p->queries + i) * p->keys + j];
            for (int64_t d = 0; d < p->width; d++) score[j] += query[d] * key[d] * p->scale;
            if (p->is_causal && j > i) score[j] = -INFINITY;
            highest = fmax(highest, score[j]);
        }
        for (int64_t j = 0; j < p->keys; j++) {
            score[j] = score[j] == -INFINITY ? 0 : exp(score[j] - highest);
            sum += score[j];
        }
        p->logsumexp[row] = sum > 0 ? highest + log(sum) : -INFINITY;
        for (int64_t j = 0; j < p->keys && sum > 0; j++)
            for (int64_t d = 0; d < p->value_width; d++)
                p->out[row * p->value_width + d] +=
                    score[j] / sum * drop[j] *
                    p->numbers[VALUE][(kh * p->keys + j) * p->value_width + d];
    }
    free(score);
    free(drop);
}

static void forget(problem *p) {
    for (int a = 0; a < ARRAYS; a++) free(p->numbers[a]);
    free(p->bias);
    free(p->out);
    free(p->logsumexp);
}

/* A copy that ends where its memory ends; *memory is to be freed. */
static attention_array lay(const problem *p, int which, int32_t element, layout how,
                           char **memory) {
    int64_t gap = how == SPREAD ? 2 : 1, offset = how == UNALIGNED ? 1 : 0, s[4];
    shape(p, which, s);
    *memory = calloc((size_t)(count(p, which) * gap * size_of(element) + offset +
                              !count(p, which)), 1);
    return lay_out(*memory + offset, s, element, how == SPREAD, p->numbers[which]);
}

/* The output and the logarithms of the sums as float64, one after the other. */
static double *run(const problem *p, int32_t element, layout how, bool streams,
                   int32_t threads) {
    int64_t size = size_of(element), real = element == BCFG_FLOAT64 ? 8 : 4;
    int64_t rows = p->batch * p->heads * p->queries, scores = p->batch * p->queries * p->keys;
    int64_t step = p->mask == BOOLS ? 1 : size, outs = rows * p->value_width;
    char *memory[ARRAYS], *mask = malloc((size_t)(scores * step) + !scores);
    char *out = malloc((size_t)(outs * size) + !outs);
    char *logsumexp = malloc((size_t)(rows * real) + !rows);
    attention_job job = {
        .in = {.element = element, .mask_element = p->mask == BOOLS ? ATTENTION_BOOL : element,
               .batch = p->batch, .heads = p->heads, .key_heads = p->key_heads,
               .queries = p->queries, .keys = p->keys, .width = p->width,
               .value_width = p->value_width, .is_causal = p->is_causal, .scale = p->scale,
               .dropout = p->dropout, .seed = 9,
               .query = lay(p, QUERY, element, how, memory + QUERY),
               .key = lay(p, KEY, element, how, memory + KEY),
               .value = lay(p, VALUE, element, how, memory + VALUE),
               .mask = lay_mask(mask, p->mask, element, scores, p->queries, p->keys, p->bias)},
        .streams = streams,
        .out = {out, {p->heads * p->queries * p->value_width * size,
                      p->queries * p->value_width * size, p->value_width * size, size}},
        .logsumexp = logsumexp};
    bcfg_error error = NEW_ERROR;
    CHECK(bcfg_attention(&job, threads, &error) == BCFG_OK);
    double *found = malloc((size_t)(outs + rows + 1) * sizeof(double));
    for (int64_t i = 0; i < outs; i++) found[i] = load(element, out + i * size);
    int32_t work = real == 8 ? BCFG_FLOAT64 : BCFG_FLOAT32;
    for (int64_t i = 0; i < rows; i++) found[outs + i] = load(work, logsumexp + i * real);
    for (int a = 0; a < ARRAYS; a++) free(memory[a]);
    free(mask);
    free(out);
    free(logsumexp);
    return found;
}

static void compare(const problem *p, int32_t element, const double *found) {
    /* Rounding of the result; of sums over the keys besides. */
    static const double bounds[] = {[BCFG_FLOAT32] = 2e-6,
                                    [BCFG_FLOAT64] = 1e-14,
                                    [BCFG_BFLOAT16] = 1.2e-2,
                                    [BCFG_FLOAT16] = 1e-3};
    int64_t rows = p->batch * p->heads * p->queries, outs = rows * p->value_width;
    for (int64_t i = 0; i < outs; i++) CHECK(fabs(found[i] - p->out[i]) <= bounds[element]);
    for (int64_t i = 0; i < rows; i++)
        CHECK(found[outs + i] == p->logsumexp[i] ||
              fabs(found[outs + i] - p->logsumexp[i]) <=
                  (element == BCFG_FLOAT64 ? 1e-13 : 1e-5));
}

static void check(problem p) {
    pose(&p);
    int64_t rows = p.batch * p.heads * p.queries;
    size_t bytes = (size_t)(rows * (p.value_width + 1)) * sizeof(double);
    bool in_parts = p.keys > ATTENTION_SPLIT;
    for (int32_t isa = 0; bcfg_isa_name(isa) != NULL; isa++) {
        if (!bcfg_isa_available(isa)) continue;
        CHECK(bcfg_force_isa(isa) == BCFG_OK);
        for (int e = BCFG_FLOAT32; e <= BCFG_FLOAT16; e++) {
            if (e == BCFG_COMPLEX64 || e == BCFG_COMPLEX128) continue;
            uint64_t before = bcfg_isa_served(isa);
            double *expected = run(&p, e, DENSE, false, 1);
            compare(&p, e, expected);
            for (int way = 1; way < 2 * LAYOUTS; way++) {
                bool streams = way >= LAYOUTS;
                double *found = run(&p, e, (layout)(way % LAYOUTS), streams, 3);
                if (streams && in_parts) compare(&p, e, found);
                else CHECK(memcmp(found, expected, bytes) == 0);
                free(found);
            }
            CHECK(rows == 0 || bcfg_isa_served(isa) == before + 2 * LAYOUTS);
            free(expected);
        }
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
    forget(&p);
}

static void check_memory(void) {
    attention_job job = {.in = {.batch = 1, .heads = 1, .key_heads = 1, .queries = 1000,
                                .keys = 1000, .width = (int64_t)1 << 60, .value_width = 4}};
    bcfg_error error = NEW_ERROR;
    CHECK(bcfg_attention(&job, 1, &error) == BCFG_E_MEMORY);
    CHECK(error.detail[0] != '\0');
}

int main(int arguments, char **values) {
    CHECK(arguments == 2);
    fakes = values[1];
    for (int mask = NO_MASK; mask < MASKS; mask++) {
        for (int is_causal = 0; is_causal < 2; is_causal++)
            check((problem){2, 2, 1, 103, 270, 20, 36, is_causal, (mask_kind)mask, 0.3, 0, {0}, 0,
                            0, 0});
        check((problem){1, 4, 2, 40, 65, 33, 7, false, (mask_kind)mask, -0.2, 0.5, {0}, 0, 0, 0});
    }
    check((problem){1, 1, 1, 100, 99, 64, 64, true, NO_MASK, 0.125, 0, {0}, 0, 0, 0});
    check((problem){1, 3, 1, 5, 107, 12, 26, true, NO_MASK, 0.5, 0, {0}, 0, 0, 0});
    check((problem){1, 2, 1, 1, 1300, 80, 17, false, BOOLS, 0.25, 0, {0}, 0, 0, 0});
    check((problem){1, 1, 1, 13, 1100, 16, 16, false, ADDED, 0.25, 0.5, {0}, 0, 0, 0});
    check((problem){1, 2, 1, 9, 11, 4, 4, false, NO_MASK, 0.5, 1, {0}, 0, 0, 0});
    check((problem){1, 2, 1, 3, 0, 4, 4, false, NO_MASK, 0.5, 0, {0}, 0, 0, 0});
    check((problem){1, 2, 1, 0, 3, 4, 4, true, NO_MASK, 0.5, 0, {0}, 0, 0, 0});
    check((problem){0, 2, 2, 3, 3, 4, 4, false, NO_MASK, 0.5, 0, {0}, 0, 0, 0});
    check((problem){1, 1, 1, 3, 5, 0, 4, false, NO_MASK, 0.5, 0, {0}, 0, 0, 0});
    check((problem){1, 1, 1, 3, 5, 4, 0, false, NO_MASK, 0.5, 0, {0}, 0, 0, 0});
    check_memory();
    return 0;
}
