/* What BLIS exports for its thread pool and its kernel sets. For tests.
 *
 * Counts are 64 bits wide; -1 means that nobody has said one. WAYS is the number of ways of the
 * outermost loop, as BLIS_JC_NT would set it. NUMBER is what zen3 is called in this version; a
 * BLIS_ARCH_TYPE other than that and 1 aborts, as with kernels that a file was built without.
 */
#include <stdint.h>
#include <stdlib.h>
#ifndef WAYS
#define WAYS -1
#endif
#ifndef NUMBER
#define NUMBER 0
#endif

static int64_t threads = -1;

int64_t bli_thread_get_num_threads(void) { return threads; }
void bli_thread_set_num_threads(int64_t count) { threads = count; }
int64_t bli_thread_get_jc_nt(void) { return WAYS; }
const char *bli_info_get_version_str(void) { return "0.9.0"; }

#ifndef NO_NAMES
const char *bli_arch_string(int number) {
    if (number == NUMBER) return "zen3";
    if (number == 1) return "haswell";
    return number == 3 ? "generic" : "knl";
}
#endif

int bli_arch_query_id(void) {
    const char *told = getenv("BLIS_ARCH_TYPE");
    int number = told ? atoi(told) : 1;
    if (number != NUMBER && number != 1) abort();
    return number;
}

void bli_init(void) { bli_arch_query_id(); }
