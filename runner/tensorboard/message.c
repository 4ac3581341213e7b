#include "runner/tensorboard/message.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied from memory");

enum wire { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_LENGTH = 2, WIRE_4_BYTES = 5 };
enum { VARINT_MAX = 10 };

static size_t varint(char out[VARINT_MAX], uint64_t value) {
    size_t n = 0;
    for (; value > 0x7f; value >>= 7) out[n++] = (char)(value | 0x80);
    out[n++] = (char)value;
    return n;
}

static void add_varint(struct text *m, uint64_t value) {
    char bytes[VARINT_MAX];
    text_add(m, bytes, varint(bytes, value));
}

static void add_key(struct text *m, int field, enum wire type) {
    add_varint(m, (uint64_t)field << 3 | type);
}

void message_int(struct text *m, int field, int64_t value) {
    add_key(m, field, WIRE_VARINT);
    add_varint(m, (uint64_t)value);
}

void message_double(struct text *m, int field, double value) {
    char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    add_key(m, field, WIRE_8_BYTES);
    text_add(m, bytes, sizeof bytes);
}

void message_float(struct text *m, int field, float value) {
    char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    add_key(m, field, WIRE_4_BYTES);
    text_add(m, bytes, sizeof bytes);
}

void message_bytes(struct text *m, int field, const void *bytes, size_t n) {
    add_key(m, field, WIRE_LENGTH);
    add_varint(m, n);
    text_add(m, bytes, n);
}

void message_text(struct text *m, int field, const char *text) {
    message_bytes(m, field, text, strlen(text));
}

size_t message_open(struct text *m, int field) {
    add_key(m, field, WIRE_LENGTH);
    return m->size;
}

/* The length stands before the message, and its own size depends on it. */
void message_close(struct text *m, size_t opened) {
    char length[VARINT_MAX];
    size_t inner = m->size - opened, n = varint(length, inner);
    text_add(m, length, n);
    if (m->failed) return;
    memmove(m->bytes + opened + n, m->bytes + opened, inner);
    memcpy(m->bytes + opened, length, n);
}
