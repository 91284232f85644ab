/* The kinds of steps of a known call: a launch of our own kernel, a run of cuFFT's plan, a run of cuDNN's,
 * and a method of an array. Another kind is one more function that parses and one that runs. */
#include "gpu/python/known.h"

/* --- launches --------------------------------------------------------------------------------- */

enum { MOST_BYTES = 512 };             /* of an argument block */

/* Places are those of addresses, and of the seed, in the block, in bytes; -1: none. */
typedef struct {
    const bcfg_kernel *kernel;         /* for ever */
    uint32_t grid, threads;
    int32_t array_places[KNOWN_ARRAYS], result_places[KNOWN_RESULTS], seed_place;
    Py_ssize_t bytes;
    char block[MOST_BYTES];
} Launch;

/* Places in a block; those that are not named are none. */
static bool parse_places(PyObject *tuple, int most, Py_ssize_t bytes, int32_t *places) {
    for (int i = 0; i < most; i++) places[i] = -1;
    if (PyTuple_GET_SIZE(tuple) > most) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        long place = PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
        if (PyErr_Occurred() || place < -1 || place > bytes - (long)sizeof(uint64_t)) return false;
        places[i] = (int32_t)place;
    }
    return true;
}

/* (kernel, grid, threads, argument, places of arrays, of results, of the seed) */
static bool parse_launch(PyObject *tuple, StepScope scope, void *step) {
    (void)scope;
    Launch *launch = step;
    PyObject *capsule, *arrays, *results, *seed;
    Py_buffer block;
    if (!PyArg_ParseTuple(tuple, "OIIy*O!O!O!:launch", &capsule, &launch->grid, &launch->threads,
                          &block, &PyTuple_Type, &arrays, &PyTuple_Type, &results, &PyTuple_Type,
                          &seed))
        return false;
    launch->kernel = bcfg_kernel_of(capsule);
    launch->bytes = block.len;
    bool fine = launch->kernel != NULL && block.len <= MOST_BYTES &&
                parse_places(arrays, KNOWN_ARRAYS, block.len, launch->array_places) &&
                parse_places(results, KNOWN_RESULTS, block.len, launch->result_places) &&
                parse_places(seed, 1, block.len, &launch->seed_place);
    if (fine) memcpy(launch->block, block.buf, (size_t)block.len);
    PyBuffer_Release(&block);
    return fine;
}

static void put(char *block, int32_t place, uint64_t number) {
    if (place >= 0) memcpy(block + place, &number, sizeof number);
}

static StepEnd run_launch(const void *step, Replay *replay) {
    const Launch *launch = step;
    _Alignas(16) char block[MOST_BYTES]; /* its own: other threads may make the same call */
    memcpy(block, launch->block, (size_t)launch->bytes);
    put(block, launch->seed_place, replay->seed);
    for (int i = 0; i < KNOWN_ARRAYS; i++)
        if (replay->call->is_taken[i])
            put(block, launch->array_places[i], (uintptr_t)replay->call->arrays[i].data);
    for (int i = 0; i < KNOWN_RESULTS; i++)
        if (replay->made[i] != NULL)
            put(block, launch->result_places[i], (uintptr_t)replay->memory[i]);
    bcfg_kernel_call call = {.work = bcfg_step_work(replay, launch->kernel->driver),
                             .grid = launch->grid, .threads = launch->threads, .argument = block};
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_kernel_launch(launch->kernel, &call, &fault);
    Py_END_ALLOW_THREADS
    return bcfg_step_end(replay, outcome, &fault);
}

const StepKind bcfg_launch_step = {"launch", sizeof(Launch), parse_launch, run_launch};

/* --- transforms ------------------------------------------------------------------------------- */

typedef struct {
    bcfg_transform_plan *plan;         /* its capsule is in the step's tuple */
    long long bytes;                   /* that it works in */
    int input, output;                 /* operands */
    bcfg_transform_run run;
} Transform;

