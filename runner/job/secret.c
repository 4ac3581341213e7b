#include "runner/job/secret.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { BLOCK = 64, DIGEST = 32 }; /* bytes, of SHA-256 */

static void to_hex(const unsigned char *bytes, int n, char *hex) {
    for (int i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

static int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

enum status secret_make(char out[SHA256_HEX], struct err *e) {
    unsigned char bytes[DIGEST];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return FAIL(e, ERR_IO, "random bytes of the system: %s", strerror(errno));
    to_hex(bytes, DIGEST, out);
    return OK;
}

/* H(key xor pad, bytes). */
static enum status padded(const unsigned char key[BLOCK], unsigned char pad, const void *bytes,
                          size_t n, char hex[SHA256_HEX], struct err *e) {
    struct sha256 *s = NULL;
    unsigned char block[BLOCK];
    TRY(sha256_create(&s, e));
    for (int i = 0; i < BLOCK; i++) block[i] = key[i] ^ pad;
    sha256_add(s, block, sizeof block);
    sha256_add(s, bytes, n);
    sha256_finish(s, hex);
    sha256_destroy(s);
    return OK;
}

static void from_hex(const char *hex, unsigned char out[DIGEST]) {
    for (int i = 0; i < DIGEST; i++)
        out[i] = (unsigned char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
}

enum status secret_sign(const char *secret, const char *text, char out[SHA256_HEX],
                        struct err *e) {
    unsigned char key[BLOCK] = { 0 }, inner[DIGEST];
    char hex[SHA256_HEX];
    size_t n = strlen(secret);
    if (n > BLOCK) {
        TRY(sha256_bytes(secret, n, hex, e));
        from_hex(hex, key);
    } else {
        memcpy(key, secret, n);
    }
    TRY(padded(key, 0x36, text, strlen(text), hex, e));
    from_hex(hex, inner);
    return padded(key, 0x5c, inner, sizeof inner, out, e);
}

/* What a handshake signs begins with another word (wire.c). */
enum status secret_of_rendezvous(const char *secret, const char *nonce, char out[SHA256_HEX],
                              struct err *e) {
    char text[128];
    snprintf(text, sizeof text, "meeting %s", nonce);
    return secret_sign(secret, text, out, e);
}

bool secret_equal(const char a[SHA256_HEX], const char b[SHA256_HEX]) {
    unsigned different = 0;
    for (int i = 0; i < SHA256_HEX; i++) different |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return different == 0;
}
