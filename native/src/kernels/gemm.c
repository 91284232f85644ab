/* Our own matrix product: cuts a batch into blocks and shares them among threads. */
#include "gemm.h"

#include "core/core.h"
#include "core/team.h"
#include "kernels.h"
#include "workspace.h"

enum {
    SMALL = 1 << 20,       /* multiplications below which one thread is faster than two */
    TASK = 1 << 18,        /* multiplications that are worth a task of their own */
    COPIED_ROWS = 4 * GEMM_ROWS, /* rows of a block whose sums are kept beside it */
    REUSED = 48,           /* rows for which copying B into panels pays */
    COPYING = 16,          /* rows that are multiplied in the time in which a block of B is copied */
    FASTER = 16,           /* how many times as fast AMX multiplies, but does not copy */
    TURNS = 4,             /* cuts of more blocks than this for each thread are not tried */
    WIDE = 16              /* rows of a matrix that multiply a vector side by side, not in turn */
};

/* One call in progress. */
typedef struct {
    bcfg_gemm_common gemm;
    const bcfg_product *product;
    const bcfg_operand *added; /* or NULL */
    const bcfg_operand *a, *b; /* swapped where that is better: c' = b' a' */
    const bcfg_arithmetic *arithmetic;
    const bcfg_tiles_kernels *tiles; /* or NULL */
    bcfg_gemm_block *block;
    int64_t m, n, matrices;
    int64_t rows, columns;       /* of a block */
    int64_t across, down;        /* blocks of a matrix */
    int64_t together;            /* matrices of a task, when a matrix is one block */
    char *space;
    int64_t space_each;
} Run;

/* Where matrix `index` of the batch starts. */
static const char *at_matrix(const bcfg_product *product, const bcfg_operand *operand,
                             int64_t index) {
    const char *data = operand->data;
    for (int32_t d = product->batch_dimensions - 1; d >= 0; d--) {
        data += index % product->batch_shape[d] * operand->batch_strides[d];
        index /= product->batch_shape[d];
    }
    return data;
}

static void compute_block(const Run *run, int64_t matrix, int64_t row, int64_t column,
                          char *space) {
    const bcfg_gemm_common *gemm = &run->gemm;
    const char *a = at_matrix(run->product, run->a, matrix);
    const char *b = at_matrix(run->product, run->b, matrix);
    char *c = (char *)at_matrix(run->product, &run->product->c, matrix);
    const char *added = NULL;
    if (run->added != NULL)
        added = at_matrix(run->product, run->added, matrix) + row * gemm->added_row +
                column * gemm->added_column;
    int64_t rows = run->m - row < run->rows ? run->m - row : run->rows;
    int64_t columns = run->n - column < run->columns ? run->n - column : run->columns;
    run->block(gemm, rows, columns, a + row * gemm->a_row, b + column * gemm->b_column, added,
               c + row * gemm->c_row + column * gemm->c_column, space);
}

static void compute_task(void *context, int64_t index, int32_t worker) {
    const Run *run = context;
    char *space = run->space + worker * run->space_each;
    int64_t blocks = run->across * run->down;
    if (blocks > 1) {
        int64_t block = index % blocks;
        compute_block(run, index / blocks, block / run->across * run->rows,
                      block % run->across * run->columns, space);
        return;
    }
    int64_t end = (index + 1) * run->together;
    if (end > run->matrices) end = run->matrices;
    for (int64_t matrix = index * run->together; matrix < end; matrix++)
        compute_block(run, matrix, 0, 0, space);
}

/* Whether tiles may read or write every matrix of an operand where it lies: dense and aligned along
 * a row, and rows at multiples of the element. */
static bool in_place(const bcfg_product *product, const bcfg_operand *operand, int64_t row,
                     int64_t column, int64_t rows, int64_t columns) {
    int64_t size = bcfg_element_size[product->element];
    uint64_t bits = (uint64_t)(uintptr_t)operand->data;
    if (product->element >= BCFG_BFLOAT16 || (columns > 1 && column != size)) return false;
    if (rows > 1) bits |= (uint64_t)row;
    for (int32_t d = 0; d < product->batch_dimensions; d++)
        bits |= (uint64_t)operand->batch_strides[d];
    return bits % (uint64_t)size == 0;
}

/* Whether c' = b' a' has less to copy and transpose than c = a b. The right matrix is always copied. What
 * lies by columns is transposed as well, which takes about as long as copying. */
