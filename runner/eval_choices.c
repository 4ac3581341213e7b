#include "runner/eval_choices.h"

#include <inttypes.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/infer/questions_json.h"
#include "runner/infer/questions_llmc.h"

/* ---- the questions ----------------------------------------------------------------------------*/

static enum status open_text(const struct cli *cli, const struct open_model *m,
                             struct eval_choices *c, struct err *e) {
    const char *named = cli_value(cli, "tokenizer");
    char note[MODEL_TEXT_NOTE];
    TRY(model_text_open(m, named, false, &c->text, note, e));
    if (*note) cli_note(cli, "%s", note);
    if (!named) return OK;
    const struct tokenizer_hash hash = tokenizer_hash_of(c->text.choice.tokenizer);
    model_text_compare(m, named, &hash, note);
    if (*note) cli_warn(cli, "%s", note);
    return OK;
}

static enum status read_json(const struct cli *cli, const struct open_model *m, int64_t skip_bad,
                             struct eval_choices *c, struct err *e) {
    const struct model_config *model = &m->options.model;
    TRY(open_text(cli, m, c, e));
    const struct questions_source source = {
        .cli = cli, .path = cli_value(cli, "choices"), .choice = &c->text.choice,
        .vocab = model->vocab, .seq_len = model->seq_len, .skip = skip_bad < 0 ? 0 : skip_bad,
    };
    return questions_json_open(&source, &c->questions, e);
}

enum status eval_choices_open(const struct cli *cli, const struct open_model *m, int64_t skip_bad,
                              struct eval_choices *out, struct err *e) {
    const char *path = cli_value(cli, "choices");
    const struct model_config *model = &m->options.model;
    bool json;
    *out = (struct eval_choices){ 0 };
    TRY(questions_are_json(path, &json, e));
    if (!json && (cli_has(cli, "tokenizer") || skip_bad >= 0))
        return FAIL(e, ERR_ARG, "--choices %s has tokens, not JSON lines: leave out --tokenizer "
                    "and --skip-bad", path);
    if (json) TRY(read_json(cli, m, skip_bad, out, e));
    else TRY(questions_llmc_open(path, model->vocab, model->seq_len, &out->questions, e));
    out->answers = calloc((size_t)out->questions.rows, sizeof *out->answers);
    return out->answers ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " answers", out->questions.rows);
}

void eval_choices_close(struct eval_choices *c) {
    questions_close(&c->questions);
    text_model_close(&c->text);
    free(c->answers);
    *c = (struct eval_choices){ 0 };
}

/* ---- output -----------------------------------------------------------------------------------*/

void eval_choices_print(const struct cli *cli, const struct eval_choices *c,
                        const struct answers_result *r) {
    static const char *const BY[RULES] = {
        "the sum of its losses", "its loss per byte", "its loss per token",
    };
    for (int rule = 0; rule < RULES; rule++) {
        double share = (double)r->right[rule] / (double)r->examples;
        double error = answers_error(r->right[rule], r->examples);
        if (r->right[rule] < 0) continue;
        cli_out(cli, "  accuracy     %.2f %%", 100 * share);
        if (r->examples > 1) cli_out(cli, " ± %.2f", 100 * error);
        cli_out(cli, ": %" PRId64 " of %" PRId64 " by %s\n", r->right[rule], r->examples, BY[rule]);
    }
    cli_out(cli, "  loss         %.6f nats per token of the right completions\n", r->loss);
    (void)c;
}

static void put_rule(json_t *object, const char *right, const char *accuracy, const char *error,
                     const struct answers_result *r, enum rule rule, bool *failed) {
    int64_t n = r->right[rule];
    json_put(object, right, n < 0 ? json_null() : json_integer(n), failed);
    json_put(object, accuracy, n < 0 ? json_null() : json_real((double)n / (double)r->examples),
             failed);
    json_put(object, error, json_finite(answers_error(n, r->examples)), failed);
}

void eval_choices_json(const struct answers_result *r, json_t *object, bool *failed) {
    json_put(object, "examples", json_integer(r->examples), failed);
    put_rule(object, "right", "accuracy", "accuracy_error", r, RULE_TOKEN, failed);
    put_rule(object, "right_sum", "accuracy_sum", "accuracy_sum_error", r, RULE_SUM, failed);
    put_rule(object, "right_byte", "accuracy_byte", "accuracy_byte_error", r, RULE_BYTE, failed);
}
