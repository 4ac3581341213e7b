/* Writes a safetensors file by all ranks in parallel. The file is cut into leaves. A rank that
 * holds all bytes of a leaf hashes and writes it. Rank 0 then joins and writes the leaves whose
 * bytes lie on several ranks (where a shard begins or ends). The bytes do not depend on which rank
 * writes them. Leaves are copied to host memory; then several threads hash and write them. With
 * room for all of them that is one batch, which may be written later. */
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "model/ground/parallel.h"
#include "model/ground/sha256_tree.h"
#include "model/safetensors.h"
#include "model/shared_file.h"

enum { HEADER_ALIGN = 8, LENGTH_BYTES = 8, LEAF = SHA256_LEAF_BYTES };
/* Leaves in memory at a time, without room for all; threads that hash and write them. */
enum { BATCH = 32, WRITERS_MAX = 8 };

/* A piece may be a whole leaf. */
_Static_assert((int)LEAF <= (int)PIECE_BYTES, "a leaf's bytes come in pieces");

/* A stretch of one tensor that is not copied to the host yet: neighbours are copied together. */
struct transfer { const struct holding *held; int64_t at, n; char *to; };

/* The file being written. */
struct image {
    const struct safetensors *s; /* borrowed until safetensors_begin() returns */
    char *header;         /* owned: its length, then JSON padded with spaces */
    int64_t header_bytes; /* of both */
    int64_t bytes, leaves;
    unsigned char *digest; /* owned: [leaves][SHA256_BYTES]; 0 for leaves of other ranks */
    char *batch;           /* owned; NULL: there is room for all leaves */
    char *room;            /* the copies of `kept` leaves: borrowed memory, or `batch` */
    int64_t *kept, kept_count; /* owned: the leaves in `room`, in its order */
    struct transfer next;
    int threads;
};

struct safetensors_file {
    struct image image;
    struct shared_file file;
    char *path; /* owned */
};

/* ---- what the file holds ---- */

static int wider_first(const void *a, const void *b) {
    const struct safetensor *x = a, *y = b;
    int64_t wide = dtype_bytes(y->dtype) - dtype_bytes(x->dtype);
    return wide ? (wide > 0 ? 1 : -1) : strcmp(x->name, y->name);
}

/* Sets each tensor's first byte; returns the JSON header, owned by the caller; NULL: no memory. */
static char *describe(struct safetensors *s, int64_t *bytes) {
    int64_t at = 0;
    json_t *root = json_object();
    int failed = json_object_set_new(root, "__metadata__", json_pack("{ss}", "format", "pt"));
    for (int64_t i = 0; i < s->count; i++) {
        struct safetensor *t = &s->tensor[i];
        json_t *shape = t->rank == 2 ? json_pack("[II]", (json_int_t)t->shape[0],
                                                 (json_int_t)t->shape[1])
                                     : json_pack("[I]", (json_int_t)t->shape[0]);
        t->begin = at;
        at += safetensor_bytes(t);
        failed |= json_object_set_new(root, t->name,
                                      json_pack("{sssos[II]}", "dtype", safetensors_dtype(t->dtype),
                                                "shape", shape, "data_offsets",
                                                (json_int_t)t->begin, (json_int_t)at));
    }
    char *text = failed ? NULL : json_dump_text(root, JSON_COMPACT);
    json_decref(root);
    *bytes = at;
    return text;
}

static bool make_header(struct image *m, const char *text) {
    int64_t n = (int64_t)strlen(text), length = ceil_div(n, HEADER_ALIGN) * HEADER_ALIGN;
    m->header_bytes = LENGTH_BYTES + length;
    m->header = malloc((size_t)m->header_bytes);
    if (!m->header) return false;
    for (int i = 0; i < LENGTH_BYTES; i++) m->header[i] = (char)((uint64_t)length >> 8 * i);
    memset(m->header + LENGTH_BYTES, ' ', (size_t)length);
    memcpy(m->header + LENGTH_BYTES, text, (size_t)n);
    return true;
}

