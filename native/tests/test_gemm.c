/* The product of our own against its definition, to the bit: for every instruction set that runs
 * here, any number of threads, any layout, alone and in a batch. */
#include <math.h>

#include "../src/core/team.h"
#include "../src/kernels/kernels.h"
#include "../src/kernels/workspace.h"
#include "check.h"

const char *fakes;
static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}
static int64_t below(int64_t limit) { return (int64_t)(next() % (uint64_t)limit); }
/* Between -1 and 1, with few and with many bits. */
static double number(void) { return (double)(int64_t)next() / 9.3e18; }

static float narrow_to(int32_t element, uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    if (element == BCFG_BFLOAT16) {
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    value = exponent == 0 ? ldexpf((float)fraction, -24)
                          : ldexpf((float)(1024 + fraction), exponent - 25);
    return bits & 0x8000 ? -value : value;
}

/* Finite numbers only; rounds to nearest, ties to even. */
static uint16_t narrow_from(int32_t element, float value) {
    if (element == BCFG_BFLOAT16) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    if (size >= 65520) return sign | 0x7c00;
    int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
    float units = nearbyintf(ldexpf(size, 10 - exponent)); /* exact but for this rounding */
    return (uint16_t)(sign | ((exponent + 14) * 1024 + (int)units));
}

static double load(int32_t element, const char *at) {
    float narrow;
    double wide;
    uint16_t bits;
    switch (element) {
    case BCFG_FLOAT32: memcpy(&narrow, at, 4); return narrow;
    case BCFG_FLOAT64: memcpy(&wide, at, 8); return wide;
    default: memcpy(&bits, at, 2); return narrow_to(element, bits);
    }
}

static void store(int32_t element, char *at, double value) {
    float narrow = (float)value;
    uint16_t bits;
    switch (element) {
    case BCFG_FLOAT32: memcpy(at, &narrow, 4); return;
    case BCFG_FLOAT64: memcpy(at, &value, 8); return;
    default:
        bits = narrow_from(element, narrow);
        memcpy(at, &bits, 2);
    }
}

/* What every element of a product of bfloat16 is with AMX, by the definition of its instruction. */
static float by_tiles(const bcfg_product *p, const char *a, const char *b) {
    float sum = 0;
    for (int64_t cut = 0; cut < p->k; cut += 32) {
        float chains[2] = {0, 0};
        for (int64_t i = cut; i < p->k && i < cut + 32; i++)
            chains[i % 2] = fmaf((float)load(BCFG_BFLOAT16, a + i * p->a.column_stride),
                                 (float)load(BCFG_BFLOAT16, b + i * p->b.row_stride), chains[i % 2]);
        sum += chains[0] + chains[1];
    }
    return sum;
}

/* The same with AVX-512 BF16, where the later number of a pair comes first. */
static float by_pairs(const bcfg_product *p, const char *a, const char *b) {
    float sum = 0;
    for (int64_t cut = 0; cut < p->k; cut += 2 * GEMM_INNER) {
        float chain = 0;
        for (int64_t i = cut; i < p->k && i < cut + 2 * GEMM_INNER; i++) {
            int64_t at = i ^ 1;
            if (at >= p->k) at = i;
            chain = fmaf((float)load(BCFG_BFLOAT16, a + at * p->a.column_stride),
                         (float)load(BCFG_BFLOAT16, b + at * p->b.row_stride), chain);
        }
        sum += chain;
    }
    return sum;
}

/* What every element of a product is, by definition. */
static double defined(const bcfg_product *p, const char *a, const char *b) {
    double sum = 0;
    for (int64_t cut = 0; cut < p->k; cut += GEMM_INNER) {
        double chain = 0;
        for (int64_t i = cut; i < p->k && i < cut + GEMM_INNER; i++) {
            double left = load(p->element, a + i * p->a.column_stride);
            double right = load(p->element, b + i * p->b.row_stride);
            chain = p->element == BCFG_FLOAT64 ? fma(left, right, chain)
                                               : fmaf((float)left, (float)right, (float)chain);
        }
        if (cut == 0) sum = chain;
        else sum = p->element == BCFG_FLOAT64 ? sum + chain : (float)sum + (float)chain;
    }
    return sum;
}

/* Memory for one operand: `rows` by `columns` in a layout by number, `batch` times. */
typedef struct {
    char *block;
    size_t bytes;
    int64_t strides[1];
    bcfg_operand operand;
} Memory;

static const int64_t sizes[] = {4, 8, 8, 16, 2, 2};

static void lay_out(Memory *memory, int32_t element, int64_t rows, int64_t columns, int64_t batch,
                    int layout) {
    int64_t size = sizes[element], pad = layout >= 4 ? below(5) : 0, row, column;
    if (layout % 2 == 0) column = size, row = (columns + pad) * size;
    else row = size, column = (rows + pad) * size;
    if (layout == 5) row *= 2, column *= 2; /* neither is dense */
    int64_t shift = layout == 3 ? 1 : 0;    /* no element is aligned */
    int64_t each = (rows - 1) * row + (columns - 1) * column + size;
    memory->bytes = (size_t)(each * batch + shift);
    memory->block = malloc(memory->bytes);
    CHECK(memory->block != NULL);
    memset(memory->block, 0x5a, memory->bytes);
    memory->strides[0] = each;
    memory->operand = (bcfg_operand){memory->block + shift, row, column, memory->strides};
    if (layout == 6) { /* from the last row upwards */
        memory->operand.data = memory->block + (rows - 1) * row;
        memory->operand.row_stride = -row;
    }
    for (int64_t m = 0; m < batch; m++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                store(element,
                      (char *)memory->operand.data + m * each + i * memory->operand.row_stride +
                          j * memory->operand.column_stride,
                      number());
}

static char *element_at(const Memory *memory, int64_t m, int64_t i, int64_t j) {
    return (char *)memory->operand.data + m * memory->strides[0] +
           i * memory->operand.row_stride + j * memory->operand.column_stride;
}

/* Whether `check` adds something to products of 16 bits; -1 for half of them. */
static int adds = -1;

/* Runs one product with many threads and sets; every result must be the defined one, and what lies
 * between the elements of c must stay. What is added, if it is left to chance whether, is one row for all
 * rows every fourth time. */
static void check(int32_t element, int64_t m, int64_t n, int64_t k, int64_t batch, int a_layout,
                  int b_layout, int c_layout) {
    Memory a, b, c, d;
    lay_out(&a, element, m, k, batch, a_layout);
    lay_out(&b, element, k, n, batch, b_layout);
    lay_out(&c, element, m, n, batch, c_layout);
    lay_out(&d, element, m, n, batch, (int)below(7));
    if (adds < 0 && below(4) == 0) d.operand.row_stride = d.strides[0] = 0;
    const bool has_added = element >= BCFG_BFLOAT16 && (adds < 0 ? below(2) : adds);
    const bcfg_operand *added = has_added ? &d.operand : NULL;
    bcfg_product product = {element, 1, &batch, m, n, k, a.operand,
                            b.operand, c.operand};
    char *plain = malloc(c.bytes), *paired = malloc(c.bytes), *tiled = malloc(c.bytes);
    CHECK(plain != NULL && paired != NULL && tiled != NULL);
    memset(plain, 0x5a, c.bytes);
    memset(paired, 0x5a, c.bytes);
    memset(tiled, 0x5a, c.bytes);
    for (int64_t g = 0; g < batch; g++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                const char *left = element_at(&a, g, i, 0), *right = element_at(&b, g, 0, j);
                double sum = defined(&product, left, right);
                const bool is_bfloat16 = element == BCFG_BFLOAT16;
                double pairs = is_bfloat16 ? by_pairs(&product, left, right) : sum;
                double tiles = is_bfloat16 ? by_tiles(&product, left, right) : sum;
                const int64_t at = element_at(&c, g, i, j) - c.block;
                if (added != NULL) {
                    float more = (float)load(element, element_at(&d, g, i, j));
                    sum = (float)sum + more, pairs = (float)pairs + more, tiles = (float)tiles + more;
                }
                store(element, plain + at, sum);
                store(element, paired + at, pairs);
                store(element, tiled + at, tiles);
            }
    static const int32_t threads[] = {1, 2, 5, 0};
    for (int32_t isa = 0; bcfg_isa_name(isa) != NULL; isa++) {
        if (!bcfg_isa_available(isa)) continue;
        CHECK(bcfg_force_isa(isa) == BCFG_OK);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            const char *wanted = isa == BCFG_AMX           ? tiled
                                 : isa == BCFG_AVX512_BF16 ? paired
                                                           : plain;
            uint64_t served = bcfg_isa_served(isa);
            memset(c.block, 0x5a, c.bytes);
            CHECK(bcfg_gemm_run(&product, added, false, threads[t], NULL) == BCFG_OK);
            CHECK(bcfg_isa_served(isa) == served + 1);
            if (memcmp(c.block, wanted, c.bytes) == 0) continue;
            fprintf(stderr, "%s, %d threads: element %d, %lld x %lld x %lld, %d %d %d\n",
                    bcfg_isa_name(isa), threads[t], element, (long long)m, (long long)n,
                    (long long)k, a_layout, b_layout, c_layout);
            exit(1);
        }
        CHECK(bcfg_gemm_run(&product, added, true, 1, NULL) == BCFG_OK);
        CHECK(memcmp(c.block, plain, c.bytes) == 0); /* for the tier `cross-machine` */
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
    free(a.block);
    free(b.block);
    free(c.block);
    free(d.block);
    free(plain);
    free(paired);
    free(tiled);
}

static const int32_t elements[] = {BCFG_FLOAT32, BCFG_FLOAT64, BCFG_BFLOAT16, BCFG_FLOAT16};
enum { ELEMENTS = sizeof elements / sizeof *elements, LAYOUTS = 7 };

static void every_layout_gives_the_defined_bits(void) {
    for (int e = 0; e < ELEMENTS; e++)
        for (int a = 0; a < LAYOUTS; a++)
            for (int b = 0; b < LAYOUTS; b++)
                check(elements[e], 1 + below(13), 1 + below(70), 1 + below(40), 1 + below(3), a, b,
                      (int)below(LAYOUTS));
}

static void every_edge_gives_the_defined_bits(void) {
    static const int64_t edges[] = {1, 2, 6, 7, 16, 17, 64, 65};
    for (int e = 0; e < ELEMENTS; e++)
        for (size_t i = 0; i < 8; i++)
            for (size_t j = 0; j < 8; j++)
                check(elements[e], edges[i], edges[j], 1 + below(20), 1, 0, (int)below(2), 0);
}

static void long_sums_are_cut_where_it_is_said(void) {
    static const int64_t inner[] = {GEMM_INNER - 1, GEMM_INNER, GEMM_INNER + 1, 2 * GEMM_INNER + 1,
                                     4 * GEMM_INNER + 37};
    for (int e = 0; e < ELEMENTS; e++)
        for (int i = 0; i < 5; i++) {
            check(elements[e], 1, 1 + below(70), inner[i], 1, 0, (int)below(2), 0);
            check(elements[e], 1 + below(60), 1, inner[i], 1, (int)below(2), 0, 0);
            check(elements[e], 50 + below(9), 1 + below(9), inner[i], 2, 0, (int)below(2), 1);
        }
}

static void large_blocks_give_the_defined_bits(void) {
    for (int e = 0; e < ELEMENTS; e++) {
        check(elements[e], 130, 70, 150, 1, 0, 0, 0);
        check(elements[e], 7, 600, 270, 1, 0, 1, 0);
        check(elements[e], 500, 12, 260, 1, 1, 0, 1);
        check(elements[e], 33, 35, 40, 37, 0, 0, 0); /* a batch over the threads */
        for (int more = 0; more < 2; more++) {
            adds = more;
            check(elements[e], 130, 70, 2 * GEMM_INNER + 1, 1, (int)below(2), (int)below(2), 0);
            check(elements[e], 400, 70, 40, 1, (int)below(2), (int)below(2), 0);
        }
        adds = -1;
    }
}

/* NaN and infinity reach what they belong to, and nothing else. */
static void what_is_not_finite_stays_in_its_row(void) {
    float a[40][40], b[40][40], c[40][40];
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < 40; j++) a[i][j] = b[i][j] = 1;
    a[3][7] = NAN;
    a[5][0] = INFINITY;
    a[6][1] = INFINITY;
    a[6][2] = -INFINITY;
    bcfg_product product = {BCFG_FLOAT32, 0, NULL, 40, 40, 40,
                            {a, 160, 4, NULL}, {b, 160, 4, NULL}, {c, 160, 4, NULL}};
    CHECK(bcfg_gemm_run(&product, NULL, false, 1, NULL) == BCFG_OK);
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < 40; j++) {
            if (i == 3 || i == 6) CHECK(isnan(c[i][j]));
            else CHECK(c[i][j] == (i == 5 ? INFINITY : 40));
        }
}

