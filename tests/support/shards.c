#include "tests/support/shards.h"

#include <stdio.h>
#include <unistd.h>

#include "kernels/rng.h"
#include "tests/support/must.h"

static FILE *create(const char *prefix, const char *suffix) {
    char path[4200];
    snprintf(path, sizeof path, "%s%s", prefix, suffix);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

/* The places of sequences and documents. */
struct places {
    int32_t length[SHARD_DOCUMENTS_MAX + 1];
    int64_t pointer[SHARD_DOCUMENTS_MAX + 1], end[SHARD_DOCUMENTS_MAX + 1];
    int64_t sequences, tokens;
};

static void find_places(struct places *p, const struct shard *s) {
    memset(p, 0, sizeof *p);
    for (int64_t i = 0; i < s->documents; i++) {
        int parts = s->split && i == 1 ? 2 : 1, left = s->length[i];
        p->end[i] = p->sequences;
        for (int k = 0; k < parts; k++) {
            int n = k == parts - 1 ? left : left / 2;
            p->pointer[p->sequences] = 4 * p->tokens;
            p->length[p->sequences++] = n;
            p->tokens += n;
            left -= n;
        }
    }
    p->end[s->documents] = p->sequences;
    assert_true(p->tokens <= SHARD_TOKENS_MAX);
}

static void put_index(const struct shard *s, const struct places *p) {
    unsigned char head[34] = "MMIDIDX\0";
    int64_t entries = s->documents + 1;
    head[9] = 1;
    head[17] = 4;
    memcpy(head + 18, &p->sequences, 8);
    memcpy(head + 26, &entries, 8);
    FILE *f = create(s->prefix, ".idx");
    fwrite(head, 1, sizeof head, f);
    fwrite(p->length, 4, (size_t)p->sequences, f);
    fwrite(p->pointer, 8, (size_t)p->sequences, f);
    fwrite(p->end, 8, (size_t)entries, f);
    assert_int_equal(fclose(f), 0);
}

int64_t shard_put(const struct shard *s) {
    static struct places p;
    find_places(&p, s);
    put_index(s, &p);
    FILE *bin = create(s->prefix, ".bin"), *loss = s->loss ? create(s->prefix, ".loss") : NULL;
    for (int64_t i = 0; i < p.tokens; i++) {
        int32_t id = s->first + (int32_t)i;
        if (s->vocab) id = (int32_t)rng_below(rng_bits(11, (uint64_t)i), (uint32_t)s->vocab);
        assert_int_equal(fwrite(&id, 4, 1, bin), 1);
        if (loss) assert_int_equal(fputc(shard_counts(i), loss), shard_counts(i));
    }
    assert_int_equal(fclose(bin), 0);
    if (loss) assert_int_equal(fclose(loss), 0);
    return p.tokens;
}

void shard_drop(const char *prefix) {
    static const char *const SUFFIX[] = { ".bin", ".idx", ".loss" };
    for (int i = 0; i < 3; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s%s", prefix, SUFFIX[i]);
        int gone = unlink(path);
        assert_true(gone == 0 || i == 2); /* not every shard has a loss file */
    }
}
