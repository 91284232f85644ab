/* PyTorch's attention on the CPU by our kernels: two kernels of PyTorch's operators, which it calls
 * without Python in between. A call that ours do not take is given to PyTorch's own function. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "core/core.h"
#include "kernels/attention.h"
#include "kernels/attention_backward.h"
#include "torch_interface.h"

#define OPERATION "scaled_dot_product_attention"
#define THEIRS "_scaled_dot_product_flash_attention_for_cpu"

static bcfg_torch_route route; /* defined below, with its kernels */
static PyObject *without_profile; /* the choice where no profile is in force */
static const char no_memory[] = "backendcfg: no memory for attention";

/* What both operators are given: the tensors, of which `grad_out` and so on are backward's alone. */
enum { GRAD_OUT, QUERY, KEY, VALUE, OUT, LOGSUMEXP, MASK, TENSORS };
typedef struct {
    torch_tensor tensors[TENSORS];
    double dropout, scale;
    bool is_causal, has_scale;
} Given;

/* Takes over what PyTorch's stack holds: `count` tensors that go to `places`, then the rest. */
static Given take(const uint64_t *stack, const int *places, int count) {
    Given given = {0};
    for (int i = 0; i < count; i++)
        given.tensors[places[i]] = (torch_tensor)(uintptr_t)stack[i];
    memcpy(&given.dropout, &stack[count], sizeof given.dropout);
    given.is_causal = stack[count + 1] & 0xff;
    uint64_t value;
    if (bcfg_torch_optional(stack[count + 2], &value)) {
        /* Autograd says "none" by a tensor that is not defined. */
        torch_tensor mask = (torch_tensor)(uintptr_t)value;
        bool is_defined = false;
        if (bcfg_torch.get_is_defined(mask, &is_defined) || !is_defined)
            (void)bcfg_torch.delete_tensor(mask);
        else
            given.tensors[MASK] = mask;
    }
    given.has_scale = bcfg_torch_optional(stack[count + 3], &value);
    if (given.has_scale) memcpy(&given.scale, &value, sizeof given.scale);
    return given;
}

static void release(torch_tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        if (tensors[i] != NULL) (void)bcfg_torch.delete_tensor(tensors[i]);
}

/* Ends a call: its results go to the stack. */
static void give(Given *given, uint64_t *stack, const torch_tensor *results, int count) {
    release(given->tensors, TENSORS);
    for (int i = 0; i < count; i++) stack[i] = (uint64_t)(uintptr_t)results[i];
}

/* What sums are kept in. */
static int32_t real_of(int32_t element) {
    return element == BCFG_FLOAT64 ? BCFG_FLOAT64 : BCFG_FLOAT32;
}

static int32_t element_of(int32_t type) {
    return type == bcfg_torch.type_bool() ? (int32_t)ATTENTION_BOOL : bcfg_torch_element(type);
}

/* Memory as an array of that element and of a shape of `dimensions` lengths, or one that broadcasts
 * to it; false where it is none. */
static bool lay_out(const torch_array *it, int32_t element, int dimensions, const int64_t *shape,
                    bool broadcasts, attention_array *array) {
    if (element_of(it->type) != element || it->dimensions > dimensions ||
        (it->dimensions < dimensions && !broadcasts))
        return false;
    int64_t size = element == ATTENTION_BOOL ? 1 : bcfg_element_size[element];
    int missing = dimensions - (int)it->dimensions;
    *array = (attention_array){.data = it->data};
    for (int d = missing; d < dimensions; d++) {
        int64_t length = it->sizes[d - missing];
        if (length == shape[d])
            array->strides[d] = it->strides[d - missing] * size;
        else if (length != 1 || !broadcasts)
            return false;
    }
    return true;
}

static bool take_mask(const Given *given, attention_inputs *in) {
    torch_array mask;
    if (given->tensors[MASK] == NULL) return true;
    if (given->is_causal || !bcfg_torch_describe(given->tensors[MASK], &mask)) return false;
    int64_t shape[] = {in->batch, in->heads, in->queries, in->keys};
    in->mask_element = element_of(mask.type);
    bool allowed = in->mask_element == ATTENTION_BOOL || in->mask_element == in->element ||
                   (in->mask_element == BCFG_FLOAT32 && in->element != BCFG_FLOAT64);
    return allowed && lay_out(&mask, in->mask_element, 4, shape, true, &in->mask);
}