/* ("transform", plan, bytes, input, output, direction, count, input step, output step, said) */
static bool parse_transform(PyObject *tuple, StepScope scope, void *step) {
    Transform *transform = step;
    PyObject *name, *capsule, *said;
    int input, output;
    long long count, input_step, output_step;
    if (!PyArg_ParseTuple(tuple, "UOLiiiLLLO:transform", &name, &capsule, &transform->bytes,
                          &input, &output, &transform->run.direction, &count, &input_step,
                          &output_step, &said))
        return false;
    transform->plan = bcfg_transform_plan_of(capsule);
    transform->input = bcfg_step_operand(input, scope);
    transform->output = bcfg_step_operand(output, scope);
    transform->run.count = count;
    transform->run.input_step = input_step;
    transform->run.output_step = output_step;
    return transform->plan != NULL && transform->input >= 0 && transform->output >= 0;
}

static StepEnd run_transform(const void *step, Replay *replay) {
    const Transform *transform = step;
    bcfg_transform_run run = transform->run;
    StepArea area;
    if (!bcfg_step_area(replay, transform->bytes, &area)) return STEP_LEFT;
    run.input = bcfg_step_memory(replay, transform->input);
    run.output = bcfg_step_memory(replay, transform->output);
    run.area = area.memory;
    bcfg_work work = bcfg_step_work(replay, transform->plan->driver);
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_cufft_run(transform->plan, &work, &run, &fault);
    Py_END_ALLOW_THREADS
    bcfg_step_area_drop(&area);
    return bcfg_step_end(replay, outcome, &fault);
}

const StepKind bcfg_transform_step = {"transform", sizeof(Transform), parse_transform,
                                      run_transform};

/* --- graphs ----------------------------------------------------------------------------------- */

enum { MOST_TENSORS = 16, MOST_CONSTANTS = 32 };

typedef struct {
    const bcfg_device_library *library, *driver; /* for ever */
    unsigned long long number;         /* of the problem */
    int place;                         /* of the engine */
    int count;
    int64_t numbers[MOST_TENSORS];
    int operands[MOST_TENSORS];        /* below 0: a place in the constants, -1 being the first */
    _Alignas(16) char constants[MOST_CONSTANTS];
    long long bytes;                   /* that it works in */
} GraphRun;

/* ("graph", library, driver, number, place, tensors, operands, constants, bytes, said) */
static bool parse_graph(PyObject *tuple, StepScope scope, void *step) {
    GraphRun *graph = step;
    PyObject *name, *tensors, *operands, *said;
    unsigned long long library, driver;
    Py_buffer constants;
    if (!PyArg_ParseTuple(tuple, "UKKKiO!O!y*LO:graph", &name, &library, &driver, &graph->number,
                          &graph->place, &PyTuple_Type, &tensors, &PyTuple_Type, &operands,
                          &constants, &graph->bytes, &said))
        return false;
    graph->library = (const bcfg_device_library *)(uintptr_t)library;
    graph->driver = (const bcfg_device_library *)(uintptr_t)driver;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    Py_ssize_t count = PyTuple_GET_SIZE(tensors), bytes = constants.len;
    bool fine = bcfg_device_describe(graph->library, &about) == BCFG_OK &&
                about.kind == BCFG_CUDNN &&
                bcfg_device_describe(graph->driver, &about) == BCFG_OK && about.kind == BCFG_CUDA &&
                count <= MOST_TENSORS && PyTuple_GET_SIZE(operands) == count &&
                bytes <= MOST_CONSTANTS;
    if (fine) memcpy(graph->constants, constants.buf, (size_t)bytes);
    PyBuffer_Release(&constants);
    graph->count = (int)count;
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        graph->numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tensors, i));
        long operand = PyLong_AsLong(PyTuple_GET_ITEM(operands, i));
        if (operand < 0 && operand >= -bytes) {
            graph->operands[i] = (int)operand;
        } else {
            graph->operands[i] = bcfg_step_operand(operand, scope);
            fine = graph->operands[i] >= 0;
        }
        fine = fine && !PyErr_Occurred();
    }
    return fine;
}

