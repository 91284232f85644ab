/* Descriptors as cuBLASLt and hipBLASLt have them: attributes by number, each of a size. For their
 * fakes, which define N(name), the number of an attribute, and SETTABLE, a list of
 * ATTRIBUTE(kind, name, bytes). */
#ifndef DESCRIBED_H
#define DESCRIBED_H

/* A descriptor, a layout or a preference: its attributes by their numbers. */
typedef struct {
    int kind;
    int64_t values[ATTRIBUTES];
} described;

/* How many bytes an attribute has; 0 for one that this fake does not know. */
static size_t bytes_of(int kind, int attribute) {
    static const struct {
        int kind, attribute, bytes;
    } known[] = {
#define ATTRIBUTE(kind, name, bytes) {kind, N(name), bytes},
        SETTABLE
#undef ATTRIBUTE
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at].kind == kind && known[at].attribute == attribute)
            return (size_t)known[at].bytes;
    return 0;
}

static int create(void **place, int kind, described **made) {
    *made = calloc(1, sizeof **made);
    NEED(*made, ALLOC_FAILED)
    (*made)->kind = kind;
    *place = *made;
    return 0;
}

static int destroy(void *place, int kind) {
    described *known = place;
    NEED(known && known->kind == kind, INVALID_VALUE)
    known->kind = 0;
    free(known);
    return 0;
}

static int set(void *place, int kind, int attribute, const void *value, size_t bytes) {
    described *known = place;
    NEED(known && known->kind == kind && value, INVALID_VALUE)
    size_t size = bytes_of(kind, attribute);
    NEED(size != 0 && bytes == size, INVALID_VALUE)
    int32_t narrow;
    if (size == 4) {
        memcpy(&narrow, value, 4);
        known->values[attribute] = narrow;
    } else {
        memcpy(&known->values[attribute], value, 8);
    }
    return 0;
}

static int get(void *place, int kind, int attribute, void *value, size_t bytes, size_t *written) {
    described *known = place;
    NEED(known && known->kind == kind, INVALID_VALUE)
    size_t size = bytes_of(kind, attribute);
    NEED(size != 0 && (bytes == size || (bytes == 0 && written)), INVALID_VALUE)
    if (written) *written = size;
    int32_t narrow = (int32_t)known->values[attribute];
    if (bytes == 4) memcpy(value, &narrow, 4);
    if (bytes == 8) memcpy(value, &known->values[attribute], 8);
    return 0;
}

/* The value as it is set, for the record. */
static argument content(const void *value, size_t bytes) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (value && bytes == 4) memcpy(&narrow, value, 4);
    if (value && bytes == 8) memcpy(&wide, value, 8);
    return bytes == 4 ? I(narrow) : I(wide);
}
#define V(value) content(value, bytes)

#endif
