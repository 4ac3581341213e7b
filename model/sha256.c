#include "model/sha256.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* OpenSSL has a type of the same name as one of our status codes; neither is used here. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/evp.h>
#undef ERR_STATE

/* Large enough that system calls vanish beside hashing, small enough to stay in the L2 cache. */
enum { BUFFER = 256 * 1024, DIGEST = 32 };

struct sha256 {
    EVP_MD_CTX *context; /* owned */
};

enum status sha256_create(struct sha256 **out, struct err *e) {
    struct sha256 *s = calloc(1, sizeof *s);
    if (s) s->context = EVP_MD_CTX_new();
    if (!s || !s->context || EVP_DigestInit_ex(s->context, EVP_sha256(), NULL) != 1) {
        sha256_destroy(s);
        return FAIL(e, ERR_MEMORY, "libcrypto gave no SHA-256 context");
    }
    *out = s;
    return OK;
}

void sha256_destroy(struct sha256 *s) {
    if (!s) return;
    EVP_MD_CTX_free(s->context);
    free(s);
}

void sha256_add(struct sha256 *s, const void *bytes, size_t n) {
    int ok = EVP_DigestUpdate(s->context, bytes, n);
    assert(ok == 1); /* an initialised SHA-256 context accepts any bytes */
    (void)ok;
}

static void digest_hex(const unsigned char *digest, char hex[SHA256_HEX]) {
    static const char DIGITS[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST; i++) {
        hex[2 * i] = DIGITS[digest[i] >> 4];
        hex[2 * i + 1] = DIGITS[digest[i] & 15];
    }
    hex[2 * DIGEST] = 0;
}

void sha256_finish(struct sha256 *s, char hex[SHA256_HEX]) {
    unsigned char digest[DIGEST];
    int ok = EVP_DigestFinal_ex(s->context, digest, NULL);
    assert(ok == 1);
    (void)ok;
    digest_hex(digest, hex);
}

enum status sha256_bytes(const void *bytes, size_t n, char hex[SHA256_HEX], struct err *e) {
    unsigned char digest[DIGEST];
    if (EVP_Digest(bytes, n, digest, NULL, EVP_sha256(), NULL) != 1)
        return FAIL(e, ERR_MEMORY, "libcrypto had no memory for a SHA-256");
    digest_hex(digest, hex);
    return OK;
}

enum status sha256_fd(int fd, const char *name, char hex[SHA256_HEX], int64_t *size,
                      struct err *e) {
    enum status st = OK;
    int64_t total = 0;
    struct sha256 *s = NULL;
    char *buffer = malloc(BUFFER);
    if (!buffer) {
        st = FAIL(e, ERR_MEMORY, "%d bytes to hash %s", BUFFER, name);
        goto done;
    }
    st = sha256_create(&s, e);
    if (st != OK) goto done;
    for (;;) {
        ssize_t got = read(fd, buffer, BUFFER);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            st = FAIL(e, ERR_IO, "read %s: %s", name, strerror(errno));
            goto done;
        }
        if (got == 0) break;
        sha256_add(s, buffer, (size_t)got);
        total += got;
    }
    sha256_finish(s, hex);
    if (size) *size = total;
done:
    sha256_destroy(s);
    free(buffer);
    return st;
}

enum status sha256_file(const char *path, char hex[SHA256_HEX], int64_t *size, struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would be waited for */
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = sha256_fd(fd, path, hex, size, e);
    close(fd);
    return st;
}

bool sha256_is_hex(const char *text) {
    return strlen(text) == 2 * DIGEST && strspn(text, "0123456789abcdef") == 2 * DIGEST;
}
