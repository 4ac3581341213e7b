/* The backend's choices and decisions: the choice table as text, and the log of decisions. Both
 * grow on first use only, never inside a capture. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_choice.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/gemm.cuh"

/* ---- device and libraries of a table ---- */

struct identity { char device[160], libraries[160]; };

static enum status identity_of(struct cuda_backend *cb, struct identity *out, struct err *e) {
    struct device_info info;
    TRY(cuda_info(&cb->base, &info, e));
    char caps[24] = "";
    if (cb->caps != cb->cc) snprintf(caps, sizeof caps, " as sm_%d", cb->caps);
    snprintf(out->device, sizeof out->device, "%s%s", info.name, caps);
    snprintf(out->libraries, sizeof out->libraries, "cublaslt %lld, cudnn %lld",
             (long long)cublasLtGetVersion(), (long long)cudnn_version(cb));
    return OK;
}

static bool nothing_chosen(const struct cuda_backend *cb) {
    return gemm_choices(cb) == 0 && attention_choices(cb) == 0;
}

/* The table as text, or the part that this process timed. */
static enum status write_table(struct cuda_backend *cb, bool timed, char **text, struct err *e) {
    struct identity me = {};
    size_t bytes = 0;
    *text = NULL;
    TRY(identity_of(cb, &me, e));
    FILE *out = open_memstream(text, &bytes);
    if (!out) return FAIL(e, ERR_MEMORY, "no memory for the text of the choice table");
    if (!nothing_chosen(cb)) {
        choices_begin(out, me.device, me.libraries);
        gemm_choices_write(cb, timed, out);
        attention_choices_write(cb, timed, out);
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed && *text) return OK;
    free(*text);
    *text = NULL;
    return FAIL(e, ERR_MEMORY, "no memory for the text of the choice table");
}

enum status cuda_choices_save(struct backend *b, char **text, struct err *e) {
    return write_table(cuda_of(b), false, text, e);
}

enum status cuda_choices_timed(struct backend *b, char **text, struct err *e) {
    return write_table(cuda_of(b), true, text, e);
}

double cuda_choosing_seconds(struct backend *b) { return cuda_of(b)->choosing_seconds; }

/* Reads the head of a table, which must be of this device with these libraries. */
static enum status open_table(struct cuda_backend *cb, const char *text, struct choices_reader *r,
                              struct err *e) {
    struct identity me = {};
    TRY(choices_open(r, text, e));
    TRY(identity_of(cb, &me, e));
    return choices_expect(r, me.device, me.libraries, e);
}

enum status cuda_choices_offer(struct backend *b, const char *text, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    struct choices_reader r;
    if (*text) TRY(open_table(cb, text, &r, e));
    char *copy = *text ? strdup(text) : NULL;
    if (*text && !copy) return FAIL(e, ERR_MEMORY, "no memory for a kept choice table");
    free(cb->offers);
    cb->offers = copy;
    return OK;
}

enum status cuda_choices_load(struct backend *b, const char *text, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    struct choices_reader r;
    if (!*text) return OK;
    if (!nothing_chosen(cb))
        return FAIL(e, ERR_STATE, "choices_load: algorithms have been chosen already");
    TRY(open_table(cb, text, &r, e));
    for (;;) {
        struct choice c;
        bool more;
        TRY(choices_next(&r, &c, &more, e));
        if (!more) return OK;
        if (!strcmp(c.kind, "gemm")) TRY(gemm_choice_take(cb, &c, e));
        else if (!strcmp(c.kind, "attention")) TRY(attention_choice_take(cb, &c, e));
        else if (!strcmp(c.kind, "place")) gemm_choices_place(cb, (int)c.key[0]);
        else return FAIL(e, ERR_CONFIG, "choice table, line %d: a choice of '%s'", r.line, c.kind);
    }
}

/* Selects a column of the table in README.md. Below 89 there is no FP8 at all. */
enum status cuda_assume_architecture(struct backend *b, const char *architecture, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    int cc;
    if (!nothing_chosen(cb))
        return FAIL(e, ERR_STATE, "another architecture: algorithms have been chosen already");
    TRY(device_capability(architecture, &cc, e));
    cb->caps = cc;
    return OK;
}

/* ---- ways that are not used ---- */

