/* cuDNN's descriptors, for its fake: what each type takes and holds.
 *
 * A descriptor keeps its attributes as they were set. What it refers to stays readable after that was
 * destroyed, as in cuDNN, which shares what lies behind a descriptor: its memory is freed with the
 * last descriptor that refers to it. Statuses are those that cuDNN
 * 9.28 was seen to return. The table of rules is RULES in cudnn.c.
 */
#ifndef GRAPH_H
#define GRAPH_H

#define N(name) BCFG_CUDNN_##name
#define NEED(condition, code)                                                                      \
    if (!(condition)) return refuse(N(STATUS_##code), #condition);

enum { ATTRIBUTES = 32, VALUES = 256, RESULTS = 32 };

typedef struct descriptor {
    int type, is_finalised, is_destroyed, attribute_count;
    int referrers;                                 /* how many descriptors refer to this one */
    struct {
        int name, type;
        int64_t count;
        int64_t *values;                           /* numbers of one double have its bits */
    } attributes[ATTRIBUTES];
    /* Of what cuDNN fills in: an engine, a configuration of it, and a heuristic's results. */
    struct descriptor *graph;
    int engine;
    int results[RESULTS], result_count;
    struct descriptor *next;
} descriptor;

enum { BUCKETS = 1 << 14 };
static descriptor *descriptors[BUCKETS]; /* by their addresses; under the lock */
static int alive;                        /* made and not destroyed */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char last_error[256];

static descriptor **bucket_of(const void *place) {
    return &descriptors[((uint64_t)(uintptr_t)place >> 4) * 0x9E3779B97F4A7C15u >> 50];
}

static int refuse(int status, const char *why) {
    snprintf(last_error, sizeof last_error, "%s", why);
    return status;
}

/* How many descriptors were made and not destroyed. */
API int fake_descriptors(void) {
    pthread_mutex_lock(&making);
    int count = alive;
    pthread_mutex_unlock(&making);
    return count;
}

static int is_descriptor(const void *place, int type) {
    int is_one = 0;
    pthread_mutex_lock(&making);
    for (const descriptor *at = *bucket_of(place); at && !is_one; at = at->next)
        is_one = at == place && !at->is_destroyed && (type < 0 || at->type == type);
    pthread_mutex_unlock(&making);
    return is_one;
}

/* A descriptor refers to another one, or no longer does. One that is destroyed and that none refers to
 * is freed, and no longer refers to anything. Under the lock. */
static void refer(descriptor *to, int change);

static void refer_to_all(const descriptor *of, int attribute, int change) {
    if (of->attributes[attribute].type != N(TYPE_BACKEND_DESCRIPTOR)) return;
    for (int64_t at = 0; at < of->attributes[attribute].count; at++)
        refer((descriptor *)(intptr_t)of->attributes[attribute].values[at], change);
}

static void refer(descriptor *to, int change) {
    to->referrers += change;
    if (!to->is_destroyed || to->referrers) return;
    descriptor **link = bucket_of(to);
    while (*link != to) link = &(*link)->next;
    *link = to->next;
    for (int at = 0; at < to->attribute_count; at++) {
        refer_to_all(to, at, -1);
        free(to->attributes[at].values);
    }
    if (to->graph) refer(to->graph, -1);
    free(to);
}

/* What cuDNN fills in, or makes from another descriptor, refers to the graph behind it. */
static void keep_graph(descriptor *of, descriptor *graph) {
    pthread_mutex_lock(&making);
    refer(graph, 1);
    if (of->graph) refer(of->graph, -1);
    of->graph = graph;
    pthread_mutex_unlock(&making);
}

/* An attribute of a type of descriptors: its own type, how many values, whether it must be there to
 * finalise, and which type of descriptors it refers to, or -1. */
typedef struct {
    int descriptor, name, type;
    int64_t least, most;
    int is_required, refers_to;
} rule;

static const rule *rule_of(int type, int name);
static int finalise(descriptor *fresh);

static size_t bytes_of(int type) {
    switch (type) {
    case N(TYPE_BOOLEAN): return 1;
    case N(TYPE_INT64):
    case N(TYPE_DOUBLE):
    case N(TYPE_VOID_PTR):
    case N(TYPE_HANDLE):
    case N(TYPE_BACKEND_DESCRIPTOR): return 8;
    default: return 4;
    }
}

/* The values of an attribute as they were set; NULL and 0 for one that was not. */
static const int64_t *values_of(const descriptor *of, int name, int64_t *count) {
    *count = 0;
    for (int at = 0; at < of->attribute_count; at++)
        if (of->attributes[at].name == name) {
            *count = of->attributes[at].count;
            return of->attributes[at].values;
        }
    return NULL;
}

static int64_t value_of(const descriptor *of, int name, int64_t otherwise) {
    int64_t count;
    const int64_t *values = values_of(of, name, &count);
    return count ? values[0] : otherwise;
}

/* A float or double attribute. */
static double real_of(const descriptor *of, int name, double otherwise) {
    double value;
    int64_t count;
    const int64_t *bits = values_of(of, name, &count);
    if (!count) return otherwise;
    memcpy(&value, bits, sizeof value);
    return value;
}

static descriptor *referred(const descriptor *of, int name) {
    return (descriptor *)(intptr_t)value_of(of, name, 0);
}

/* Values as they come, each in 64 bits; floats become doubles. */
static void widen(int type, int64_t count, const void *given, int64_t *values) {
    for (int64_t at = 0; at < count; at++) {
        int32_t narrow = 0;
        float single = 0;
        double real = 0;
        switch (type) {
        case N(TYPE_BOOLEAN): values[at] = ((const unsigned char *)given)[at]; break;
        case N(TYPE_FLOAT):
            memcpy(&single, (const char *)given + 4 * at, 4);
            real = single;
            memcpy(&values[at], &real, 8);
            break;
        default:
            if (bytes_of(type) == 8) {
                memcpy(&values[at], (const char *)given + 8 * at, 8);
                break;
            }
            memcpy(&narrow, (const char *)given + 4 * at, 4);
            values[at] = narrow;
        }
    }
}

static int set_attribute(descriptor *of, int name, int type, int64_t count, const int64_t *values) {
    const rule *known = rule_of(of->type, name);
    NEED(known && !of->is_finalised, BAD_PARAM)
    int either = known->type == N(TYPE_FLOAT) && type == N(TYPE_DOUBLE);
    NEED(type == known->type || either, BAD_PARAM_ATTRIBUTE_TYPE)
    NEED(count >= known->least && count <= known->most && count <= VALUES, BAD_PARAM)
    for (int64_t at = 0; at < count && type == N(TYPE_BACKEND_DESCRIPTOR); at++) {
        const descriptor *other = (const descriptor *)(intptr_t)values[at];
        NEED(is_descriptor(other, known->refers_to), BAD_PARAM)
        NEED(other->is_finalised, BAD_PARAM_NOT_FINALIZED)
    }
    int at = 0;
    while (at < of->attribute_count && of->attributes[at].name != name) at++;
    NEED(at < ATTRIBUTES, INTERNAL_ERROR)
    if (at == of->attribute_count) of->attribute_count++;
    size_t bytes = (size_t)count * sizeof *values;
    int64_t *kept = malloc(bytes ? bytes : 1);
    NEED(kept, INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    memcpy(kept, values, bytes);
    descriptor before = {.attribute_count = 1, .attributes = {of->attributes[at]}};
    pthread_mutex_lock(&making);
    of->attributes[at].name = name;
    of->attributes[at].type = type;
    of->attributes[at].count = count;
    of->attributes[at].values = kept;
    refer_to_all(of, at, 1);
    refer_to_all(&before, 0, -1);
    pthread_mutex_unlock(&making);
    free(before.attributes[0].values);
    return 0;
}

int cudnnBackendCreateDescriptor(int type, void **place) {
    ENTER("cudnnBackendCreateDescriptor", I(type), P(place))
    NEED(place, BAD_PARAM_NULL_POINTER)
    descriptor *made = calloc(1, sizeof *made);
    NEED(made && type >= 0 && type < 64, INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    made->type = type;
    pthread_mutex_lock(&making);
    made->next = *bucket_of(made);
    *bucket_of(made) = made;
    alive++;
    pthread_mutex_unlock(&making);
    *place = made;
    return 0;
}

int cudnnBackendDestroyDescriptor(void *place) {
    ENTER("cudnnBackendDestroyDescriptor", P(place))
    NEED(place, BAD_PARAM_NULL_POINTER)
    NEED(is_descriptor(place, -1), BAD_PARAM)
    pthread_mutex_lock(&making);
    ((descriptor *)place)->is_destroyed = 1;
    alive--;
    refer(place, 0);
    pthread_mutex_unlock(&making);
    return 0;
}

int cudnnBackendSetAttribute(void *place, int name, int type, int64_t count, const void *given) {
    IDLE
    int64_t values[VALUES] = {0};
    int is_readable = given && count > 0 && count <= VALUES;
    if (is_readable) widen(type, count, given, values);
    int status = recorded("cudnnBackendSetAttribute", "P(descriptor), I(name), I(type), I(count), "
                          "LIST(values, count)",
                          (argument[]){P(place), I(name), I(type), I(count),
                                       LIST(values, is_readable ? count : 0)});
    if (status != 0) return status;
    NEED(place, BAD_PARAM_NULL_POINTER)
    NEED(is_descriptor(place, -1), BAD_PARAM)
    NEED(given || count == 0, BAD_PARAM_NULL_POINTER)
    NEED(type != N(TYPE_HANDLE) || values[0], BAD_PARAM_NULL_POINTER)
    return set_attribute(place, name, type, count, values);
}

int cudnnBackendFinalize(void *place) {
    ENTER("cudnnBackendFinalize", P(place))
    NEED(place, BAD_PARAM_NULL_POINTER)
    NEED(is_descriptor(place, -1), BAD_PARAM)
    descriptor *fresh = place;
    NEED(!fresh->is_finalised, BAD_PARAM)
    int found = finalise(fresh);
    fresh->is_finalised = found == 0;
    return found;
}

#endif
