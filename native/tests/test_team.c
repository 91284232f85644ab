/* The thread team: every index exactly once, wherever and from however many threads it is asked. */
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/core/team.h"
#include "check.h"

const char *fakes;
enum { TASKS = 1000, CALLERS = 6, ROUNDS = 20 };

typedef struct {
    _Atomic int runs[TASKS];
    _Atomic int busy[BCFG_TEAM_MOST];
    _Atomic int nested;
    int32_t threads;
    int64_t written[TASKS];
    pthread_t thread;
    _Atomic bool one_thread;
} Ledger;

/* Every test is for both: threads that stay awake between two regions, and threads that sleep. */
static void (*team)(int32_t threads, int64_t tasks, bcfg_task task, void *context) = bcfg_team_run;

static void note(void *context, int64_t index, int32_t worker) {
    Ledger *ledger = context;
    CHECK(worker >= 0 && worker < (ledger->threads > 0 ? ledger->threads : BCFG_TEAM_MOST));
    CHECK(atomic_fetch_add(&ledger->busy[worker], 1) == 0);
    atomic_fetch_add(&ledger->runs[index], 1);
    ledger->written[index] = index + 1; /* no atomic: the end of the region makes it visible */
    if (!pthread_equal(ledger->thread, pthread_self())) ledger->one_thread = false;
    CHECK(atomic_fetch_sub(&ledger->busy[worker], 1) == 1);
}

static Ledger *new_ledger(int32_t threads) {
    Ledger *ledger = calloc(1, sizeof *ledger);
    CHECK(ledger != NULL);
    ledger->threads = threads;
    ledger->thread = pthread_self();
    ledger->one_thread = true;
    return ledger;
}

static void check_all_ran(const Ledger *ledger, int64_t tasks) {
    for (int64_t i = 0; i < TASKS; i++) {
        CHECK(ledger->runs[i] == (i < tasks));
        CHECK(ledger->written[i] == (i < tasks ? i + 1 : 0));
    }
}

static void every_index_runs_once(void) {
    const int32_t threads[] = {1, 2, 3, 7, 64};
    const int64_t tasks[] = {0, 1, 2, 3, 63, 64, TASKS};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (size_t n = 0; n < sizeof tasks / sizeof *tasks; n++) {
            Ledger *ledger = new_ledger(threads[t]);
            team(threads[t], tasks[n], note, ledger);
            check_all_ran(ledger, tasks[n]);
            if (threads[t] == 1 || tasks[n] < 2) CHECK(ledger->one_thread);
            free(ledger);
        }
}

/* With 0 for the number of threads, and far more than can be. */
static void any_number_of_threads_will_do(void) {
    const int32_t threads[] = {0, -1, 100000, INT32_MAX};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        Ledger *ledger = new_ledger(0);
        team(threads[t], TASKS, note, ledger);
        check_all_ran(ledger, TASKS);
        free(ledger);
    }
}

static void nest(void *context, int64_t index, int32_t worker) {
    (void)worker;
    Ledger *outer = context;
    CHECK(bcfg_team_size() == 1);
    Ledger *inner = new_ledger(1); /* however many are asked for, one works */
    team(8, TASKS, note, inner);
    check_all_ran(inner, TASKS);
    CHECK(inner->one_thread);
    free(inner);
    atomic_fetch_add(&outer->runs[index], 1);
}

static void a_region_inside_a_region_is_serial(void) {
    Ledger *ledger = new_ledger(4);
    team(4, 40, nest, ledger);
    for (int i = 0; i < 40; i++) CHECK(ledger->runs[i] == 1);
    free(ledger);
    CHECK(bcfg_team_size() >= 1);
}

static void a_thread_can_be_made_to_work_alone(void) {
    Ledger *ledger = new_ledger(1);
    bcfg_team_alone(true);
    CHECK(bcfg_team_size() == 1);
    team(4, TASKS, note, ledger);
    bcfg_team_alone(false);
    check_all_ran(ledger, TASKS);
    CHECK(ledger->one_thread);
    free(ledger);
}

/* Two tasks that wait for each other, so that each has a thread. */
typedef struct {
    pthread_t caller;
    _Atomic int begun;
    int raised; /* by the thread that is not the caller */
} Meeting;

static void raise_elsewhere(void *context, int64_t index, int32_t worker) {
    (void)index, (void)worker;
    Meeting *meeting = context;
    meeting->begun++;
    while (meeting->begun < 2) (void)sched_yield();
    if (!pthread_equal(pthread_self(), meeting->caller)) (void)feraiseexcept(meeting->raised);
}

static void the_caller_hears_of_overflows_elsewhere(void) {
    static const int raised[] = {FE_OVERFLOW, 0, FE_INVALID};
    for (int i = 0; i < 3; i++) {
        Meeting meeting = {.caller = pthread_self(), .raised = raised[i]};
        (void)feclearexcept(FE_ALL_EXCEPT);
        (void)feraiseexcept(FE_DIVBYZERO); /* what the caller had before stays */
        team(2, 2, raise_elsewhere, &meeting);
        CHECK(fetestexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO) == (raised[i] | FE_DIVBYZERO));
    }
}

