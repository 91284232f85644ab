/* What the forward and the backward kernels on tensor cores share: fragments read from tiles, the mask,
 * products with the tile of a step, and results. */
#ifndef BACKENDCFG_ATTENTION_PARTS_H
#define BACKENDCFG_ATTENTION_PARTS_H

#include "attention_tiles.h"
#include "dropout.h"

/* The head that a block works on, and which of the head's blocks it is. Blocks of heads whose numbers fit
 * the cache together alternate. */
DEVICE void locate(const attention_arguments *job, int *pair, int *block) {
    unsigned index = block_index(), blocks = (unsigned)job->blocks;
    unsigned section = (unsigned)job->section, number = index / (blocks * section);
    unsigned first = number * section, within = index - number * blocks * section;
    unsigned side_by_side = (unsigned)job->pairs - first;
    if (side_by_side > section) side_by_side = section;
    *pair = (int)(first + within % side_by_side);
    *block = (int)(within / side_by_side);
}

/* The fragments of a warp's own rows, 16 columns of them. */
DEVICE void take_rows(unsigned to[ROW_TILES][4], unsigned tile, unsigned depth) {
    unsigned lane = thread_index() % 32, warp = thread_index() / 32;
    UNROLL
    for (unsigned r = 0; r < ROW_TILES; r++)
        load_matrix(to[r], lane_at(tile, ROWS, (warp * ROW_TILES + r) * 16, lane % 16, 2 * depth,
                                   lane / 16));
}

/* Zeros for a product to be added to: `tiles` to each of a warp's tiles of rows. */
DEVICE void clear(int tiles, float numbers[][4]) {
    UNROLL
    for (int j = 0; j < ROW_TILES * tiles; j++)
        UNROLL
        for (int i = 0; i < 4; i++) numbers[j][i] = 0;
}

/* Adds a warp's own rows, from registers or from their tile, times those of a step's tile. */
DEVICE void multiply_rows(float scores[ROW_TILES][KEY_TILES][4], unsigned held[][ROW_TILES][4],
                          unsigned own, unsigned step) {
    unsigned lane = thread_index() % 32;
    UNROLL
    for (unsigned depth = 0; depth < DEPTH; depth++) {
        unsigned rows[ROW_TILES][4];
        if (QUERY_IN_REGISTERS) {
            UNROLL
            for (int r = 0; r < ROW_TILES; r++)
                UNROLL
                for (int i = 0; i < 4; i++) rows[r][i] = held[depth][r][i];
        } else {
            take_rows(rows, own, depth);
        }
        UNROLL
        for (unsigned j = 0; j < KEY_TILES / 2; j++) {
            unsigned other[4]; /* two tiles of 8 rows, both halves of the depth of each */
            load_matrix(other, lane_at(step, KEYS, j * 16, lane % 8 + lane / 16 * 8, 2 * depth,
                                       lane / 8 % 2));
            UNROLL
            for (int r = 0; r < ROW_TILES; r++) {
                multiply(BFLOAT16, scores[r][2 * j], rows[r], other[0], other[1]);
                multiply(BFLOAT16, scores[r][2 * j + 1], rows[r], other[2], other[3]);
            }
        }
    }
}

/* The score of a query and a key with the mask; an added mask turns scores into units of ln 2. A mask of
 * bools is added too, as minus infinity, so that a score that is NaN stays NaN, as in our CPU kernels. */
DEVICE float masked(const attention_arguments *job, long long row, float score, int key) {
    const float log2_of_e = 1.4426950408889634f;
    long long place = row + key * job->mask_strides[3];
    if (MASK == 1)
        return score + (load_byte((const unsigned char *)job->mask + place) ? 0 : MINUS_INFINITY);
    float added = MASK == 2 ? load_float((const float *)job->mask + place)
                            : widen(BFLOAT16, load_half((const half_bits *)job->mask + place));
    return multiply_add(added, log2_of_e, score * job->scale);
}

/* Adds weights times the numbers of a step's tile. Two neighbouring fragments of scores make one of
 * weights. */
DEVICE void add_product(float out[ROW_TILES][WIDTH_TILES][4],
                       unsigned weights[ROW_TILES][KEY_TILES][2], unsigned values) {
    unsigned lane = thread_index() % 32;
    UNROLL
    for (unsigned step = 0; step < KEYS / 16; step++) {
        unsigned weight[ROW_TILES][4];
        UNROLL
        for (int r = 0; r < ROW_TILES; r++)
            UNROLL
            for (int i = 0; i < 4; i++) weight[r][i] = weights[r][2 * step + i / 2][i % 2];
        UNROLL
        for (unsigned j = 0; j < WIDTH_TILES / 2; j++) {
            unsigned value[4]; /* two tiles 8 wide, both halves of the keys of each */
            load_matrix_transposed(value,
                                   lane_at(values, KEYS, step * 16, lane % 16, 2 * j, lane / 16));
            UNROLL
            for (int r = 0; r < ROW_TILES; r++) {
                multiply(BFLOAT16, out[r][2 * j], weight[r], value[0], value[1]);
                multiply(BFLOAT16, out[r][2 * j + 1], weight[r], value[2], value[3]);
            }
        }
    }
}

/* Writes the numbers of a warp's rows, times a factor for each row. They pass through the warp's own rows
 * of a tile, so that global memory is written 16 bytes at a time. */
DEVICE void write_rows(half_bits *to, long long stride, int count,
                       float numbers[ROW_TILES][WIDTH_TILES][4], float factor[ROW_TILES][2],
                       unsigned tile, int first_row) {
    unsigned lane = thread_index() % 32, base = thread_index() / 32 * ROW_TILES * 16;
    warp_barrier();
    UNROLL
    for (unsigned r = 0; r < ROW_TILES; r++)
        UNROLL
        for (unsigned half = 0; half < 2; half++)
            UNROLL
            for (unsigned j = 0; j < WIDTH_TILES; j++)
                store_shared_word(
                    lane_at(tile, ROWS, base + r * 16, lane / 4 + half * 8, j & ~1u, j & 1) +
                        lane % 4 * 4,
                    pack(BFLOAT16, numbers[r][j][2 * half] * factor[r][half],
                         numbers[r][j][2 * half + 1] * factor[r][half]));
    warp_barrier();
    UNROLL
    for (unsigned turn = 0; turn < ROW_TILES * 16 * CHUNKS / 32; turn++) {
        unsigned row = (turn * 32 + lane) / CHUNKS, chunk = (turn * 32 + lane) % CHUNKS;
        sixteen_bytes it = load_shared(tile + chunk_at(ROWS, base + row, chunk));
        int number = first_row + (int)row;
        if (number >= count || chunk * 8 >= WIDTH) continue;
        half_bits *place = to + number * stride + chunk * 8;
        if (ALIGNED)
            store_sixteen(place, it);
        else
            for (int i = 0; i < 8; i++)
                store_half(place + i, (half_bits)(it.word[i / 2] >> i % 2 * 16));
    }
}

#endif
