#include "runner/record/inputs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/build_info.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/plan/options.h"
#include "runner/record/documents.h"
#include "runner/record/guess_loss.h"

/* The hash of a configuration. What only says how a run is looked at is no part of it. */
static enum status hash_config(const json_t *resolved, char hex[SHA256_HEX], struct err *e) {
    bool failed = false;
    if (!json_object_get(resolved, "tensorboard")) return canonical_hash(resolved, hex, e);
    json_t *rest = json_copied(resolved, &failed);
    if (rest) (void)json_object_del(rest, "tensorboard");
    enum status st = rest && !failed ? canonical_hash(rest, hex, e)
                                     : FAIL(e, ERR_MEMORY, "the hash of the configuration");
    json_decref(rest);
    return st;
}

/* A set that is open has a sequence. */
static enum status check_sets(const struct data *data, int64_t wanted, struct err *e) {
    for (int64_t i = 0; i < data_set_count(data); i++) {
        const struct data *set = data_set_at(data, i);
        int64_t sequences = data_sequences(set, SPLIT_EVAL), counted = 0;
        TRY(data_count(set, SPLIT_EVAL, 0, wanted, &counted, e));
        if (counted == 0)
            return FAIL(e, ERR_CONFIG, "eval.also.%s: no token of the %" PRId64 " sequences that "
                        "eval reads has loss; raise eval.batches, or give other files",
                        data_set_name(data, i), wanted < sequences ? wanted : sequences);
    }
    return OK;
}

enum status inputs_check_held_out(const struct run_options *run, const struct data *data,
                                  struct err *e) {
    int64_t wanted = run->eval.batches * run->train.micro_batch, counted;
    int64_t sequences = data_sequences(data, SPLIT_EVAL);
    if (run->eval.every == 0) return OK;
    if (sequences == 0)
        return FAIL(e, ERR_CONFIG, "there is nothing to evaluate on: the data hold out less than "
                    "one sequence of %" PRId64 " and its last target; give more data, a larger "
                    "data.holdout, or eval = false", run->model.seq_len);
    TRY(data_count(data, SPLIT_EVAL, 0, wanted, &counted, e));
    if (counted > 0) return check_sets(data, wanted, e);
    return FAIL(e, ERR_CONFIG, "there is nothing to evaluate on: no token of the %" PRId64
                " held-out sequences that eval reads has loss; raise eval.batches or data.holdout, "
                "or write eval = false", wanted < sequences ? wanted : sequences);
}

/* Ends at the first sequence that has a token with loss. */
static enum status check_trained(const struct run_options *run, const struct data *data,
                                 struct err *e) {
    int64_t sequences = run->train.steps * run->train.global_batch, counted = 0;
    if (data_counts_all(data)) return OK;
    for (int64_t i = 0; i < sequences && !counted; i++)
        TRY(data_count(data, SPLIT_TRAIN, i, 1, &counted, e));
    if (counted > 0) return OK;
    return FAIL(e, ERR_CONFIG, "there is nothing to train on: no token of the %" PRId64
                " sequences that the %" PRId64 " steps read has loss, though others of the data "
                "have; raise train.steps or train.global_batch, or give data with more loss",
                sequences, run->train.steps);
}

static enum status hash_sets(const struct data *data, const struct data_file *files,
                             struct inputs *out, struct err *e) {
    for (int64_t i = 0; i < data_set_count(data); i++) {
        struct input_set *set = &out->also[out->also_count++];
        snprintf(set->name, sizeof set->name, "%s", data_set_name(data, i));
        TRY(data_set_sha256(data, files, i, set->sha256, e));
    }
    return OK;
}

/* The list of the files, with their sets. */
static enum status list_files(const struct data *data, const struct data_file *files, json_t **out,
                              struct err *e) {
    int64_t n = data_file_count(data);
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < n; i++)
        json_append(list, json_pack("{s:o,s:I,s:s,s:s,s:s*}", "path",
                                    json_from_text(files[i].path), "bytes",
                                    (json_int_t)files[i].bytes, "sha256", files[i].sha256,
                                    "sample_sha256", files[i].sample_sha256, "set",
                                    files[i].set < 0 ? NULL : data_set_name(data, files[i].set)),
                    &failed);
    *out = json_whole(list, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " files of data", n);
}

