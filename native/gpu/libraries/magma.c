/* Linear algebra by MAGMA, one matrix after the other.
 *
 * It takes matrices from the device, and pivots, reflectors' factors and eigenvalues from the host,
 * where it computes a part itself; singular values wholly there. Its functions work on queues of
 * their own and wait for them, so the stream is waited for before. What goes between the host and
 * the device goes by a queue of the stream, and waits too. Only the solution by a Cholesky factor
 * does neither: potrs would leave its queue at work, and is two trsm here. */
#include "gpu/libraries/factorisation.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

static const char *name_of(const bcfg_device_library *library, int status) {
    (void)library; /* its own names are sentences */
    switch (status) {
#define CONSTANT(name, value)                                                                      \
    case value: return #name;
        BCFG_MAGMA_ERROR_CONSTANTS(CONSTANT)
#undef CONSTANT
    default: return NULL;
    }
}

_Static_assert(offsetof(bcfg_magma_table, magma_queue_create_from_cuda_internal) ==
                   offsetof(bcfg_magma_hip_table, magma_queue_create_from_hip_internal),
               "the tables of both builds begin alike");

#define HERE __func__, __FILE__, __LINE__

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    const bcfg_magma_table *magma = bcfg_magma(library);
    *function = "magma_init"; /* which counts, and does nothing but the first time */
    int status = magma->magma_init(), device = 0;
    if (status != BCFG_MAGMA_SUCCESS) return status;
    magma->magma_getdevice(&device);
    void *queue = NULL, *blas = NULL;
    if (library->kind == BCFG_MAGMA_HIP) {
        const bcfg_magma_hip_table *hip = bcfg_magma_hip(library);
        *function = "magma_queue_create_from_hip";
        hip->magma_queue_create_from_hip_internal(device, stream, NULL, NULL, &queue, HERE);
        if (queue != NULL) blas = hip->magma_queue_get_hipblas_handle(queue);
    } else {
        *function = "magma_queue_create_from_cuda";
        magma->magma_queue_create_from_cuda_internal(device, stream, NULL, NULL, &queue, HERE);
        if (queue != NULL) blas = magma->magma_queue_get_cublas_handle(queue);
    }
    if (queue == NULL) return BCFG_MAGMA_ERR_HOST_ALLOC;
    if (blas == NULL) { /* it only prints that */
        magma->magma_queue_destroy_internal(queue, HERE);
        return BCFG_MAGMA_ERR_UNKNOWN;
    }
    *handle = queue;
    return BCFG_MAGMA_SUCCESS;
}

static void destroy(const bcfg_handle *handle) {
    /* What magma_init counts stays: the library itself is kept. */
    bcfg_magma(handle->library)->magma_queue_destroy_internal(handle->handle, HERE);
}

/* It computes sizes of memory in 32 bits. What is here is more than any of its formulas. */
static bool supports(const bcfg_device_library *library, const bcfg_step *step) {
    (void)library;
    enum { WIDEST_BLOCK = 512 };
    int64_t m = step->m, n = step->n, k = step->k;
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX) return false;
    int64_t largest = m * n > n * k ? m * n : n * k;
    if (step->kind == BCFG_STEP_EIGH) largest = 2 * n * n + WIDEST_BLOCK * n;
    if (step->kind == BCFG_STEP_SVD) {
        if (n > 1 << 15 || m > 1 << 21) return false;
        largest = 4 * n * n + WIDEST_BLOCK * (m + n);
        if (step->vectors == 'A' && m * m > largest) largest = m * m;
        if (m * n > largest) largest = m * n;
    }
    return largest <= INT_MAX;
}

static bool is_single(const bcfg_step *step) {
    return step->element == BCFG_FLOAT32 || step->element == BCFG_COMPLEX64;
}
static bool is_complex(const bcfg_step *step) {
    return step->element == BCFG_COMPLEX64 || step->element == BCFG_COMPLEX128;
}