static bool swaps_for_tiles(const bcfg_product *p) {
    bool a_by_rows = p->a.column_stride == 2, b_by_columns = p->b.row_stride == 2;
    double m = (double)p->m, n = (double)p->n;
    return (b_by_columns ? 0 : 2 * n) + (a_by_rows ? 2 * m : m) <
           (a_by_rows ? 0 : 2 * m) + (b_by_columns ? 2 * n : n);
}

/* Whether c lies by columns, or is one. */
static bool swaps(const bcfg_product *p) {
    int64_t size = bcfg_element_size[p->element];
    return p->n > 1 ? p->c.column_stride != size && (p->c.row_stride == size || p->m == 1)
                    : p->m >= WIDE;
}

static void take_layout(Run *run) {
    const bcfg_product *p = run->product;
    bool swap = run->tiles != NULL ? swaps_for_tiles(p) : swaps(p);
    bcfg_gemm_common *gemm = &run->gemm;
    gemm->element = p->element;
    gemm->k = p->k;
    if (!swap) {
        run->a = &p->a, run->b = &p->b, run->m = p->m, run->n = p->n;
        gemm->a_row = p->a.row_stride, gemm->a_column = p->a.column_stride;
        gemm->b_row = p->b.row_stride, gemm->b_column = p->b.column_stride;
        gemm->c_row = p->c.row_stride, gemm->c_column = p->c.column_stride;
    } else {
        run->a = &p->b, run->b = &p->a, run->m = p->n, run->n = p->m;
        gemm->a_row = p->b.column_stride, gemm->a_column = p->b.row_stride;
        gemm->b_row = p->a.column_stride, gemm->b_column = p->a.row_stride;
        gemm->c_row = p->c.column_stride, gemm->c_column = p->c.row_stride;
    }
    if (run->added != NULL) {
        gemm->added_row = swap ? run->added->column_stride : run->added->row_stride;
        gemm->added_column = swap ? run->added->row_stride : run->added->column_stride;
    }
    gemm->a_in_place = in_place(p, run->a, gemm->a_row, gemm->a_column, run->m, p->k);
    gemm->b_in_place = run->m <= REUSED &&
                       in_place(p, run->b, gemm->b_row, gemm->b_column, p->k, run->n);
    gemm->c_in_place = in_place(p, &p->c, gemm->c_row, gemm->c_column, run->m, run->n);
}

static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The size of a part when `whole` is cut into `count` of them at multiples of `unit`. */
static int64_t part(int64_t whole, int64_t count, int64_t unit) {
    return parts(parts(whole, count), unit) * unit;
}

/* The time of the thread that has most blocks, in rows times columns, where each matrix is cut into so
 * many. Also sets the size of a block. */
static int64_t time_of(const bcfg_gemm_sizes *sizes, int64_t threads, int64_t down, int64_t across,
                       int64_t *rows, int64_t *columns) {
    *rows = part(sizes->m, down, sizes->tile_rows);
    *columns = part(sizes->n, across, sizes->tile_columns);
    int64_t blocks = parts(sizes->m, *rows) * parts(sizes->n, *columns) * sizes->matrices;
    return parts(blocks, threads) * (smaller(*rows, sizes->m) + sizes->copying) *
           (smaller(*columns, sizes->n) + sizes->copying);
}

void bcfg_gemm_share(const bcfg_gemm_sizes *sizes, int64_t threads, int64_t *rows, int64_t *columns) {
    const double most = (double)sizes->m * (double)sizes->n * (double)sizes->k / (2 * TASK);
    const double busy = most * (double)sizes->matrices; /* threads for which there is work */
    if (busy < (double)threads) threads = busy > 1 ? (int64_t)busy : 1;
    int64_t least = time_of(sizes, threads, sizes->down, sizes->across, rows, columns);
    if (threads == 1) return;
    const int64_t base = sizes->down * sizes->across * sizes->matrices;
    const int64_t limit = TURNS * (base > threads ? base : threads);
    const int64_t narrowest = parts(sizes->n, sizes->tile_columns);
    for (int64_t across = sizes->across; across <= narrowest; across++)
        for (int64_t turn = 1; turn <= 2 * TURNS; turn++) {
            /* First `turn` blocks for each thread; then the fewest rows of blocks, and up to three more. */
            int64_t down = turn <= TURNS ? turn * threads / (across * sizes->matrices)
                                         : sizes->down + turn - TURNS - 1, high, wide;
            if (down < sizes->down || (double)(across * down) > most ||
                across * down * sizes->matrices > limit)
                continue;
            int64_t time = time_of(sizes, threads, down, across, &high, &wide);
            if (time < least) least = time, *rows = high, *columns = wide;
        }
}

