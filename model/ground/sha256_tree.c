#include "model/ground/sha256_tree.h"

#include <stdlib.h>

#include "model/ground/parallel.h"

enum { TOGETHER = 16 }; /* leaves that a thread hashes before it asks for more */

struct tree {
    const struct input_file *file;
    int64_t leaves;
    unsigned char *digest; /* [leaves][SHA256_BYTES] */
};

static enum status hash_leaves(void *user, int64_t i, struct err *e) {
    const struct tree *t = user;
    int64_t first = i * TOGETHER;
    char *leaf = malloc(SHA256_LEAF_BYTES);
    enum status st = leaf ? OK : FAIL(e, ERR_MEMORY, "no host memory to hash %s", t->file->path);
    for (int64_t k = first; st == OK && k < first + TOGETHER && k < t->leaves; k++) {
        int64_t at = k * SHA256_LEAF_BYTES, n = t->file->bytes - at;
        if (n > SHA256_LEAF_BYTES) n = SHA256_LEAF_BYTES;
        st = input_read(t->file, at, n, leaf, e);
        if (st == OK) st = sha256_digest(leaf, (size_t)n, t->digest + k * SHA256_BYTES, e);
    }
    free(leaf);
    return st;
}

enum status sha256_tree(const struct input_file *f, char hex[SHA256_HEX], struct err *e) {
    struct tree t = { .file = f, .leaves = ceil_div(f->bytes, SHA256_LEAF_BYTES) };
    t.digest = malloc((size_t)t.leaves * SHA256_BYTES + 1);
    if (!t.digest) return FAIL(e, ERR_MEMORY, "no host memory to hash %s", f->path);
    int threads = parallel_processors();
    enum status st = parallel_each(ceil_div(t.leaves, TOGETHER), threads, hash_leaves, &t, e);
    if (st == OK) st = sha256_bytes(t.digest, (size_t)(t.leaves * SHA256_BYTES), hex, e);
    free(t.digest);
    return st;
}
