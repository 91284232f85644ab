/* Where a thread is while it calls a function: whose code it is that really computes.
 *
 * A timer sends a signal to this thread alone, and the handler notes the address of the instruction
 * at which it came. The signal is one that nobody in the process handles, so a profiler that uses
 * SIGPROF goes on as before.
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* REG_RIP, gettid */
#endif
#include "glue.h"
#include "core/team.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__linux__) && defined(__x86_64__)
#define INSTRUCTION(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_RIP])
#elif defined(__linux__) && defined(__aarch64__)
#define INSTRUCTION(context) ((uintptr_t)(context)->uc_mcontext.pc)
#endif

#if defined(INSTRUCTION)
#ifndef sigev_notify_thread_id /* glibc 2.36 has the field, and no name for it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { MOST = 4096 };

/* The process whose thread is sampled now, or 0: `addresses` serves one thread at a time. A child that
 * is forked meanwhile inherits the number, which is not its own, and may sample. */
static atomic_int busy;
static _Atomic uintptr_t addresses[MOST];
static atomic_uint taken;

static void note(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    unsigned at = atomic_load_explicit(&taken, memory_order_relaxed);
    if (at == MOST) return;
    atomic_store_explicit(&addresses[at], INSTRUCTION((const ucontext_t *)context),
                          memory_order_relaxed);
    atomic_store_explicit(&taken, at + 1, memory_order_relaxed);
}

/* Handle the highest real-time signal that nobody handles or ignores; 0 where there is none. Those that
 * this thread blocks are passed over: somebody waits for them, and the handler would not run. */
static int take_signal(struct sigaction *before) {
    struct sigaction action;
    sigset_t blocked;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0) return 0;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (int number = SIGRTMAX; number >= SIGRTMIN; number--)
        if (!sigismember(&blocked, number) && sigaction(number, NULL, before) == 0 &&
             !(before->sa_flags & SA_SIGINFO) &&
            before->sa_handler == SIG_DFL && sigaction(number, &action, NULL) == 0)
            return number;
    return 0;
}

static void give_back(int number, const struct sigaction *before) {
    struct sigaction ignore;
    /* The function has set a handler for the signal meanwhile: leave it. */
    if (sigaction(number, NULL, &ignore) == 0 &&
        !(ignore.sa_flags & SA_SIGINFO && ignore.sa_sigaction == note))
        return;
    memset(&ignore, 0, sizeof ignore);
    ignore.sa_handler = SIG_IGN;
    /* One that is pending would end the process by the default action: ignoring discards it. */
    sigaction(number, &ignore, NULL);
    sigaction(number, before, NULL);
}

static int start(timer_t *timer, int number, long microseconds) {
    struct sigevent event;
    struct itimerspec every;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = number;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, timer) != 0) return -1;
    every.it_interval.tv_sec = microseconds / 1000000;
    every.it_interval.tv_nsec = microseconds % 1000000 * 1000;
    every.it_value = every.it_interval;
    if (timer_settime(*timer, 0, &every, NULL) == 0) return 0;
    timer_delete(*timer);
    return -1;
}

static PyObject *listed(void) {
    unsigned count = atomic_load_explicit(&taken, memory_order_relaxed);
    PyObject *found = PyList_New(count);
    for (unsigned at = 0; found != NULL && at < count; at++) {
        uintptr_t address = atomic_load_explicit(&addresses[at], memory_order_relaxed);
        PyObject *number = PyLong_FromUnsignedLongLong(address);
        if (number == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, at, number);
    }
    return found;
}

static PyObject *sample(PyObject *function, long microseconds) {
    struct sigaction before;
    timer_t timer;
    int number = take_signal(&before);
    if (number == 0) Py_RETURN_NONE;
    atomic_store_explicit(&taken, 0, memory_order_relaxed);
    if (start(&timer, number, microseconds) != 0) { /* signals or timers of the user are used up */
        give_back(number, &before);
        Py_RETURN_NONE;
    }
    bcfg_team_alone(true); /* on a busy machine other threads may do all that our kernels have to do */
    PyObject *result = PyObject_CallNoArgs(function);
    bcfg_team_alone(false);
    timer_delete(timer);
    give_back(number, &before);
    if (result == NULL) return NULL;
    Py_DECREF(result);
    return listed();
}
#endif

PyObject *bcfg_sampled(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 2 || !PyCallable_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "sampled takes a function and a number of microseconds");
        return NULL;
    }
    long microseconds = PyLong_AsLong(arguments[1]);
    if (microseconds == -1 && PyErr_Occurred()) return NULL;
    if (microseconds < 50 || microseconds > 1000000)
        return PyErr_Format(PyExc_ValueError, "cannot sample every %ld microseconds: 50 to 1000000",
                            microseconds);
#if defined(INSTRUCTION)
    int own = (int)getpid(), other = atomic_load(&busy);
    if (other == own || !atomic_compare_exchange_strong(&busy, &other, own)) Py_RETURN_NONE;
    PyObject *found = sample(arguments[0], microseconds);
    atomic_store(&busy, 0);
    return found;
#else
    Py_RETURN_NONE;
#endif
}