/* The same by pairs, of which the last one has half a number: nothing stands beside it. */
static void what_is_not_finite_stays_in_its_row_of_pairs(void) {
    enum { ROWS = 20, COLUMNS = 24, MOST = 2 * GEMM_INNER + 1 };
    static uint16_t a[ROWS * MOST], b[MOST * COLUMNS], c[ROWS * COLUMNS];
    static const int64_t inner[] = {39, MOST};
    for (int at = 0; at < 8; at++) {
        const int64_t k = inner[at % 2];
        const bool a_turned = at / 2 % 2, b_turned = at / 4 % 2;
        const bcfg_operand left = {a, a_turned ? 2 : 2 * k, a_turned ? 2 * ROWS : 2, NULL};
        const bcfg_operand right = {b, b_turned ? 2 : 2 * COLUMNS, b_turned ? 2 * k : 2, NULL};
        for (int64_t i = 0; i < ROWS * k; i++) store(BCFG_BFLOAT16, (char *)(a + i), 1);
        for (int64_t i = 0; i < k * COLUMNS; i++) store(BCFG_BFLOAT16, (char *)(b + i), 1);
        const uint16_t nan = 0x7fc0, infinite = 0x7f80;
        memcpy((char *)a + 3 * left.row_stride + (k - 1) * left.column_stride, &nan, 2);
        memcpy((char *)b + (k - 1) * right.row_stride + 5 * right.column_stride, &infinite, 2);
        bcfg_product product = {BCFG_BFLOAT16, 0, NULL, ROWS, COLUMNS, k, left, right, {c, 2 * COLUMNS, 2, NULL}};
        for (int32_t isa = 0; bcfg_isa_name(isa) != NULL; isa++) {
            if (!bcfg_isa_available(isa)) continue;
            CHECK(bcfg_force_isa(isa) == BCFG_OK);
            CHECK(bcfg_gemm_run(&product, NULL, false, 1, NULL) == BCFG_OK);
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLUMNS; j++) {
                    const double found = load(BCFG_BFLOAT16, (char *)(c + i * COLUMNS + j));
                    if (i == 3) CHECK(isnan(found));
                    else CHECK(j == 5 ? isinf(found) : found == (k == 39 ? 39 : 512));
                }
        }
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
}

