/* fp8lab eval: the loss of a model on its own held-out data, on other data, or its right answers to
 * multiple choice. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/commands.h"
#include "runner/eval_choices.h"
#include "runner/eval_data.h"
#include "runner/infer/evaluate.h"
#include "runner/infer/processes.h"
#include "runner/model_ways.h"

enum {
    FILES_MAX = 4096,
    SEQ_LEN_OF_FOLDER = 2048, /* a model of long sequences rarely needs them to be evaluated */
    BATCHES = 8,              /* of a run without `eval`: the schema's default */
    CHOICE_ROWS = 16, CHOICE_ALIGN = 64
};

static const struct flag FLAGS[] = {
    { "data", "FILE", "evaluate all of FILE; or a folder that has the run's data", true },
    { "choices", "FILE", "multiple choice: JSON lines, or a file of llm.c", false },
    { "answers", "FILE", "with --choices: write each answer, for --against", false },
    { "against", "FILE", "with --choices: compare with answers of another model", false },
    { "tokenizer", "FILE", "read text with this one: a file, a folder or bytes", false },
    { "field", "NAME", "of JSON lines, which has the text (default: as the run, or text)", false },
    { "skip-bad", "N", "leave out up to N bad lines (of --data: default as the run)", false },
    { "batches", "N", "at most N micro-batches (own data: as the run; else all)", false },
    { "micro-batch", "N", "sequences at a time (default: as the run, or 1)", false },
    { "seq-len", "N", "tokens per sequence (default: the run's; a folder's, at most 2048)", false },
    { "gpus", "N", "divide the batches among N GPUs, from --device on (cpu: processes)", false },
    MODEL_FLAGS,
};

struct command {
    const struct cli *cli;
    struct model_request request;
    struct open_model model;
    struct eval_data found;
    struct data *data;
    struct eval_choices choices;
    const char *files[FILES_MAX];
    int64_t batches, micro_batch, seq_len; /* as asked; 0: not given */
    int64_t ranks, skip_bad; /* -1: not given */
    char *table; /* the run's choice table; owned, or NULL */
    char *forbidden; /* ways that failed here; owned, or NULL */
    struct evaluated result;
};

/* ---- what is asked ----------------------------------------------------------------------------*/

static enum status read_flags(struct command *c, struct err *e) {
    const struct cli *cli = c->cli;
    int64_t n = cli_count(cli, "data");
    bool choices = cli_has(cli, "choices");
    TRY(model_request_read(cli, cli->args[0], &c->request, e));
    TRY(cli_int(cli, "batches", 1, INT32_MAX, &c->batches, e));
    TRY(cli_int(cli, "micro-batch", 1, INT32_MAX, &c->micro_batch, e));
    TRY(cli_int(cli, "seq-len", 1, INT32_MAX, &c->seq_len, e));
    c->ranks = 1;
    c->skip_bad = -1;
    TRY(cli_int(cli, "skip-bad", 0, INT64_MAX, &c->skip_bad, e));
    if (!n && (cli_has(cli, "field") || (c->skip_bad >= 0 && !choices)))
        return FAIL(e, ERR_ARG, "--field and --skip-bad say how to read the files of --data");
    TRY(cli_int(cli, "gpus", 1, PROCESSES_MAX, &c->ranks, e));
    if (n > FILES_MAX)
        return FAIL(e, ERR_ARG, "--data: %" PRId64 " files, at most %d", n, FILES_MAX);
    for (int64_t i = 0; i < n; i++) c->files[i] = cli_nth(cli, "data", i);
    if (choices && (n || c->batches || c->seq_len))
        return FAIL(e, ERR_ARG, "--choices evaluates all of its file: leave out --data, --batches "
                    "and --seq-len");
    return eval_choices_check(cli, e);
}

/* ---- the loss of data -------------------------------------------------------------------------*/

static enum status choose_sizes(struct command *c, struct err *e) {
    struct run_options *o = &c->model.options;
    bool run = *c->model.found.of;
    int64_t most = o->model.seq_len;
    const json_t *train = json_object_get(c->model.view.resolved, "train");
    if (!c->seq_len) c->seq_len = run || most < SEQ_LEN_OF_FOLDER ? most : SEQ_LEN_OF_FOLDER;
    if (c->seq_len > most)
        return FAIL(e, ERR_ARG, "--seq-len %" PRId64 ": the model reads at most %" PRId64,
                    c->seq_len, most);
    if (!c->micro_batch && run) c->micro_batch = json_int(train, "micro_batch");
    if (c->micro_batch < 1) c->micro_batch = 1;
    o->model.seq_len = c->seq_len;
    o->train.micro_batch = o->train.global_batch = c->micro_batch;
    o->train.documents = c->found.options.documents;
    return OK;
}

