/* backendcfg.h - the C side of backendcfg, and its manual.
 *
 * backendcfg._native is one shared object: a CPython extension module whose exported functions, those
 * with BCFG_API, are this C ABI. Python uses it through ctypes for control (opening libraries, making
 * snapshots); products of arrays go through the extension's own entry points.
 *
 *     providers   libraries that serve operations, opened once and kept
 *     snapshots   immutable: the values of all flags and an ordered list of providers per operation
 *     published   one pointer, stored with release and loaded with acquire, to the base snapshot
 *     products    take their snapshot once, at their start, and use nothing else
 *
 * Rules that hold for every function here:
 *   - Nothing is printed, nothing aborts or exits, no environment variable is read.
 *   - A function that can fail returns a bcfg_status. Where it takes a `bcfg_error *`, that may be
 *     NULL; otherwise its `abi` and `size` must be filled in, and on failure `detail` says what
 *     was wrong, in one English line without a final period. On success `detail` is "".
 *   - Every function may be called from any thread at any time, also in a forked child. Functions
 *     that change something take one internal lock; reading and computing take none.
 *   - Providers and snapshots are never freed: another thread may be inside one. Both are interned,
 *     so asking twice for the same gives the same pointer and memory does not grow with use.
 *   - Every struct that is passed to an exported function starts with `abi` and `size`, filled in by
 *     the caller; bcfg_order only occurs inside such a struct. A function that gets other numbers
 *     than it was compiled with returns BCFG_E_ABI.
 */
#ifndef BACKENDCFG_H
#define BACKENDCFG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BCFG_API __attribute__((visibility("default")))
#else
#define BCFG_API
#endif

/* Raised whenever a struct, a number or the meaning of a function below changes. */
#define BCFG_ABI 3

/* What became of a call. The numbers are part of the ABI. */
typedef enum {
    BCFG_OK = 0,
    BCFG_E_ABI = 1,        /* a struct has another version or size than this library */
    BCFG_E_ARGUMENT = 2,   /* an argument is impossible: NULL, negative, out of range */
    BCFG_E_MEMORY = 3,     /* out of memory */
    BCFG_E_OPEN = 4,       /* the dynamic loader refused the file; detail is its message */
    BCFG_E_SYMBOL = 5,     /* the library lacks a required symbol; detail names it */
    BCFG_E_INTERFACE = 6,  /* its integers have another width than was said */
    BCFG_E_WRONG = 7,      /* it computes a known product wrongly */
    BCFG_E_RANGE = 8,      /* a size does not fit the integers of any provider in the snapshot */
    BCFG_E_UNSERVED = 9,   /* the snapshot lists no provider for this operation */
    BCFG_E_NOT_FINITE = 10 /* `ops.check_finite` is on and the product has NaN or infinity */
} bcfg_status;

/* Where a failing call says why. Owned by the caller. */
typedef struct {
    uint32_t abi, size;
    char detail[480];
} bcfg_error;

/* BCFG_ABI of the library, to be compared before anything else is called. */
BCFG_API uint32_t bcfg_abi(void);

/* --- operations ------------------------------------------------------------------------------ */

/* One id per line of operations.inc: BCFG_SGEMM, BCFG_DGEMM, ...; BCFG_OPERATIONS of them. */
enum {
#define OPERATION(name, NAME, element, scalar) BCFG_##NAME,
#include "operations.inc"
#undef OPERATION
    BCFG_OPERATIONS
};

/* Name of an operation, "sgemm"; NULL for another id. Static storage. */
const char *bcfg_operation_name(int32_t operation);

/* --- providers ------------------------------------------------------------------------------- */

/* Width of the integers in a library's calls. UNKNOWN lets the probe decide. */
typedef enum { BCFG_INTERFACE_UNKNOWN = 0, BCFG_LP64 = 32, BCFG_ILP64 = 64 } bcfg_interface;

/* A library to open. The strings are copied.
 *   name       how the provider is called: "openblas"
 *   path       absolute path of the file
 *   prefix     before each symbol, "scipy_" in scipy_cblas_dgemm64_; "" for none
 *   suffix     after each symbol, "64_" in scipy_cblas_dgemm64_; "" for none
 *   interface  a bcfg_interface
 */
