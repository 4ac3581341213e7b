/* Short runs, one per recipe: the bits of every loss and gradient norm and a fingerprint of the
 * final weights. Arguments name the recipes (default: all). Links model and kernels only, so that
 * it runs under an emulator (1.5 GFLOP each). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "tests/support/tiny.h"

enum { STEPS = 3 };

/* One number for all weights: the last step's fingerprints of the tensors, mixed in order. */
static enum status final_fingerprint(struct trainer *t, uint64_t *out, struct err *e) {
    struct step_result r;
    TRY(trainer_step(t, true, &r, e)); /* a traced step records the weights before it */
    int64_t count;
    trainer_trace_tensors(t, &count);
    uint64_t *prints = malloc((size_t)count * sizeof *prints);
    if (!prints) return FAIL(e, ERR_MEMORY, "fingerprints");
    enum status st = trainer_trace(t, prints, e);
    *out = 0;
    for (int64_t i = 0; st == OK && i < count; i++) *out = rng_mix(*out ^ prints[i]);
    free(prints);
    return st;
}

static enum status train(struct trainer *t, const char *name, struct err *e) {
    for (int i = 0; i < STEPS; i++) {
        struct step_result r;
        TRY(trainer_step(t, false, &r, e));
        printf("%s step %d loss %08" PRIx32 " norm %08" PRIx32 "\n", name, i + 1, f32_bits(r.loss),
               f32_bits(r.grad_norm));
    }
    struct eval_result v;
    TRY(trainer_eval(t, 2, &v, e));
    uint64_t print = 0;
    TRY(final_fingerprint(t, &print, e));
    printf("%s eval %08" PRIx32 " weights %016" PRIx64 "\n", name, f32_bits(v.loss), print);
    return OK;
}

static enum status run(enum recipe_kind kind, struct err *e) {
    struct tiny_run r;
    tiny_run_init(&r, kind, STEPS + 1);
    r.model.qk_norm = true;
    r.model.width = 192; /* more than one block of 128, the second one short */
    r.model.ffn = 320;
    enum status st = tiny_run_open(&r, e);
    if (st == OK) st = train(r.trainer, tiny_kind_name(kind), e);
    tiny_run_close(&r);
    return st;
}

static bool chosen(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc == 1;
}

int main(int argc, char **argv) {
    struct err e;
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++)
        if (chosen(tiny_kind_name((enum recipe_kind)kind), argc, argv) &&
            run((enum recipe_kind)kind, &e) != OK) {
            fprintf(stderr, "%s: %s\n", tiny_kind_name((enum recipe_kind)kind), e.text);
            return 1;
        }
    return 0;
}
