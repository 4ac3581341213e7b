/* fp8lab generate: a model continues text. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/output_file.h"
#include "runner/base/run_files.h"
#include "runner/commands.h"
#include "runner/generate/generator.h"
#include "runner/generate/text_loop.h"
#include "runner/generated_text.h"
#include "runner/infer/logits_file.h"
#include "runner/infer/model_text.h"
#include "runner/model_ways.h"

enum { PROMPTS_BYTES_MAX = 64 << 20, PROMPTS_MAX = 100000, LENGTH_ALIGN = 16, BATCH = 8 };

struct command {
    const struct cli *cli;
    struct model_request request;
    struct open_model model;
    struct text_model text;
    struct generator *generator;
    struct generation_rules rules;
    struct generator_sizes sizes;
    char *lines;         /* of --prompts, cut into prompts; owned */
    bool conversations;  /* they are JSON lines of conversations */
    const char **prompt; /* [count]; owned array */
    struct generation *x; /* [count]; owned, their ids too */
    int64_t count;
    const char **stops;  /* [stop_count]; owned array */
    int64_t stop_count;
    int32_t ends[STOPS_MAX]; /* the tokens that end a text */
    bool streams;        /* text is printed as it comes */
    struct generated_text shown;
    int64_t us, generated;
    char *forbidden; /* ways that failed here; owned, or NULL */
};

/* ---- the command line -------------------------------------------------------------------------*/

static enum status read_number(const struct cli *cli, const char *flag, double min, double max,
                               double *out, struct err *e) {
    const char *text = cli_value(cli, flag);
    char *end;
    if (!text) return OK;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= min && x <= max))
        return FAIL(e, ERR_ARG, "--%s: expected a number from %g to %g, found '%s'", flag, min,
                    max, text);
    *out = x;
    return OK;
}

/* The default temperature is 0, and these flags would do nothing. */
static enum status check_draws(const struct cli *cli, struct err *e) {
    static const char *const OF_DRAWS[] = { "top-k", "top-p", "seed" };
    for (size_t i = 0; i < sizeof OF_DRAWS / sizeof *OF_DRAWS && !cli_has(cli, "temperature"); i++)
        if (cli_has(cli, OF_DRAWS[i]))
            return FAIL(e, ERR_ARG, "--%s is about draws, and without --temperature nothing is "
                        "drawn; add --temperature 1, or leave out --%s", OF_DRAWS[i], OF_DRAWS[i]);
    return OK;
}

static enum status read_rules(struct command *c, struct err *e) {
    struct generation_rules *r = &c->rules;
    int64_t seed = 1234;
    *r = (struct generation_rules){ .tokens = 128, .sampling = { .top_p = 1 } };
    TRY(cli_int(c->cli, "tokens", 0, INT32_MAX, &r->tokens, e));
    TRY(cli_int(c->cli, "seed", 0, INT64_MAX, &seed, e));
    TRY(cli_int(c->cli, "top-k", 0, INT32_MAX, &r->sampling.top_k, e));
    TRY(read_number(c->cli, "temperature", 0, 100, &r->sampling.temperature, e));
    TRY(read_number(c->cli, "top-p", 0, 1, &r->sampling.top_p, e));
    TRY(check_draws(c->cli, e));
    r->sampling.seed = (uint64_t)seed;
    c->stop_count = cli_count(c->cli, "stop");
    c->stops = calloc((size_t)c->stop_count + 1, sizeof *c->stops);
    if (!c->stops) return FAIL(e, ERR_MEMORY, "the stop texts");
    for (int64_t i = 0; i < c->stop_count; i++) c->stops[i] = cli_nth(c->cli, "stop", i);
    return OK;
}