static enum status hash_files(const struct data *data, struct inputs *in, json_t **out,
                              struct err *e) {
    struct known_data *known = in->known;
    int64_t n = data_file_count(data);
    struct data_file *files = calloc((size_t)n + 1, sizeof *files);
    if (!files) return FAIL(e, ERR_MEMORY, "%" PRId64 " files of data", n);
    if (known) known_data_find(known, data, files);
    enum status st = data_sha256(data, files, in->data, e);
    if (st == OK) st = list_files(data, files, out, e);
    if (st == OK) st = eval_sets_check_copies(*out, e);
    if (st == OK) st = hash_sets(data, files, in, e);
    if (st == OK && known) st = known_data_add(known, data, files, e);
    free(files);
    return st;
}

/* The parts of the data that the run reads more than once, and how often. */
static void note_repeats(const struct run_options *run, const struct data *data, char *out,
                         size_t capacity) {
    struct text t = { 0 };
    int64_t sequences = run->train.steps * run->train.global_batch, named = 0;
    for (int64_t i = 0; i < data_part_count(data); i++) {
        struct data_use use = data_use_at(data, i, sequences);
        char line[64];
        if (use.read <= use.sequences) continue;
        snprintf(line, sizeof line, " %.2f times", (double)use.read / (double)use.sequences);
        text_puts(&t, named++ ? ", " : "reads ");
        text_puts(&t, use.path);
        if (data_part_count(data) == 1 && run->data.path_count > 1) text_puts(&t, " and the rest");
        text_puts(&t, line);
    }
    snprintf(out, capacity, "%s", t.bytes && !t.failed ? t.bytes : "");
    text_free(&t);
}

static enum status hash_data(const json_t *resolved, const char *root, struct inputs *out,
                             json_t **files, struct err *e) {
    struct run_options run;
    struct data *data = NULL;
    TRY(options_read(resolved, &run, e));
    run.data.root = root;
    enum status st = data_open(&data, &run.data, run.model.vocab, run.model.seq_len, run.train.seed,
                               e);
    if (st == OK) st = check_trained(&run, data, e);
    if (st == OK) st = inputs_check_held_out(&run, data, e);
    if (st == OK) st = hash_files(data, out, files, e);
    if (st == OK && out->wants_guess) st = guess_loss(&run, data, &out->guess_loss, e);
    if (st == OK) note_repeats(&run, data, out->repeats, sizeof out->repeats);
    data_close(data);
    options_free(&run);
    return st;
}

json_t *inputs_json(const struct inputs *in) {
    json_t *sets = json_object();
    bool failed = false;
    for (int64_t i = 0; i < in->also_count; i++)
        json_put(sets, in->also[i].name, json_string(in->also[i].sha256), &failed);
    json_t *out = json_pack("{s:s,s:s,s:s,s:s?,s:s*,s:s*,s:s*}", "config", in->config, "code",
                            in->code, "data", in->data, "choices",
                            *in->choices ? in->choices : NULL, "parent",
                            *in->parent ? in->parent : NULL, "weights",
                            *in->weights ? in->weights : NULL, "arithmetic",
                            *in->arithmetic ? in->arithmetic : NULL);
    if (in->also_count) json_put(out, "also", json_incref(sets), &failed);
    json_decref(sets);
    return json_whole(out, failed);
}

bool inputs_same_sets(const struct inputs *in, const json_t *then) {
    const json_t *sets = json_object_get(then, "also");
    bool same = json_object_size(sets) == (size_t)in->also_count;
    for (int64_t i = 0; same && i < in->also_count; i++)
        same = !strcmp(json_text(sets, in->also[i].name, ""), in->also[i].sha256);
    return same;
}

static enum status hash_all(struct inputs *in, struct err *e) {
    json_t *all = inputs_json(in);
    if (!all) return FAIL(e, ERR_MEMORY, "inputs");
    enum status st = canonical_hash(all, in->all, e);
    json_decref(all);
    return st;
}

/* The same for text with a tokenizer, whose shards are named by an absolute path. */
static enum status hash_shards(const json_t *resolved, const json_t *tokens, struct inputs *out,
                               json_t **files, struct err *e) {
    json_t *trained;
    TRY(options_with_shards(resolved, tokens, &trained, e));
    enum status st = hash_data(trained, NULL, out, files, e);
    json_decref(trained);
    return st;
}