/* The run evaluates so many micro-batches of its held-out data; of files, all of them. */
static void choose_batches(struct command *c) {
    int64_t own = c->model.options.eval.batches;
    bool files = c->found.options.eval_only;
    int64_t all = ceil_div(data_sequences(c->data, SPLIT_EVAL), c->micro_batch);
    if (!c->batches) c->batches = files ? all : own ? own : BATCHES;
}

/* In its own recipe a run evaluates by the algorithms that it trained with. */
static enum status take_choices(struct command *c, struct err *e) {
    const char *path = c->found.source.choices;
    size_t n;
    if (!c->model.own_recipe || !*path) return OK;
    TRY(file_read(path, JSON_FILE_LIMIT, &c->table, &n, e));
    c->request.choices = c->table;
    return OK;
}

static enum status take_data(struct command *c, struct err *e) {
    const struct eval_data_request q = {
        .cli = c->cli, .model = &c->request, .opened = &c->model, .files = c->files,
        .count = cli_count(c->cli, "data"), .tokenizer = cli_value(c->cli, "tokenizer"),
        .field = cli_value(c->cli, "field"), .skip_bad = c->skip_bad,
    };
    const struct run_options *o = &c->model.options;
    TRY(eval_data_find(&q, &c->found, e));
    TRY(choose_sizes(c, e));
    TRY(evaluate_blame(data_open(&c->data, &c->found.options, o->model.vocab, o->model.seq_len,
                                 o->train.seed, e), e));
    TRY(take_choices(c, e));
    choose_batches(c);
    int64_t sequences = data_sequences(c->data, SPLIT_EVAL), asked = c->batches * c->micro_batch;
    if (asked < sequences) sequences = asked;
    cli_note(c->cli, "evaluating %" PRId64 " sequence%s of %" PRId64 " tokens", sequences,
             sequences == 1 ? "" : "s", c->seq_len);
    return OK;
}

/* ---- multiple choice --------------------------------------------------------------------------*/

static enum status take_questions(struct command *c, struct err *e) {
    struct model_config *m = &c->model.options.model;
    struct train_options *t = &c->model.options.train;
    TRY(eval_choices_open(c->cli, &c->model, c->skip_bad, &c->choices, e));
    if (!c->micro_batch) c->micro_batch = CHOICE_ROWS;
    int64_t rows = round_up(c->choices.questions.longest, CHOICE_ALIGN);
    if (rows < m->seq_len) m->seq_len = rows;
    c->seq_len = m->seq_len;
    t->micro_batch = t->global_batch = c->micro_batch;
    return OK;
}

/* ---- both -------------------------------------------------------------------------------------*/

static enum status evaluate_model(struct command *c, struct err *e) {
    bool choices = cli_has(c->cli, "choices");
    TRY(choices ? take_questions(c, e) : take_data(c, e));
    const struct evaluation v = {
        .request = &c->request, .model = &c->model, .data = c->data, .batches = c->batches,
        .questions = choices ? &c->choices.questions : NULL, .answers = c->choices.answers,
        .ranks = c->ranks,
    };
    TRY(model_ways_certify(c->cli, &c->request, &c->model, &c->forbidden, e));
    return evaluate(&v, &c->result, e);
}

/* ---- output -----------------------------------------------------------------------------------*/

static const char *recipe_of(const struct command *c) {
    const json_t *own = json_object_get(c->model.view.resolved, "recipe");
    return c->request.recipe ? c->request.recipe : json_text(own, "kind", "bf16");
}

static double loss_of(const struct command *c) {
    return cli_has(c->cli, "choices") ? c->result.answers.loss : (double)c->result.loss.loss;
}

/* Of the tokens, if the run's evaluations have it; else NaN. */
static double accuracy_of(const struct command *c) {
    return c->model.options.train.accuracy ? c->result.loss.accuracy : (double)NAN;
}