static StepEnd run_graph(const void *step, Replay *replay) {
    const GraphRun *graph = step;
    void *pointers[MOST_TENSORS];
    for (int i = 0; i < graph->count; i++)
        pointers[i] = graph->operands[i] < 0
                          ? (void *)(graph->constants + (-1 - graph->operands[i]))
                          : bcfg_step_memory(replay, graph->operands[i]);
    StepArea area;
    if (!bcfg_step_area(replay, graph->bytes, &area)) return STEP_LEFT;
    bcfg_cudnn_pack pack = {graph->count, graph->numbers, pointers, area.memory};
    bcfg_work work = bcfg_step_work(replay, graph->driver);
    work.library = graph->library;
    bool known = false;
    bcfg_cudnn_call call = {.said = ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_graph_run(&work, &call, graph->number, graph->place, &pack, &known);
    Py_END_ALLOW_THREADS
    bcfg_step_area_drop(&area);
    if (outcome == BCFG_DEVICE_OK) return known ? STEP_DONE : STEP_LEFT; /* this handle has no plan */
    replay->failed = bcfg_graph_failed(outcome, &call);
    return replay->failed != NULL ? STEP_FAILED : STEP_RAISED;
}

const StepKind bcfg_graph_step = {"graph", sizeof(GraphRun), parse_graph, run_graph};

/* --- methods ---------------------------------------------------------------------------------- */

typedef struct {
    int target, source;                /* operands; no source: -1 */
    PyObject *target_views, *name, *arguments, *source_views; /* in the step's tuple */
} Method;

/* Views of an array: (method, arguments ...) for each, in order. New reference. */
PyObject *bcfg_step_view(PyObject *array, PyObject *views) {
    PyObject *at = Py_NewRef(array);
    for (Py_ssize_t i = 0; at != NULL && i < PyTuple_GET_SIZE(views); i++) {
        PyObject *view = PyTuple_GET_ITEM(views, i), *given[2] = {at, NULL};
        if (PyTuple_GET_SIZE(view) > 1) given[1] = PyTuple_GET_ITEM(view, 1);
        PyObject *seen = PyObject_VectorcallMethod(PyTuple_GET_ITEM(view, 0), given,
                                                   (size_t)PyTuple_GET_SIZE(view), NULL);
        Py_SETREF(at, seen);
    }
    return at;
}

bool bcfg_step_is_views(PyObject *views) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(views); i++) {
        PyObject *view = PyTuple_GET_ITEM(views, i);
        if (!PyTuple_Check(view) || PyTuple_GET_SIZE(view) < 1 || PyTuple_GET_SIZE(view) > 2 ||
            !PyUnicode_Check(PyTuple_GET_ITEM(view, 0)))
            return false;
    }
    return true;
}

/* ("method", target, its views, name, arguments, source or -1, its views): at most one argument, or
 * the source. */
static bool parse_method(PyObject *tuple, StepScope scope, void *step) {
    Method *method = step;
    PyObject *kind;
    int target, source;
    if (!PyArg_ParseTuple(tuple, "UiO!UO!iO!:method", &kind, &target, &PyTuple_Type,
                          &method->target_views, &method->name, &PyTuple_Type, &method->arguments,
                          &source, &PyTuple_Type, &method->source_views))
        return false;
    method->target = bcfg_step_operand(target, scope);
    method->source = source < 0 ? -1 : bcfg_step_operand(source, scope);
    return method->target >= 0 && (source < 0 || method->source >= 0) &&
           PyTuple_GET_SIZE(method->arguments) <= (source < 0) &&
           bcfg_step_is_views(method->target_views) && bcfg_step_is_views(method->source_views);
}

static PyObject *object_of(const Replay *replay, int operand) {
    if (operand >= KNOWN_ARRAYS) return replay->seen[operand - KNOWN_ARRAYS];
    return replay->call->is_taken[operand] ? replay->call->arrays[operand].object : Py_None;
}

static StepEnd run_method(const void *step, Replay *replay) {
    const Method *method = step;
    PyObject *target = bcfg_step_view(object_of(replay, method->target), method->target_views);
    PyObject *given[2] = {target, NULL}, *source = NULL, *done = NULL;
    size_t count = 1;
    if (target != NULL && method->source >= 0) {
        source = bcfg_step_view(object_of(replay, method->source), method->source_views);
        given[count++] = source;
    } else if (PyTuple_GET_SIZE(method->arguments) > 0) {
        given[count++] = PyTuple_GET_ITEM(method->arguments, 0);
    }
    if (target != NULL && (method->source < 0 || source != NULL))
        done = PyObject_VectorcallMethod(method->name, given, count, NULL);
    Py_XDECREF(source);
    Py_XDECREF(target);
    if (done == NULL) return STEP_RAISED;
    Py_DECREF(done);
    return STEP_DONE;
}

const StepKind bcfg_method_step = {"method", sizeof(Method), parse_method, run_method};
