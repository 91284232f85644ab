/* What libtorch_cpu exports of the MKL inside it, for thread counts. For tests.
 *
 * Like MKL it answers at most CORES while its dynamic switch is on, whatever it was told, and a
 * count that a thread has set for itself hides the one of the process.
 */
#ifndef CORES
#define CORES 2
#endif

static int threads = CORES;
static int dynamic = 1;

static _Thread_local int local = 0;

int mkl_serv_set_num_threads_local(int count) {
    int before = local;
    local = count;
    return before;
}

int mkl_serv_get_max_threads(void) {
    int count = local ? local : threads;
    return dynamic && count > CORES ? CORES : count;
}
void mkl_serv_set_num_threads(int count) { threads = count; }
int mkl_serv_get_dynamic(void) { return dynamic; }
void mkl_serv_set_dynamic(int on) { dynamic = on; }
