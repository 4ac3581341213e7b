/* Argument checks shared by the operators: each names the operator and the operand. */
#include "kernels/cpu/cpu.h"

static bool rows_contiguous(const struct tensor *x) {
    int64_t expect = 1;
    for (int d = 3; d >= 1; d--) {
        if (x->dim[d] != 1 && x->stride[d] != expect) return false;
        expect *= x->dim[d];
    }
    return true;
}

enum status cpu_check(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                      int64_t cols, struct err *e) {
    if (!x || !x->data) return FAIL(e, ERR_ARG, "%s is missing", what);
    if ((unsigned)x->dtype >= DTYPE_COUNT || !(1 << x->dtype & dtypes))
        return FAIL(e, ERR_ARG, "%s is %s", what, dtype_name(x->dtype));
    int64_t r = tensor_rows(x), c = tensor_cols(x);
    if ((rows >= 0 && r != rows) || (cols >= 0 && c != cols))
        return FAIL(e, ERR_ARG, "%s is [%lld, %lld], not [%lld, %lld]", what, (long long)r,
                    (long long)c, (long long)rows, (long long)cols);
    if (!rows_contiguous(x)) return FAIL(e, ERR_ARG, "%s has rows that are not contiguous", what);
    return OK;
}
