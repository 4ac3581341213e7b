#include "runner/plan/saving.h"

#include <stdio.h>
#include <string.h>

enum { SHARD, WEIGHT_CODES, MICRO_BATCH, RECOMPUTE, HEAD_CHUNK, STATE, MASTER, OFFLOAD, GRADIENTS };
enum { HEAD_CHUNK_LESS = 1024 };

/* exact: computes the same numbers. A smaller head_chunk rounds one gradient differently. A smaller
 * micro_batch adds in another order, and so does sharding with several micro-batches a step. */
static const struct { const char *set; bool exact; } SAVING[SAVINGS] = {
    [SHARD] = { "train.shard=parameters", true },
    [WEIGHT_CODES] = { "train.weight_codes=made", true },
    [MICRO_BATCH] = { "train.micro_batch=1", false },
    [RECOMPUTE] = { "train.recompute=block", true },
    [HEAD_CHUNK] = { "train.head_chunk=1024", false },
    [STATE] = { "train.optimizer.state=8bit", false },
    [MASTER] = { "train.optimizer.master=none", false },
    [OFFLOAD] = { "train.optimizer.offload=true", true },
    [GRADIENTS] = { "train.grad_dtype=bf16", false },
};

static bool has_codes(const struct recipe_options *o) {
    return recipe_is_fp8(o->kind) && !(o->fprop_bf16 && o->dgrad_bf16);
}

/* Layers and the head use one memory in turn, so one of them alone frees nothing. */
bool saving_has_codes(const struct recipe *r, bool tied) {
    int64_t found = !tied && has_codes(&r->head);
    for (int64_t l = 0; l < r->layers; l++) {
        bool any = false;
        for (int s = 0; s < GEMM_SITE_COUNT; s++) {
            const struct recipe_options *o = recipe_at(r, l, (enum gemm_site)s);
            if (o->param_gather) return false;
            any = any || has_codes(o);
        }
        found += any;
    }
    return found > 1;
}

static bool in_all_layers(const struct train_options *t, const struct saving_run *run) {
    return !t->recompute_layers || t->recompute_layers == run->layers;
}

static bool has(int i, const struct train_options *t, const struct saving_run *run) {
    bool sharded = run->ranks > 1 && t->shard == SHARD_PARAMETERS;
    switch (i) {
    case SHARD: return run->ranks == 1 || sharded;
    case WEIGHT_CODES: return t->makes_codes || !run->codes || sharded;
    case MICRO_BATCH: return t->micro_batch == 1;
    case RECOMPUTE: return t->recompute == RECOMPUTE_BLOCK && in_all_layers(t, run);
    case HEAD_CHUNK: return t->head_chunk <= HEAD_CHUNK_LESS; /* 0: all rows at once */
    case STATE: return t->optimizer.state == STATE_8BIT;
    case MASTER: return !t->optimizer.master;
    case OFFLOAD: return t->optimizer.offload || run->one_memory;
    default: return t->grad_dtype == DTYPE_BF16;
    }
}

bool saving_has_layers(int i) { return i == RECOMPUTE; }

bool saving_is_cheap(int i) { return i == WEIGHT_CODES; }

bool saving_apply(int i, struct train_options *t, const struct saving_run *run) {
    if (has(i, t, run)) return false;
    switch (i) {
    case SHARD: t->shard = SHARD_PARAMETERS; break;
    case WEIGHT_CODES: t->makes_codes = true; break;
    case MICRO_BATCH: t->micro_batch = 1; break;
    case RECOMPUTE:
        t->recompute = RECOMPUTE_BLOCK;
        t->recompute_layers = 0;
        break;
    case HEAD_CHUNK: t->head_chunk = HEAD_CHUNK_LESS; break;
    case STATE: t->optimizer.state = STATE_8BIT; break;
    case MASTER: t->optimizer.master = false; break;
    case OFFLOAD: t->optimizer.offload = true; break;
    default: t->grad_dtype = DTYPE_BF16;
    }
    return true;
}

bool saving_is_exact(int i) { return SAVING[i].exact; }

void saving_add(int i, int64_t layers, char *text, size_t size) {
    size_t n = strlen(text);
    char more[64] = "";
    if (layers && saving_has_layers(i))
        snprintf(more, sizeof more, " --set train.recompute_layers=%lld", (long long)layers);
    snprintf(text + n, size - n, " --set %s%s", SAVING[i].set, more);
}

void fit_less_memory(const struct train_options *t, const struct saving_run *run, char *text,
                     size_t size) {
    *text = '\0';
    for (int i = 0; i < SAVINGS; i++)
        if (!has(i, t, run)) saving_add(i, t->recompute_layers ? run->layers : 0, text, size);
}