static enum status image_make(struct image *m, struct safetensors *s, const char *path,
                              struct err *e) {
    int64_t bytes = 0;
    *m = (struct image){ .s = s };
    if (s->count) qsort(s->tensor, (size_t)s->count, sizeof *s->tensor, wider_first);
    char *text = describe(s, &bytes);
    if (text && make_header(m, text)) {
        m->bytes = m->header_bytes + bytes;
        m->leaves = ceil_div(m->bytes, LEAF);
        m->digest = calloc((size_t)m->leaves, SHA256_BYTES);
        m->kept = calloc((size_t)m->leaves, sizeof *m->kept);
    }
    free(text);
    if (m->digest && m->kept) return OK;
    return FAIL(e, ERR_MEMORY, "no host memory to write %s", path);
}

static void image_free(struct image *m) {
    free(m->header);
    free(m->digest);
    free(m->kept);
    free(m->batch);
}

/* ---- leaves and what is in them ---- */

struct leaf {
    int64_t index, at, end; /* bytes of the file */
    int64_t tensor;         /* the first with bytes at or after `at` */
};

/* Bytes of a leaf that lie in the header or in one tensor. */
struct stretch {
    const char *header;          /* NULL: in a tensor */
    const struct holding *held;
    int64_t at, n;               /* bytes, of the tensor */
};

/* The first byte of the file after a tensor. */
static int64_t tensor_end(const struct image *m, int64_t tensor) {
    const struct safetensor *t = &m->s->tensor[tensor];
    return m->header_bytes + t->begin + safetensor_bytes(t);
}

static bool next_leaf(const struct image *m, struct leaf *l) {
    l->at = ++l->index * LEAF;
    l->end = l->at + LEAF < m->bytes ? l->at + LEAF : m->bytes;
    while (l->tensor < m->s->count && tensor_end(m, l->tensor) <= l->at) l->tensor++;
    return l->index < m->leaves;
}

/* Takes the bytes at the cursor and advances it; false at the end of the leaf. */
static bool next_stretch(const struct image *m, struct leaf *l, int64_t *at, struct stretch *x) {
    int64_t end = m->header_bytes;
    if (*at >= l->end) return false;
    if (*at < end) {
        *x = (struct stretch){ .header = m->header + *at };
    } else {
        while ((end = tensor_end(m, l->tensor)) <= *at) l->tensor++;
        const struct safetensor *t = &m->s->tensor[l->tensor];
        *x = (struct stretch){ .held = &t->held, .at = *at - m->header_bytes - t->begin };
    }
    x->n = (end < l->end ? end : l->end) - *at;
    *at += x->n;
    return true;
}

static int holder_of(const struct image *m, const struct leaf *leaf) {
    struct leaf l = *leaf;
    struct stretch x;
    int holder = HOLDER_ALL;
    for (int64_t at = l.at; next_stretch(m, &l, &at, &x);) {
        int one = x.header ? HOLDER_ALL : pieces_holder(x.held, x.at, x.n);
        if (holder == HOLDER_ALL) holder = one;
        else if (one != HOLDER_ALL && one != holder) holder = HOLDER_NONE;
    }
    return holder;
}

enum { TOGETHER = -1 };

/* The rank that writes a leaf by itself, or TOGETHER: rank 0, with bytes that the others send.
 * Leaves that every rank holds are divided by their place in the file. */
static int writer_of(const struct image *m, const struct leaf *l, const struct pieces *p,
                     const struct shared_file *f) {
    int holder = holder_of(m, l);
    if (holder == HOLDER_NONE) return TOGETHER;
    if (holder != HOLDER_ALL) return f->seen[holder] ? holder : TOGETHER;
    int turn = (int)(l->index * p->world / m->leaves);
    return f->seen[turn] ? turn : 0;
}

/* ---- writing ---- */

/* Where the bytes of the next leaf go. */
static char *place(const struct image *m) { return m->room + m->kept_count * LEAF; }

struct writing { const struct image *m; const struct shared_file *f; };

static enum status put_one(void *user, int64_t i, struct err *e) {
    const struct writing *w = user;
    const struct image *m = w->m;
    const char *host = m->room + i * LEAF;
    int64_t leaf = m->kept[i], at = leaf * LEAF, n = at + LEAF < m->bytes ? LEAF : m->bytes - at;
    TRY(sha256_digest(host, (size_t)n, m->digest + leaf * SHA256_BYTES, e));
    return shared_file_write(w->f, at, host, n, e);
}

