/* Short runs, one per recipe: the bits of every loss and gradient norm and a fingerprint of the
 * final weights. Some recipes also under an H200's arithmetic, with ".hopper" behind their names.
 * Arguments name the runs (default: all). Links model and kernels only, so that
 * it runs under an emulator (1.5 GFLOP each). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
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

/* arithmetic: of the products and all other operators. */
static enum status run(enum recipe_kind kind, const char *arithmetic, const char *name,
                       struct err *e) {
    struct tiny_run r;
    tiny_run_init(&r, kind, STEPS + 1);
    r.model.qk_norm = true;
    r.model.width = 192; /* more than one block of 128, the second one short */
    r.model.ffn = 320;
    enum status st = cpu_backend_open(&r.backend, 0, e);
    if (st == OK) st = cpu_backend_calculate(r.backend, arithmetic, e);
    if (st == OK) st = tiny_run_open(&r, e);
    if (st == OK) st = train(r.trainer, name, e);
    tiny_run_close(&r);
    return st;
}

static bool chosen(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc == 1;
}

static bool passes(enum recipe_kind kind, const char *arithmetic, const char *name) {
    struct err e;
    if (run(kind, arithmetic, name, &e) == OK) return true;
    fprintf(stderr, "%s: %s\n", name, e.text);
    return false;
}

int main(int argc, char **argv) {
    static const enum recipe_kind HOPPER[] = { RECIPE_BF16, RECIPE_DELAYED, RECIPE_TENSORWISE,
                                               RECIPE_BLOCKWISE };
    bool good = true;
    for (int k = RECIPE_F32; k < RECIPE_KIND_COUNT; k++) {
        const char *name = tiny_kind_name((enum recipe_kind)k);
        if (good && chosen(name, argc, argv)) good = passes((enum recipe_kind)k, "reference", name);
    }
    for (size_t i = 0; i < sizeof HOPPER / sizeof *HOPPER; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.hopper", tiny_kind_name(HOPPER[i]));
        if (good && chosen(name, argc, argv)) good = passes(HOPPER[i], "hopper", name);
    }
    return good ? 0 : 1;
}
