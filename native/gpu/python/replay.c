/* What a call of a known kind does: arrays for its results, and for what is worked in, made by the library
 * that owns its own; then its steps, in order. Python has described them, once. */
#include "gpu/python/known.h"

#include <stdlib.h>

/* An array that is made. */
typedef struct {
    int32_t type, dimensions;
    int64_t shape[KNOWN_DIMENSIONS];
    uintptr_t alignment;               /* that what was chosen relies on */
    PyObject *views;                   /* owned: what the caller sees of it, methods in order; NULL */
} Made;

typedef struct {
    const StepKind *kind;
    PyObject *said;                    /* owned: the tuple that describes it */
    void *is;                          /* owned */
} Step;

struct Script {
    int users;                         /* under the GIL */
    PyObject *about;                   /* owned: what `served` is told */
    int made_count, given_count, step_count;
    Made made[KNOWN_RESULTS];
    Step steps[KNOWN_STEPS];
};

static const StepKind *const kinds[] = {&bcfg_launch_step, &bcfg_transform_step, &bcfg_graph_step,
                                        &bcfg_method_step};

/* --- for kinds of steps ----------------------------------------------------------------------- */

int bcfg_step_operand(long number, StepScope scope) {
    if (number < 0 || number >= scope.arrays + scope.made) return -1;
    return (int)(number < scope.arrays ? number : KNOWN_ARRAYS + number - scope.arrays);
}

void *bcfg_step_memory(const Replay *replay, int operand) {
    if (operand >= KNOWN_ARRAYS) return replay->memory[operand - KNOWN_ARRAYS];
    return replay->call->is_taken[operand] ? replay->call->arrays[operand].data : NULL;
}

bcfg_work bcfg_step_work(const Replay *replay, const bcfg_device_library *driver) {
    const DeviceArray *first = &replay->call->arrays[0];
    return (bcfg_work){.driver = driver, .index = first->index, .settles = replay->settles,
                       .stream = first->stream, .others = (void *const *)replay->others,
                       .other_count = replay->other_count};
}

StepEnd bcfg_step_end(Replay *replay, bcfg_outcome outcome, const bcfg_fault *fault) {
    if (outcome == BCFG_DEVICE_OK) return STEP_DONE;
    replay->failed = bcfg_fault_object(outcome, fault);
    return replay->failed != NULL ? STEP_FAILED : STEP_RAISED;
}

bool bcfg_step_area(const Replay *replay, int64_t bytes, StepArea *area) {
    *area = (StepArea){.memory = NULL};
    if (bytes == 0) return true;
    area->from = bcfg_allocator_of(&replay->call->arrays[0]);
    return area->from.get(area->from.context, bytes, &area->memory, &area->holder);
}

void bcfg_step_area_drop(const StepArea *area) {
    if (area->holder != NULL) area->from.release(area->holder);
}

/* --- scripts ---------------------------------------------------------------------------------- */

Script *bcfg_script_keep(Script *script) {
    script->users++;
    return script;
}

void bcfg_script_drop(Script *script) {
    if (--script->users > 0) return;
    for (int i = 0; i < KNOWN_STEPS; i++) {
        free(script->steps[i].is);
        Py_XDECREF(script->steps[i].said);
    }
    for (int i = 0; i < KNOWN_RESULTS; i++) Py_XDECREF(script->made[i].views);
    Py_XDECREF(script->about);
    free(script);
}

bool bcfg_script_uses(const Script *script, const PyObject *owner) {
    for (int i = 0; i < script->step_count; i++) {
        PyObject *said = script->steps[i].said;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(said); k++)
            if (PyTuple_GET_ITEM(said, k) == owner) return true;
    }
    return false;
}

static bool parse_made(PyObject *tuple, Made *made) {
    const char *element;
    PyObject *shape, *views = NULL;
    unsigned int alignment = 16;
    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "sO!|O!I", &element, &PyTuple_Type, &shape, &PyTuple_Type, &views,
                          &alignment))
        return false;
    made->type = bcfg_device_type(element);
    made->dimensions = (int32_t)PyTuple_GET_SIZE(shape);
    made->alignment = alignment;
    if (views != NULL && !bcfg_step_is_views(views)) return false;
    if (made->type < 0 || made->dimensions > KNOWN_DIMENSIONS || alignment == 0) return false;
    for (int32_t d = 0; d < made->dimensions; d++)
        made->shape[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
    if (PyErr_Occurred()) return false;
    if (views != NULL && PyTuple_GET_SIZE(views) > 0) made->views = Py_NewRef(views);
    return true;
}

