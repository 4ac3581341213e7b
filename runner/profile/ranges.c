#include "runner/profile/ranges.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_CAP = 160 };

struct ranges {
    struct watch watch;              /* first */
    struct backend_ops ops;          /* the table meanwhile */
    const struct backend_ops *inner; /* the real table */
    struct backend *backend;
    const struct nvtx *nvtx;
};

/* ---- scopes -----------------------------------------------------------------------------------*/

static void scope_name(enum scope scope, int64_t index, char out[TEXT_CAP]) {
    static const char *const NAMES[] = {
        [SCOPE_STEP] = "step %" PRId64, [SCOPE_MICRO] = "micro-batch %" PRId64,
        [SCOPE_FORWARD] = "forward", [SCOPE_BACKWARD] = "backward", [SCOPE_UPDATE] = "update",
        [SCOPE_EVAL] = "evaluation", [SCOPE_EMBEDDING] = "embedding",
        [SCOPE_LAYER] = "layers.%" PRId64, [SCOPE_HEAD] = "head, chunk %" PRId64,
    };
    const char *name = NAMES[scope], *number = strchr(name, '%');
    int n = number ? (int)(number - name) : (int)strlen(name);
    if (number) snprintf(out, TEXT_CAP, "%.*s%" PRId64, n, name, index);
    else snprintf(out, TEXT_CAP, "%s", name);
}

static void ranges_enter(struct watch *w, enum scope scope, int64_t index) {
    char text[TEXT_CAP];
    scope_name(scope, index, text);
    (void)((struct ranges *)w)->nvtx->push(text);
}

static void ranges_leave(struct watch *w) { (void)((struct ranges *)w)->nvtx->pop(); }

/* Another table may stand before this one, so its own address does not lead to it. */
static struct ranges *ranges_of(const struct backend *b) {
    struct watch *w = b->watch;
    while (w->enter != ranges_enter) w = w->next;
    return (struct ranges *)w;
}

/* ---- operators --------------------------------------------------------------------------------*/

/* The words of operators.inc, as what an operator's name does not say. */
#define MOVES(part, bytes)                ""
#define UNTIMED                           ""
#define QUANTISES(out, x)                 ""
#define FINISHES(out)                     ""
#define ATTENTION(backward, args, made, d_o, bytes) ""
#define MATMUL(args)                      weight_of((args), text)

/* " layers.0.qkv fprop" */
static const char *weight_of(const struct matmul_args *args, char text[TEXT_CAP]) {
    static const char *const DIRECTION[] = { "fprop", "dgrad", "wgrad" };
    if (!args->name) return "";
    snprintf(text, TEXT_CAP, " %s %s", args->name, DIRECTION[args->direction]);
    return text;
}

static const struct ranges *begin(const struct backend *b, const char *op, const char *detail) {
    const struct ranges *r = ranges_of(b);
    char name[2 * TEXT_CAP];
    snprintf(name, sizeof name, "%s%s", op, detail);
    (void)r->nvtx->push(name);
    return r;
}

static enum status end(const struct ranges *r, enum status st) {
    (void)r->nvtx->pop();
    return st;
}

#define OPERATOR(op, parameters, arguments, cost)                                              \
    static enum status ranged_##op OPERATOR_PARAMETERS parameters {                            \
        char text[TEXT_CAP] = "";                                                              \
        const char *detail = cost;                                                             \
        (void)text;                                                                            \
        const struct ranges *r = begin(b, #op, detail);                                        \
        return end(r, r->inner->op OPERATOR_ARGUMENTS arguments);                              \
    }
#include "kernels/operators.inc"

#define COLLECTIVE(op, parameters, arguments)                                                  \
    static enum status ranged_##op OPERATOR_PARAMETERS parameters {                            \
        const struct ranges *r = begin(b, #op, "");                                            \
        return end(r, r->inner->comm.op OPERATOR_ARGUMENTS arguments);                         \
    }
COLLECTIVE(all_reduce, (const struct tensor *x, enum reduce_op op), (x, op))
COLLECTIVE(reduce_scatter, (const struct tensor *out, const struct tensor *x), (out, x))
COLLECTIVE(reduce_scatter_codes, (const struct tensor *out, const struct tensor *x), (out, x))
COLLECTIVE(all_gather, (const struct tensor *out, const struct tensor *x), (out, x))
COLLECTIVE(broadcast, (const struct tensor *x, int root), (x, root))

/* ---- graphs -----------------------------------------------------------------------------------*/

/* Empty if nothing is captured under the key. */
static enum status ranged_replay(struct backend *b, enum graph_key key, bool *replayed,
                                 struct err *e) {
    const struct ranges *r = begin(b, "graph replay", "");
    return end(r, r->inner->graph_replay(b, key, replayed, e));
}

static enum status no_replay(struct backend *b, enum graph_key key, bool *replayed,
                             struct err *e) {
    *replayed = false;
    return OK;
}
static enum status no_capture(struct backend *b, enum graph_key key, struct err *e) { return OK; }

/* ---- life -------------------------------------------------------------------------------------*/

static void replace_all(struct backend_ops *t) {
#define OPERATOR(op, parameters, arguments, cost) t->op = ranged_##op;
#include "kernels/operators.inc"
    t->comm.all_reduce = ranged_all_reduce;
    t->comm.reduce_scatter = ranged_reduce_scatter;
    t->comm.reduce_scatter_codes = ranged_reduce_scatter_codes;
    t->comm.all_gather = ranged_all_gather;
    t->comm.broadcast = ranged_broadcast;
    t->graph_replay = ranged_replay;
}

enum status ranges_start(struct backend *b, const struct nvtx *nvtx, bool uncaptured,
                         struct ranges **out, struct err *e) {
    struct ranges *r = *out = calloc(1, sizeof *r);
    if (!r) return FAIL(e, ERR_MEMORY, "ranges for a profiler");
    r->inner = b->ops;
    r->ops = *b->ops;
    r->backend = b;
    r->nvtx = nvtx;
    if (nvtx) {
        replace_all(&r->ops);
        r->watch = (struct watch){ ranges_enter, ranges_leave, b->watch };
        b->watch = &r->watch;
    }
    if (uncaptured) {
        r->ops.graph_replay = no_replay;
        r->ops.graph_begin = no_capture;
        r->ops.graph_end = no_capture;
    }
    b->ops = &r->ops;
    return OK;
}

void ranges_stop(struct ranges *r) {
    if (!r) return;
    r->backend->ops = r->inner;
    if (r->nvtx) r->backend->watch = r->watch.next;
    free(r);
}
