/* A letter for each dtype and kind of scale, for tables of cases. Include it last. */
#ifndef FP8LAB_TESTS_GPU_LETTERS_H
#define FP8LAB_TESTS_GPU_LETTERS_H

#include "kernels/tensor.h"

#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define H DTYPE_BF16
#define F DTYPE_F32
#define T SCALE_TENSOR
#define R SCALE_ROW
#define B SCALE_1X128
#define W SCALE_128X128
#define X SCALE_1X32
#define Y SCALE_32X32
#define N4 SCALE_1X16
#define M4 SCALE_16X16
#define E2 DTYPE_E2M1

#endif
