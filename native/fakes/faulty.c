/* One fault of each kind that a sanitizer sees, to prove that it does: `.ci/run native`. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

API int past_the_end(int bytes) {
    volatile char *memory = malloc((size_t)bytes);
    if (memory == NULL) return 0;
    memory[bytes] = 1;
    free((void *)memory);
    return 0;
}

API int overflow(int number) {
    volatile int most = INT_MAX;
    return most + number;
}

static int shared;

static void *write_it(void *unused) {
    for (int i = 0; i < 1000; i++) shared++;
    return unused;
}

API int race(int unused) {
    pthread_t threads[2];
    int started = 0;
    for (; started < 2; started++)
        if (pthread_create(&threads[started], NULL, write_it, NULL) != 0) break;
    for (int i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
    return unused;
}