/* One prompt per line; empty lines are none, and a BOM is no part of the first. */
static enum status read_lines(struct command *c, const char *path, struct err *e) {
    static const char MARK[] = "\xef\xbb\xbf";
    size_t n;
    char *rest = NULL;
    if (!path_exists(path))
        return FAIL(e, ERR_ARG, "--prompts %s: there is no such file; a prompt itself is an "
                    "argument: fp8lab generate RUN \"PROMPT\"", path);
    TRY(file_read(path, PROMPTS_BYTES_MAX, &c->lines, &n, e));
    if (memchr(c->lines, 0, n))
        return FAIL(e, ERR_CONFIG, "%s has a NUL byte: expected one prompt per line", path);
    char *line = c->lines + (strncmp(c->lines, MARK, sizeof MARK - 1) ? 0 : sizeof MARK - 1);
    for (line = strtok_r(line, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t end = strlen(line);
        if (end && line[end - 1] == '\r') line[--end] = 0;
        if (!end) continue;
        if (c->count == PROMPTS_MAX)
            return FAIL(e, ERR_CONFIG, "%s has more than %d prompts", path, PROMPTS_MAX);
        const char **more = realloc(c->prompt, (size_t)(c->count + 1) * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "the prompts of %s", path);
        c->prompt = more;
        c->prompt[c->count++] = line;
    }
    return c->count ? OK : FAIL(e, ERR_CONFIG, "%s has no prompt: expected one per line", path);
}

/* As ingestion takes names. */
static bool is_json_lines(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (!strcasecmp(dot, ".jsonl") || !strcasecmp(dot, ".ndjson"));
}

static enum status read_prompts(struct command *c, struct err *e) {
    const char *file = cli_value(c->cli, "prompts");
    if ((c->cli->arg_count == 2) == (file != NULL))
        return FAIL(e, ERR_ARG, "expected one prompt, or --prompts FILE with one per line: fp8lab "
                    "generate RUN \"PROMPT\"");
    c->conversations = file && cli_has(c->cli, "chat") && is_json_lines(file);
    if (file) return read_lines(c, file, e);
    c->prompt = malloc(sizeof *c->prompt);
    if (!c->prompt) return FAIL(e, ERR_MEMORY, "a prompt");
    c->prompt[c->count++] = c->cli->args[1];
    return OK;
}

/* ---- the model --------------------------------------------------------------------------------*/

/* *longest: tokens of the longest prompt. */
static enum status encode(struct command *c, int64_t *longest, struct err *e) {
    const struct model_config *model = &c->model.options.model;
    c->x = calloc((size_t)c->count, sizeof *c->x);
    if (!c->x) return FAIL(e, ERR_MEMORY, "%" PRId64 " prompts", c->count);
    *longest = 0;
    for (int64_t i = 0; i < c->count; i++) {
        struct generation *x = &c->x[i];
        x->number = i;
        enum status st = (c->conversations ? text_model_encode_chat : text_model_encode)(
            &c->text, c->prompt[i], model->vocab, &x->ids, &x->prompt, e);
        int64_t most = model->seq_len - (c->rules.tokens > 0);
        if (st == OK && x->prompt > most)
            st = FAIL(e, ERR_CONFIG, "it has %" PRId64 " tokens; the model reads %" PRId64 ", so "
                      "%" PRId64 " at most%s", x->prompt, model->seq_len, most,
                      c->rules.tokens > 0 ? " leave room for one more" : "");
        if (st != OK) {
            err_prefix(e, "prompt %" PRId64, i + 1);
            return st;
        }
        if (x->prompt > *longest) *longest = x->prompt;
    }
    return OK;
}

/* The shortest sequence that holds all prompts and their tokens. Scales that are loaded with a
 * checkpoint are of a table of positions of its own length. */
static enum status fit_length(struct command *c, int64_t longest, struct err *e) {
    struct run_options *o = &c->model.options;
    struct model_config *model = &o->model;
    int64_t whole = model->seq_len, tokens = c->rules.tokens;
    int64_t needed = longest + (tokens > 0 ? tokens : 1);
    int64_t length = round_up(needed < whole ? needed : whole, LENGTH_ALIGN);
    bool may = model->positions == POSITION_ROPE || !model_is_delayed(&c->model);
    if (length < whole && may) model->seq_len = length;
    /* Few rows of the head at a time: only those of the last tokens are needed. */
    if (!recipe_is_fp8(o->recipe.head.kind)) o->train.head_chunk = HEAD_CHUNK_ALIGN;
    for (int64_t i = 0; i < c->count; i++) {
        struct generation *x = &c->x[i];
        int32_t *more = realloc(x->ids, (size_t)model->seq_len * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "%" PRId64 " tokens", model->seq_len);
        x->ids = more;
    }
    return OK;
}

static void warn_of_tokenizer(const struct command *c) {
    const char *name = cli_value(c->cli, "tokenizer");
    char warning[MODEL_TEXT_NOTE];
    if (!name) return;
    const struct tokenizer_hash given = tokenizer_hash_of(c->text.choice.tokenizer);
    model_text_compare(&c->model, name, &given, warning);
    if (*warning) cli_warn(c->cli, "%s", warning);
}

static enum status open_all(struct command *c, struct err *e) {
    const struct cli *cli = c->cli;
    struct run_options *o = &c->model.options;
    int64_t longest = 0, batch = c->count < BATCH ? c->count : BATCH;
    char note[MODEL_TEXT_NOTE];
    TRY(cli_int(cli, "batch", 1, 4096, &batch, e));
    TRY(model_request_read(cli, cli->args[0], &c->request, e));
    TRY(model_find(&c->request, &c->model, e));
    TRY(model_text_open(&c->model, cli_value(cli, "tokenizer"), cli_has(cli, "chat"), &c->text,
                        note, e));
    if (*note) cli_note(cli, "%s", note);
    warn_of_tokenizer(c);
    TRY(encode(c, &longest, e));
    TRY(fit_length(c, longest, e));
    o->train.micro_batch = o->train.global_batch = batch < c->count ? batch : c->count;
    TRY(model_ways_certify(cli, &c->request, &c->model, &c->forbidden, e));
    TRY(model_start(&c->request, &c->model, NULL, e));
    TRY(model_text_stops(&c->model, &c->text, c->ends, &c->rules.stop_count, e));
    if (cli_has(cli, "no-end")) c->rules.stop_count = 0;
    c->rules.stop = c->ends;
    c->sizes = (struct generator_sizes){ o->train.micro_batch, o->model.seq_len, o->model.vocab,
                                         text_model_ids(&c->text) };
    return generator_create(&c->generator, c->model.trainer, &c->sizes, e);
}

/* ---- generating -------------------------------------------------------------------------------*/

/* *text, owned by the caller: what x has so far; *n bytes before a stop text, all of them if they
 * can be no beginning of one. *stopped: there is a stop text. */
static enum status text_of(const struct command *c, const struct generation *x, char **text,
                           size_t *n, bool *stopped, struct err *e) {
    size_t whole;
    TRY(text_model_decode(&c->text, x->ids, x->prompt, x->count, text, &whole, e));
    *n = text_until_stop(*text, whole, c->stops, c->stop_count, stopped);
    if (x->end && !*stopped) *n = whole;
    else if (!*stopped) *n = text_settled(*text, *n);
    return OK;
}

/* After each token: looks for a stop text, and shows what is new. */
static enum status added(void *user, struct generation *x, struct err *e) {
    struct command *c = user;
    char *text = NULL;
    size_t n = 0;
    bool stopped = false;
    c->generated++;
    if (!c->streams && !c->stop_count) return OK;
    TRY(text_of(c, x, &text, &n, &stopped, e));
    if (stopped) x->end = GENERATION_STOP;
    if (c->streams) generated_text_show(&c->shown, text, n);
    free(text);
    return OK;
}

/* Before the model is opened. */
static enum status check_logits(const struct command *c, struct err *e) {
    static const struct output_kind ARRAY = { "NumPy array", "\x93NUMPY", NULL };
    const char *logits = cli_value(c->cli, "logits");
    if (!logits) return OK;
    if (c->count > 1)
        return FAIL(e, ERR_ARG, "--logits is for one prompt, found %" PRId64, c->count);
    return output_may_replace("logits", logits, &ARRAY, e);
}

static enum status generate(struct command *c, struct err *e) {
    const char *logits = cli_value(c->cli, "logits");
    const struct logits_sizes sizes = { c->sizes.batch, c->sizes.length, c->sizes.vocab };
    if (logits)
        TRY(logits_file_write(c->model.trainer, &sizes, c->x->ids, c->x->prompt, logits, e));
    c->streams = c->count == 1 && !c->cli->json;
    c->rules.added = added;
    c->rules.user = c;
    int64_t begin = clock_us();
    enum status st = generator_run(c->generator, &c->rules, c->x, c->count, e);
    c->us = clock_us() - begin;
    if (c->streams) generated_text_end();
    return model_explain(&c->model, st, e);
}

/* ---- results ----------------------------------------------------------------------------------*/

static double tokens_a_second(const struct command *c) {
    return c->us > 0 ? 1e6 * (double)c->generated / (double)c->us : 0;
}

/* The kind of the recipe; of one with exceptions, the kind that it makes them from. */
static const char *recipe_kind(const struct command *c) {
    const json_t *own = json_object_get(c->model.view.resolved, "recipe");
    if (c->model.own_recipe) return json_text(own, "kind", "?");
    return RECIPE_KIND_NAMES[c->model.options.recipe.site[0].kind];
}

static json_t *result_json(const struct command *c, const struct generation *x, const char *text,
                           size_t n) {
    json_t *ids = json_array();
    bool failed = !ids;
    for (int64_t i = x->prompt; i < x->count; i++)
        json_append(ids, json_integer(x->ids[i]), &failed);
    json_t *row = json_pack("{s:o,s:I,s:o,s:o,s:s}", "prompt", json_from_text(c->prompt[x->number]),
                            "prompt_tokens", (json_int_t)x->prompt, "text",
                            text_json(text, n), "ids", ids, "end", GENERATION_END_NAMES[x->end]);
    return json_whole(row, failed);
}

static enum status report(const struct command *c, struct err *e) {
    const struct cli *cli = c->cli;
    json_t *results = json_array();
    bool failed = !results, stopped;
    enum status st = OK;
    for (int64_t i = 0; i < c->count && st == OK && !c->streams; i++) {
        char *text = NULL;
        size_t n = 0;
        st = text_of(c, &c->x[i], &text, &n, &stopped, e);
        if (st == OK && cli->json)
            json_append(results, result_json(c, &c->x[i], text, n), &failed);
        else if (st == OK)
            generated_text_of_many(cli, c->prompt[i], text, n);
        free(text);
    }
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "the generated texts as JSON");
    if (st == OK && cli->json) {
        json_t *object = json_pack(
            "{s:s,s:o,s:o,s:I,s:s,s:s,s:I,s:f,s:O}", "schema", "fp8lab.generate/1", "path",
            json_from_text(c->model.found.path), "run",
            *c->model.found.run ? json_string(c->model.found.run) : json_null(), "step",
            (json_int_t)c->model.found.step, "recipe",
            recipe_kind(c), "backend",
            c->model.device.backend->ops->name, "seq_len", (json_int_t)c->sizes.length,
            "tokens_per_s", tokens_a_second(c), "results", results);
        cli_out_json(cli, object);
        json_decref(object);
    }
    json_decref(results);
    return st;
}

