/* The thread team that our own kernels share. Knows nothing of Python and nothing of arrays. */
#ifndef BACKENDCFG_TEAM_H
#define BACKENDCFG_TEAM_H

#include <stdbool.h>
#include <stdint.h>

/* No team is larger, so that a caller may keep a table with a place for each worker. */
enum { BCFG_TEAM_MOST = 256 };

/* One task: `index` in [0, tasks). No two tasks run at once with the same `worker`, which is in
 * [0, threads). The caller of bcfg_team_run is one of the workers. */
typedef void (*bcfg_task)(void *context, int64_t index, int32_t worker);

/* How many threads a parallel region may use here and now: what the OpenMP runtime of the process
 * answers for the calling thread (so omp_set_num_threads and torch.set_num_threads count), or the
 * CPUs that the process may run on where there is no such runtime. 1 inside a parallel region, be
 * it ours or somebody else's, and in a forked child, which has none of its parent's threads.
 *
 * The first call looks for the runtime, and loads libgomp when nobody has; ask only when there is
 * work for more than one thread. */
int32_t bcfg_team_size(void);

/* Runs task(context, i, worker) for each i in [0, tasks) exactly once and returns when all are
 * done. Workers take the next index; which worker takes which index is not repeatable, so a task
 * may write nothing but its own part of a result. What a task wrote is visible afterwards, and the
 * floating-point exceptions that it raised are raised in the calling thread.
 *
 * At most `threads` workers, bcfg_team_size() for 0; fewer where the system grants fewer. On the
 * calling thread alone, in ascending order, with 1 thread, 1 task, or where bcfg_team_size is 1.
 * May be called from many threads at once: each gets a team of its own.
 *
 * libgomp ends the process where the system has no thread for it, and nothing can be asked of it that
 * would fail instead. So before a thread asks for its first team, or for a larger one than before,
 * as many threads are started and ended again: once, about 30 us for each. Where the system refuses
 * one, the region gets as many threads of its own as there are. What others take between the trial
 * and libgomp's own start is not guarded against. */
void bcfg_team_run(int32_t threads, int64_t tasks, bcfg_task task, void *context);

/* The same on threads that sleep between two regions, beside libraries that have threads of their own:
 * libgomp's keep a processor for a while after each region, and a product of OpenBLAS that follows takes
 * up to twice as long. A worker that wakes late finds the work done and delays nobody, so more tasks
 * than threads are better. One region at a time: another, from another thread, runs on its caller
 * alone. */
void bcfg_team_run_asleep(int32_t threads, int64_t tasks, bcfg_task task, void *context);

/* How many threads such a region may use: as bcfg_team_size, but no more than the CPUs that the calling
 * thread may run on. Loads no libgomp, which binds the thread that loads it where OMP_PROC_BIND is set. */
int32_t bcfg_team_size_asleep(void);

/* true: from now on the calling thread works alone, as it does inside a parallel region; false: with a
 * team again. */
void bcfg_team_alone(bool alone);

/* team_trial.c: how many of `wanted` threads the system gives this process, by starting and ending
 * them. */
int32_t bcfg_team_trial(int32_t wanted);

#endif
