/* Switching under load: threads multiply while others open, intern and publish. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

const char *fakes;
enum { WORKERS = 4, SWITCHES = 2000 };
static atomic_int stop;
static atomic_long products;

static void multiply_once(void) {
    double a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4] = {0};
    bcfg_product product = {BCFG_FLOAT64, 0, NULL, 2, 2, 2,
                            {a, 16, 8, NULL}, {b, 16, 8, NULL}, {c, 16, 8, NULL}};
    CHECK(bcfg_matmul(NULL, &product, NULL) == BCFG_OK);
    CHECK(c[0] == 19 && c[1] == 22 && c[2] == 43 && c[3] == 50);
}

static void *work(void *unused) {
    while (!atomic_load(&stop)) {
        multiply_once();
        atomic_fetch_add(&products, 1);
    }
    return unused;
}

static void *switch_over(void *unused) {
    static const int64_t values[512];
    for (int i = 0; i < SWITCHES; i++) {
        const bcfg_provider *providers[3] = {bcfg_reference()};
        CHECK(open_fake("libfake_lp64.so", "", "", 0, &providers[1], NULL) == BCFG_OK);
        CHECK(open_fake("libfake_ilp64.so", "scipy_", "64_", 0, &providers[2], NULL) ==
              BCFG_OK);
        bcfg_publish(snapshot_of(&providers[i % 3], 1, values));
        multiply_once();
    }
    return unused;
}

#ifndef WITHOUT_FORK
/* A child forked while other threads hold the lock can take it. */
static void a_forked_child_computes(void) {
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            static const int64_t values[512];
            const bcfg_provider *provider = bcfg_reference();
            bcfg_publish(snapshot_of(&provider, 1, values));
            multiply_once();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}
#endif

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    pthread_t workers[WORKERS], switchers[2];
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_create(&workers[i], NULL, work, NULL) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&switchers[i], NULL, switch_over, NULL) == 0);
#ifndef WITHOUT_FORK
    a_forked_child_computes();
#endif
    for (int i = 0; i < 2; i++) CHECK(pthread_join(switchers[i], NULL) == 0);
    atomic_store(&stop, 1);
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(atomic_load(&products) > 0);
    int open = 0;
    for (const bcfg_provider *p = NULL; (p = bcfg_next_provider(p)) != NULL;) open++;
    CHECK(open == 4); /* however many threads opened them */
    return 0;
}