/* Where numbers are multiplied by pairs or tiles, subnormal ones count as 0, but not those that are added. */
static void subnormal_numbers_are_zero_in_chains_of_pairs(void) {
    uint16_t small = 0x0040, one = 0x3f80, zero = 0, c; /* 2^-127 */
    bcfg_product product = {BCFG_BFLOAT16, 0, NULL, 1, 1, 1,
                            {&small, 2, 2, NULL}, {&one, 2, 2, NULL}, {&c, 2, 2, NULL}};
    const bcfg_operand added = {&small, 2, 2, NULL};
    for (int32_t isa = 0; bcfg_isa_name(isa) != NULL; isa++) {
        if (!bcfg_isa_available(isa)) continue;
        CHECK(bcfg_force_isa(isa) == BCFG_OK);
        CHECK(bcfg_gemm_run(&product, NULL, false, 1, NULL) == BCFG_OK);
        CHECK(c == (isa >= BCFG_AVX512_BF16 ? zero : small));
        product.a.data = &zero;
        CHECK(bcfg_gemm_run(&product, &added, false, 1, NULL) == BCFG_OK);
        CHECK(c == small || isa == BCFG_AMX);
        product.a.data = &small;
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
}

/* At least 0.7 of the time of all threads is work, where there is enough for each of them. Not so with AMX,
 * whose tiles are copied for longer than they are multiplied. */
static void no_thread_waits_for_long(void) {
    static const int64_t threads[] = {1, 2, 3, 4, 8, 16, 64}, stacks[] = {1, 2, 3, 5, 17};
    static const struct {
        int64_t rows, columns, widest, copying;
    } tiles[] = {{GEMM_TILE_ROWS, 16, 512, 16}, {GEMM_TILE_ROWS, 64, 512, 16},
                 {GEMM_TILE_ROWS, 32, 256, 16}, {32, 32, 512, 256}};
    for (int64_t n = 200; n < 4000; n += 1 + n / 20)
        for (int at = 0; at < 7 * 5 * 4; at++) {
            int64_t many = threads[at % 7], stack = stacks[at / 7 % 5], rows, columns;
            int t = at / 35, is_amx = t == 3;
            bcfg_gemm_sizes sizes = {n, n, n, stack, tiles[t].rows, tiles[t].columns, tiles[t].copying,
                                     is_amx ? (n + 383) / 384 : 1,
                                     (n + tiles[t].widest - 1) / tiles[t].widest};
            bcfg_gemm_share(&sizes, many, &rows, &columns);
            CHECK(rows % tiles[t].rows == 0 && columns % tiles[t].columns == 0);
            CHECK(columns <= tiles[t].widest && (!is_amx || rows <= 384));
            if (rows > n) rows = n;
            if (columns > n) columns = n;
            int64_t blocks = (n + rows - 1) / rows * ((n + columns - 1) / columns) * stack;
            int64_t turns = (blocks + many - 1) / many;
            if (!is_amx && (double)n * (double)n * (double)n >= (double)(many << 20))
                CHECK((double)(n * n * stack) >= 0.7 * (double)(many * turns * rows * columns));
        }
}

/* As a provider: chosen by a snapshot, counted, and alone able to multiply 16 bits. */
static void it_serves_as_a_provider(void) {
    static const int64_t values[512];
    const bcfg_provider *both[] = {bcfg_reference(), bcfg_native()};
    const bcfg_snapshot *snapshot = snapshot_of(both, 2, values);
    CHECK(bcfg_choose(snapshot, BCFG_SGEMM, 2, 2, 2) == 0);
    CHECK(bcfg_choose(snapshot, BCFG_BGEMM, 2, 2, 2) == 1);
    CHECK(bcfg_judge(snapshot, BCFG_HGEMM, bcfg_reference(), 2, 2, 2) == BCFG_LACKS);
    CHECK(bcfg_choose(snapshot_of(both, 1, values), BCFG_HGEMM, 2, 2, 2) == -1);
    CHECK(bcfg_next_provider(bcfg_reference()) == bcfg_native());
    uint16_t a[4] = {0x3c00, 0x4000, 0x4200, 0x4400}, c[4]; /* 1 2 3 4 */
    bcfg_product product = {BCFG_FLOAT16, 0, NULL, 2, 2, 2,
                            {a, 4, 2, NULL}, {a, 4, 2, NULL}, {c, 4, 2, NULL}};
    bcfg_error error = NEW_ERROR;
    bcfg_reset_calls();
    CHECK(bcfg_matmul(snapshot, &product, &error) == BCFG_OK);
    CHECK(c[0] == 0x4700 && c[1] == 0x4900 && c[2] == 0x4b80 && c[3] == 0x4d80); /* 7 10 15 22 */
    bcfg_description about = {.abi = BCFG_ABI, .size = sizeof about};
    CHECK(bcfg_describe(bcfg_native(), &about) == BCFG_OK);
    CHECK(strcmp(about.name, "native") == 0 && about.calls[BCFG_HGEMM] == 1);
    CHECK(bcfg_matmul(snapshot_of(both, 1, values), &product, &error) == BCFG_E_UNSERVED);
    uint16_t bias[2] = {0x3c00, 0xc000}; /* 1 -2, to each row */
    bcfg_operand added = {bias, 0, 2, NULL};
    CHECK(bcfg_addmm(snapshot, &product, &added, &error) == BCFG_OK);
    CHECK(c[0] == 0x4800 && c[1] == 0x4800 && c[2] == 0x4c00 && c[3] == 0x4d00); /* 8 8 16 20 */
    added = (bcfg_operand){c, 4, 2, NULL}; /* as if c did not overlap it */
    CHECK(bcfg_addmm(snapshot, &product, &added, &error) == BCFG_OK);
    CHECK(c[0] == 0x4b80 && c[3] == 0x5140); /* 15 42 */
    product.k = 0;
    CHECK(bcfg_addmm(snapshot, &product, &added, &error) == BCFG_E_ARGUMENT);
    product.element = BCFG_FLOAT32, product.k = 2;
    CHECK(bcfg_addmm(snapshot, &product, &added, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "only sums of products with 16 bits are added to") == 0);
    float z[8] = {1, 0, 0, 1, 2, 0, 0, 0}, y[8];
    product = (bcfg_product){BCFG_COMPLEX64, 0, NULL, 2, 2, 2,
                             {z, 16, 8, NULL}, {z, 16, 8, NULL}, {y, 16, 8, NULL}};
    CHECK(bcfg_matmul(snapshot_of(both + 1, 1, values), &product, &error) == BCFG_OK);
    CHECK(y[0] == 1 && y[1] == 2 && y[2] == 0 && y[3] == 1 && y[4] == 2 && y[7] == 2);
}

static void memory_is_kept_and_given_back(void) {
    void *first = bcfg_workspace_take(1000), *second = bcfg_workspace_take(10);
    CHECK(first != NULL && second != NULL && first != second && (uintptr_t)first % 64 == 0);
    memset(first, 1, 1000);
    bcfg_workspace_give(first);
    CHECK(bcfg_workspace_take(900) == first);
    bcfg_workspace_give(second);
    bcfg_workspace_give(first);
    bcfg_workspace_give(NULL);
    CHECK(bcfg_workspace_take(SIZE_MAX - 3) == NULL);
}

int main(void) {
    memory_is_kept_and_given_back();
    every_layout_gives_the_defined_bits();
    every_edge_gives_the_defined_bits();
    long_sums_are_cut_where_it_is_said();
    large_blocks_give_the_defined_bits();
    what_is_not_finite_stays_in_its_row();
    what_is_not_finite_stays_in_its_row_of_pairs();
    subnormal_numbers_are_zero_in_chains_of_pairs();
    no_thread_waits_for_long();
    it_serves_as_a_provider();
    return 0;
}
