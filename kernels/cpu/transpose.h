/* Transposes bytes: FP8 codes for the twin that a TN-only GEMM reads. */
#ifndef FP8LAB_KERNELS_CPU_TRANSPOSE_H
#define FP8LAB_KERNELS_CPU_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

typedef uint8_t byte16 __attribute__((vector_size(16)));

#define BYTES_LOW(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define BYTES_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* out[c][r] = in[r][c] for a 16 x 16 block. Each of four rounds interleaves rows i and i + 8, which
 * rotates the bits of the index by one. After four rounds rows and columns have changed places. */
static inline void transpose_16x16(uint8_t *out, int64_t out_stride, const uint8_t *in,
                                   int64_t in_stride) {
    byte16 x[16], y[16];
    for (int i = 0; i < 16; i++) memcpy(&x[i], in + i * in_stride, 16);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            y[2 * i] = BYTES_LOW(x[i], x[i + 8]);
            y[2 * i + 1] = BYTES_HIGH(x[i], x[i + 8]);
        }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < 16; i++) memcpy(out + i * out_stride, &x[i], 16);
}

/* out[c][r] = in[r][c] for any rows x cols. */
static inline void transpose_bytes(uint8_t *out, int64_t out_stride, const uint8_t *in,
                                   int64_t in_stride, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r += 16)
        for (int64_t c = 0; c < cols; c += 16) {
            uint8_t *to = out + c * out_stride + r;
            const uint8_t *from = in + r * in_stride + c;
            if (r + 16 <= rows && c + 16 <= cols) {
                transpose_16x16(to, out_stride, from, in_stride);
                continue;
            }
            for (int64_t j = 0; j < cols - c && j < 16; j++)
                for (int64_t i = 0; i < rows - r && i < 16; i++)
                    to[j * out_stride + i] = from[i * in_stride + j];
        }
}

#endif
