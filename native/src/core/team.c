/* The team is libgomp's pool, found at run time, so that PyTorch and we share one: two pools that
 * spin on the same cores are many times slower than one. Nothing is linked against it, because this
 * object is loaded when the interpreter starts. Without libgomp, threads are made for each region.
 *
 * Under the thread sanitizer always the latter: libgomp's barriers look like races to it. */
#ifdef __linux__
#define _GNU_SOURCE
#include <link.h>
#endif
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "team.h"

/* The functions of libgomp that are called; all NULL where there is no libgomp. Written once, under
 * `finding`; read where `found` is true, or after prepare(). */
static struct {
    void (*parallel)(void (*body)(void *), void *context, unsigned threads, unsigned flags);
    int (*most)(void), (*limit)(void), (*nested)(void);
} openmp;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool found;

/* One region in progress. */
typedef struct {
    bcfg_task task;
    void *context;
    int64_t tasks;
    int32_t threads;
    _Atomic int64_t next;
    _Atomic int32_t workers;
    _Atomic int raised; /* floating-point exceptions, which every thread has for itself */
} Region;

enum { EXCEPTIONS = FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW };

static _Atomic bool forked;
static _Thread_local bool inside; /* a parallel region of ours */
static _Thread_local bool lone;   /* since bcfg_team_alone(true) */
static _Thread_local int32_t proven; /* how many threads libgomp could have for this one, so far */

static void stop_before_fork(void);
static void note_fork(void);

/* Before anybody can fork: the pool that a child lacks may be one that another library started. */
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(stop_before_fork, NULL, note_fork);
}

#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
enum { LONGEST_NAME = 4096 };

/* Finds a libgomp under another name, as wheels bundle it: libgomp-a34b3233.so.1. It is opened
 * after the walk: the walk holds a lock of the loader that another thread's dlopen may want while
 * it holds the one that a dlopen in here would. */
static int is_renamed(struct dl_phdr_info *file, size_t size, void *found) {
    (void)size;
    const char *slash = strrchr(file->dlpi_name, '/');
    if (strncmp(slash != NULL ? slash + 1 : file->dlpi_name, "libgomp", 7) != 0) return 0;
    if (strlen(file->dlpi_name) >= LONGEST_NAME) return 0;
    strcpy(found, file->dlpi_name);
    return 1;
}
#endif

/* `load`: also one that nobody has loaded. The caller holds `finding`. */
static void find_openmp(bool load) {
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    static char renamed[LONGEST_NAME];
    if (library == NULL && dl_iterate_phdr(is_renamed, renamed) != 0)
        library = dlopen(renamed, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL && load) library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    void *parallel = dlsym(library, "GOMP_parallel"), *most = dlsym(library, "omp_get_max_threads");
    void *limit = dlsym(library, "omp_get_thread_limit"), *nested = dlsym(library, "omp_in_parallel");
    if (parallel == NULL || most == NULL || limit == NULL || nested == NULL) return;
    memcpy(&openmp.parallel, &parallel, sizeof parallel); /* an object pointer to a function's */
    memcpy(&openmp.most, &most, sizeof most);
    memcpy(&openmp.limit, &limit, sizeof limit);
    memcpy(&openmp.nested, &nested, sizeof nested);
    atomic_store(&found, true);
#else
    (void)load;
#endif
}

static void load_openmp(void) {
    (void)pthread_mutex_lock(&finding);
    if (!found) find_openmp(true);
    (void)pthread_mutex_unlock(&finding);
}

static void prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_openmp);
}

#ifdef __linux__
/* The first file that is walked tells how many were loaded so far. */
static int count_loads(struct dl_phdr_info *file, size_t size, void *loads) {
    (void)size;
    *(unsigned long long *)loads = file->dlpi_adds;
    return 1;
}
#endif

/* Whether there is a libgomp; looked for again when something was loaded since. */
static bool is_openmp_here(void) {
#ifdef __linux__
    static _Atomic unsigned long long looked;
    unsigned long long loads = 0;
    if (atomic_load(&found)) return true;
    (void)dl_iterate_phdr(count_loads, &loads);
    if (loads == atomic_load(&looked)) return false;
    (void)pthread_mutex_lock(&finding);
    if (!found) find_openmp(false);
    (void)pthread_mutex_unlock(&finding);
    atomic_store(&looked, loads);
#endif
    return atomic_load(&found);
}

static int32_t count_cpus(void) {
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < BCFG_TEAM_MOST ? (int32_t)online : 1;
}

