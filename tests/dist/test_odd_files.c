/* Files of tensors of any size, cut anywhere among any number of ranks. Every byte is where the
 * header says, and the file does not depend on the number of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/ground/sha256_tree.h"
#include "model/safetensors.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"

enum { RANKS_MAX = 4, SECONDS = 120, MIB = 1 << 20, BUCKET = 16 };

/* How tensors are cut. A bucket has BUCKET consecutive tensors, each aligned to `align` bytes. A
 * rank's shard of a bucket is a multiple of `align`. */
struct kind {
    const char *name;
    int64_t tensors, most; /* bytes of the largest */
    int64_t align;
    bool wide;             /* longest names: 9,000 of them make a header over 1 MiB */
};

struct job {
    const struct kind *kind;
    int far;       /* a rank that does not see the file; -1: all see it */
    char path[64];
    char tree_sha256[SHA256_HEX]; /* written on rank 0, in memory shared by all */
};

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static enum dtype dtype_of(int64_t i) {
    static const enum dtype OF[] = { DTYPE_E4M3, DTYPE_F32, DTYPE_BF16, DTYPE_F32 };
    return OF[i % 4];
}

/* At least one element; a few tensors are far larger than most, and than a leaf. */
static int64_t count_of(const struct kind *k, int64_t i) {
    int64_t most = i % 7 ? k->most / 64 + 2 : k->most;
    return 1 + (int64_t)(mixed((uint64_t)i + 1) % (uint64_t)most) / dtype_bytes(dtype_of(i));
}

static void name_of(const struct kind *k, int64_t i, char name[96]) {
    snprintf(name, 96, "%s%lld", k->wide ? "a.name.as.long.as.those.of.large.models.layers.with."
                                           "many.experts.each." : "t", (long long)i);
}

static unsigned char byte_of(int64_t i, int64_t at) {
    return (unsigned char)mixed((uint64_t)(i << 32 | at));
}

/* ---- the shard of a rank ---- */

/* Exactly that size, so that the address sanitizer reports an access outside. */
static char *fill(int64_t i, int64_t first, int64_t bytes) {
    char *data = bytes ? malloc((size_t)bytes) : NULL;
    for (int64_t k = 0; data && k < bytes; k++) data[k] = (char)byte_of(i, first + k);
    return data;
}

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }

static void hold(const struct kind *k, struct safetensors *s, int rank, int world) {
    for (int64_t b = 0; b < s->count; b += BUCKET) {
        int64_t end = b + BUCKET < s->count ? b + BUCKET : s->count, used = 0;
        for (int64_t i = b; i < end; i++)
            used += round_up(safetensor_bytes(&s->tensor[i]), k->align);
        int64_t shard = round_up(ceil_div(used, world), k->align), offset = 0;
        bool cut = world > 1 && b / BUCKET % 3 != 0; /* one bucket in three is whole on all ranks */
        for (int64_t i = b; i < end; i++) {
            int64_t n = safetensor_bytes(&s->tensor[i]);
            struct holding h = { .first = cut ? clamp(rank * shard - offset, n) : 0,
                                 .shard = cut ? shard : 0, .offset = offset };
            h.bytes = (cut ? clamp((rank + 1) * shard - offset, n) : n) - h.first;
            h.data = fill(i, h.first, h.bytes);
            s->tensor[i].held = h;
            offset += round_up(n, k->align);
        }
    }
}

static int write_one(struct rank_test *t) {
    struct job *job = t->user;
    struct safetensors s = { 0 };
    struct pieces p = { .b = t->backend, .rank = t->group.rank, .world = t->group.world,
                        .staging = malloc(PIECE_BYTES) };
    int64_t bytes;
    char name[96], hash[SHA256_HEX];
    for (int64_t i = 0; i < job->kind->tensors; i++) {
        name_of(job->kind, i, name);
        RANK_MUST(safetensors_add(&s, dtype_of(i), count_of(job->kind, i), i % 3 ? 0 : 1, NULL,
                                  &must_, "%s", name));
    }
    hold(job->kind, &s, p.rank, p.world);
    RANK_MUST(safetensors_write(&s, &p, p.rank == job->far ? "/nonexistent/file" : job->path,
                                &bytes, hash, &must_));
    if (p.rank == 0) strcpy(job->tree_sha256, hash);
    for (int64_t i = 0; i < s.count; i++) free(s.tensor[i].held.data);
    safetensors_free(&s);
    free(p.staging);
    return 0;
}