/* Hashes and writes the kept leaves. */
static enum status put_kept(const struct image *m, const struct shared_file *f, struct err *e) {
    struct writing w = { m, f };
    int threads = m->kept_count < m->threads ? (int)m->kept_count : m->threads;
    return parallel_each(m->kept_count, threads, put_one, &w, e);
}

static enum status transfer_now(struct image *m, const struct pieces *p, struct err *e) {
    const struct transfer x = m->next;
    m->next.n = 0;
    return x.n ? pieces_own(p, x.held, x.at, x.n, x.to, e) : OK;
}

/* Ends a batch. */
static enum status flush(struct image *m, const struct pieces *p, const struct shared_file *f,
                         struct err *e) {
    TRY(transfer_now(m, p, e));
    if (!m->batch) return OK;
    enum status st = put_kept(m, f, e);
    m->kept_count = 0;
    return st;
}

/* The leaf at place() is complete. */
static enum status keep(struct image *m, const struct pieces *p, const struct shared_file *f,
                        int64_t leaf, struct err *e) {
    m->kept[m->kept_count++] = leaf;
    return m->batch && m->kept_count == BATCH ? flush(m, p, f, e) : OK;
}

static enum status copy_own(struct image *m, const struct pieces *p, const struct stretch *x,
                            char *to, struct err *e) {
    struct transfer *next = &m->next;
    if (x->header) {
        memcpy(to, x->header, (size_t)x->n);
        return OK;
    }
    if (next->n && next->held == x->held && next->at + next->n == x->at &&
        next->to + next->n == to) {
        next->n += x->n;
        return OK;
    }
    TRY(transfer_now(m, p, e));
    *next = (struct transfer){ .held = x->held, .at = x->at, .n = x->n, .to = to };
    return OK;
}

/* Writes or copies the leaves that this rank writes by itself. */
static enum status write_own(struct image *m, const struct pieces *p, const struct shared_file *f,
                             struct err *e) {
    for (struct leaf l = { .index = -1 }; next_leaf(m, &l);) {
        struct stretch x;
        if (writer_of(m, &l, p, f) != p->rank) continue;
        for (int64_t at = l.at, to = 0; next_stretch(m, &l, &at, &x); to += x.n)
            TRY(copy_own(m, p, &x, place(m) + to, e));
        TRY(keep(m, p, f, l.index, e));
    }
    return flush(m, p, f, e);
}

/* Joins one leaf on rank 0. Every rank sends the bytes that it holds. This continues after a write
 * error of rank 0 (st), because the other ranks do not know of the error yet. */
static enum status write_leaf(struct image *m, struct leaf *l, const struct pieces *p,
                              const struct shared_file *f, enum status st, struct err *e) {
    struct stretch x;
    char *host = p->rank == 0 && st == OK ? place(m) : NULL;
    for (int64_t at = l->at; next_stretch(m, l, &at, &x);) {
        struct err lost;
        enum status moved = OK;
        if (x.held) moved = pieces_read(p, x.held, x.at, x.n, host, st == OK ? e : &lost);
        else if (host) memcpy(host, x.header, (size_t)x.n);
        if (moved != OK) return st == OK ? moved : st;
        if (host) host += x.n;
    }
    return host ? keep(m, p, f, l->index, e) : st;
}

static enum status write_together(struct image *m, const struct pieces *p,
                                  const struct shared_file *f, struct err *e) {
    enum status st = OK;
    for (struct leaf l = { .index = -1 }; next_leaf(m, &l);)
        if (writer_of(m, &l, p, f) == TOGETHER) st = write_leaf(m, &l, p, f, st, e);
    return st == OK ? flush(m, p, f, e) : st;
}

/* ---- the three parts ---- */

/* The bytes of the leaves that this rank writes. */
static int64_t room_for(const struct image *m, const struct pieces *p,
                        const struct shared_file *f) {
    int64_t count = 0;
    for (struct leaf l = { .index = -1 }; next_leaf(m, &l);) {
        int writer = writer_of(m, &l, p, f);
        count += writer == p->rank || (writer == TOGETHER && p->rank == 0);
    }
    return count * LEAF;
}

