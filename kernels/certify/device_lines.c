#include "kernels/certify/device_lines.h"

enum { SAME_BYTES = 4096 };

enum status device_lines(struct backend *b, void *data, const void *host, int64_t period,
                         int64_t bytes, struct err *e) {
    int64_t done = period < bytes ? period : bytes;
    TRY(b->ops->upload(b, LANE_COMPUTE, data, host, done, e));
    while (done < bytes) { /* `done` is a multiple of the period until the end */
        int64_t more = done < bytes - done ? done : bytes - done;
        struct tensor from = tensor_1d(data, DTYPE_BF16, more / 2);
        struct tensor to = tensor_1d((char *)data + done, DTYPE_BF16, more / 2);
        TRY(b->ops->copy(b, LANE_COMPUTE, &to, &from, e));
        done += more;
    }
    return OK;
}

enum status device_bytes(struct backend *b, void *data, int byte, int64_t bytes, struct err *e) {
    unsigned char same[SAME_BYTES];
    memset(same, byte, sizeof same);
    return device_lines(b, data, same, SAME_BYTES, bytes, e);
}