/* What a kernel of ours reads; false for a call that is PyTorch's. */
static bool take_inputs(const Given *given, attention_inputs *in) {
    torch_array query, key, value;
    if (given->dropout != 0 || !bcfg_torch_describe(given->tensors[QUERY], &query) ||
        !bcfg_torch_describe(given->tensors[KEY], &key) ||
        !bcfg_torch_describe(given->tensors[VALUE], &value) || query.dimensions != 4 ||
        key.dimensions != 4 || value.dimensions != 4)
        return false;
    in->element = bcfg_torch_element(query.type);
    in->batch = query.sizes[0], in->heads = query.sizes[1], in->queries = query.sizes[2];
    in->width = query.sizes[3], in->key_heads = key.sizes[1], in->keys = key.sizes[2];
    in->value_width = value.sizes[3];
    in->is_causal = given->is_causal;
    /* pow, as Python has it: the same bits as an operation of ours. */
    in->scale = given->has_scale ? given->scale : pow((double)in->width, -0.5);
    if (in->element < 0 || in->width == 0 || in->value_width == 0 || in->key_heads == 0 ||
        in->heads % in->key_heads != 0)
        return false;
    int64_t query_shape[] = {in->batch, in->heads, in->queries, in->width};
    int64_t key_shape[] = {in->batch, in->key_heads, in->keys, in->width};
    int64_t value_shape[] = {in->batch, in->key_heads, in->keys, in->value_width};
    return lay_out(&query, in->element, 4, query_shape, false, &in->query) &&
           lay_out(&key, in->element, 4, key_shape, false, &in->key) &&
           lay_out(&value, in->element, 4, value_shape, false, &in->value) &&
           take_mask(given, in);
}

/* A new tensor, as bcfg_torch_new has it, and its memory. */
static torch_tensor new_tensor(int dimensions, const int64_t *shape, const int64_t *steps,
                               int32_t element, attention_array *array) {
    torch_tensor made = bcfg_torch_new(dimensions, shape, steps, element, array->strides);
    if (made == NULL) return NULL;
    for (int d = 0; d < dimensions; d++) array->strides[d] *= bcfg_element_size[element];
    void *data;
    (void)bcfg_torch.get_data(made, &data);
    array->data = data;
    return made;
}

/* What `attention_choice` says of the profile in force here: (kernel, because, refusal). A new
 * reference. */
static PyObject *choice_here(void) {
    Prepared *prepared;
    if (bcfg_innermost(&prepared) < 0) return NULL;
    PyObject **kept = prepared != NULL ? &prepared->attention : &without_profile;
    if (*kept != NULL) return Py_NewRef(*kept);
    if (bcfg_need(bcfg_callbacks.attention_choice, "attention_choice") == NULL) return NULL;
    Py_XINCREF(prepared); /* Python may end the scope meanwhile */
    PyObject *choice = PyObject_CallNoArgs(bcfg_callbacks.attention_choice), *text;
    if (choice != NULL && !PyArg_ParseTuple(choice, "UUU", &text, &text, &text)) Py_CLEAR(choice);
    if (choice != NULL) Py_XSETREF(*kept, Py_NewRef(choice));
    Py_XDECREF(prepared);
    return choice;
}

/* What was raised cannot pass through PyTorch: it is shown, and Ctrl-C comes after the call. */
static void put_off_exception(void) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else {
        PyErr_WriteUnraisable(NULL);
    }
}

/* Counts a call, and tells the traces. */
static int record(const char *operation, PyObject *kernel, PyObject *because,
                  const attention_inputs *in) {
    PyObject *told[5] = {PyUnicode_InternFromString(operation), kernel, because, NULL, NULL};
    if (bcfg_tracing) {
        told[3] = Py_BuildValue("LLLLL", (long long)in->batch, (long long)in->heads,
                                (long long)in->queries, (long long)in->keys, (long long)in->width);
        told[4] = PyUnicode_InternFromString(bcfg_element_names[in->element]);
    }
    bool is_made = told[0] != NULL && (!bcfg_tracing || (told[3] != NULL && told[4] != NULL));
    PyObject *done = is_made ? bcfg_served(NULL, told, bcfg_tracing ? 5 : 3) : NULL;
    Py_XDECREF(told[0]);
    Py_XDECREF(told[3]);
    Py_XDECREF(told[4]);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

/* Whether one of our kernels serves a forward pass, by the profile in force, and which; and whether
 * the result is to be checked. */
static bool choose(attention_job *job, bool *checks) {
    if (!Py_IsInitialized()) return false;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *choice = choice_here();
    const bcfg_snapshot *snapshot = choice != NULL ? bcfg_take_snapshot() : NULL;
    bool is_ours = false, is_told = snapshot != NULL;
    if (is_told) {
        job->in.everywhere = bcfg_everywhere(snapshot);
        PyObject *kernel = PyTuple_GET_ITEM(choice, 0);
        job->streams = bcfg_is(kernel, "efficient");
        is_ours = job->streams || bcfg_is(kernel, "flash");
        *checks = !bcfg_is(PyTuple_GET_ITEM(choice, 2), "");
        if (is_ours) is_told = record(OPERATION, kernel, PyTuple_GET_ITEM(choice, 1), &job->in) == 0;
    }
    if (!is_told) put_off_exception();
    Py_XDECREF(choice);
    PyGILState_Release(state);
    return is_ours;
}

/* Raises what `ops.check_finite` says of a result. */
static _Noreturn void refuse(void) {
    static _Thread_local char text[512];
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *choice = choice_here();
    const char *words = choice != NULL ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(choice, 2)) : NULL;
    if (words == NULL) put_off_exception();
    PyOS_snprintf(text, sizeof text, "%s", words != NULL ? words : "");
    Py_XDECREF(choice);
    PyGILState_Release(state);
    bcfg_torch_raise(text);
}

