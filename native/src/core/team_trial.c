/* Whether the system gives this process threads: libgomp ends the process where it does not, so
 * they are tried before it is asked for them. Limits of the user, of the control group and of
 * memory all show here, as no file tells them together. */
#ifdef __linux__
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#endif
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "team.h"

typedef struct {
    pthread_mutex_t gate;
    pthread_t threads[BCFG_TEAM_MOST];
    long ids[BCFG_TEAM_MOST];
    _Atomic int32_t arrived;
} Trial;

static void *wait_at_the_gate(void *context) {
    Trial *trial = context;
#ifdef __linux__
    trial->ids[atomic_fetch_add(&trial->arrived, 1)] = syscall(SYS_gettid);
#endif
    (void)pthread_mutex_lock(&trial->gate);
    (void)pthread_mutex_unlock(&trial->gate);
    return NULL;
}

/* A thread that was joined still counts until the kernel has forgotten it. */
static void wait_until_forgotten(const Trial *trial, int32_t count) {
#ifdef __linux__
    enum { MOST_LOOKS = 100000 }; /* for an id that the kernel has given to somebody else since */
    for (int32_t i = 0; i < count; i++)
        for (int look = 0; look < MOST_LOOKS; look++) {
            if (syscall(SYS_tgkill, getpid(), trial->ids[i], 0) != 0 && errno == ESRCH) break;
            (void)sched_yield();
        }
#else
    (void)trial, (void)count;
#endif
}

int32_t bcfg_team_trial(int32_t wanted) {
    Trial trial = {.gate = PTHREAD_MUTEX_INITIALIZER};
    int32_t started = 0;
    sigset_t every, before;
    if (wanted > BCFG_TEAM_MOST) wanted = BCFG_TEAM_MOST;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    (void)pthread_mutex_lock(&trial.gate);
    while (started < wanted &&
           pthread_create(&trial.threads[started], NULL, wait_at_the_gate, &trial) == 0)
        started++;
    (void)pthread_mutex_unlock(&trial.gate);
    for (int32_t i = 0; i < started; i++) (void)pthread_join(trial.threads[i], NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    wait_until_forgotten(&trial, started);
    (void)pthread_mutex_destroy(&trial.gate);
    return started;
}
