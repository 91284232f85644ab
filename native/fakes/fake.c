/* A tiny CBLAS to test against. Compiled several times (see CMakeLists.txt), with
 *   INTEGER          int32_t or int64_t: the width of its integers
 *   PREFIX, SUFFIX   around each symbol, may be empty
 *   WITHOUT_ZGEMV    leaves one required symbol out
 *   WRONG            adds 1 to every element it computes
 *   DEADLY           kills its process when called
 *   TALKATIVE        prints a line when it is loaded
 * Row-major, transposes as CBLAS has them, general alpha and beta, no checks. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define GLUE_(a, b, c, d) a##b##c##d
#define GLUE(a, b, c, d) GLUE_(a, b, c, d)
#define SYMBOL(name) GLUE(PREFIX, cblas_, name, SUFFIX)

#ifdef WRONG
#define ERROR 1
#else
#define ERROR 0
#endif
#ifdef DEADLY
#define BEGIN raise(SIGSEGV);
#else
#define BEGIN
#endif

enum { NO_TRANSPOSE = 111 };

#define BY_VALUE(type) type
#define BY_POINTER(type) const void *
#define READ_VALUE(scalar, type, part) (part == 0 ? scalar : 0)
#define READ_POINTER(scalar, type, part) (((const type *)scalar)[part])

/* parts: 1 for real elements, 2 for complex ones; how: VALUE or POINTER. */
#define GEMM(name, type, parts, how)                                                               \
    void SYMBOL(name)(int order, int ta, int tb, INTEGER m, INTEGER n, INTEGER k,                  \
                      BY_##how(type) alpha, const void *a_, INTEGER lda, const void *b_,           \
                      INTEGER ldb, BY_##how(type) beta, void *c_, INTEGER ldc) {                   \
        BEGIN(void) order;                                                                         \
        const type *a = a_, *b = b_;                                                               \
        for (INTEGER i = 0; i < m; i++)                                                            \
            for (INTEGER j = 0; j < n; j++) {                                                      \
                type sum[2] = {0, 0};                                                              \
                for (INTEGER p = 0; p < k; p++) {                                                  \
                    const type *x = a + parts * (ta == NO_TRANSPOSE ? i * lda + p : p * lda + i);  \
                    const type *y = b + parts * (tb == NO_TRANSPOSE ? p * ldb + j : j * ldb + p);  \
                    sum[0] += x[0] * y[0] - (parts == 2 ? x[parts - 1] * y[parts - 1] : 0);        \
                    sum[1] += parts == 2 ? x[0] * y[parts - 1] + x[parts - 1] * y[0] : 0;          \
                }                                                                                  \
                type *c = (type *)c_ + parts * (i * ldc + j);                                      \
                for (int part = 0; part < parts; part++)                                           \
                    c[part] = ERROR + READ_##how(alpha, type, 0) * sum[part] +                     \
                              (READ_##how(beta, type, 0) == 0                                      \
                                   ? 0                                                             \
                                   : READ_##how(beta, type, 0) * c[part]);                         \
            }                                                                                      \
    }

#define GEMV(name, gemm, type, how)                                                                \
    void SYMBOL(name)(int order, int ta, INTEGER m, INTEGER n, BY_##how(type) alpha,               \
                      const void *a, INTEGER lda, const void *x, INTEGER step,                     \
                      BY_##how(type) beta, void *y, INTEGER y_step) {                              \
        INTEGER rows = ta == NO_TRANSPOSE ? m : n, inner = ta == NO_TRANSPOSE ? n : m;             \
        SYMBOL(gemm)(order, ta, NO_TRANSPOSE, rows, 1, inner, alpha, a, lda, x, step, beta, y,     \
                     y_step);                                                                      \
    }

GEMM(sgemm, float, 1, VALUE)
GEMM(dgemm, double, 1, VALUE)
GEMM(cgemm, float, 2, POINTER)
GEMM(zgemm, double, 2, POINTER)
GEMV(sgemv, sgemm, float, VALUE)
GEMV(dgemv, dgemm, double, VALUE)
GEMV(cgemv, cgemm, float, POINTER)
#ifndef WITHOUT_ZGEMV
GEMV(zgemv, zgemm, double, POINTER)
#endif

#ifdef TALKATIVE
__attribute__((constructor)) static void talk(void) { (void)!write(1, "hello from a library", 20); }
#endif

size_t SYMBOL(isamax)(INTEGER n, const float *x, INTEGER step) {
    BEGIN
    INTEGER best = 0;
    for (INTEGER i = 1; i < n; i++)
        if (x[i * step] > x[best * step]) best = i;
    return (size_t)best;
}