/* The step's memory on the host. */
typedef struct {
    char *base;                        /* NULL while only sizes are asked for */
    size_t bytes;                      /* that are taken */
    void *a, *b, *c, *values, *work, *real, *integers;
    int work_count, real_count, integer_count;
} host_memory;

static void *take(host_memory *host, int64_t count, size_t size) {
    size_t at = host->bytes;
    /* Of 64 bytes each, so that everything is as aligned as anything needs. */
    host->bytes += ((size_t)(count > 0 ? count : 1) * size + 63) / 64 * 64;
    return host->base != NULL ? host->base + at : NULL;
}

#define NAME(real, complex)                                                                        \
    ((const char *const[]){"magma_s" #real, "magma_d" #real, "magma_c" #complex,                   \
                           "magma_z" #complex}[step->element])
/* Calls the function of the step's type, where all four have the same parameters. */
#define CALL(real, complex, ...)                                                                   \
    (*function = NAME(real, complex),                                                              \
     (step->element == BCFG_FLOAT32     ? magma->magma_s##real                                     \
      : step->element == BCFG_FLOAT64   ? magma->magma_d##real                                     \
      : step->element == BCFG_COMPLEX64 ? magma->magma_c##complex                                  \
                                        : magma->magma_z##complex)(__VA_ARGS__))

/* syevd or heevd; with counts of -1 it only says how many it needs. */
static int eigh(const bcfg_magma_table *magma, const bcfg_step *step, char *a,
                const host_memory *host, int *info, const char **function) {
    int n = (int)step->n, mode = step->vectors == 'N' ? BCFG_MagmaNoVec : BCFG_MagmaVec;
    int fill = step->upper ? BCFG_MagmaUpper : BCFG_MagmaLower;
    *function = NAME(syevd_gpu, heevd_gpu);
    if (is_complex(step))
        return (is_single(step) ? magma->magma_cheevd_gpu : magma->magma_zheevd_gpu)(
            mode, fill, n, a, n, host->values, host->a, n, host->work, host->work_count, host->real,
            host->real_count, host->integers, host->integer_count, info);
    return (is_single(step) ? magma->magma_ssyevd_gpu : magma->magma_dsyevd_gpu)(
        mode, fill, n, a, n, host->values, host->a, n, host->work, host->work_count, host->integers,
        host->integer_count, info);
}

/* gesdd; with a count of -1 it only says how many it needs. */
static int svd(const bcfg_magma_table *magma, const bcfg_step *step, const host_memory *host,
               int *info, const char **function) {
    int m = (int)step->m, n = (int)step->n;
    int mode = step->vectors == 'N'   ? BCFG_MagmaNoVec
               : step->vectors == 'S' ? BCFG_MagmaSomeVec
                                      : BCFG_MagmaAllVec;
    *function = NAME(gesdd, gesdd);
    if (is_complex(step))
        return (is_single(step) ? magma->magma_cgesdd : magma->magma_zgesdd)(
            mode, m, n, host->a, m, host->values, host->b, m, host->c, n, host->work,
            host->work_count, host->real, host->integers, info);
    return (is_single(step) ? magma->magma_sgesdd : magma->magma_dgesdd)(
        mode, m, n, host->a, m, host->values, host->b, m, host->c, n, host->work, host->work_count,
        host->integers, info);
}

static int count_of(const bcfg_step *step, const double *said) {
    return (int)(is_single(step) ? (double)*(const float *)(const void *)said : *said);
}

/* Lays out the memory on the host for one matrix. */
static int lay_out(const bcfg_magma_table *magma, const bcfg_step *step, host_memory *host,
                   const char **function) {
    const int64_t m = step->m, n = step->n, k = step->k, few = m < n ? m : n;
    const size_t size = (size_t)bcfg_element_size[step->element];
    const size_t real = is_single(step) ? sizeof(float) : sizeof(double);
    double work[2] = {0, 0}, more[2] = {0, 0};
    int integers = 0, info = 0;
    host_memory asks = {.work = work, .real = more, .integers = &integers, .work_count = -1,
                        .real_count = -1, .integer_count = -1};
    *host = (host_memory){.base = step->host};
    switch (step->kind) {
    case BCFG_STEP_LU: host->integers = take(host, few, sizeof(int)); break;
    case BCFG_STEP_LU_SOLVE: host->integers = take(host, n, sizeof(int)); break;
    case BCFG_STEP_QR: host->values = take(host, few, size); break;
    case BCFG_STEP_QR_VECTORS:
        host->values = take(host, k, size);
        host->a = take(host, m * n, size);
        break;
    case BCFG_STEP_EIGH:
        (void)eigh(magma, step, NULL, &asks, &info, function);
        if (info != 0) return info;
        host->values = take(host, n, real);
        host->a = take(host, n * n, size);
        host->work_count = count_of(step, work);
        host->real_count = is_complex(step) ? count_of(step, more) : 0;
        host->integer_count = integers;
        break;
    case BCFG_STEP_SVD:
        (void)svd(magma, step, &asks, &info, function);
        if (info != 0) return info;
        host->values = take(host, few, real);
        host->a = take(host, m * n, size);
        if (step->vectors != 'N') {
            host->b = take(host, m * (step->vectors == 'A' ? m : n), size);
            host->c = take(host, n * n, size);
        }
        host->work_count = count_of(step, work);
        host->real = !is_complex(step) ? NULL : take(host, 7 * n * (n + 1) + 2 * m * n, real);
        host->integers = take(host, 8 * n, sizeof(int));
        break;
    default: break;
    }
    if (host->work_count > 0) host->work = take(host, host->work_count, size);
    if (host->real_count > 0) host->real = take(host, host->real_count, real);
    if (host->integer_count > 0)
        host->integers = take(host, host->integer_count, sizeof(int));
    return 0;
}

static int sizes(const bcfg_device_library *library, bcfg_handle *handle, const bcfg_step *step,
                 size_t *workspace_bytes, size_t *host_bytes, const char **function) {
    (void)handle;
    *workspace_bytes = *host_bytes = 0;
    bcfg_step bare = *step;
    bare.host = NULL;
    host_memory host;
    int status = lay_out(bcfg_magma(library), &bare, &host, function);
    if (status == 0) *host_bytes = host.bytes;
    return status;
}

/* Two solutions with triangles, put on the stream. */
static void solve_cholesky(const bcfg_magma_table *magma, const bcfg_step *step, const char *a,
                           char *b, void *queue, const char **function) {
    const int n = (int)step->n, k = (int)step->k, left = BCFG_MagmaLeft;
    const int fill = step->upper ? BCFG_MagmaUpper : BCFG_MagmaLower, full = BCFG_MagmaNonUnit;
    *function = NAME(trsm, trsm);
    for (int second = 0; second < 2; second++) {
        int how = step->upper == (second == 0) ? BCFG_MagmaConjTrans : BCFG_MagmaNoTrans;
        switch (step->element) {
        case BCFG_FLOAT32:
            magma->magma_strsm(left, fill, how, full, n, k, 1, a, n, b, n, queue);
            break;
        case BCFG_FLOAT64:
            magma->magma_dtrsm(left, fill, how, full, n, k, 1, a, n, b, n, queue);
            break;
        case BCFG_COMPLEX64:
            magma->magma_ctrsm(left, fill, how, full, n, k, (bcfg_magma_complex64){1, 0}, a, n, b,
                               n, queue);
            break;
        default:
            magma->magma_ztrsm(left, fill, how, full, n, k, (bcfg_magma_complex128){1, 0}, a, n, b,
                               n, queue);
        }
    }
}

/* One matrix, at an index of the stack; its info, or the library's status below 0. */
static int one(const bcfg_magma_table *magma, void *queue, const bcfg_step *step,
               const host_memory *host, int64_t at, const char **function) {
    const int m = (int)step->m, n = (int)step->n, k = (int)step->k, few = m < n ? m : n;
    const int size = (int)bcfg_element_size[step->element];
    const int real = is_single(step) ? (int)sizeof(float) : (int)sizeof(double);
    const int fill = step->upper ? BCFG_MagmaUpper : BCFG_MagmaLower;
    char *a = step->a + at * step->a_stride, *b = step->b + at * step->b_stride;
    char *c = step->c + at * step->c_stride, *values = step->values + at * step->values_stride;
    char *pivots = step->pivots + at * step->pivots_stride;
    int info = 0;
#define FETCH(count, size, from, to)                                                               \
    magma->magma_getvector_internal(count, size, from, 1, to, 1, queue, HERE)
#define STORE(count, size, from, to)                                                               \
    magma->magma_setvector_internal(count, size, from, 1, to, 1, queue, HERE)
    switch (step->kind) {
    case BCFG_STEP_CHOLESKY: (void)CALL(potrf_gpu, potrf_gpu, fill, n, a, n, &info); break;
    case BCFG_STEP_CHOLESKY_SOLVE: solve_cholesky(magma, step, a, b, queue, function); break;
    case BCFG_STEP_LU:
        (void)CALL(getrf_gpu, getrf_gpu, m, n, a, m, host->integers, &info);
        if (info >= 0) STORE(few, sizeof(int), host->integers, pivots);
        break;
    case BCFG_STEP_LU_SOLVE: {
        int how = step->transpose == 'N'   ? BCFG_MagmaNoTrans
                  : step->transpose == 'T' ? BCFG_MagmaTrans
                                           : BCFG_MagmaConjTrans;
        FETCH(n, sizeof(int), pivots, host->integers);
        (void)CALL(getrs_gpu, getrs_gpu, how, n, k, a, n, host->integers, b, n, &info);
        break;
    }
    case BCFG_STEP_QR:
        (void)CALL(geqrf2_gpu, geqrf2_gpu, m, n, a, m, host->values, &info);
        if (info >= 0) STORE(few, size, host->values, values);
        break;
    case BCFG_STEP_QR_VECTORS:
        FETCH(k, size, values, host->values);
        FETCH(m * n, size, a, host->a);
        (void)CALL(orgqr2, ungqr2, m, n, k, host->a, m, host->values, &info);
        if (info >= 0) STORE(m * n, size, host->a, a);
        break;
    case BCFG_STEP_EIGH:
        (void)eigh(magma, step, a, host, &info, function);
        if (info >= 0) STORE(n, real, host->values, values);
        break;
    default:
        FETCH(m * n, size, a, host->a);
        (void)svd(magma, step, host, &info, function);
        if (info < 0) break;
        STORE(n, real, host->values, values);
        if (step->vectors == 'N') break;
        STORE(m * (step->vectors == 'A' ? m : n), size, host->b, b);
        STORE(n * n, size, host->c, c);
    }
    if (info >= 0 && step->info_stride != 0)
        STORE(1, sizeof info, &info, step->info + at * step->info_stride);
    return info;
}

static int compute(const bcfg_device_library *library, bcfg_handle *handle, const bcfg_step *step,
                   const char **function) {
    void *queue = handle->handle;
    const bcfg_magma_table *magma = bcfg_magma(library);
    host_memory host;
    int info = lay_out(magma, step, &host, function);
    if (info != 0) return info;
    if (step->kind != BCFG_STEP_CHOLESKY_SOLVE) magma->magma_queue_sync_internal(queue, HERE);
    for (int64_t at = 0; info >= 0 && at < step->matrices; at++)
        info = one(magma, queue, step, &host, at, function);
    return info < 0 ? info : 0;
}

const bcfg_vendor bcfg_magma_vendor = {name_of, create, destroy};
const bcfg_solver bcfg_magma_solver = {supports, sizes, compute};
