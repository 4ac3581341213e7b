/* A file of its own, so that a program that only trains does not need libcrypto. */
#include "model/ground/input_file.h"

enum { SAMPLES = 64, SAMPLE_BYTES = 4096 };

enum status input_sample_sha256(const struct input_file *f, char hex[SHA256_HEX], struct err *e) {
    bool all = f->bytes <= (int64_t)SAMPLES * SAMPLE_BYTES;
    int64_t last = f->bytes - SAMPLE_BYTES; /* first byte of the last piece */
    unsigned char piece[SAMPLE_BYTES];
    struct sha256 *sha = NULL;
    enum status st = sha256_create(&sha, e);
    for (int64_t i = 0; st == OK && i < SAMPLES; i++) {
        int64_t from = all ? i * SAMPLE_BYTES : last / (SAMPLES - 1) * i;
        if (!all && i == SAMPLES - 1) from = last;
        int64_t n = f->bytes - from < SAMPLE_BYTES ? f->bytes - from : SAMPLE_BYTES;
        if (n <= 0) break;
        st = input_read(f, from, n, piece, e);
        if (st == OK) sha256_add(sha, piece, (size_t)n);
    }
    if (st == OK) sha256_finish(sha, hex);
    sha256_destroy(sha);
    return st;
}