typedef struct {
    uint32_t abi, size;
    const char *name, *path, *prefix, *suffix;
    int32_t interface;
} bcfg_library;

/* An opened library: a table with one function per operation. Opaque, immutable, never freed. */
typedef struct bcfg_provider bcfg_provider;

/* What bcfg_describe says of a provider. The strings live as long as the process. The counters count
 * the products served since the start or the last bcfg_reset_calls, by operation:
 *   calls       all of them
 *   by_speed    those that went to it because it was measured to be the fastest for their size
 *   by_need     those that went to it because nobody before it in the order can serve them
 */
typedef struct {
    uint32_t abi, size;
    const char *name, *path, *prefix, *suffix;
    int32_t interface;
    uint64_t calls[BCFG_OPERATIONS];
    uint64_t by_speed[BCFG_OPERATIONS];
    uint64_t by_need[BCFG_OPERATIONS];
} bcfg_description;

/* Opens a library and checks it: RTLD_NOW | RTLD_LOCAL, every required symbol present, the width of
 * its integers found by calling it (with an argument that is 3 in 32 bits and negative in 64), and
 * one small product per element type right. A library that passes is kept open for ever; one that
 * does not is kept open too, because closing a BLAS whose threads run crashes, but is forgotten.
 * The same path, prefix and suffix give the same provider.
 *
 * The checks call into the library. One that is not yet in the process should be opened in a child
 * process first (backendcfg.native does), because a broken one can kill its process.
 *
 * *provider is written only on success.
 * Errors: BCFG_E_ABI, _ARGUMENT, _MEMORY, _OPEN, _SYMBOL, _INTERFACE, _WRONG. */
BCFG_API bcfg_status bcfg_open(const bcfg_library *library, const bcfg_provider **provider,
                               bcfg_error *error);

/* The provider that is compiled in: portable C, ILP64, serial. The order of its additions depends
 * on nothing but the inner dimension, so a row of a product has the same bits whatever the other
 * rows are. Never NULL. */
BCFG_API const bcfg_provider *bcfg_reference(void);

/* The provider of our own kernels, compiled in too: blocked, vectorised, on the thread team of the
 * process. The bits of an element depend on its row and its column alone: not on threads, batch,
 * position or instruction set. Complex products are the reference's. It alone serves products of
 * bfloat16 and float16, whose sums are in float32 and rounded once, at the end. Never NULL. */
BCFG_API const bcfg_provider *bcfg_native(void);

/* Fills in a description, whose abi and size the caller has set. Errors: BCFG_E_ABI, _ARGUMENT. */
BCFG_API bcfg_status bcfg_describe(const bcfg_provider *provider, bcfg_description *description);

/* The provider opened after `previous`: the reference for NULL, then our own; NULL after the
 * last. */
const bcfg_provider *bcfg_next_provider(const bcfg_provider *previous);

/* Sets every counter of every provider to zero. */
void bcfg_reset_calls(void);

/* --- flags ----------------------------------------------------------------------------------- */

/* Kinds of flags in backendcfg_flags.inc, which the Python schema generates.
 *   BOOL     0 or 1
 *   INTEGER  the number; -1 for "auto" and other words
 *   CHOICE   position among `choices`; -1 for none of them
 * Flags with free text are not in snapshots: nothing in C reads them. */
typedef enum { BCFG_BOOL = 0, BCFG_INTEGER = 1, BCFG_CHOICE = 2 } bcfg_kind;

/* One flag. `choices` is "a|b|c" for a CHOICE, else "". Static storage. */
typedef struct {
    uint32_t abi, size;
    const char *name;
    int32_t kind;
    const char *choices;
} bcfg_flag;

/* How many flags a snapshot holds; their ids are 0 to this minus 1. */
BCFG_API uint32_t bcfg_flag_count(void);

/* Describes a flag; abi and size set by the caller. Errors: BCFG_E_ABI, _ARGUMENT. */
BCFG_API bcfg_status bcfg_flag_at(uint32_t id, bcfg_flag *flag);

/* --- snapshots ------------------------------------------------------------------------------- */

/* Opaque, immutable, never freed. */
typedef struct bcfg_snapshot bcfg_snapshot;

