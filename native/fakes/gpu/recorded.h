/* What the fakes of device libraries share: a record of every call, and failures on demand.
 *
 * Each fake exports, for its test:
 *
 *   fake_record()            every call since the last reset, as one JSON list of
 *                              {"function": name, "arguments": {name: value}}; numbers are numbers,
 *                              pointers their addresses (null for NULL), scalars lists of one or two
 *   fake_reset()             forget the calls and the failures; settings return to their defaults
 *   fake_fail(name, status, skip, count)
 *                              calls of `name` fail with `status` and do nothing else: `count` of
 *                              them (-1 all) after `skip` that do not
 *   fake_set(name, value)    a setting of the fake, such as its version; 0 when it has none of
 *                              that name
 *
 *   fake_idle                while it is not 0, a function with ENTER or IDLE in it does nothing and
 *                              succeeds: for measuring what calls cost, the library left aside
 *
 * Calls that fail are recorded too. Every function is thread-safe.
 */
#ifndef RECORDED_H
#define RECORDED_H

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* A setting: SETTINGS in each fake lists them as SETTING(name, default). */
#define SETTING(name, value) static int64_t setting_##name = value;
SETTINGS
#undef SETTING

API int fake_idle;

static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;
static char *record;
static size_t record_length, record_capacity;

static struct {
    char name[64];
    int status, skip, count;
} failures[16];

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...) {
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        size_t left = record_capacity - record_length;
        int length = vsnprintf(left ? record + record_length : NULL, left, format, arguments);
        va_end(arguments);
        if ((size_t)length < left) {
            record_length += (size_t)length;
            return;
        }
        record_capacity = 2 * record_capacity + (size_t)length + 4096;
        record = realloc(record, record_capacity);
        if (record == NULL) abort();
    }
}

/* How one argument is written. Names come from the source text of the arguments. */
typedef struct {
    enum { INTEGER, POINTER, FLOATS, INTEGERS } kind;
    int64_t integer;
    double floats[2];
    int parts;
    const int64_t *integers;                       /* as many as `integer` says */
} argument;

#define I(value) ((argument){.kind = INTEGER, .integer = (int64_t)(value)})
#define LIST(values, count)                                                                        \
    ((argument){.kind = INTEGERS, .integers = (values), .integer = (int64_t)(count)})
#define P(value) ((argument){.kind = POINTER, .integer = (int64_t)(intptr_t)(value)})

#define IDLE                                                                                       \
    if (fake_idle) return 0;

/* ENTER("cuInit", I(flags)): record a call, and leave the function if it is to fail. The names are the
 * words in the parentheses; no macro may stand between, or it would expand them. */
#define ENTER(function, ...)                                                                       \
    IDLE                                                                                           \
    int status = recorded(function, #__VA_ARGS__, (argument[]){__VA_ARGS__});                      \
    if (status != 0) return status;
/* The status of a call that has more arguments behind, with their names in a text of this form. */
#define RECORD_WITH(more, words, function, ...)                                                    \
    recorded(function, #__VA_ARGS__ ", " words, (argument[]){__VA_ARGS__, more})

/* As Python's json reads them. */
static void write_float(double value) {
    if (value != value)
        add("NaN");
    else if (value - value != 0)
        add(value > 0 ? "Infinity" : "-Infinity");
    else
        add("%.17g", value);
}

static void write_argument(const argument *value) {
    switch (value->kind) {
    case POINTER:
        if (value->integer == 0) {
            add("null");
            return;
        }
        add("%llu", (unsigned long long)value->integer);
        return;
    case FLOATS:
        add("[");
        write_float(value->floats[0]);
        if (value->parts == 2) {
            add(", ");
            write_float(value->floats[1]);
        }
        add("]");
        return;
    case INTEGERS:
        add("[");
        for (int64_t at = 0; at < value->integer; at++)
            add("%s%lld", at ? ", " : "", (long long)value->integers[at]);
        add("]");
        return;
    default: add("%lld", (long long)value->integer);
    }
}

/* Records a call; the status that it is to fail with, or 0. */
static int recorded(const char *function, const char *words, const argument *values) {
    pthread_mutex_lock(&recording);
    add("%s{\"function\": \"%s\", \"arguments\": {", record_length ? ",\n" : "", function);
    int position = 0, depth = 0;
    const char *start = NULL;
    for (const char *at = words; *at; at++) {
        if (*at == '(' && depth++ == 0) start = at + 1;
        if (*at == ',' && depth == 1 && start) { /* FLOATS_OF(alpha, type): the name is the first */
            add("%s\"%.*s\": ", position ? ", " : "", (int)(at - start), start);
            start = NULL;
        }
        if (*at == ')' && --depth == 0) {
            if (start) add("%s\"%.*s\": ", position ? ", " : "", (int)(at - start), start);
            write_argument(&values[position++]);
            start = NULL;
        }
    }
    add("}}");
    int status = 0;
    for (size_t at = 0; at < sizeof failures / sizeof *failures; at++)
        if (failures[at].count != 0 && strcmp(failures[at].name, function) == 0) {
            if (failures[at].skip-- > 0) break;
            failures[at].skip = 0;
            if (failures[at].count > 0) failures[at].count--;
            status = failures[at].status;
            break;
        }
    pthread_mutex_unlock(&recording);
    return status;
}

/* The text stays until the next call of this function. */
API const char *fake_record(void) {
    static char *text;
    pthread_mutex_lock(&recording);
    free(text);
    text = malloc(record_length + 3);
    if (text == NULL) abort();
    text[0] = '[';
    if (record_length) memcpy(text + 1, record, record_length);
    memcpy(text + 1 + record_length, "]", 2);
    pthread_mutex_unlock(&recording);
    return text;
}

API void fake_reset(void) {
    pthread_mutex_lock(&recording);
    record_length = 0;
    memset(failures, 0, sizeof failures);
#define SETTING(name, value) setting_##name = value;
    SETTINGS
#undef SETTING
    pthread_mutex_unlock(&recording);
}

API int fake_fail(const char *name, int status, int skip, int count) {
    int found = 0;
    pthread_mutex_lock(&recording);
    for (size_t at = 0; at < sizeof failures / sizeof *failures && !found; at++)
        if (failures[at].count == 0) {
            found = 1;
            snprintf(failures[at].name, sizeof failures[at].name, "%s", name);
            failures[at].status = status;
            failures[at].skip = skip;
            failures[at].count = count;
        }
    pthread_mutex_unlock(&recording);
    return found;
}

API int fake_set(const char *name, int64_t value) {
#define SETTING(known, fallback)                                                                   \
    if (strcmp(name, #known) == 0) {                                                               \
        setting_##known = value;                                                                   \
        return 1;                                                                                  \
    }
    SETTINGS
#undef SETTING
    (void)name, (void)value;
    return 0;
}

#endif
