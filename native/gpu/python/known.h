/* Calls of kinds that were seen, which C makes alone: what the table of kinds (known.c), what
 * such a call does (replay.c), and its kinds of steps share. */
#ifndef BACKENDCFG_PYTHON_DEVICE_KNOWN_H
#define BACKENDCFG_PYTHON_DEVICE_KNOWN_H

#include "gpu/python/device.h"
#include "gpu/libraries/cudnn.h"
#include "gpu/libraries/cufft.h"

enum {
    KNOWN_ARRAYS = 7,
    KNOWN_RESULTS = 5,                 /* with arrays that are only worked in */
    KNOWN_STEPS = 8,
    KNOWN_DIMENSIONS = 6
};

/* What calls must have in common, besides options and flags. */
typedef struct {
    int64_t words[2 + KNOWN_ARRAYS * (1 + 2 * KNOWN_DIMENSIONS)];
    int count;
} KnownKind;

/* The arrays of a call. */
typedef struct {
    DeviceArray arrays[KNOWN_ARRAYS];
    bool is_taken[KNOWN_ARRAYS];       /* the others are None */
    KnownKind kind;
} KnownCall;

/* A call while it is made again. */
typedef struct {
    const KnownCall *call;
    PyObject *made[KNOWN_RESULTS];     /* owned: the arrays as they were made */
    PyObject *seen[KNOWN_RESULTS];     /* owned: as the caller, and their own methods, see them */
    void *memory[KNOWN_RESULTS];
    void *others[KNOWN_ARRAYS];        /* streams of other arrays, each once */
    int other_count;
    bool settles;
    uint64_t seed;
    PyObject *failed;                  /* owned: the function, its status and so on; NULL */
} Replay;

typedef enum {
    STEP_DONE,
    STEP_LEFT,                         /* to Python, which makes the whole call */
    STEP_FAILED,                       /* see Replay */
    STEP_RAISED                        /* a Python exception */
} StepEnd;

/* How many arrays a call has, and how many are made. Steps refer to them by number, those that are made
 * coming after the others. */
typedef struct {
    int arrays, made;
} StepScope;

/* A kind of step. Python describes a step by a tuple: the name of its kind, what `parse` reads, and what
 * a message says of it. The tuple is kept as long as the step, with all that is in it. */
typedef struct {
    const char *name;
    size_t bytes;                      /* of what is kept of a step */
    bool (*parse)(PyObject *tuple, StepScope scope, void *step); /* false where it does not fit */
    StepEnd (*run)(const void *step, Replay *replay);
} StepKind;
extern const StepKind bcfg_launch_step, bcfg_transform_step, bcfg_graph_step, bcfg_method_step;

/* What such a call does. */
typedef struct Script Script;

/* replay.c. Scripts are counted, because a call may run while its kind is forgotten. */
Script *bcfg_script_parse(PyObject *steps, PyObject *results, int given, int arrays,
                          PyObject *about);
Script *bcfg_script_keep(Script *script);
void bcfg_script_drop(Script *script);
/* Whether one of its steps uses an object. */
bool bcfg_script_uses(const Script *script, const PyObject *owner);
/* (None, results ...); (what failed, about, the tuple of that step); or None, where the call is of
 * another kind after all. */
PyObject *bcfg_script_run(const Script *script, const KnownCall *call, uint64_t seed);

/* For kinds of steps. An array by its number, as they are told apart here: from KNOWN_ARRAYS on it is one
 * that is made; -1 for none. */
int bcfg_step_operand(long number, StepScope scope);
void *bcfg_step_memory(const Replay *replay, int operand);
/* What a step does on the device, without a library. It points into the replay. */
bcfg_work bcfg_step_work(const Replay *replay, const bcfg_device_library *driver);
/* The end of a step of which only the outcome is known. */
StepEnd bcfg_step_end(Replay *replay, bcfg_outcome outcome, const bcfg_fault *fault);
/* Views of an array, (method, argument or nothing) for each, in order: whether a tuple says that, and the
 * last of them, a new reference. */
bool bcfg_step_is_views(PyObject *views);
PyObject *bcfg_step_view(PyObject *array, PyObject *views);
/* Memory to work in until the step is on the stream: false where there is none. */
typedef struct {
    bcfg_allocator from;
    void *memory, *holder;
} StepArea;
bool bcfg_step_area(const Replay *replay, int64_t bytes, StepArea *area);
void bcfg_step_area_drop(const StepArea *area);

/* transform.c: the plan in a capsule of its; NULL with an exception set. */
bcfg_transform_plan *bcfg_transform_plan_of(PyObject *capsule);
/* graph.c: a run of a plan with a handle that is lent for it, and (function, status, name, what
 * cuDNN says besides) where it failed; NULL with an exception set where the host's memory is full. */
bcfg_outcome bcfg_graph_run(const bcfg_work *work, bcfg_cudnn_call *call, uint64_t number,
                            int32_t place, const bcfg_cudnn_pack *pack, bool *known);
PyObject *bcfg_graph_failed(bcfg_outcome outcome, const bcfg_cudnn_call *call);

#endif
