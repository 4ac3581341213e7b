#include "runner/base/text_stream.h"

/* The write function for fopencookie; it returns 0 for an error. */
static ssize_t append(void *cookie, const char *bytes, size_t n) {
    struct text *t = cookie;
    text_add(t, bytes, n);
    return t->failed ? 0 : (ssize_t)n;
}

FILE *text_stream_open(struct text *t) {
    return fopencookie(t, "w", (cookie_io_functions_t){ .write = append });
}

bool text_stream_close(FILE *stream, const struct text *t) {
    return stream && fclose(stream) == 0 && !t->failed;
}
