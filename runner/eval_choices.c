#include "runner/eval_choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/infer/paired.h"
#include "runner/infer/questions_json.h"
#include "runner/infer/questions_llmc.h"

/* By whatever names. */
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!strcmp(a, b)) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

enum status eval_choices_check(const struct cli *cli, struct err *e) {
    const char *answers = cli_value(cli, "answers"), *against = cli_value(cli, "against");
    if (!cli_has(cli, "choices") && (answers || against))
        return FAIL(e, ERR_ARG, "--answers and --against are about the answers to --choices FILE");
    if (answers && against && is_same_file(answers, against))
        return FAIL(e, ERR_ARG, "--answers %s would replace the answers that --against reads; name "
                    "another file", answers);
    return answers ? answers_file_may_replace(answers, e) : OK;
}

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
    *out = (struct eval_choices){ .found = &m->found };
    TRY(questions_are_json(path, &json, e));
    if (!json && (cli_has(cli, "tokenizer") || skip_bad >= 0))
        return FAIL(e, ERR_ARG, "--choices %s has tokens, not JSON lines: leave out --tokenizer "
                    "and --skip-bad", path);
    if (json) TRY(read_json(cli, m, skip_bad, out, e));
    else TRY(questions_llmc_open(path, model->vocab, model->seq_len, &out->questions, e));
    out->answers = calloc((size_t)out->questions.rows, sizeof *out->answers);
    if (!out->answers) return FAIL(e, ERR_MEMORY, "%" PRId64 " answers", out->questions.rows);
    const char *against = cli_value(cli, "against");
    return against ? answers_file_read(against, &out->questions, &out->against, e) : OK;
}

void eval_choices_close(struct eval_choices *c) {
    questions_close(&c->questions);
    text_model_close(&c->text);
    free(c->answers);
    answers_file_close(&c->against);
    *c = (struct eval_choices){ 0 };
}

/* ---- the file of answers ----------------------------------------------------------------------*/

/* The hash of the tokenizer's content; "": the questions are tokens. */
static struct tokenizer_hash own_hash(const struct eval_choices *c) {
    const struct tokenizer *t = c->text.choice.tokenizer;
    return t ? tokenizer_hash_of(t) : (struct tokenizer_hash){ .content = "" };
}

enum status eval_choices_write(const struct cli *cli, const struct eval_choices *c,
                               const json_t *own, struct err *e) {
    const char *path = cli_value(cli, "answers");
    const struct tokenizer_hash hash = own_hash(c);
    bool failed = false;
    if (!path) return OK;
    json_t *model = json_copied(own, &failed);
    json_put(model, "tokenizer_sha256", *hash.content ? json_string(hash.content) : json_null(),
             &failed);
    model = json_whole(model, failed);
    enum status st = model ? answers_file_write(path, model, &c->questions, c->answers, e)
                           : FAIL(e, ERR_MEMORY, "a header of answers");
    json_decref(model);
    return st;
}

/* Both are known, and differ. */
static bool other_tokenizer(const struct eval_choices *c) {
    const struct tokenizer_hash hash = own_hash(c);
    const char *theirs = json_text(c->against.header, "tokenizer_sha256", "");
    return *hash.content && *theirs && strcmp(hash.content, theirs) != 0;
}

/* Other weights, by the id of the run, or the name of the folder, and the step. A change of the
 * recipe alone is none. */
static bool other_weights(const struct eval_choices *c) {
    const json_t *them = c->against.header;
    const char *run = json_text(them, "run", "");
    char name[PATH_CAP];
    path_base(name, c->found->path);
    bool same = *c->found->of ? !strcmp(run, c->found->run)
                              : !*run && !strcmp(json_text(them, "model", ""), name);
    return !same || json_int(them, "step") != c->found->step;
}

/* ---- beside another model ---------------------------------------------------------------------*/

static const char SAME[] = "the same answers: all losses are equal to the bit";

static bool is_same(const struct eval_choices *c) {
    return paired_is_same(&c->questions, c->answers, c->against.answers);
}

static struct paired pairs_of(const struct eval_choices *c, enum rule rule) {
    return paired_of(&c->questions, rule, c->answers, c->against.answers);
}

static void print_pairs(const struct cli *cli, const struct eval_choices *c, enum rule rule) {
    const struct paired p = pairs_of(c, rule);
    char bounds[40];
    snprintf(bounds, sizeof bounds, "%+.1f to %+.1f", 100 * p.low, 100 * p.high);
    cli_out(cli, "  by %-10s%11" PRId64 "%11" PRId64 "%11" PRId64 "%12" PRId64 "%+12.1f%18s%10.3g"
            "  %s\n", rule_name(rule), p.both, p.only_this, p.only_that, p.neither,
            100 * p.difference, bounds, p.p, paired_word(&p));
}