/* Draws leave a loop; the likeliest token never does. */
static void say_loops(const struct command *c) {
    struct text_loop first = { 0 };
    int64_t loops = 0;
    for (int64_t i = 0; i < c->count && c->rules.sampling.temperature == 0; i++) {
        const struct text_loop loop = text_loop_find(&c->x[i]);
        if (loop.tokens && !loops++) first = loop;
    }
    if (!loops) return;
    char which[80] = "the text ends in a loop:";
    if (c->count > 1)
        snprintf(which, sizeof which, "%" PRId64 " of %" PRId64 " texts end in a loop, the first "
                 "in", loops, c->count);
    cli_note(c->cli, "%s the same %" PRId64 " token%s %" PRId64 " times. Always taking the most "
             "likely token often leads there; --temperature 0.8 draws the tokens", which,
             first.tokens, first.tokens == 1 ? "" : "s", first.times);
}

static void say_speed(const struct command *c) {
    int64_t full = 0, last = c->model.options.model.seq_len;
    for (int64_t i = 0; i < c->count; i++) full += c->x[i].end == GENERATION_LENGTH;
    if (full)
        cli_note(c->cli, "%" PRId64 " of %" PRId64 " texts ended at the %" PRId64 " tokens that "
                 "the model reads", full, c->count, last);
    cli_note(c->cli, "%" PRId64 " tokens in %.2f s, %.1f tokens/s", c->generated,
             (double)c->us / 1e6, tokens_a_second(c));
}