enum status safetensors_room(struct safetensors *s, const struct pieces *p, int64_t *bytes,
                             struct err *e) {
    struct image m;
    struct shared_file f = { .fd = -1, .seen = calloc((size_t)p->world, sizeof *f.seen) };
    enum status st = f.seen ? image_make(&m, s, "a checkpoint", e)
                            : FAIL(e, ERR_MEMORY, "no host memory to plan a file");
    for (int r = 0; f.seen && r < p->world; r++) f.seen[r] = 1;
    if (st == OK) *bytes = room_for(&m, p, &f);
    if (f.seen) image_free(&m);
    shared_file_free(&f);
    return st;
}

/* *fits: every rank has room for the copies. */
static enum status all_fit(const struct image *m, const struct pieces *p,
                           const struct shared_file *f, int64_t room_bytes, bool *fits,
                           struct err *e) {
    uint32_t lacks = room_bytes < room_for(m, p, f);
    TRY(pieces_join(p, &lacks, 1, e));
    *fits = !lacks;
    return OK;
}

/* The ranks of a host share its processors. */
static int threads_of(const struct pieces *p) {
    int n = parallel_processors() / p->world;
    return n < 1 ? 1 : n > WRITERS_MAX ? WRITERS_MAX : n;
}

static enum status begin(struct safetensors_file *x, const struct pieces *p, char *room,
                         int64_t *room_bytes, struct err *e) {
    struct image *m = &x->image;
    bool fits = false;
    TRY(shared_file_create(&x->file, p, x->path, m->bytes, e));
    TRY(all_fit(m, p, &x->file, *room_bytes, &fits, e));
    if (!fits) m->batch = malloc((size_t)(m->leaves < BATCH ? m->leaves : BATCH) * LEAF);
    m->room = fits ? room : m->batch; /* NULL on a rank that writes nothing */
    m->threads = threads_of(p);
    enum status st = fits || m->batch ? OK : FAIL(e, ERR_MEMORY, "no host memory to write %s",
                                                  x->path);
    TRY(pieces_agree(p, st, x->path, e));
    st = write_own(m, p, &x->file, e);
    TRY(pieces_agree(p, st, x->path, e));
    st = write_together(m, p, &x->file, e);
    *room_bytes = m->kept_count * LEAF;
    return pieces_agree(p, st, x->path, e);
}

enum status safetensors_begin(struct safetensors *s, const struct pieces *p, const char *path,
                              char *room, int64_t *room_bytes, struct safetensors_file **out,
                              struct err *e) {
    struct safetensors_file *x = calloc(1, sizeof *x);
    enum status st = OK;
    *out = NULL;
    if (x) x->file.fd = -1;
    if (!x || !(x->path = strdup(path))) st = FAIL(e, ERR_MEMORY, "no host memory for %s", path);
    if (st == OK) st = image_make(&x->image, s, x->path, e);
    st = pieces_agree(p, st, path, e);
    if (st == OK) st = begin(x, p, room, room_bytes, e);
    if (st == OK) x->image.s = NULL;
    if (st == OK) *out = x;
    else safetensors_drop(x);
    return st;
}

enum status safetensors_put(struct safetensors_file *x, struct err *e) {
    TRY(put_kept(&x->image, &x->file, e));
    return x->file.fd >= 0 ? shared_file_sync(&x->file, e) : OK;
}

enum status safetensors_end(struct safetensors_file *x, const struct pieces *p, enum status st,
                            int64_t *bytes, char tree_sha256[SHA256_HEX], struct err *e) {
    struct image *m = &x->image;
    *bytes = m->bytes;
    TRY(pieces_agree(p, st, x->path, e));
    TRY(pieces_join(p, (uint32_t *)(void *)m->digest, m->leaves * (SHA256_BYTES / 4), e));
    st = sha256_bytes(m->digest, (size_t)(m->leaves * SHA256_BYTES), tree_sha256, e);
    return pieces_agree(p, st, x->path, e);
}

void safetensors_drop(struct safetensors_file *x) {
    if (!x) return;
    shared_file_free(&x->file);
    image_free(&x->image);
    free(x->path);
    free(x);
}

enum status safetensors_write(struct safetensors *s, const struct pieces *p, const char *path,
                              int64_t *bytes, char tree_sha256[SHA256_HEX], struct err *e) {
    struct safetensors_file *x;
    int64_t no_room = 0;
    TRY(safetensors_begin(s, p, path, NULL, &no_room, &x, e));
    enum status st = safetensors_end(x, p, safetensors_put(x, e), bytes, tree_sha256, e);
    safetensors_drop(x);
    return st;
}