/* How many classes of sizes there are, and what stands for a class that nobody measured. */
enum { BCFG_SIZE_CLASSES = 64, BCFG_NOT_MEASURED = 255 };

/* The class of an m by k times k by n product: the whole part of log2(m n k), 62 for any product
 * beyond; 0 where a size is 0. */
BCFG_API uint32_t bcfg_size_class(int64_t m, int64_t n, int64_t k);

/* Providers in order of preference, for one operation.
 *   preferred  NULL, or BCFG_SIZE_CLASSES positions in `providers`: for each class of sizes who was
 *              measured to be the fastest, or BCFG_NOT_MEASURED. It serves before the others if it
 *              can.
 */
typedef struct {
    const bcfg_provider *const *providers;
    uint32_t count;
    const uint8_t *preferred;
} bcfg_order;

/* One id per line of factorisations.inc: BCFG_BY_GETRF, BCFG_BY_POTRF, ... */
enum {
#define FACTORISATION(real, complex, NAME) BCFG_BY_##NAME,
#include "factorisations.inc"
#undef FACTORISATION
    BCFG_FACTORISATIONS
};

/* The content of a snapshot, copied by bcfg_intern.
 *   values          one number per flag, by id; `value_count` must be bcfg_flag_count()
 *   orders          one list per operation, by id; `order_count` must be BCFG_OPERATIONS
 *   factorisations  NULL, or 4 preferences for each factorisation, one for each element type: each
 *                   NULL, or as an order's, of the ?GEMM list; linear algebra goes by these lists
 * A product of two matrices goes by the ?GEMM list of its element type, one with a vector (m or n
 * is 1) by its ?GEMV list; with 16 bits both go by BGEMM (bfloat16) or HGEMM (float16). */
typedef struct {
    uint32_t abi, size;
    const int64_t *values;
    uint32_t value_count, order_count;
    const bcfg_order *orders;
    const uint8_t *const *factorisations;
} bcfg_content;

/* The snapshot with this content, made when there is none yet: 8 bytes for each flag, and 32, are
 * then kept for the life of the process; orders and preferences once for all snapshots that have
 * the same. *snapshot is written only on success. Errors: BCFG_E_ABI, _ARGUMENT, _MEMORY. */
BCFG_API bcfg_status bcfg_intern(const bcfg_content *content, const bcfg_snapshot **snapshot,
                                 bcfg_error *error);

/* Whether an address is that of a snapshot. */
int32_t bcfg_snapshot_known(const bcfg_snapshot *snapshot);

/* Makes a snapshot the base of the process, with one release store; NULL returns to the default. */
void bcfg_publish(const bcfg_snapshot *snapshot);

/* The base snapshot, with one acquire load; the default when none is published. Never NULL. */
const bcfg_snapshot *bcfg_current(void);

/* What bcfg_current returns while nothing is published. NULL returns to the built-in one: every
 * flag 0, and the reference for every operation. */
BCFG_API void bcfg_set_default(const bcfg_snapshot *snapshot);

/* The value of a flag in a snapshot; 0 for an unknown id. */
BCFG_API int64_t bcfg_value(const bcfg_snapshot *snapshot, uint32_t id);

/* --- products -------------------------------------------------------------------------------- */

/* Element types; the number is that of the matching ?GEMM operation, but for those of 16 bits. */
typedef enum {
    BCFG_FLOAT32 = BCFG_SGEMM,
    BCFG_FLOAT64 = BCFG_DGEMM,
    BCFG_COMPLEX64 = BCFG_CGEMM,
    BCFG_COMPLEX128 = BCFG_ZGEMM,
    BCFG_BFLOAT16 = 4, /* BCFG_BGEMM */
    BCFG_FLOAT16 = 5,  /* BCFG_HGEMM */
    BCFG_ELEMENTS
} bcfg_element;

/* A stack of matrices in memory. Strides are in bytes and may be negative or zero, except that no
 * two elements of a result may share memory. `batch_strides` has one entry per batch dimension of
 * the product; 0 repeats the matrix. Elements need not be aligned. */
typedef struct {
    void *data;
    int64_t row_stride, column_stride;
    const int64_t *batch_strides;
} bcfg_operand;