static bool is_finite(const attention_job *job) {
    const attention_inputs *in = &job->in;
    for (int64_t batch = 0; batch < in->batch; batch++)
        for (int64_t head = 0; head < in->heads; head++)
            if (bcfg_not_finite(in->element, attention_at(&job->out, batch, head, 0),
                                job->out.strides[2], in->queries, in->value_width) >= 0)
                return false;
    return true;
}

/* Writes the logarithms of sums as PyTorch's kernel has them: heads innermost, and 0, not minus
 * infinity, for a query that sees nothing, since its backward pass may follow. */
#define WRITE_LOGSUMEXP(type)                                                                      \
    for (int64_t batch = 0; batch < in->batch; batch++)                                            \
        for (int64_t head = 0; head < in->heads; head++)                                           \
            for (int64_t query = 0; query < in->queries; query++) {                                \
                type sum = ((const type *)from)[(batch * in->heads + head) * in->queries + query]; \
                type *place = (type *)(void *)attention_at(to, batch, head, query);                \
                *place = isinf(sum) && sum < 0 ? 0 : sum;                                          \
            }

static void write_logsumexp(const attention_inputs *in, const void *from,
                            const attention_array *to) {
    if (in->element == BCFG_FLOAT64) {
        WRITE_LOGSUMEXP(double)
    } else {
        WRITE_LOGSUMEXP(float)
    }
}

/* Computes (out, logsumexp); false without memory. */
static bool attend(attention_job *job, torch_tensor made[2]) {
    const attention_inputs *in = &job->in;
    int64_t shape[] = {in->batch, in->heads, in->queries, in->value_width};
    /* In memory as the query, because compiled code counts on it; rows dense. */
    int64_t steps[] = {INT64_MAX, 0, 0, 0}, lengthwise[] = {2, 0, 1};
    for (int d = 0; d < 3; d++)
        if (in->query.strides[d] > 0)
            steps[d] = in->query.strides[d];
        else if (d > 0)
            steps[d] = steps[d - 1]; /* repeated: where it stands */
    attention_array sums = {0};
    made[0] = new_tensor(4, shape, steps, in->element, &job->out);
    made[1] = new_tensor(3, shape, lengthwise, real_of(in->element), &sums);
    if (made[0] == NULL || made[1] == NULL) return false;
    job->logsumexp = malloc((size_t)(in->batch * in->heads * in->queries + 1) *
                            (size_t)bcfg_element_size[real_of(in->element)]);
    bool done = job->logsumexp != NULL && bcfg_attention(job, 0, NULL) == BCFG_OK;
    if (done) write_logsumexp(in, job->logsumexp, &sums);
    free(job->logsumexp);
    return done;
}

static void forward(uint64_t *stack, uint64_t arguments, uint64_t results) {
    (void)arguments, (void)results;
    static const int places[] = {QUERY, KEY, VALUE};
    Given given = take(stack, places, 3);
    torch_tensor *from = given.tensors, made[2] = {NULL, NULL};
    attention_job job = {0};
    bool checks = false;
    if (atomic_load(&route.is_on) && take_inputs(&given, &job.in) && choose(&job, &checks)) {
        bool done = attend(&job, made), is_right = !done || !checks || is_finite(&job);
        give(&given, stack, made, 2);
        if (done && is_right) return;
        release(made, 2);
        if (!is_right) refuse();
        bcfg_torch_raise(no_memory);
    }
    int failed = bcfg_torch.attention(from[QUERY], from[KEY], from[VALUE], given.dropout,
                                      given.is_causal, from[MASK] != NULL ? &from[MASK] : NULL,
                                      given.has_scale ? &given.scale : NULL, &made[0], &made[1]);
    give(&given, stack, made, 2);
    if (failed) bcfg_torch_raise_theirs();
}