static void clean(struct command *c) {
    for (int64_t i = 0; c->x && i < c->count; i++) free(c->x[i].ids);
    generator_destroy(c->generator);
    text_model_close(&c->text);
    model_close(&c->model);
    free(c->forbidden);
    free(c->x);
    free(c->stops);
    free(c->prompt);
    free(c->lines);
}

static int cmd_generate(const struct cli *cli) {
    struct command c = { .cli = cli };
    struct err e = { 0 };
    enum status st = read_rules(&c, &e);
    if (st == OK) st = read_prompts(&c, &e);
    if (st == OK) st = check_logits(&c, &e);
    if (st == OK) st = open_all(&c, &e);
    if (st == OK) st = generate(&c, &e);
    if (st == OK) st = report(&c, &e);
    if (st == OK) say_loops(&c);
    if (st == OK) say_speed(&c);
    clean(&c);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { "tokens", "N", "at most N new tokens per prompt (128)", false },
    { "temperature", "X", "0, the default: the most likely token each time", false },
    { "top-k", "N", "draw among the N most likely tokens (0: all)", false },
    { "top-p", "X", "draw among the most likely that have share X together (1)", false },
    { "seed", "N", "of the draws (1234)", false },
    { "stop", "TEXT", "end a text before TEXT", true },
    { "no-end", NULL, "go on behind the token that ends a text", false },
    { "chat", NULL, "the prompt is a user's message of a chat", false },
    { "prompts", "FILE", "one prompt per line; .jsonl with --chat: conversations", false },
    { "batch", "N", "prompts at a time (8)", false },
    { "tokenizer", "FILE", "a file, a folder or bytes (default: the model's)", false },
    { "logits", "FILE", "write the prompt's logits as a NumPy array", false },
    MODEL_FLAGS,
};

const struct verb VERB_GENERATE = {
    .name = "generate",
    .arguments = "RUN|DIR [PROMPT]",
    .about = "continue text with a model that was trained or imported",
    .more = "RUN: its newest kept checkpoint. DIR: a Hugging Face folder, or a checkpoint. The\n"
            "text goes to stdout as it comes, control characters as ? on a terminal. A run on\n"
            "token shards has the tokenizer that PREFIX.json beside the shards names.\n"
            "\n"
            "Each token is a forward pass of training over the whole text, in the recipe of the\n"
            "run or in --recipe. Always taking the most likely token often ends in a loop;\n"
            "--temperature, such as 0.8, draws tokens. A draw depends on the seed, the number\n"
            "of the prompt and the position of the token, not on --batch. --chat uses the\n"
            "tokenizer's chat template; with --prompts FILE.jsonl each line is a conversation\n"
            "of several messages, in the forms that data = chats reads, such as\n"
            "{\"messages\": [{\"role\": \"user\", ...}]}\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 2,
    .run = cmd_generate,
    .computes = true,
};
