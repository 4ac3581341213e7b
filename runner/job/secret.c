#include "runner/job/secret.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* OpenSSL has a type of the same name as one of our status codes; neither is used here. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#undef ERR_STATE

static void to_hex(const unsigned char bytes[SHA256_BYTES], char hex[SHA256_HEX]) {
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

enum status secret_make(char out[SHA256_HEX], struct err *e) {
    unsigned char bytes[SHA256_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return FAIL(e, ERR_IO, "read random bytes of the system: %s", strerror(errno));
    to_hex(bytes, out);
    return OK;
}

enum status secret_sign(const char *secret, const char *text, char out[SHA256_HEX],
                        struct err *e) {
    unsigned char digest[SHA256_BYTES];
    size_t size = 0;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){ "SHA256" }, 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(hmac);
    bool good = context &&
                EVP_MAC_init(context, (const unsigned char *)secret, strlen(secret), params) &&
                EVP_MAC_update(context, (const unsigned char *)text, strlen(text)) &&
                EVP_MAC_final(context, digest, &size, sizeof digest) && size == sizeof digest;
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(hmac);
    if (!good) return FAIL(e, ERR_MEMORY, "libcrypto computed no HMAC-SHA-256");
    to_hex(digest, out);
    return OK;
}

/* The word "meeting" keeps this text apart from the texts that a handshake signs (wire.c). */
enum status secret_of_rendezvous(const char *secret, const char *nonce, char out[SHA256_HEX],
                                 struct err *e) {
    char text[128];
    snprintf(text, sizeof text, "meeting %s", nonce);
    return secret_sign(secret, text, out, e);
}

bool secret_equal(const char a[SHA256_HEX], const char b[SHA256_HEX]) {
    return CRYPTO_memcmp(a, b, SHA256_HEX) == 0;
}
