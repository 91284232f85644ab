/* factorisations.h and decompositions.h as a library, for their own test. Each function takes its
 * matrix as an address, a cudaDataType and a leading dimension. */
#include "decompositions.h"

#define API __attribute__((visibility("default")))
#define M(name) void *name, int name##_type, int64_t name##_leading
#define OF(name) ((matrix){name, name##_type, name##_leading})

API int64_t potrf(M(a), int upper, int64_t n) { return factor_cholesky(OF(a), upper, n); }
API void potrs(M(a), int upper, int64_t n, M(b), int64_t count) {
    solve_cholesky(OF(a), upper, n, OF(b), count);
}
API void potri(M(a), int upper, int64_t n) { invert_cholesky(OF(a), upper, n); }
API int64_t getrf(M(a), int64_t m, int64_t n, int64_t *pivots) {
    return factor_lu(OF(a), m, n, pivots);
}
API void getrs(M(a), int how, int64_t n, const int64_t *pivots, M(b), int64_t count) {
    solve_lu(OF(a), (enum applied)how, n, pivots, OF(b), count);
}
API int64_t getri(M(a), int64_t n, const int64_t *pivots) { return invert_lu(OF(a), n, pivots); }
API void trsm(M(a), int upper, int how, int unit, int on_right, int64_t n, M(b), int64_t count) {
    solve_triangular(OF(a), upper, (enum applied)how, unit, on_right, n, OF(b), count);
}
API void geqrf(M(a), int64_t m, int64_t n, void *tau) { factor_qr(OF(a), m, n, tau); }
API void orgqr(M(a), const void *tau, int64_t m, int64_t n, int64_t k) {
    generate_q(OF(a), tau, m, n, k);
}
API void ormqr(M(a), const void *tau, int adjoint, int64_t m, int64_t n, int64_t k, M(c)) {
    apply_q(OF(a), tau, adjoint, m, n, k, OF(c));
}
API int64_t syevd(M(a), int upper, int64_t n, int with_vectors, void *w) {
    return decompose_hermitian(OF(a), upper, n, with_vectors, w);
}
API int64_t gesvd(M(a), int64_t m, int64_t n, void *s, M(u), int64_t u_columns, M(vh),
                  int64_t vh_rows) {
    return decompose_singular(OF(a), m, n, s, OF(u), u_columns, OF(vh), vh_rows);
}
