#include "runner/compare/base64.h"

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put_group(struct base64 *b) {
    const unsigned char *h = b->hold;
    char text[4] = { DIGITS[h[0] >> 2], DIGITS[(h[0] & 3) << 4 | h[1] >> 4],
                     DIGITS[(h[1] & 15) << 2 | h[2] >> 6], DIGITS[h[2] & 63] };
    for (size_t i = b->held + 1; i < 4; i++) text[i] = '=';
    fwrite(text, 1, sizeof text, b->out);
    b->held = 0;
}

void base64_add(struct base64 *b, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        b->hold[b->held++] = ((const unsigned char *)bytes)[i];
        if (b->held == sizeof b->hold) put_group(b);
    }
}

void base64_end(struct base64 *b) {
    if (b->held == 0) return;
    for (size_t i = b->held; i < sizeof b->hold; i++) b->hold[i] = 0;
    put_group(b);
}