static void *call_often(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        Ledger *ledger = new_ledger(3);
        team(3, TASKS, note, ledger);
        check_all_ran(ledger, TASKS);
        free(ledger);
    }
    return unused;
}

static void many_threads_may_call_at_once(void) {
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&callers[i], NULL, call_often, NULL) == 0);
    for (int i = 0; i < CALLERS; i++) CHECK(pthread_join(callers[i], NULL) == 0);
}

#ifndef WITHOUT_OPENMP
/* Inside somebody else's parallel region, and with the number of threads that they set. */
static void in_their_region(void *unused) {
    (void)unused;
    CHECK(bcfg_team_size() == 1);
    Ledger *ledger = new_ledger(1);
    team(5, TASKS, note, ledger);
    check_all_ran(ledger, TASKS);
    CHECK(ledger->one_thread);
    free(ledger);
}

static void openmp_is_obeyed(void) {
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) return; /* a system without it: the team makes its own threads */
    void (*set)(int), (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*get)(void);
    *(void **)&set = dlsym(library, "omp_set_num_threads");
    *(void **)&get = dlsym(library, "omp_get_max_threads");
    *(void **)&parallel = dlsym(library, "GOMP_parallel");
    CHECK(set != NULL && get != NULL && parallel != NULL);
    int before = get();
    set(3);
    CHECK(bcfg_team_size() == 3);
    set(1);
    CHECK(bcfg_team_size() == 1);
    set(before);
    parallel(in_their_region, NULL, 2, 0);
}
#endif

#ifndef WITHOUT_FORK
static void a_forked_child_works_alone(void) {
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(bcfg_team_size() == 1);
            Ledger *ledger = new_ledger(1);
            team(4, TASKS, note, ledger);
            check_all_ran(ledger, TASKS);
            CHECK(ledger->one_thread);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}
#endif

static void the_system_is_asked_for_threads_before_libgomp_is(void) {
    for (int round = 0; round < 50; round++) {
        CHECK(bcfg_team_trial(0) == 0);
        CHECK(bcfg_team_trial(7) == 7);
    }
}

#ifndef WITHOUT_FORK
static int32_t threads_here(void) {
    char line[256];
    int32_t threads = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) return 0; /* nobody tells */
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "Threads:", 8) == 0) threads = (int32_t)strtol(line + 8, NULL, 10);
    (void)fclose(status);
    return threads;
}

static _Atomic bool working;

static void *work_asleep(void *unused) {
    while (working) {
        Ledger *ledger = new_ledger(3);
        bcfg_team_run_asleep(3, TASKS, note, ledger);
        check_all_ran(ledger, TASKS);
        free(ledger);
    }
    return unused;
}

/* The child has their records and none of the threads; it may fork, too. It allocates nothing: the
 * worker may hold a lock of the address sanitizer's allocator while it is forked. */
static void a_child_of_a_working_team_may_fork(void) {
    pthread_t worker;
    Ledger *ledger = new_ledger(1); /* each child has a copy */
    working = true;
    CHECK(pthread_create(&worker, NULL, work_asleep, NULL) == 0);
    for (int i = 0; i < 200; i++) {
        int status;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            const pid_t grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0) _exit(0);
            CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
            bcfg_team_run_asleep(3, TASKS, note, ledger);
            check_all_ran(ledger, TASKS);
            CHECK(ledger->one_thread);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    working = false;
    CHECK(pthread_join(worker, NULL) == 0);
    free(ledger);
}

/* So that nobody warns of a fork where threads run; a region after it has new ones. */
static void threads_that_sleep_end_before_a_fork(void) {
    const int32_t before = threads_here();
    Ledger *ledger = new_ledger(4);
    bcfg_team_run_asleep(4, TASKS, note, ledger);
    check_all_ran(ledger, TASKS);
    if (before > 0) CHECK(threads_here() > before);
    free(ledger);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(0);
    if (before > 0) CHECK(threads_here() <= before);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    ledger = new_ledger(4);
    bcfg_team_run_asleep(4, TASKS, note, ledger);
    check_all_ran(ledger, TASKS);
    free(ledger);
}
#endif

static void check_team(void) {
    every_index_runs_once();
    any_number_of_threads_will_do();
    a_region_inside_a_region_is_serial();
    a_thread_can_be_made_to_work_alone();
    the_caller_hears_of_overflows_elsewhere();
    many_threads_may_call_at_once();
#ifndef WITHOUT_OPENMP
    openmp_is_obeyed();
#endif
#ifndef WITHOUT_FORK
    a_forked_child_works_alone();
#endif
}

int main(void) {
#ifndef WITHOUT_FORK
    a_forked_child_works_alone(); /* before the first region too */
#endif
    the_system_is_asked_for_threads_before_libgomp_is();
    check_team();
    team = bcfg_team_run_asleep;
    check_team();
#ifndef WITHOUT_FORK
    threads_that_sleep_end_before_a_fork();
    a_child_of_a_working_team_may_fork();
#endif
    return 0;
}