void bcfg_team_alone(bool alone) { lone = alone; }

/* Whether this thread must work alone. `load`: libgomp, if nobody has loaded one. */
static bool alone(bool load) {
    if (inside || lone || atomic_load_explicit(&forked, memory_order_relaxed)) return true;
    if (load)
        prepare();
    else if (!is_openmp_here())
        return false;
    return openmp.nested != NULL && openmp.nested();
}

int32_t bcfg_team_size(void) {
    if (alone(true)) return 1;
    int32_t size = openmp.most != NULL ? openmp.most() : count_cpus();
    if (openmp.limit != NULL && openmp.limit() < size) size = openmp.limit();
    if (size > BCFG_TEAM_MOST) size = BCFG_TEAM_MOST;
    return size > 1 ? size : 1;
}

int32_t bcfg_team_size_asleep(void) {
    if (alone(false)) return 1;
    const int32_t cpus = count_cpus(), size = atomic_load(&found) ? bcfg_team_size() : cpus;
    return size < cpus ? size : cpus;
}

static void take_tasks(void *context) {
    Region *region = context;
    int32_t worker = atomic_fetch_add_explicit(&region->workers, 1, memory_order_relaxed);
    if (worker >= region->threads) return;
    inside = true;
    if (fetestexcept(EXCEPTIONS) != 0) (void)feclearexcept(EXCEPTIONS); /* of earlier work */
    int64_t index;
    while ((index = atomic_fetch_add_explicit(&region->next, 1, memory_order_relaxed)) <
           region->tasks)
        region->task(region->context, index, worker);
    int raised = fetestexcept(EXCEPTIONS);
    if (raised != 0) atomic_fetch_or_explicit(&region->raised, raised, memory_order_relaxed);
    inside = false;
}

static void *thread_main(void *region) {
    take_tasks(region);
    return NULL;
}

/* A team of threads made for one region. Signals go to the threads that the program made. */
static void run_with_threads(Region *region) {
    pthread_t threads[BCFG_TEAM_MOST];
    int32_t started = 0;
    sigset_t every, before;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    while (started < region->threads - 1 &&
           pthread_create(&threads[started], NULL, thread_main, region) == 0)
        started++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    take_tasks(region);
    for (int32_t i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
}

/* Whether libgomp may be asked for a team: it keeps one for each thread that calls it, and ends the
 * process where the system has no thread for it. So this many are tried first, once. */
static bool may_have(int32_t threads) {
    if (threads <= proven) return true;
    if (bcfg_team_trial(threads - 1) < threads - 1) return false;
    proven = threads;
    return true;
}

/* A region, on threads that `with` provides. */
static void run(int32_t threads, int64_t tasks, bcfg_task task, void *context,
                void (*with)(Region *)) {
    if (threads > tasks) threads = (int32_t)tasks;
    if (threads <= 1) {
        for (int64_t i = 0; i < tasks; i++) task(context, i, 0);
        return;
    }
    Region region = {.task = task, .context = context, .tasks = tasks, .threads = threads};
    fexcept_t flags;
    const int before = fetestexcept(EXCEPTIONS);
    if (before != 0) (void)fegetexceptflag(&flags, before);
    with(&region);
    if (before != 0) (void)fesetexceptflag(&flags, before);
    int raised = atomic_load_explicit(&region.raised, memory_order_relaxed);
    if (raised != 0) (void)feraiseexcept(raised);
}

static void run_awake(Region *region) {
    if (openmp.parallel != NULL && may_have(region->threads))
        openmp.parallel(take_tasks, region, (unsigned)region->threads, 0);
    else
        run_with_threads(region);
}

void bcfg_team_run(int32_t threads, int64_t tasks, bcfg_task task, void *context) {
    if (threads != 1 && tasks > 1) {
        threads = threads > 0 && !alone(true) ? threads : bcfg_team_size();
        if (openmp.limit != NULL && openmp.limit() < threads) threads = openmp.limit();
        if (threads > BCFG_TEAM_MOST) threads = BCFG_TEAM_MOST;
    }
    run(threads, tasks, task, context, run_awake);
}

/* The threads that sleep. They end before the process forks, as OpenBLAS's do: Python warns of a fork
 * where there are threads. A process that ends does not wait for them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    /* Under the lock: */
    Region *region; /* while there is one */
    int32_t busy;
    bool ending;
    /* Changes under the lock, with each region. */
    _Atomic uint64_t turn;
    /* Whether a thread has what follows for itself, from the start of a region to its end. */
    _Atomic bool taken;
    pthread_t threads[BCFG_TEAM_MOST];
    int32_t started;
} sleepers = {.lock = PTHREAD_MUTEX_INITIALIZER,
              .work = PTHREAD_COND_INITIALIZER,
              .done = PTHREAD_COND_INITIALIZER};

