#include "runner/bundle/guard.h"

#include <ctype.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

const struct bundle_limits BUNDLE_LIMITS = {
    .entries = 20 * 1000,
    .names = 40 * 1000,
    .path_bytes = 512,
    .depth = 64,
    .file_bytes = INT64_C(1) << 40,
    .total_bytes = INT64_C(4) << 40,
    .ratio = 1000,
};

struct guard {
    struct bundle_limits limits;
    void *names; /* tsearch tree of struct node; balanced, so hostile names cannot make it slow */
    int64_t entries, count, total; /* count: of names */
};

struct node {
    bool directory, explicit; /* explicit: has an entry of its own, and is not only the parent of
                                 one */
    bool holds;               /* a directory with a file in it, at any depth */
    char *folded;             /* lower case; borrowed from text */
    char text[];              /* the name as written, NUL, the folded name, NUL */
};

enum status guard_create(const struct bundle_limits *limits, struct guard **out, struct err *e) {
    struct guard *g = calloc(1, sizeof *g);
    if (!g) return FAIL(e, ERR_MEMORY, "the list of names");
    g->limits = *limits;
    *out = g;
    return OK;
}

static int by_folded(const void *a, const void *b) {
    return strcmp(((const struct node *)a)->folded, ((const struct node *)b)->folded);
}

void guard_destroy(struct guard *g) {
    if (!g) return;
    while (g->names) {
        struct node *node = *(struct node **)g->names;
        tdelete(node, &g->names, by_folded);
        free(node);
    }
    free(g);
}

/* A name for a message: control bytes must not reach a terminal. */
static const char *shown(const char *path, char out[128]) {
    size_t n = 0;
    for (; path[n] && n < 127; n++) {
        unsigned char c = (unsigned char)path[n];
        out[n] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    out[n] = 0;
    return out;
}

enum status guard_name(const char *path, const struct bundle_limits *limits, struct err *e) {
    char safe[128];
    size_t length = strlen(path);
    if (length == 0) return FAIL(e, ERR_FORMAT, "an entry has an empty name");
    if ((int64_t)length > limits->path_bytes)
        return FAIL(e, ERR_FORMAT, "an entry's name has %zu bytes, at most %lld are allowed: %s…",
                    length, (long long)limits->path_bytes, shown(path, safe));
    if (path[0] == '/')
        return FAIL(e, ERR_FORMAT, "absolute path refused: %s", shown(path, safe));
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e || strchr("\\%:*?\"<>|", *c))
            return FAIL(e, ERR_FORMAT, "byte 0x%02x in a name refused: %s", (unsigned char)*c,
                        shown(path, safe));
    int64_t depth = 0;
    for (const char *part = path; part; part = strchr(part, '/'), part = part ? part + 1 : NULL) {
        size_t n = strcspn(part, "/");
        if (++depth > limits->depth)
            return FAIL(e, ERR_FORMAT, "name of more than %lld components refused: %s…",
                        (long long)limits->depth, shown(path, safe));
        if (n == 2 && part[0] == '.' && part[1] == '.')
            return FAIL(e, ERR_FORMAT, "path that climbs out with '..' refused: %s",
                        shown(path, safe));
        if (n == 0 || (n == 1 && part[0] == '.'))
            return FAIL(e, ERR_FORMAT, "empty or '.' path component refused: %s",
                        shown(path, safe));
        if (n > 255)
            return FAIL(e, ERR_FORMAT, "path component of %zu bytes refused: %s…", n,
                        shown(path, safe));
    }
    return OK;
}

static struct node *node_create(const char *path, size_t n, bool directory) {
    struct node *node = malloc(sizeof *node + 2 * (n + 1));
    if (!node) return NULL;
    *node = (struct node){ .directory = directory, .folded = node->text + n + 1 };
    for (size_t i = 0; i < n; i++) {
        node->text[i] = path[i];
        node->folded[i] = (char)tolower((unsigned char)path[i]);
    }
    node->text[n] = node->folded[n] = 0;
    return node;
}

/* Enters the first n bytes of path. `explicit`: the entry itself; otherwise a parent of it.
 * `holds`: a parent of a file. */
static enum status enter(struct guard *g, const char *path, size_t n, bool directory,
                         bool explicit, bool holds, struct err *e) {
    char safe[128];
    struct node *node = node_create(path, n, directory);
    struct node **slot = node ? tsearch(node, &g->names, by_folded) : NULL;
    if (!slot) {
        free(node);
        return FAIL(e, ERR_MEMORY, "the list of %lld names", (long long)g->entries);
    }
    struct node *known = *slot;
    if (known == node) {
        node->explicit = explicit;
        node->holds = holds;
        if (++g->count <= g->limits.names) return OK;
        return FAIL(e, ERR_FORMAT, "more than %lld files and directories refused",
                    (long long)g->limits.names);
    }
    enum status st = OK;
    if (strcmp(known->text, node->text) != 0)
        st = FAIL(e, ERR_FORMAT, "names that differ in case only refused: %s and %.100s",
                  shown(node->text, safe), known->text);
    else if (known->directory != directory)
        st = FAIL(e, ERR_FORMAT, "name of both a file and a directory refused: %s",
                  shown(node->text, safe));
    else if (explicit && known->explicit)
        st = FAIL(e, ERR_FORMAT, "duplicate name refused: %s", shown(node->text, safe));
    known->explicit |= explicit;
    known->holds |= holds;
    free(node);
    return st;
}

enum status guard_admit(struct guard *g, const char *path, bool directory, int64_t size,
                        struct err *e) {
    char safe[128];
    TRY(guard_name(path, &g->limits, e));
    if (++g->entries > g->limits.entries)
        return FAIL(e, ERR_FORMAT, "more than %lld entries refused",
                    (long long)g->limits.entries);
    if (size < 0 || size > g->limits.file_bytes)
        return FAIL(e, ERR_FORMAT, "file of %lld bytes refused, at most %lld: %s", (long long)size,
                    (long long)g->limits.file_bytes, shown(path, safe));
    if (size > g->limits.total_bytes - g->total)
        return FAIL(e, ERR_FORMAT, "more than %lld bytes in all refused, at %s",
                    (long long)g->limits.total_bytes, shown(path, safe));
    g->total += size;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/'))
        TRY(enter(g, path, (size_t)(slash - path), true, false, !directory, e));
    return enter(g, path, strlen(path), directory, true, false, e);
}

/* twalk_r(): keeps an entry of a directory without a file. */
static void find_empty(const void *at, VISIT visit, void *found) {
    const struct node *node = *(const struct node *const *)at;
    if ((visit == postorder || visit == leaf) && node->directory && node->explicit && !node->holds)
        *(const struct node **)found = node;
}

enum status guard_end(const struct guard *g, struct err *e) {
    char safe[128];
    const struct node *empty = NULL;
    twalk_r(g->names, find_empty, &empty);
    return empty ? FAIL(e, ERR_FORMAT, "empty directory refused: %s", shown(empty->text, safe))
                 : OK;
}

enum status guard_ratio(const struct guard *g, int64_t packed, int64_t unpacked, struct err *e) {
    if (unpacked <= RATIO_FREE || unpacked / g->limits.ratio <= packed) return OK;
    return FAIL(e, ERR_FORMAT,
                "decompression bomb refused: %lld bytes came out of %lld, more than %lld:1",
                (long long)unpacked, (long long)packed, (long long)g->limits.ratio);
}
