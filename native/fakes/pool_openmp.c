/* What an OpenMP runtime exports for thread counts, kept for each thread apart. For tests. */
static _Thread_local int threads = 4;
static _Thread_local int dynamic = 0;

int omp_get_max_threads(void) { return threads; }
void omp_set_num_threads(int count) { threads = count; }
int omp_get_dynamic(void) { return dynamic; }
void omp_set_dynamic(int on) { dynamic = on; }
