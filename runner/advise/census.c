#include "runner/advise/census.h"

#include <string.h>

#include "runner/plan/dry_backend.h"
#include "runner/plan/options.h"

/* Queues one step over the dry backend, timed: the record then has each operator once. */
static enum status record_step(struct dry_backend *dry, const struct run_options *run,
                               const struct data *data, struct timed_record *out,
                               double *comm_bytes, struct err *e) {
    struct trainer *t = NULL;
    struct timed *timed = NULL;
    struct backend *b = &dry->base;
    TRY(trainer_create(&t, b, &run->model, &run->recipe, &run->train, data, e));
    double before = dry->comm_bytes;
    enum status st = timed_start(b, &timed, e);
    if (st == OK) st = trainer_queue(t, false, e);
    if (st == OK) st = timed_step_done(timed, e);
    timed_stop(timed, out);
    *comm_bytes = dry->comm_bytes - before;
    trainer_destroy(t);
    return st;
}

/* One step of `micro_steps` micro-steps. The operators do not depend on the text, so it is
 * generated. */
static enum status count_step(struct run_options *run, int64_t micro_steps, int ranks, bool native,
                              struct timed_record *out, double *comm_bytes, struct err *e) {
    const struct data_options tokens = { .kind = DATA_SYNTHETIC, .seed = 1 };
    struct dry_backend dry;
    struct data *data = NULL;
    dry_backend_open(&dry, ranks, native);
    run->train.global_batch = micro_steps * run->train.micro_batch * ranks;
    TRY(data_open(&data, &tokens, run->model.vocab, run->model.seq_len, run->train.seed, e));
    enum status st = record_step(&dry, run, data, out, comm_bytes, e);
    data_close(data);
    return st;
}

static void set_windows(const struct run_options *run, struct timed_record *r) {
    for (int i = 0; i < r->attention_count && model_has_window(&run->model); i++)
        r->attention[i].window = run->model.window;
}

static enum status count(struct run_options *run, int ranks, bool native, struct census *out,
                         struct err *e) {
    int64_t batch = run->train.global_batch, of_micro = run->train.micro_batch * ranks;
    double more = 0;
    if (batch < of_micro || batch % of_micro != 0)
        return FAIL(e, ERR_CONFIG, "train.global_batch = %lld is not a multiple of micro_batch "
                    "%lld times %d ranks", (long long)batch, (long long)run->train.micro_batch,
                    ranks);
    run->train.documents = (struct document_options){ 0 };
    out->ranks = ranks;
    out->tokens = batch * run->model.seq_len;
    out->micro_steps = batch / of_micro;
    bool exact = out->micro_steps <= CENSUS_MICRO_STEPS;
    out->short_steps = exact ? out->micro_steps : CENSUS_MICRO_STEPS - 1;
    TRY(count_step(run, out->short_steps, ranks, native, &out->shorter, &out->comm_bytes, e));
    set_windows(run, &out->shorter);
    if (exact) return OK;
    TRY(count_step(run, CENSUS_MICRO_STEPS, ranks, native, &out->longer, &more, e));
    set_windows(run, &out->longer);
    out->comm_bytes += (more - out->comm_bytes) * (double)(out->micro_steps - out->short_steps);
    return OK;
}

enum status census_take(const struct json_t *config, int ranks, bool native, struct census *out,
                        struct err *e) {
    struct run_options run;
    *out = (struct census){ .micro_steps = 0 };
    TRY(options_read(config, &run, e));
    enum status st = count(&run, ranks, native, out, e);
    options_free(&run);
    if (st != OK) census_free(out);
    return st;
}

void census_free(struct census *c) {
    timed_record_free(&c->shorter);
    timed_record_free(&c->longer);
}

enum status census_works(const struct census *c, struct step_works *out, struct err *e) {
    int64_t more = c->micro_steps - c->short_steps;
    *out = (struct step_works){ 0 };
    TRY(step_works_add(out, &c->shorter, 1 - more, e));
    return step_works_add(out, &c->longer, more, e);
}