/* ---- the content of the file ---- */

struct file { unsigned char *bytes; int64_t n, header; json_t *json; };

static struct file file_read(const char *path) {
    struct file f = { 0 };
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    f.n = ftell(in);
    rewind(in);
    f.bytes = malloc((size_t)f.n);
    assert_int_equal(fread(f.bytes, 1, (size_t)f.n, in), f.n);
    fclose(in);
    for (int i = 0; i < 8; i++) f.header |= (int64_t)f.bytes[i] << 8 * i;
    f.json = json_loadb((char *)f.bytes + 8, (size_t)f.header, 0, NULL);
    assert_non_null(f.json);
    return f;
}

static void assert_hash(const char *path, const char *wanted) {
    char found[SHA256_HEX];
    struct input_file in;
    MUST(input_open(&in, path, E));
    MUST(sha256_tree(&in, found, E));
    input_close(&in);
    assert_string_equal(found, wanted);
}

static void file_drop(struct file *f) {
    free(f->bytes);
    json_decref(f->json);
}

static void assert_right(const struct file *f, const struct kind *k) {
    int64_t total = 0;
    assert_int_equal(json_object_size(f->json), k->tensors + 1);
    for (int64_t i = 0; i < k->tensors; i++) {
        char name[96];
        name_of(k, i, name);
        const json_t *at = json_object_get(json_object_get(f->json, name), "data_offsets");
        int64_t begin = json_integer_value(json_array_get(at, 0));
        int64_t n = json_integer_value(json_array_get(at, 1)) - begin;
        assert_int_equal(n, count_of(k, i) * dtype_bytes(dtype_of(i)));
        assert_int_equal(begin % dtype_bytes(dtype_of(i)), 0);
        assert_in_range(begin, 0, f->n - 8 - f->header - n);
        for (int64_t b = 0; b < n; b++)
            if (f->bytes[8 + f->header + begin + b] != byte_of(i, b))
                fail_msg("%s: tensor %lld, byte %lld", k->name, (long long)i, (long long)b);
        total += n;
    }
    assert_int_equal(total, f->n - 8 - f->header);
    if (k->wide) assert_true(f->header > MIB);
}

/* ---- the test ---- */

static const struct kind KINDS[] = {
    { .name = "larger than a batch of leaves", .tensors = 50, .most = 9 * MIB, .align = 512 },
    { .name = "cut after any element", .tensors = 50, .most = 5 * MIB, .align = 4 },
    { .name = "far smaller", .tensors = 9000, .most = 200, .align = 4, .wide = true },
    { .name = "one of one element", .tensors = 1, .most = 1, .align = 4 },
};

/* The rank that does not see the file depends on their number; rank 0 creates the file. */
static void same_bytes_from_any_ranks(void **state) {
    struct job *job = ranks_share(&(struct job){ 0 }, sizeof *job);
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        char dir[] = "/tmp/fp8lab-odd-XXXXXX";
        struct file first = { 0 };
        assert_non_null(mkdtemp(dir));
        for (int world = 1; world <= RANKS_MAX; world++) {
            int code[RANKS_MAX];
            *job = (struct job){ .kind = &KINDS[k], .far = world > 2 ? world - 2 : -1 };
            snprintf(job->path, sizeof job->path, "%s/%d", dir, world);
            ranks_run("cpu", world, write_one, job, SECONDS, code);
            for (int r = 0; r < world; r++) assert_int_equal(code[r], 0);
            assert_hash(job->path, job->tree_sha256);
            struct file f = file_read(job->path);
            if (world == 1) first = f;
            if (world == 1) assert_right(&f, &KINDS[k]);
            assert_int_equal(f.n, first.n);
            assert_memory_equal(f.bytes, first.bytes, (size_t)f.n);
            if (world > 1) file_drop(&f);
            unlink(job->path);
        }
        file_drop(&first);
        assert_int_equal(rmdir(dir), 0);
    }
    munmap(job, sizeof *job);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_bytes_from_any_ranks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