/* A step whose tuple does not begin with a name is a launch. */
static bool parse_step(PyObject *tuple, StepScope scope, Step *step) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) == 0) return false;
    PyObject *name = PyTuple_GET_ITEM(tuple, 0);
    step->kind = PyUnicode_Check(name) ? NULL : &bcfg_launch_step;
    for (size_t i = 0; step->kind == NULL && i < sizeof kinds / sizeof *kinds; i++)
        if (PyUnicode_CompareWithASCIIString(name, kinds[i]->name) == 0) step->kind = kinds[i];
    if (step->kind == NULL) return false;
    step->is = calloc(1, step->kind->bytes);
    if (step->is == NULL) return PyErr_NoMemory() != NULL;
    step->said = Py_NewRef(tuple);
    return step->kind->parse(tuple, scope, step->is);
}

Script *bcfg_script_parse(PyObject *steps, PyObject *results, int given, int arrays,
                          PyObject *about) {
    Script *script = calloc(1, sizeof *script);
    if (script == NULL) return (Script *)PyErr_NoMemory();
    script->users = 1;
    script->about = Py_NewRef(about);
    Py_ssize_t step_count = PyTuple_GET_SIZE(steps), made_count = PyTuple_GET_SIZE(results);
    StepScope scope = {arrays, (int)made_count};
    bool fine = step_count <= KNOWN_STEPS && made_count <= KNOWN_RESULTS && given <= made_count;
    for (Py_ssize_t i = 0; fine && i < made_count; i++)
        fine = parse_made(PyTuple_GET_ITEM(results, i), &script->made[i]);
    for (Py_ssize_t i = 0; fine && i < step_count; i++)
        fine = parse_step(PyTuple_GET_ITEM(steps, i), scope, &script->steps[i]);
    if (fine) {
        script->step_count = (int)step_count;
        script->made_count = (int)made_count;
        script->given_count = given < 0 ? (int)made_count : given;
        return script;
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "device_remember: more than is kept of a call");
    bcfg_script_drop(script);
    return NULL;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* 1 made, 0 not as what was chosen relies on, -1 with an exception set. */
static int make(const Script *script, Replay *replay) {
    for (int i = 0; i < script->made_count; i++) {
        const Made *wanted = &script->made[i];
        DeviceArray like = replay->call->arrays[0], made;
        bcfg_set_type(&like, wanted->type);
        replay->made[i] = bcfg_make_by_exchange(&like, wanted->dimensions, wanted->shape, &made);
        if (replay->made[i] == NULL) return -1;
        replay->memory[i] = made.data;
        if ((uintptr_t)made.data % wanted->alignment != 0) return 0;
        replay->seen[i] = wanted->views == NULL
                              ? Py_NewRef(replay->made[i])
                              : bcfg_step_view(replay->made[i], wanted->views);
        if (replay->seen[i] == NULL) return -1;
    }
    return 1;
}

static void look_at_streams(Replay *replay) {
    const KnownCall *call = replay->call;
    for (int i = 0; i < KNOWN_ARRAYS; i++) {
        if (!call->is_taken[i]) continue;
        void *stream = call->arrays[i].stream;
        replay->settles = replay->settles || call->arrays[i].settles;
        bool counts = stream != call->arrays[0].stream;
        for (int k = 0; k < replay->other_count; k++)
            counts = counts && replay->others[k] != stream;
        if (counts) replay->others[replay->other_count++] = stream;
    }
}

/* Counts the call, tells those who trace, and gives its results. */
static PyObject *finished(const Script *script, Replay *replay) {
    PyObject *told = bcfg_served(NULL, ((PyTupleObject *)script->about)->ob_item,
                                 PyTuple_GET_SIZE(script->about));
    PyObject *answer = told != NULL ? PyTuple_New(1 + script->given_count) : NULL;
    Py_XDECREF(told);
    if (answer == NULL) return NULL;
    PyTuple_SET_ITEM(answer, 0, Py_NewRef(Py_None));
    for (int i = 0; i < script->given_count; i++) {
        PyTuple_SET_ITEM(answer, 1 + i, replay->seen[i]);
        replay->seen[i] = NULL;
    }
    return answer;
}

PyObject *bcfg_script_run(const Script *script, const KnownCall *call, uint64_t seed) {
    Replay replay = {.call = call, .seed = seed};
    PyObject *answer = NULL;
    look_at_streams(&replay);
    int status = make(script, &replay);
    StepEnd end = status == 1 ? STEP_DONE : status == 0 ? STEP_LEFT : STEP_RAISED;
    int at = 0;
    while (end == STEP_DONE && at < script->step_count) {
        const Step *step = &script->steps[at++];
        end = step->kind->run(step->is, &replay);
    }
    if (end == STEP_DONE) answer = finished(script, &replay);
    if (end == STEP_LEFT) answer = Py_NewRef(Py_None);
    if (end == STEP_FAILED)
        answer = PyTuple_Pack(3, replay.failed, script->about, script->steps[at - 1].said);
    Py_XDECREF(replay.failed);
    for (int i = 0; i < KNOWN_RESULTS; i++) {
        Py_XDECREF(replay.seen[i]);
        Py_XDECREF(replay.made[i]);
    }
    return answer;
}