/* Cuts the matrices into blocks, so that no thread waits for long until the others have theirs. */
static void cut(Run *run, int64_t threads, int64_t most_columns) {
    const bool tiled = run->tiles != NULL;
    const bool keeps = tiled ? run->gemm.k > run->tiles->inner : !run->gemm.c_in_place;
    const bcfg_gemm_sizes sizes = {
        .m = run->m, .n = run->n, .k = run->gemm.k, .matrices = run->matrices,
        .tile_rows = tiled ? run->tiles->side : GEMM_TILE_ROWS,
        .tile_columns = tiled ? run->tiles->side : run->arithmetic->columns,
        .copying = run->gemm.b_in_place ? 0 : tiled ? FASTER * COPYING : COPYING,
        .down = keeps ? parts(run->m, COPIED_ROWS) : 1, .across = parts(run->n, most_columns)};
    bcfg_gemm_share(&sizes, threads, &run->rows, &run->columns);
    run->down = parts(run->m, run->rows);
    run->across = parts(run->n, run->columns);
    double work = (double)run->m * (double)run->n * (double)run->gemm.k;
    run->together = work >= TASK ? 1 : (int64_t)(TASK / (work > 1 ? work : 1));
}

/* Bytes of `space` that a block needs, a multiple of 64. Products by pairs copy as many bytes as others. */
static int64_t space_of(const Run *run, int64_t size, int64_t most_columns) {
    const bcfg_gemm_common *gemm = &run->gemm;
    if (run->tiles != NULL) return run->tiles->space(gemm->k, run->rows, run->columns);
    if (gemm->a_in_place && gemm->b_in_place && gemm->c_in_place) return 0;
    int64_t elements = GEMM_ROWS * GEMM_INNER;
    if (!gemm->b_in_place) elements += most_columns * GEMM_INNER;
    if (!gemm->c_in_place) elements += run->rows * run->columns;
    return parts(elements * size, 64) * 64;
}

bcfg_status bcfg_gemm_run(const bcfg_product *product, const bcfg_operand *added, bool everywhere,
                          int32_t threads, bcfg_error *error) {
    const bcfg_kernels *kernels = bcfg_kernels_for(product->element, everywhere);
    const bool is_double = product->element == BCFG_FLOAT64, is_bfloat16 = product->element == BCFG_BFLOAT16;
    Run run = {.product = product, .added = added, .matrices = 1,
               .arithmetic = kernels->of[is_double], .block = kernels->of[is_double]->gemm,
               .tiles = is_bfloat16 ? kernels->tiles : NULL};
    if (run.tiles != NULL) run.block = run.tiles->block;
    else if (is_bfloat16 && kernels->pairs != NULL) run.block = kernels->pairs->product;
    int64_t size = is_double ? 8 : 4, most_columns = GEMM_COLUMN_BYTES / size;
    if (run.tiles != NULL) most_columns = run.tiles->columns;
    for (int32_t d = 0; d < product->batch_dimensions; d++) run.matrices *= product->batch_shape[d];
    take_layout(&run);
    double inner = (double)product->k * (double)run.matrices, m = (double)run.m, n = (double)run.n;
    double work = m * n * inner;
    if (run.tiles != NULL) work = work / FASTER + (m + n) * inner; /* operands are copied for them */
    if (work < SMALL) threads = 1;
    if (threads <= 0) threads = bcfg_team_size();
    cut(&run, threads, most_columns);
    int64_t blocks = run.down * run.across;
    int64_t tasks = blocks > 1 ? blocks * run.matrices : parts(run.matrices, run.together);
    if (threads > tasks) threads = (int32_t)tasks;
    if (threads > BCFG_TEAM_MOST) threads = BCFG_TEAM_MOST;
    run.space_each = space_of(&run, size, most_columns);
    if (run.space_each > 0) {
        run.space = bcfg_workspace_take((size_t)run.space_each * (size_t)threads);
        if (run.space == NULL)
            return bcfg_fail(error, BCFG_E_MEMORY, "no memory for copies of the operands");
    }
    bcfg_kernels_served(kernels->isa);
    bcfg_team_run(threads, tasks, compute_task, &run);
    bcfg_workspace_give(run.space);
    return BCFG_OK;
}
