/* Our own kernels: one table of functions per instruction set, chosen at run time. */
#ifndef BACKENDCFG_KERNELS_H
#define BACKENDCFG_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "attention.h"
#include "attention_backward.h"
#include "gemm.h"

/* In order of preference, the last one first. */
typedef enum {
    BCFG_PORTABLE = 0,    /* plain C, every CPU */
    BCFG_AVX2 = 1,        /* with FMA and F16C */
    BCFG_AVX512 = 2,      /* F, BW, DQ, VL */
    BCFG_AVX512_BF16 = 3, /* and BF16 */
    BCFG_ISAS
} bcfg_isa;

/* What a tile does with what C holds: its last argument. */
typedef enum {
    TILE_WRITE = 0, /* it is replaced, and not read */
    TILE_CHAIN = 1, /* the chain of every element starts at it */
    TILE_ADD = 2    /* the chain starts at 0, and its sum is added to it */
} bcfg_accumulate;

/* C (+)= A B for 1 to 6 rows and 1 to X_columns columns; see tile.inc for what is guaranteed of the
 * bits. Strides in elements. Element (i, k) of A is a[i * a_row + k * a_step]; rows of B and C are
 * dense. Nothing outside of the tile is read or written. `accumulate` is a bcfg_accumulate. */
typedef void bcfg_f32_tile(int64_t rows, int64_t columns, int64_t k, const float *a, int64_t a_row,
                           int64_t a_step, const float *b, int64_t b_row, float *c, int64_t c_row,
                           int accumulate);
typedef void bcfg_f64_tile(int64_t rows, int64_t columns, int64_t k, const double *a,
                           int64_t a_row, int64_t a_step, const double *b, int64_t b_row,
                           double *c, int64_t c_row, int accumulate);

/* c[rows][X_columns] = the chains of 1 to 6 outputs of a convolution for 1 to X_columns pixels; see
 * window.inc. The weights of an output are k dense numbers; `bias` may be NULL. */
typedef void bcfg_f32_window(int64_t rows, int64_t pixels, int64_t k, const float *weight,
                             const float *bias, const float *base, const int64_t *offsets,
                             float *c);
typedef void bcfg_f64_window(int64_t rows, int64_t pixels, int64_t k, const double *weight,
                             const double *bias, const double *base, const int64_t *offsets,
                             double *c);

/* A part of a row of pixels: elements from a base on. */
typedef struct {
    int64_t from, count;
} bcfg_run;

/* What else convolution needs of vectors; see lines.inc. */
typedef void bcfg_f32_panel(int64_t k, const float *base, const int64_t *offsets,
                            const bcfg_run *runs, int64_t count, bool beyond, float *panel);
typedef void bcfg_f64_panel(int64_t k, const double *base, const int64_t *offsets,
                            const bcfg_run *runs, int64_t count, bool beyond, double *panel);
typedef void bcfg_f32_lines(int64_t k, const float *weight, float bias, const float *base,
                            const int64_t *offsets, int64_t lines, int64_t columns, int64_t width,
                            float *out);
typedef void bcfg_f64_lines(int64_t k, const double *weight, double bias, const double *base,
                            const int64_t *offsets, int64_t lines, int64_t columns, int64_t width,
                            double *out);
typedef void bcfg_f32_fill(int64_t rows, int64_t count, const float *values, float *to,
                           int64_t to_row);
typedef void bcfg_f64_fill(int64_t rows, int64_t count, const double *values, double *to,
                           int64_t to_row);
typedef void bcfg_f32_steps(int64_t rows, int64_t count, const float *from, int64_t from_row,
                            int64_t step, float *to, int64_t to_row);
typedef void bcfg_f64_steps(int64_t rows, int64_t count, const double *from, int64_t from_row,
                            int64_t step, double *to, int64_t to_row);

/* What multiplies bfloat16 by pairs. */
typedef struct {
    const attention_kernels *attention;
    const backward_kernels *backward;
} bcfg_pairs_kernels;

typedef struct {
    bcfg_isa isa;
    int32_t f32_columns, f64_columns; /* the widest tile */
    bcfg_f32_tile *f32_tile;
    bcfg_f64_tile *f64_tile;
    bcfg_gemm_block *f32_gemm, *f64_gemm;
    const bcfg_pairs_kernels *pairs;  /* NULL without BF16 instructions */
    const attention_kernels *attention32, *attention64; /* by the type of arithmetic */
    const backward_kernels *backward32, *backward64;
    bcfg_f32_window *f32_window;
    bcfg_f64_window *f64_window;
    bcfg_f32_panel *f32_panel;
    bcfg_f64_panel *f64_panel;
    bcfg_f32_lines *f32_lines;
    bcfg_f64_lines *f64_lines;
    bcfg_f32_fill *f32_fill;
    bcfg_f64_fill *f64_fill;
    bcfg_f32_steps *f32_steps;
    bcfg_f64_steps *f64_steps;
} bcfg_kernels;

extern const bcfg_kernels bcfg_kernels_portable;
#ifdef BACKENDCFG_X86_64
extern const bcfg_kernels bcfg_kernels_avx2, bcfg_kernels_avx512;
#ifdef BACKENDCFG_AVX512_BF16
extern const bcfg_pairs_kernels bcfg_kernels_pairs; /* beside bcfg_kernels_avx512 */
#endif
#endif

/* The forced table, else the best that this CPU and its system can run. Asked once per operation,
 * which then uses nothing else. Never NULL. */
const bcfg_kernels *bcfg_kernels_here(void);

/* Counts an operation that a table served; for kernels to call from their own code. */
void bcfg_kernels_served(bcfg_isa isa);

#endif