/* c = a b, for every index of the batch: a is m by k, b is k by n, c is m by n. There are up to 64
 * batch dimensions. Any size may be 0; k = 0 gives zeros. */
typedef struct {
    int32_t element;
    int32_t batch_dimensions;
    const int64_t *batch_shape;
    int64_t m, n, k;
    bcfg_operand a, b, c;
} bcfg_product;

/* Why a provider does or does not serve a product. */
typedef enum {
    BCFG_SERVES = 0,       /* it is the first that can */
    BCFG_BEHIND = 1,       /* it could, and another comes before it */
    BCFG_TOO_LARGE = 2,    /* a size does not fit its 32-bit integers */
    BCFG_NOT_LISTED = 3,   /* the snapshot does not list it for this operation */
    BCFG_LACKS = 4         /* it is listed, and has no such operation */
} bcfg_verdict;

/* Why bcfg_choose chose whom it did. */
typedef enum {
    BCFG_FIRST = 0,        /* the first of the order */
    BCFG_FASTEST = 1,      /* measured to be the fastest for this class of sizes */
    BCFG_ABLE = 2,         /* the first of the order that can */
} bcfg_reason;

/* Who serves an m by k times k by n product under a snapshot: the index in that operation's list,
 * or -1 when nobody does. bcfg_matmul asks the same function. */
int32_t bcfg_choose(const bcfg_snapshot *snapshot, int32_t operation, int64_t m, int64_t n,
                             int64_t k);

/* Why: a bcfg_reason, or -1 when nobody serves. */
BCFG_API int32_t bcfg_choice_reason(const bcfg_snapshot *snapshot, int32_t operation, int64_t m,
                                    int64_t n, int64_t k);

/* The provider at an index of an operation's list, or NULL past its end. */
BCFG_API const bcfg_provider *bcfg_ordered(const bcfg_snapshot *snapshot, int32_t operation,
                                           uint32_t index);

/* What bcfg_choose thinks of one provider. */
BCFG_API bcfg_verdict bcfg_judge(const bcfg_snapshot *snapshot, int32_t operation,
                                 const bcfg_provider *provider, int64_t m, int64_t n, int64_t k);

/* Computes a product under a snapshot; NULL means bcfg_current(). c may overlap a and b: the result
 * is as if it did not. Matrices that BLAS can read where they lie are not copied. Under
 * `ops.check_finite` a result reaches c only when it is finite.
 * Errors: BCFG_E_ARGUMENT, _MEMORY, _RANGE, _UNSERVED, _NOT_FINITE; c is then untouched. */
bcfg_status bcfg_matmul(const bcfg_snapshot *snapshot, const bcfg_product *product,
                                 bcfg_error *error);

/* The same, with `added`, as large as c, added to the sums of numbers with 16 bits before they are
 * rounded; its strides may be 0. NULL adds nothing. BCFG_E_ARGUMENT for other elements and for
 * k = 0. */
bcfg_status bcfg_addmm(const bcfg_snapshot *snapshot, const bcfg_product *product,
                       const bcfg_operand *added, bcfg_error *error);

/* --- instruction sets ------------------------------------------------------------------------ */

/* The name of an instruction set that our own kernels may use, in order of preference, the last
 * one first: 0 "portable", 1 "avx2", 2 "avx512", 3 "avx512_bf16", 4 "amx_bf16"; "" for one that this
 * library was built without; NULL for another number. Static storage. The last two multiply bfloat16;
 * all else is served by those before. */
const char *bcfg_isa_name(int32_t isa);

/* Whether it was built in and this CPU and its system can run it. Asking for AMX asks Linux for it. */
int32_t bcfg_isa_available(int32_t isa);

/* Makes every operation that starts from now on use one instruction set (or, under the tier
 * `cross-machine`, what it has without AMX and AVX-512 BF16); -1 returns to the best.
 * For tests: it is process-wide. Errors: BCFG_E_ARGUMENT when it is not available. */
bcfg_status bcfg_force_isa(int32_t isa);

/* How many operations the code of an instruction set has served. */
uint64_t bcfg_isa_served(int32_t isa);

#ifdef __cplusplus
}
#endif
#endif
