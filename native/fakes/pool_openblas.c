/* What OpenBLAS exports for its thread pool, and nothing else. For tests.
 *
 * Macros: PREFIX and SUFFIX around each name; NO_SETTER and NO_CORE leave one out; NULL_CORE
 * answers a null pointer; LIMIT is the MAX_THREADS of its configuration.
 */
#define JOIN2(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN2(a, b, c)
#ifndef PREFIX
#define PREFIX
#endif
#ifndef SUFFIX
#define SUFFIX
#endif
#ifndef LIMIT
#define LIMIT "64"
#endif
#define NAME(x) JOIN(PREFIX, x, SUFFIX)

static int threads = 3;

int NAME(openblas_get_num_threads)(void) { return threads; }

#ifndef NO_SETTER
void NAME(openblas_set_num_threads)(int count) { threads = count; }
#endif

const char *NAME(openblas_get_config)(void) {
    return "OpenBLAS 0.3.30 DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=" LIMIT;
}

#ifndef NO_CORE
const char *NAME(openblas_get_corename)(void) {
#ifdef NULL_CORE
    return 0;
#else
    return "Haswell";
#endif
}
#endif
