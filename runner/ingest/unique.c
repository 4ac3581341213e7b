#include "runner/ingest/unique.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 1 << 12 };

void unique_free(struct unique *u) { free(u->slot); }

static bool is_empty(const unsigned char *slot) {
    static const unsigned char ZERO[UNIQUE_KEY];
    return !memcmp(slot, ZERO, UNIQUE_KEY); /* no text is known that has this digest */
}

/* The slot of a key, or the empty one where it belongs. There is always an empty one. */
static unsigned char *find(const struct unique *u, const unsigned char *key) {
    uint64_t at;
    memcpy(&at, key, sizeof at);
    for (;; at++) {
        unsigned char *slot = u->slot + (at & (u->slots - 1)) * UNIQUE_KEY;
        if (is_empty(slot) || !memcmp(slot, key, UNIQUE_KEY)) return slot;
    }
}

static enum status grow(struct unique *u, struct err *e) {
    struct unique wide = { .slots = u->slots ? 2 * u->slots : SLOTS_FIRST, .count = u->count };
    wide.slot = calloc(wide.slots, UNIQUE_KEY);
    if (!wide.slot)
        return FAIL(e, ERR_MEMORY, "%zu bytes for the hashes of %zu documents",
                    wide.slots * UNIQUE_KEY, u->count);
    for (size_t i = 0; i < u->slots; i++) {
        const unsigned char *key = u->slot + i * UNIQUE_KEY;
        if (!is_empty(key)) memcpy(find(&wide, key), key, UNIQUE_KEY);
    }
    free(u->slot);
    *u = wide;
    return OK;
}

enum status unique_add(struct unique *u, const unsigned char key[UNIQUE_KEY], bool *fresh,
                       struct err *e) {
    if (4 * (u->count + 1) > 3 * u->slots) TRY(grow(u, e));
    unsigned char *slot = find(u, key);
    *fresh = is_empty(slot);
    memcpy(slot, key, UNIQUE_KEY);
    u->count += *fresh;
    return OK;
}

static unsigned char digit(char c) { return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10); }

void unique_key(const char hex[SHA256_HEX], unsigned char key[UNIQUE_KEY]) {
    for (int i = 0; i < UNIQUE_KEY; i++)
        key[i] = (unsigned char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
}