bool cuda_is_forbidden(const struct cuda_backend *b, const char *section, const char *way) {
    for (int i = 0; i < b->forbidden_count; i++)
        if (!strcmp(b->forbidden[i].section, section) && !strcmp(b->forbidden[i].way, way))
            return true;
    return false;
}

enum status cuda_forbid(struct backend *b, const char *section, const char *way, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    bool gemm = !strcmp(section, "gemm") && strncmp(way, "bf16", 4) != 0;
    bool attention = !strcmp(section, "attention") &&
                     (!strcmp(way, "cudnn") || !strcmp(way, "wgmma"));
    if (!nothing_chosen(cb))
        return FAIL(e, ERR_STATE, "forbid %s: algorithms have been chosen already", way);
    if (!gemm && !attention)
        return FAIL(e, ERR_UNSUPPORTED, "%s %s: the cuda backend has no other way to compute it",
                    section, way);
    if (cuda_is_forbidden(cb, section, way)) return OK;
    if (cb->forbidden_count == FORBIDDEN_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d forbidden ways", FORBIDDEN_MAX);
    struct forbidden_way *f = &cb->forbidden[cb->forbidden_count++];
    snprintf(f->section, sizeof f->section, "%s", section);
    snprintf(f->way, sizeof f->way, "%s", way);
    return OK;
}

enum { EXACT_MULTIPROCESSORS = 132 }; /* of an H200, the only device that was compared */

enum status cuda_set_exact(struct backend *b, bool exact, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    if (exact && cb->caps != 90)
        return FAIL(e, ERR_UNSUPPORTED, "exact operators: the CPU follows a GPU of compute "
                    "capability 9.0 only, and this one is used as %d.%d", cb->caps / 10,
                    cb->caps % 10);
    if (exact && cb->sm_count != EXACT_MULTIPROCESSORS)
        return FAIL(e, ERR_UNSUPPORTED, "exact operators: the CPU follows a GPU of %d "
                    "multiprocessors, as an H200 has, and this one has %d",
                    (int)EXACT_MULTIPROCESSORS, cb->sm_count);
    if (cb->exact != exact) cuda_graph_drop(b);
    cb->exact = exact;
    return OK;
}

/* ---- decisions ---- */

struct decision_log {
    struct decision *list;
    int64_t count, capacity;
    int64_t next; /* the last call's entry plus one: calls come in the same order in each step */
};

static bool same_decision(const struct decision *x, const struct decision *y) {
    return !strcmp(x->name, y->name) && !strcmp(x->direction, y->direction) &&
           !strcmp(x->way, y->way) && !strcmp(x->section, y->section);
}

static enum status add_decision(struct decision_log *log, const struct decision *d,
                                struct err *e) {
    if (log->count == log->capacity) {
        int64_t capacity = log->capacity ? 2 * log->capacity : 64;
        void *list = realloc(log->list, (size_t)capacity * sizeof *log->list);
        if (!list) return FAIL(e, ERR_MEMORY, "no memory for %lld decisions", (long long)capacity);
        log->list = (struct decision *)list;
        log->capacity = capacity;
    }
    log->list[log->count] = *d;
    log->list[log->count++].calls = 1;
    return OK;
}

enum status cuda_decided(struct cuda_backend *b, const struct decision *d, struct err *e) {
    if (!b->decisions) b->decisions = (struct decision_log *)calloc(1, sizeof *b->decisions);
    struct decision_log *log = b->decisions;
    if (!log) return FAIL(e, ERR_MEMORY, "no memory for the log of decisions");
    for (int64_t i = 0; i < log->count; i++) {
        int64_t at = (log->next + i) % log->count;
        if (!same_decision(&log->list[at], d)) continue;
        log->list[at].calls++;
        log->next = at + 1;
        return OK;
    }
    log->next = 0;
    return add_decision(log, d, e);
}

bool cuda_decision(struct backend *b, int64_t i, struct decision *out) {
    const struct decision_log *log = cuda_of(b)->decisions;
    if (!log || i < 0 || i >= log->count) return false;
    *out = log->list[i];
    return true;
}

void cuda_decisions_close(struct cuda_backend *b) {
    if (b->decisions) free(b->decisions->list);
    free(b->decisions);
    b->decisions = NULL;
}