void eval_choices_print_against(const struct cli *cli, const struct eval_choices *c) {
    const json_t *them = c->against.header;
    if (!them) return;
    const char *name = json_text(them, "run", json_text(them, "model", "?"));
    cli_out(cli, "  against      %s: %s, step %" PRId64 ", %s on %s\n",
            PLAIN(cli_value(cli, "against")), PLAIN(name), json_int(them, "step"),
            PLAIN(json_text(them, "recipe", "?")), PLAIN(json_text(them, "backend", "?")));
    if (is_same(c)) {
        cli_out(cli, "  verdict      %s\n", SAME);
        return;
    }
    if (other_tokenizer(c))
        cli_out(cli, "  tokenizer    another one there: a loss per token is of other tokens\n");
    char text[PAIRED_TEXT_CAP];
    const enum rule main = rule_main(&c->questions);
    const struct paired p = pairs_of(c, main);
    cli_out(cli, "  %-13s%11s%11s%11s%12s%12s%18s%10s\n", "questions", "both right", "only this",
            "only that", "both wrong", "difference", "95 %", "p");
    for (enum rule rule = 0; rule < RULES; rule++)
        if (rule != RULE_BYTE || c->questions.has_bytes) print_pairs(cli, c, rule);
    paired_text(&p, text);
    cli_out(cli, "  verdict      by %s: %s\n", rule_name(main), text);
    if (other_weights(c))
        cli_out(cli, "  weights      are others there: two seeds of one recipe differ, too. To "
                "judge a recipe,\n               ask several seeds of each\n");
}

static json_t *pairs_json(const struct eval_choices *c, enum rule rule) {
    const struct paired p = pairs_of(c, rule);
    return json_pack("{ss sI sI sI sI sI sf sf sf sf ss}", "rule", rule_name(rule), "both",
                     (json_int_t)p.both, "only_this", (json_int_t)p.only_this, "only_that",
                     (json_int_t)p.only_that, "neither", (json_int_t)p.neither, "changed",
                     (json_int_t)p.changed, "difference", p.difference, "low", p.low, "high",
                     p.high, "p", p.p, "verdict", paired_word(&p));
}

/* What the file says of the model; of a stranger's file, no value that has others inside. */
static json_t *model_json(const json_t *header, bool *failed) {
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)header, key, value)
        if (!json_is_object(value) && !json_is_array(value))
            json_put(out, key, json_incref(value), failed);
    return out;
}

static json_t *against_json(const struct cli *cli, const struct eval_choices *c, bool *failed) {
    json_t *object = json_object(), *rules = json_array();
    const enum rule main = rule_main(&c->questions);
    const struct paired p = pairs_of(c, main);
    bool same = is_same(c);
    char text[PAIRED_TEXT_CAP];
    paired_text(&p, text);
    for (enum rule rule = 0; rule < RULES; rule++)
        if (rule != RULE_BYTE || c->questions.has_bytes)
            json_append(rules, pairs_json(c, rule), failed);
    json_put(object, "path", json_from_text(cli_value(cli, "against")), failed);
    json_put(object, "model", model_json(c->against.header, failed), failed);
    json_put(object, "rules", rules, failed);
    json_put(object, "rule", json_string(rule_name(main)), failed);
    json_put(object, "verdict", json_string(same ? "same" : paired_word(&p)), failed);
    json_put(object, "text", json_string(same ? SAME : text), failed);
    json_put(object, "other_tokenizer", json_boolean(other_tokenizer(c)), failed);
    json_put(object, "other_weights", json_boolean(other_weights(c)), failed);
    return object;
}

/* ---- output -----------------------------------------------------------------------------------*/

void eval_choices_print(const struct cli *cli, const struct answers_result *r) {
    static const char *const BY[RULES] = {
        "the sum of its losses", "its loss per byte", "its loss per token",
    };
    for (enum rule rule = 0; rule < RULES; rule++) {
        double share = (double)r->right[rule] / (double)r->examples;
        double error = answers_error(r->right[rule], r->examples);
        if (r->right[rule] < 0) continue;
        cli_out(cli, "  accuracy     %.2f %%", 100 * share);
        if (r->examples > 1) cli_out(cli, " ± %.2f", 100 * error);
        cli_out(cli, ": %" PRId64 " of %" PRId64 " by %s\n", r->right[rule], r->examples, BY[rule]);
    }
    cli_out(cli, "  guessing     %.2f %%\n", 100 * r->chance);
    cli_out(cli, "  loss         %.6f nats per token of the right completions\n", r->loss);
}

static void put_rule(json_t *object, const char *right, const char *accuracy, const char *error,
                     const struct answers_result *r, enum rule rule, bool *failed) {
    int64_t n = r->right[rule];
    json_put(object, right, n < 0 ? json_null() : json_integer(n), failed);
    json_put(object, accuracy, n < 0 ? json_null() : json_real((double)n / (double)r->examples),
             failed);
    json_put(object, error, json_finite(answers_error(n, r->examples)), failed);
}

void eval_choices_json(const struct cli *cli, const struct eval_choices *c,
                       const struct answers_result *r, json_t *object, bool *failed) {
    json_put(object, "against", c->against.header ? against_json(cli, c, failed) : json_null(),
             failed);
    json_put(object, "examples", json_integer(r->examples), failed);
    json_put(object, "accuracy_guessing", json_real(r->chance), failed);
    put_rule(object, "right", "accuracy", "accuracy_error", r, RULE_TOKEN, failed);
    put_rule(object, "right_sum", "accuracy_sum", "accuracy_sum_error", r, RULE_SUM, failed);
    put_rule(object, "right_byte", "accuracy_byte", "accuracy_byte_error", r, RULE_BYTE, failed);
}
