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
    BCFG_AMX = 4,         /* and AMX_TILE, AMX_BF16 */
    BCFG_ISAS
} bcfg_isa;

/* What a tile does with what C holds: its last argument. */
typedef enum {
    TILE_WRITE = 0, /* it is replaced, and not read */
    TILE_CHAIN = 1, /* the chain of every element starts at it */
    TILE_ADD = 2    /* the chain starts at 0, and its sum is added to it */
} bcfg_accumulate;

/* A part of a row of pixels: elements from a base on. */
typedef struct {
    int64_t from, count;
} bcfg_run;

/* The kernels of one type of arithmetic: all pointers to numbers are to such, all strides count
 * them. */
typedef struct {
    int32_t columns; /* of the widest tile */
    /* C (+)= A B for 1 to 6 rows and 1 to `columns` columns; see tile.inc for what is guaranteed of
     * the bits. Element (i, k) of A is a[i * a_row + k * a_step]; rows of B and C are dense. Nothing
     * outside of the tile is read or written. `accumulate` is a bcfg_accumulate. */
    void (*tile)(int64_t rows, int64_t columns, int64_t k, const void *a, int64_t a_row,
                 int64_t a_step, const void *b, int64_t b_row, void *c, int64_t c_row,
                 int accumulate);
    bcfg_gemm_block *gemm;
    const attention_kernels *attention;
    const backward_kernels *backward;
    /* c[rows][columns] = the chains of 1 to 6 outputs of a convolution for 1 to `columns` pixels; see
     * window.inc. The weights of an output are k dense numbers; `bias` may be NULL. */
    void (*window)(int64_t rows, int64_t pixels, int64_t k, const void *weight, const void *bias,
                   const void *base, const int64_t *offsets, void *c);
    /* What else convolution needs of vectors; see lines.inc. */
    void (*panel)(int64_t k, const void *base, const int64_t *offsets, const bcfg_run *runs,
                  int64_t count, bool beyond, void *panel);
    void (*lines)(int64_t k, const void *weight, const void *bias, const void *base,
                  const int64_t *offsets, int64_t lines, int64_t columns, int64_t width, void *out);
    void (*fill)(int64_t rows, int64_t count, const void *values, void *to, int64_t to_row);
    void (*steps)(int64_t rows, int64_t count, const void *from, int64_t from_row, int64_t step,
                  void *to, int64_t to_row);
} bcfg_arithmetic;

/* What multiplies bfloat16 by pairs. */
typedef struct {
    bcfg_gemm_block *product; /* NULL with AMX, which has tiles */
    const attention_kernels *attention;
    const backward_kernels *backward;
} bcfg_pairs_kernels;

/* Products of bfloat16 by tiles. */
typedef struct {
    int32_t side;    /* rows and columns that are computed at once */
    int32_t columns; /* the most of a block */
    int32_t inner;   /* longer sums are kept between the pieces of a block */
    /* Bytes of `space` that a block needs, a multiple of 64. */
    int64_t (*space)(int64_t k, int64_t rows, int64_t columns);
    bcfg_gemm_block *block;
} bcfg_tiles_kernels;

enum { MERSENNE_WORDS = 624 };

/* The state of MT19937. */
typedef struct {
    uint32_t words[MERSENNE_WORDS];
    int32_t next; /* the word that is drawn next; MERSENNE_WORDS once all are drawn */
} bcfg_mersenne;

typedef struct {
    bcfg_isa isa;
    const bcfg_arithmetic *of[2];    /* by BCFG_FLOAT32 and BCFG_FLOAT64 */
    /* Draws `count` numbers of 53 bits and writes `one`, in `size` bytes (1, 2, 4 or 8), for each that
     * is below `bound`, and 0 for the others. */
    void (*bernoulli)(bcfg_mersenne *state, int64_t bound, int64_t count, int32_t size, uint64_t one,
                      void *out);
    const bcfg_pairs_kernels *pairs; /* NULL without BF16 instructions */
    const bcfg_tiles_kernels *tiles; /* NULL without AMX */
} bcfg_kernels;

extern const bcfg_kernels bcfg_kernels_portable;
#ifdef BACKENDCFG_X86_64
extern const bcfg_kernels bcfg_kernels_avx2, bcfg_kernels_avx512;
#ifdef BACKENDCFG_AVX512_BF16
extern const bcfg_pairs_kernels bcfg_kernels_pairs; /* beside bcfg_kernels_avx512 */
#ifdef BACKENDCFG_AMX
extern const bcfg_tiles_kernels bcfg_kernels_tiles; /* beside these, */
extern const bcfg_pairs_kernels bcfg_kernels_tiled_pairs; /* in the place of the pairs */
#endif
#endif
#endif

/* The forced table, else the best that this CPU and its system can run for an element. Asked once per
 * operation, which then uses nothing else. `everywhere`: only those whose bits are the same
 * on every instruction set. Never NULL.
 *
 * AMX is only for bfloat16 that is multiplied: Linux gives it to a process that asks, whose threads
 * from then on need more room on a signal's own stack. */
const bcfg_kernels *bcfg_kernels_for(int32_t element, bool everywhere);

/* Counts an operation that a table served; for kernels to call from their own code. */
void bcfg_kernels_served(bcfg_isa isa);

#endif