/* What the forward pass returned, and the gradient of it. */
static bool take_outputs(const Given *given, backward_job *job) {
    const attention_inputs *in = &job->in;
    torch_array grad_out, out, logsumexp;
    int64_t shape[] = {in->batch, in->heads, in->queries, in->value_width};
    return bcfg_torch_describe(given->tensors[GRAD_OUT], &grad_out) &&
           bcfg_torch_describe(given->tensors[OUT], &out) &&
           bcfg_torch_describe(given->tensors[LOGSUMEXP], &logsumexp) &&
           lay_out(&grad_out, in->element, 4, shape, false, &job->grad_out) &&
           lay_out(&out, in->element, 4, shape, false, &job->out) &&
           lay_out(&logsumexp, real_of(in->element), 3, shape, false, &job->logsumexp);
}

/* Computes the gradients of query, key and value; false without memory. */
static bool attend_backward(backward_job *job, torch_tensor made[3]) {
    const attention_inputs *in = &job->in;
    int64_t query[] = {in->batch, in->heads, in->queries, in->width};
    int64_t key[] = {in->batch, in->key_heads, in->keys, in->width};
    int64_t value[] = {in->batch, in->key_heads, in->keys, in->value_width};
    /* In memory as PyTorch's kernel has them: (batch, length, heads, width). */
    static const int64_t steps[] = {3, 1, 2, 0};
    made[0] = new_tensor(4, query, steps, in->element, &job->grad_query);
    made[1] = new_tensor(4, key, steps, in->element, &job->grad_key);
    made[2] = new_tensor(4, value, steps, in->element, &job->grad_value);
    return made[0] != NULL && made[1] != NULL && made[2] != NULL &&
           bcfg_attention_backward(job, 0, NULL) == BCFG_OK;
}

/* Counts a backward pass, which has one kernel, and takes the tier, all that it reads. */
static void begin_backward(attention_inputs *in) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *kernel = PyUnicode_InternFromString("flash");
    PyObject *because = PyUnicode_InternFromString("the kernel of PyTorch's backward pass");
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    in->everywhere = snapshot != NULL && bcfg_everywhere(snapshot);
    if (kernel == NULL || because == NULL || snapshot == NULL ||
        record(OPERATION "_backward", kernel, because, in) < 0)
        put_off_exception();
    Py_XDECREF(kernel);
    Py_XDECREF(because);
    PyGILState_Release(state);
}

static void backward(uint64_t *stack, uint64_t arguments, uint64_t results) {
    (void)arguments, (void)results;
    static const int places[] = {GRAD_OUT, QUERY, KEY, VALUE, OUT, LOGSUMEXP};
    Given given = take(stack, places, 6);
    torch_tensor *from = given.tensors, made[3] = {NULL, NULL, NULL};
    backward_job job = {0};
    if (atomic_load(&route.is_on) && take_inputs(&given, &job.in) && take_outputs(&given, &job)) {
        begin_backward(&job.in);
        bool done = attend_backward(&job, made);
        give(&given, stack, made, 3);
        if (done) return;
        release(made, 3);
        bcfg_torch_raise(no_memory);
    }
    int failed = bcfg_torch.attention_backward(
        from[GRAD_OUT], from[QUERY], from[KEY], from[VALUE], from[OUT], from[LOGSUMEXP],
        given.dropout, given.is_causal, from[MASK] != NULL ? &from[MASK] : NULL,
        given.has_scale ? &given.scale : NULL, &made[0], &made[1], &made[2]);
    give(&given, stack, made, 3);
    if (failed) bcfg_torch_raise_theirs();
}

static const bcfg_torch_kernel kernels[] = {
    {THEIRS, forward}, {THEIRS "_backward", backward}, {NULL, NULL}};

static bcfg_torch_route route = {.kernels = kernels};

PyObject *bcfg_serve_torch_attention(PyObject *module, PyObject *file) {
    (void)module;
    return bcfg_torch_serve(&route, file);
}

PyObject *bcfg_restore_torch_attention(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return bcfg_torch_restore(&route);
}
