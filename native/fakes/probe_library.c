/* Stand-ins for numeric libraries, built by tests/probe with one -D for each thing they do.
 *
 *   OPENBLAS       answers as OpenBLAS 0.3.99; names between PREFIX and SUFFIX
 *   CONFIG         the string that it answers with; NULL_CONFIG makes it a null pointer
 *   BLIS, MKL, REFERENCE, LAPACK, OPENMP   answer as these
 *   INTEGER        the type of its BLAS integers
 *   ON_LOAD_*      what its constructor does: SEGFAULT, ABORT, EXIT, HANG, PRINT, SPOIL (makes a
 *                  later ON_LOAD_FRAGILE crash)
 *
 * Without any of them it is a library that exports nothing that anybody looks for.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PREFIX
#define PREFIX
#endif
#ifndef SUFFIX
#define SUFFIX
#endif
#ifndef INTEGER
#define INTEGER int32_t
#endif
#ifndef CONFIG
#define CONFIG "OpenBLAS 0.3.99 DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=3"
#endif

#define JOIN_(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(middle) JOIN(PREFIX, middle, SUFFIX)

int probe_library_marker = 1;

__attribute__((constructor)) static void on_load(void)
{
#if defined(ON_LOAD_SEGFAULT)
    raise(SIGSEGV);
#elif defined(ON_LOAD_ABORT)
    fputs("fake library: this processor is not supported\n", stderr);
    abort();
#elif defined(ON_LOAD_EXIT)
    puts("FATAL: cannot load the other half");
    exit(2);
#elif defined(ON_LOAD_HANG)
    for (;;)
        pause();
#elif defined(ON_LOAD_PRINT)
    puts("{\"number\": 0, \"facts\": {\"kind\": \"openmp\"}}");
    fflush(stdout);
#elif defined(ON_LOAD_SPOIL)
    setenv("PROBE_LIBRARY_SPOILT", "1", 1);
#elif defined(ON_LOAD_FRAGILE)
    if (getenv("PROBE_LIBRARY_SPOILT"))
        raise(SIGSEGV);
#endif
}

#ifdef OPENBLAS
const char *NAME(openblas_get_config)(void)
{
#ifdef NULL_CONFIG
    return NULL;
#else
    return CONFIG;
#endif
}
const char *NAME(openblas_get_corename)(void)
{
    const char *chosen = getenv("OPENBLAS_CORETYPE");
    return chosen ? chosen : "Haswell";
}
int NAME(openblas_get_parallel)(void) { return 1; }
int NAME(openblas_get_num_threads)(void) { return 7; }
void NAME(cblas_dgemm)(void) {}
#endif

#ifdef BLIS
const char *bli_info_get_version_str(void) { return "0.9.9"; }
int64_t bli_info_get_blas_int_type_size(void) { return 8 * sizeof(INTEGER); }
int64_t bli_info_get_enable_openmp(void) { return 0; }
int64_t bli_info_get_enable_pthreads(void) { return 1; }
static int initialised;
void bli_init(void) { initialised = 1; }
int bli_arch_query_id(void)
{
    /* As BLIS 0.9 does: any choice is an invalid one until it is initialised. */
    if (getenv("BLIS_ARCH_TYPE") && !initialised)
        abort();
    const char *chosen = getenv("BLIS_ARCH_TYPE");
    if (chosen && atoi(chosen) > 9) {
        fputs("libblis: unimplemented arch_t\nlibblis: Aborting.\n", stderr);
        abort();
    }
    return 6;
}
const char *bli_arch_string(int id) { return id == 6 ? "zen3" : "generic"; }
void cblas_dgemm(void) {}
#endif

#ifdef MKL
void MKL_Get_Version_String(char *buffer, int length)
{
    snprintf(buffer, (size_t)length, "%s",
             "Intel(R) oneAPI Math Kernel Library Version 2025.1-Product Build 20250306 for "
             "Intel(R) 64 architecture applications");
}
int MKL_CBWR_Get_Auto_Branch(void) { return 12; }
void cblas_dgemm(void) {}
#endif

#ifdef REFERENCE
void dgemm_(void) {}
INTEGER isamax_(const INTEGER *n, const float *x, const INTEGER *step)
{
    INTEGER best = 1;
    if (*n < 1 || *step < 1)
        return 0;
    for (INTEGER i = 1; i < *n; i++)
        if (x[i * *step] > x[(best - 1) * *step])
            best = i + 1;
    return best;
}
#endif

#ifdef LAPACK
void dgesv_(void) {}
void ilaver_(INTEGER *major, INTEGER *minor, INTEGER *patch)
{
    *major = 3;
    *minor = 12;
    *patch = 1;
}
#endif

#ifdef OPENMP
int omp_get_max_threads(void) { return 5; }
#endif