enum status inputs_hash(const json_t *resolved, const char *data_root, const json_t *tokens,
                        struct inputs *out, json_t **files, struct err *e) {
    *out = (struct inputs){ .known = out->known, .wants_guess = out->wants_guess };
    *files = NULL;
    TRY(hash_config(resolved, out->config, e));
    snprintf(out->code, sizeof out->code, "%s", build_info().code_sha256);
    if (tokens) TRY(hash_shards(resolved, tokens, out, files, e));
    else TRY(hash_data(resolved, data_root, out, files, e));
    return inputs_choose(out, "", e);
}

enum status inputs_choose(struct inputs *in, const char *sha256, struct err *e) {
    snprintf(in->choices, sizeof in->choices, "%s", sha256);
    return hash_all(in, e);
}

enum status inputs_extend(struct inputs *in, const char *sha256, struct err *e) {
    snprintf(in->parent, sizeof in->parent, "%s", sha256);
    return hash_all(in, e);
}

enum status inputs_begin_with(struct inputs *in, const char *sha256, struct err *e) {
    snprintf(in->weights, sizeof in->weights, "%s", sha256);
    return hash_all(in, e);
}

enum status inputs_calculate(struct inputs *in, const char *arithmetic, struct err *e) {
    snprintf(in->arithmetic, sizeof in->arithmetic, "%s", arithmetic);
    return hash_all(in, e);
}

enum status inputs_record_choices(json_t *run, const char *sha256, struct err *e) {
    char all[SHA256_HEX];
    json_t *inputs = json_object_get(run, "inputs");
    if (json_object_set_new(inputs, "choices", *sha256 ? json_string(sha256) : json_null()) != 0)
        return FAIL(e, ERR_MEMORY, "run record");
    TRY(canonical_hash(inputs, all, e));
    return json_object_set_new(run, "inputs_sha256", json_string(all)) == 0
               ? OK
               : FAIL(e, ERR_MEMORY, "run record");
}

/* Whether the hash that `of` states under `key` is `hex`, that of `what`. */
static enum status check_hash(const json_t *of, const char *key, const char *hex,
                              const char *what, struct err *e) {
    const char *stated = json_text(of, key, "?");
    return strcmp(stated, hex) == 0
               ? OK
               : FAIL(e, ERR_VERIFY, "run.json says %s is %.16s…, but that of %s is %.16s…", key,
                      stated, what, hex);
}

/* "1", or "not a whole number". */
static const char *whole_text(const json_t *value, char out[32]) {
    snprintf(out, 32, "not a whole number");
    if (json_is_integer(value)) snprintf(out, 32, "%lld", (long long)json_integer_value(value));
    return out;
}

/* Copies of one run with other seeds would count as runs of several seeds. */
static enum status check_seed(const json_t *run, const json_t *resolved, struct err *e) {
    const json_t *stated = json_object_get(run, "seed");
    const json_t *seed = json_object_get(json_object_get(resolved, "train"), "seed");
    char says[32], is[32];
    if (!seed || json_equal(stated, seed)) return OK;
    return FAIL(e, ERR_VERIFY, "run.json says seed is %s, but train.seed of %s is %s",
                whole_text(stated, says), DOCUMENT_resolved, whole_text(seed, is));
}

enum status inputs_check(const json_t *run, const json_t *resolved, struct err *e) {
    const json_t *inputs = json_object_get(run, "inputs");
    bool hashed = json_object_get(run, "inputs_sha256") != NULL;
    char hex[SHA256_HEX];
    if (hashed && !json_is_object(inputs))
        return FAIL(e, ERR_VERIFY, "run.json has inputs_sha256, but no inputs");
    if (hashed) TRY(canonical_hash(inputs, hex, e));
    if (hashed) TRY(check_hash(run, "inputs_sha256", hex, "its inputs", e));
    TRY(check_seed(run, resolved, e));
    if (!resolved || (!hashed && !json_object_get(inputs, "config"))) return OK;
    TRY(hash_config(resolved, hex, e));
    return check_hash(inputs, "config", hex, DOCUMENT_resolved, e);
}

static bool same(const json_t *inputs, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(inputs, key));
    return text && !strcmp(text, value);
}

bool inputs_asked(const json_t *run, const struct inputs *in) {
    const json_t *then = json_object_get(run, "inputs");
    return same(then, "config", in->config) && same(then, "code", in->code) &&
           same(then, "data", in->data) && inputs_same_sets(in, then) &&
           !strcmp(json_text(then, "parent", ""), in->parent) &&
           !strcmp(json_text(then, "weights", ""), in->weights) &&
           !strcmp(json_text(then, "arithmetic", ""), in->arithmetic) &&
           (!*in->choices || same(then, "choices", in->choices));
}
