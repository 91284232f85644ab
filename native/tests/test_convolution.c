/* Convolutions of small whole numbers, which are exact, against the definition: every instruction
 * set, number of threads, and way through the padding; and columns against the same definition. */
#include "../src/convolution/convolution.h"
#include "check.h"

const char *fakes;

static uint32_t state = 1;
static int64_t draw(int64_t low, int64_t high) {
    state = state * 1664525u + 1013904223u;
    return low + (int64_t)(state >> 8) % (high - low + 1);
}

static double at(const bcfg_convolution *c, const char *data, int64_t place) {
    return c->element == BCFG_FLOAT32 ? ((const float *)data)[place] : ((const double *)data)[place];
}

static void *numbers(const bcfg_convolution *c, int64_t count) {
    /* Exactly as many bytes, so that the sanitizer sees one more. */
    int64_t size = c->element == BCFG_FLOAT32 ? 4 : 8;
    char *made = malloc((size_t)(count * size));
    CHECK(made != NULL || count == 0);
    for (int64_t i = 0; i < count; i++) {
        double value = (double)draw(-4, 4);
        if (c->element == BCFG_FLOAT32) ((float *)made)[i] = (float)value;
        else ((double *)made)[i] = value;
    }
    return made;
}

/* What kernel element k of a group sees at a pixel of the result. */
static double seen(const bcfg_convolution *c, int64_t image, int64_t group, int64_t k, int64_t pixel) {
    int64_t area = c->kernel_height * c->kernel_width;
    int64_t channel = group * c->channels + k / area;
    int64_t y = pixel / c->out_width * c->stride[0] - c->padding[0] +
                k % area / c->kernel_width * c->dilation[0];
    int64_t x = pixel % c->out_width * c->stride[1] - c->padding[1] +
                k % c->kernel_width * c->dilation[1];
    if (y < 0 || y >= c->height || x < 0 || x >= c->width) return 0;
    return at(c, c->input, image * c->batch_stride + channel * c->channel_stride +
              y * c->row_stride + x);
}

static void check_result(const bcfg_convolution *c) {
    int64_t depth = c->channels * c->kernel_height * c->kernel_width;
    int64_t pixels = c->out_height * c->out_width;
    for (int64_t image = 0; image < c->batch; image++)
        for (int64_t output = 0; output < c->groups * c->outputs; output++)
            for (int64_t pixel = 0; pixel < pixels; pixel++) {
                double sum = c->bias != NULL ? at(c, c->bias, output) : 0;
                for (int64_t k = 0; k < depth; k++)
                    sum += at(c, c->weight, output * depth + k) *
                           seen(c, image, output / c->outputs, k, pixel);
                int64_t place = (image * c->groups * c->outputs + output) * pixels + pixel;
                CHECK(at(c, c->out, place) == sum);
            }
}

static void check_columns(const bcfg_convolution *c) {
    int64_t depth = c->channels * c->kernel_height * c->kernel_width;
    int64_t pixels = c->out_height * c->out_width;
    int64_t first = draw(0, pixels - 1), count = draw(1, pixels - first);
    int64_t image = draw(0, c->batch - 1), group = draw(0, c->groups - 1);
    char *columns = numbers(c, depth * count);
    bcfg_convolution_unfold(c, image, group, first, count, columns, count, 2);
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < count; j++)
            CHECK(at(c, columns, k * count + j) == seen(c, image, group, k, first + j));
    free(columns);
}

/* `many` outputs share copies of their pixels; an input that windows do not leave is not padded. */
static void one(bool large, bool many, bool inside) {
    bcfg_convolution c = {.element = (int32_t)draw(0, 1)};
    c.batch = draw(1, 3);
    c.groups = draw(0, 1) ? 1 : draw(1, 4);
    c.channels = large ? draw(20, 60) : draw(1, 3);
    c.outputs = many ? draw(32, 45) : draw(1, 14);
    c.kernel_height = draw(1, 4), c.kernel_width = draw(1, 4);
    for (int d = 0; d < 2; d++)
        c.stride[d] = draw(1, 3), c.dilation[d] = draw(1, 3), c.padding[d] = draw(0, 3);
    c.out_height = draw(1, large ? 20 : 9), c.out_width = draw(1, large ? 24 : 40);
    c.height = draw(1, (c.out_height - 1) * c.stride[0] + 5);
    c.width = draw(1, (c.out_width - 1) * c.stride[1] + 5);
    if (inside)
        for (int d = 0; d < 2; d++) {
            c.stride[d] = 1, c.padding[d] = 0;
            int64_t reach = ((d ? c.kernel_width : c.kernel_height) - 1) * c.dilation[d];
            *(d ? &c.width : &c.height) = (d ? c.out_width : c.out_height) + reach + draw(0, 1);
        }
    int64_t gap = draw(0, 2), channels = c.groups * c.channels;
    c.row_stride = c.width + gap;
    c.channel_stride = c.row_stride * c.height;
    c.batch_stride = c.channel_stride * channels;
    int64_t outputs = c.groups * c.outputs, area = c.kernel_height * c.kernel_width;
    void *input = numbers(&c, c.batch * c.batch_stride - gap);
    void *weight = numbers(&c, outputs * c.channels * area);
    void *bias = draw(0, 1) ? numbers(&c, outputs) : NULL;
    void *out = numbers(&c, c.batch * outputs * c.out_height * c.out_width);
    c.input = input, c.weight = weight, c.bias = bias, c.out = out;
    for (int32_t isa = 0; isa < BCFG_ISAS; isa++) {
        if (!bcfg_isa_available(isa)) continue;
        CHECK(bcfg_force_isa(isa) == BCFG_OK);
        uint64_t before = bcfg_isa_served(isa);
        CHECK(bcfg_convolve(&c, bcfg_kernels_for(c.element, false), (int32_t)draw(1, 3)) == BCFG_OK);
        CHECK(bcfg_isa_served(isa) == before + 1);
        check_result(&c);
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
    check_columns(&c);
    free(input);
    free(weight);
    free(bias);
    free(out);
}

static void every_shape_is_the_definition(void) {
    for (int i = 0; i < 150; i++) one(false, i % 3 == 0, i % 5 == 0);
    for (int i = 0; i < 9; i++) one(true, i % 3 != 0, i % 3 == 1);
}

static void a_size_that_does_not_fit_is_memory(void) {
    float number = 0;
    bcfg_convolution c = {.element = BCFG_FLOAT32, .batch = 1, .groups = 1, .channels = 1 << 20,
                          .outputs = 1, .height = 1, .width = 1, .kernel_height = 1,
                          .kernel_width = 1, .out_height = (int64_t)1 << 40, .out_width = 1 << 20,
                          .stride = {1, 1}, .dilation = {1, 1}, .input = (char *)&number,
                          .weight = (char *)&number, .out = (char *)&number};
    CHECK(bcfg_convolve(&c, bcfg_kernels_for(c.element, false), 1) == BCFG_E_MEMORY);
    c.batch = 0;
    CHECK(bcfg_convolve(&c, bcfg_kernels_for(c.element, false), 1) == BCFG_OK);
}

int main(void) {
    every_shape_is_the_definition();
    a_size_that_does_not_fit_is_memory();
    return 0;
}
