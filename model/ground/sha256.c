#include "model/ground/sha256.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* OpenSSL has a type with the name of one of our status codes; this file uses neither. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/evp.h>
#undef ERR_STATE

/* Large enough that system calls cost little beside hashing; small enough for the L2 cache. */
enum { BUFFER = 256 * 1024 };

struct sha256 {
    EVP_MD_CTX *context; /* owned */
};

enum status sha256_create(struct sha256 **out, struct err *e) {
    struct sha256 *s = calloc(1, sizeof *s);
    if (s) s->context = EVP_MD_CTX_new();
    if (!s || !s->context || EVP_DigestInit_ex(s->context, EVP_sha256(), NULL) != 1) {
        sha256_destroy(s);
        return FAIL(e, ERR_MEMORY, "libcrypto made no SHA-256 context");
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
    for (int i = 0; i < SHA256_BYTES; i++) {
        hex[2 * i] = DIGITS[digest[i] >> 4];
        hex[2 * i + 1] = DIGITS[digest[i] & 15];
    }
    hex[2 * SHA256_BYTES] = 0;
}

void sha256_finish(struct sha256 *s, char hex[SHA256_HEX]) {
    unsigned char digest[SHA256_BYTES];
    int ok = EVP_DigestFinal_ex(s->context, digest, NULL);
    assert(ok == 1);
    (void)ok;
    digest_hex(digest, hex);
}

enum status sha256_copy(struct sha256 **out, const struct sha256 *s, struct err *e) {
    struct sha256 *copy;
    TRY(sha256_create(&copy, e));
    if (EVP_MD_CTX_copy_ex(copy->context, s->context) != 1) {
        sha256_destroy(copy);
        return FAIL(e, ERR_MEMORY, "libcrypto copied no SHA-256 context");
    }
    *out = copy;
    return OK;
}

enum status sha256_so_far(const struct sha256 *s, char hex[SHA256_HEX], struct err *e) {
    struct sha256 *copy;
    TRY(sha256_copy(&copy, s, e));
    sha256_finish(copy, hex);
    sha256_destroy(copy);
    return OK;
}

enum status sha256_digest(const void *bytes, size_t n, unsigned char out[SHA256_BYTES],
                          struct err *e) {
    if (EVP_Digest(bytes, n, out, NULL, EVP_sha256(), NULL) == 1) return OK;
    return FAIL(e, ERR_MEMORY, "libcrypto had no memory for a SHA-256");
}

enum status sha256_bytes(const void *bytes, size_t n, char hex[SHA256_HEX], struct err *e) {
    unsigned char digest[SHA256_BYTES];
    TRY(sha256_digest(bytes, n, digest, e));
    digest_hex(digest, hex);
    return OK;
}

/* Reads n bytes, or fewer at the end of the file. */
static enum status read_up_to(int fd, const char *name, char *buffer, size_t n, size_t *got,
                              struct err *e) {
    for (*got = 0; *got < n;) {
        ssize_t more = read(fd, buffer + *got, n - *got);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return FAIL(e, ERR_IO, "read %s: %s", name, strerror(errno));
        if (more == 0) break;
        *got += (size_t)more;
    }
    return OK;
}

enum status sha256_fd(int fd, const char *name, char hex[SHA256_HEX], int64_t *size,
                      struct err *e) {
    struct sha256 *s = NULL;
    int64_t total = 0;
    char *buffer = malloc(BUFFER);
    enum status st = buffer ? sha256_create(&s, e)
                            : FAIL(e, ERR_MEMORY, "no host memory to hash %s", name);
    for (size_t got = BUFFER; st == OK && got == BUFFER; total += (int64_t)got) {
        st = read_up_to(fd, name, buffer, BUFFER, &got, e);
        if (st == OK) sha256_add(s, buffer, got);
    }
    if (st == OK) sha256_finish(s, hex);
    if (size) *size = total;
    sha256_destroy(s);
    free(buffer);
    return st;
}

enum status sha256_file(const char *path, char hex[SHA256_HEX], int64_t *size, struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would block */
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = sha256_fd(fd, path, hex, size, e);
    close(fd);
    return st;
}

bool sha256_is_hex(const char *text) {
    return strlen(text) == 2 * SHA256_BYTES && strspn(text, "0123456789abcdef") == 2 * SHA256_BYTES;
}