/* In a child, which works alone. It has none of the threads, whatever their records say, if another thread
 * worked with them while it was forked; so nobody may touch these any more. */
static void note_fork(void) {
    atomic_store_explicit(&forked, true, memory_order_relaxed);
    atomic_store(&sleepers.taken, true);
}

/* How often a worker gives its processor away before it sleeps: about 30 us of one that nobody else wants,
 * for a region that comes at once. */
enum { LOOKS = 100 };

static void *sleep_and_work(void *ignored) {
    (void)ignored;
    uint64_t seen = 0;
    (void)pthread_mutex_lock(&sleepers.lock);
    while (!sleepers.ending) {
        if (sleepers.region == NULL || sleepers.turn == seen) {
            (void)pthread_cond_wait(&sleepers.work, &sleepers.lock);
            continue;
        }
        seen = sleepers.turn;
        Region *region = sleepers.region;
        sleepers.busy++;
        (void)pthread_mutex_unlock(&sleepers.lock);
        take_tasks(region);
        (void)pthread_mutex_lock(&sleepers.lock);
        if (--sleepers.busy == 0) (void)pthread_cond_signal(&sleepers.done);
        (void)pthread_mutex_unlock(&sleepers.lock);
        for (int look = 0; look < LOOKS && sleepers.turn == seen; look++) (void)sched_yield();
        (void)pthread_mutex_lock(&sleepers.lock);
    }
    (void)pthread_mutex_unlock(&sleepers.lock);
    return NULL;
}

/* As many sleepers as the region wants beside its caller, or as the system grants. Signals go to the
 * threads that the program made. */
static void start_sleepers(int32_t wanted) {
    if (sleepers.started >= wanted) return;
    sigset_t every, before;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    while (sleepers.started < wanted && pthread_create(&sleepers.threads[sleepers.started], NULL,
                                                       sleep_and_work, NULL) == 0)
        sleepers.started++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The caller has taken them. */
static void stop_sleepers(void) {
    (void)pthread_mutex_lock(&sleepers.lock);
    sleepers.ending = true;
    sleepers.turn++; /* which those look at that do not sleep yet */
    (void)pthread_cond_broadcast(&sleepers.work);
    (void)pthread_mutex_unlock(&sleepers.lock);
    while (sleepers.started > 0) (void)pthread_join(sleepers.threads[--sleepers.started], NULL);
    sleepers.ending = false;
}

/* Unless they work, for another thread. */
static void stop_before_fork(void) {
    if (atomic_exchange(&sleepers.taken, true)) return;
    stop_sleepers();
    atomic_store(&sleepers.taken, false);
}

/* Threads run where the one that started them may: another caller, or one that was given other CPUs
 * since, has them started anew. The caller has taken them. */
static void follow_caller(void) {
#ifdef __linux__
    static cpu_set_t theirs;
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_EQUAL(&mine, &theirs)) return;
    stop_sleepers();
    theirs = mine;
#endif
}

static void run_asleep(Region *region) {
    if (atomic_exchange(&sleepers.taken, true)) {
        take_tasks(region);
        return;
    }
    follow_caller();
    start_sleepers(region->threads - 1);
    (void)pthread_mutex_lock(&sleepers.lock);
    sleepers.region = region;
    sleepers.turn++;
    (void)pthread_mutex_unlock(&sleepers.lock);
    for (int32_t i = 1; i < region->threads; i++) (void)pthread_cond_signal(&sleepers.work);
    take_tasks(region);
    (void)pthread_mutex_lock(&sleepers.lock);
    sleepers.region = NULL;
    while (sleepers.busy > 0) (void)pthread_cond_wait(&sleepers.done, &sleepers.lock);
    (void)pthread_mutex_unlock(&sleepers.lock);
    atomic_store(&sleepers.taken, false);
}

void bcfg_team_run_asleep(int32_t threads, int64_t tasks, bcfg_task task, void *context) {
    if (alone(false)) threads = 1;
    if (threads <= 0) threads = bcfg_team_size_asleep();
    if (threads > BCFG_TEAM_MOST) threads = BCFG_TEAM_MOST;
    run(threads, tasks, task, context, run_asleep);
}