/* NaN: not known. */
static double loss_a_byte(const struct command *c) {
    double bytes = c->found.bytes_a_token;
    const struct eval_result *r = &c->result.loss;
    return bytes > 0 && r->loss_tokens ? (double)r->loss / bytes : (double)NAN;
}

static json_t *data_json(const struct command *c) {
    json_t *list = json_array();
    bool failed = false;
    if (cli_has(c->cli, "choices"))
        json_append(list, json_from_text(c->choices.questions.path), &failed);
    for (int64_t i = 0; i < cli_count(c->cli, "data"); i++)
        json_append(list, json_from_text(c->files[i]), &failed);
    return json_whole(list, failed);
}

/* The keys of --choices that are null without it; accuracy is that of the tokens. */
static void put_no_choices(const struct command *c, json_t *object, bool *failed) {
    static const char *const KEYS[] = {
        "examples", "right", "accuracy_error", "right_sum", "accuracy_sum", "accuracy_sum_error",
        "right_byte", "accuracy_byte", "accuracy_byte_error", "accuracy_guessing",
        "against",
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        json_put(object, KEYS[i], json_null(), failed);
    json_put(object, "accuracy", json_finite(accuracy_of(c)), failed);
}

static void print_json(const struct command *c, double tokens_per_s) {
    bool choices = cli_has(c->cli, "choices"), run = *c->model.found.of;
    uint32_t bits;
    char hex[9];
    float loss = (float)loss_of(c);
    memcpy(&bits, &loss, sizeof bits);
    snprintf(hex, sizeof hex, "%08" PRIx32, bits);
    bool failed = false;
    int64_t tokens = choices ? c->result.answers.tokens : c->result.loss.tokens;
    int64_t counted = choices ? tokens : c->result.loss.loss_tokens;
    json_t *object = json_pack(
        "{ss so so? sI ss ss sI so sI sI sI sI sf ss so sf}", "schema", "fp8lab.eval/1",
        "path", json_from_text(c->model.found.path), "run",
        run ? json_from_text(c->model.found.run) : NULL, "step",
        (json_int_t)c->model.found.step, "recipe", recipe_of(c), "backend",
        c->result.backend, "ranks", (json_int_t)c->result.ranks, "data", data_json(c), "seq_len",
        (json_int_t)c->seq_len, "micro_batch", (json_int_t)c->micro_batch, "tokens",
        (json_int_t)tokens, "loss_tokens", (json_int_t)counted, "loss", loss_of(c),
        "loss_bits", hex, "loss_a_byte",
        json_finite(loss_a_byte(c)), "tokens_per_s", tokens_per_s);
    if (choices) eval_choices_json(c->cli, &c->choices, &c->result.answers, object, &failed);
    else put_no_choices(c, object, &failed);
    object = json_whole(object, failed);
    cli_out_json(c->cli, object);
    json_decref(object);
}

static void print_loss(const struct command *c) {
    double byte = loss_a_byte(c);
    const struct eval_result *r = &c->result.loss;
    cli_out(c->cli, "  loss         %.6f nats per token\n", (double)r->loss);
    if (isfinite(byte) && c->found.bytes_a_token != 1)
        cli_out(c->cli, "  per byte     %.6f nats per byte of text, at %.4g bytes per token\n",
                byte, c->found.bytes_a_token);
    if (isfinite(accuracy_of(c)))
        cli_out(c->cli, "  accuracy     %.2f %%: the target has the largest logit\n",
                100 * accuracy_of(c));
    int64_t sequences = r->tokens / c->seq_len, others = r->tokens - r->loss_tokens;
    cli_out(c->cli, "  tokens       %" PRId64 " with loss, in %" PRId64 " sequence%s of %" PRId64,
            r->loss_tokens, sequences, sequences == 1 ? "" : "s", c->seq_len);
    if (others)
        cli_out(c->cli, "; the other %" PRId64 " are padding or have no loss", others);
    cli_out(c->cli, "\n");
}

static void print(const struct command *c) {
    bool choices = cli_has(c->cli, "choices");
    int64_t tokens = choices ? c->result.answers.tokens : c->result.loss.tokens;
    double speed = c->result.us > 0 ? 1e6 * (double)tokens / (double)c->result.us : 0;
    if (c->cli->json) {
        print_json(c, speed);
        return;
    }
    bool run = *c->model.found.of;
    cli_out(c->cli, "%s", run ? c->model.found.run : PLAIN(c->model.found.path));
    if (run) cli_out(c->cli, "  step %" PRId64, c->model.found.step);
    cli_out(c->cli, "  %s on %s\n", recipe_of(c), c->result.backend);
    if (choices) eval_choices_print(c->cli, &c->result.answers);
    else print_loss(c);
    cli_out(c->cli, "  speed        %.1f tokens/s", speed);
    if (!choices && c->result.loss.loss_tokens != tokens)
        cli_out(c->cli, " of all %" PRId64, tokens);
    if (c->result.ranks > 1) cli_out(c->cli, " of %" PRId64 " processes", c->result.ranks);
    cli_out(c->cli, "\n");
    if (choices) eval_choices_print_against(c->cli, &c->choices);
}

/* For --answers: whose they are. A folder has no id, and its path is the machine's own. */
static enum status write_answers(const struct command *c, struct err *e) {
    const struct found_weights *found = &c->model.found;
    char name[PATH_CAP];
    path_base(name, found->path);
    json_t *own = json_pack(
        "{so? so sI ss ss sI sI}", "run", *found->of ? json_from_text(found->run) : NULL, "model",
        json_from_text(name), "step", (json_int_t)found->step, "recipe", recipe_of(c), "backend",
        c->result.backend, "seq_len", (json_int_t)c->seq_len, "micro_batch",
        (json_int_t)c->micro_batch);
    enum status st = own ? eval_choices_write(c->cli, &c->choices, own, e)
                         : FAIL(e, ERR_MEMORY, "a header of answers");
    json_decref(own);
    return st;
}

/* Prints what was found, also if the answers cannot be written: it may have taken hours. */
static int report(const struct command *c) {
    struct err e = { 0 };
    enum status st = cli_has(c->cli, "answers") ? write_answers(c, &e) : OK;
    print(c);
    if (st == OK) return EXIT_OK;
    cli_warn(c->cli, "the answers are not kept: %s", e.text);
    return exit_code_of(e.code);
}

static int cmd_eval(const struct cli *cli) {
    struct command c = { .cli = cli };
    struct err e = { 0 };
    int code = EXIT_OK;
    enum status st = read_flags(&c, &e);
    if (st == OK) st = model_find(&c.request, &c.model, &e);
    if (st == OK) st = evaluate_model(&c, &e);
    if (st == OK) code = report(&c);
    model_close(&c.model); /* before its data */
    data_close(c.data);
    eval_choices_close(&c.choices);
    eval_data_close(&c.found);
    free(c.table);
    free(c.forbidden);
    return st == OK ? code : cli_fail(cli, &e);
}

const struct verb VERB_EVAL = {
    .name = "eval",
    .arguments = "RUN|DIR",
    .about = "the loss of a model on its own or other data, also in another recipe",
    .more = "RUN is a run that kept a checkpoint, DIR a Hugging Face folder or a checkpoint.\n"
            "Without --data the run's held-out data are found by content, where they were or in\n"
            "the folder that --data names; in its own recipe the loss is then that of the run's\n"
            "last evaluation. Otherwise FILE is what the run's data were:\n"
            "bytes, token shards (.bin), or text, JSON lines or conversations for its tokenizer.\n"
            "All of it is evaluated: the last sequence may be short, and is padded. The loss is\n"
            "the mean over the tokens with loss, so padding does not change it.\n"
            "  fp8lab eval last && fp8lab eval last --recipe bf16   what does FP8 cost?\n"
            "--choices: FILE has one question a line, {\"context\": \"...\", \"choices\": [...],\n"
            "\"answer\": 0} or as HellaSwag, ARC, OpenBookQA and PIQA have them, or is a file of\n"
            "llm.c. The answer is the completion with the lowest loss: sum, per byte, per token.\n"
            "  fp8lab eval RUN1 --choices q.jsonl --answers bf16.jsonl   does FP8 cost answers?\n"
            "  fp8lab eval RUN2 --choices q.jsonl --against bf16.jsonl\n"
            "Each GPU of --gpus N holds the whole model. N changes no bit if all use the same\n"
            "algorithms: the run's own, or any on a CPU.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_eval,
    .computes = true,
};
