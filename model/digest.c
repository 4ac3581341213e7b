#include "model/digest.h"

#include <assert.h>

/* OpenSSL has a type of the same name as one of our status codes; neither is used here. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/evp.h>
#undef ERR_STATE

enum status digest_begin(struct digest *d, struct err *e) {
    d->context = EVP_MD_CTX_new();
    if (d->context && EVP_DigestInit_ex(d->context, EVP_sha256(), NULL) == 1) return OK;
    digest_end(d, NULL);
    return FAIL(e, ERR_MEMORY, "libcrypto gave no SHA-256 context");
}

void digest_add(struct digest *d, const void *bytes, int64_t count) {
    if (count == 0) return;
    int ok = EVP_DigestUpdate(d->context, bytes, (size_t)count);
    assert(ok == 1); /* an initialised context accepts any bytes */
    (void)ok;
}

void digest_end(struct digest *d, char hex[65]) {
    static const char DIGITS[] = "0123456789abcdef";
    unsigned char bytes[32];
    if (hex && EVP_DigestFinal_ex(d->context, bytes, NULL) == 1) {
        for (int i = 0; i < 32; i++) {
            hex[2 * i] = DIGITS[bytes[i] >> 4];
            hex[2 * i + 1] = DIGITS[bytes[i] & 15];
        }
        hex[64] = 0;
    }
    EVP_MD_CTX_free(d->context);
    d->context = NULL;
}
