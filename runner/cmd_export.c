/* fp8lab export: the weights of a run as a Hugging Face folder. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/folder_guard.h"
#include "runner/base/run_files.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/cache/cache.h"
#include "runner/cache/cache_key.h"
#include "runner/commands.h"
#include "runner/generate/text_model.h"
#include "runner/ingest/tokenizer_config.h"
#include "runner/named_run.h"
#include "runner/plan/options.h"
#include "runner/record/ingest_record.h"
#include "runner/run/init_from.h"
#include "runner/script/model_files.h"
#include "runner/weights/export.h"

static const struct flag FLAGS[] = {
    { "to", "DIR", "the new folder", false },
    { "format", "NAME", "hf (default), or llmc: GPT-2 as model.bin of llm.c", false },
    { "checkpoint", "WHICH", "last, best, init or a step (default: the newest)", false },
    { "dtype", "TYPE", "bf16 (default), f32 or fp8-block", false },
    { "shard-mb", "N", "most megabytes of a file (default: 5000)", false },
    { "runs", "DIR", "where runs are looked up by id (default: runs)", false },
    { "cache", "DIR", "for weights that only a bundle has (default: RUNS/cache)", false },
};

struct command {
    const struct cli *cli;
    struct run_view view;
    struct run_options options;
    struct found_weights found;
    char path[PATH_CAP];    /* of the run */
    struct folder_guard guard; /* of `partial` */
    char partial[PATH_CAP]; /* the folder until it is complete; "": not made */
    int lock;               /* of `partial`, which others see; -1: none */
    char work[PATH_CAP];    /* the bundle's experiment, unpacked; "": not made */
    json_t *base;           /* config.json that the run began with; owned, or NULL */
    json_t *generation;     /* the generation_config.json beside it; owned, or NULL */
    json_t *ends;           /* tokens that end a text of a run on chats; owned, or NULL */
};

/* ---- what the run says ------------------------------------------------------------------------*/

static enum status read_type(const char *name, enum export_type *out, struct err *e) {
    for (int i = 0; EXPORT_TYPE_NAMES[i]; i++)
        if (!strcmp(name ? name : "bf16", EXPORT_TYPE_NAMES[i])) {
            *out = (enum export_type)i;
            return OK;
        }
    return FAIL(e, ERR_ARG, "--dtype %s: expected bf16, f32 or fp8-block", name);
}

static enum status read_format(const char *name, bool *llmc, struct err *e) {
    *llmc = name && !strcmp(name, "llmc");
    if (!name || *llmc || !strcmp(name, "hf")) return OK;
    return FAIL(e, ERR_ARG, "--format %s: expected hf or llmc", name);
}

static bool is_generation(const char *name) {
    size_t n = strlen(name), suffix = sizeof HF_GENERATION_SUFFIX - 1;
    return n > suffix && !strcmp(name + n - suffix, HF_GENERATION_SUFFIX);
}

/* What the run's model was in its folder. Several belong to the rows of a suite: none is known to
 * be this run's. */
static enum status read_base(struct command *c, const char *hf, struct err *e) {
    const char *names[2] = { NULL, NULL };
    json_t **out[2] = { &c->base, &c->generation };
    char file[PATH_CAP];
    struct tree files;
    int64_t configs = 0;
    TRY(tree_list(hf, 1000, &files, e));
    for (int64_t i = 0; i < files.count; i++) {
        bool generation = is_generation(files.file[i].path);
        names[generation] = files.file[i].path;
        configs += !generation;
    }
    enum status st = OK;
    for (int i = 0; i < 2 && configs == 1 && st == OK; i++) {
        if (!names[i]) continue;
        st = path_join(file, hf, names[i], e);
        if (st == OK) st = json_file_read(file, out[i], e);
    }
    tree_free(&files);
    return st;
}

/* The tokens that end a turn and a document, of a run on chats. A function of the script that
 * renders names no end of a turn. */
static enum status read_ends(struct command *c, struct err *e) {
    const json_t *data = json_object_get(c->view.resolved, "data");
    char folder[PATH_CAP];
    struct text_model text;
    int32_t ends[2] = { -1, -1 };
    bool failed = false;
    if (strcmp(json_text(data, "kind", ""), "chats") != 0) return OK;
    TRY(path_join(folder, c->work, INGEST_FOLDER, e));
    enum status st = text_model_of_run(data, folder, &text, e);
    if (st == OK) ends[1] = text_model_end(&text);
    if (st == OK && !json_object_get(data, "render")) {
        st = text_model_chat(&text, data, folder, e);
        if (st == OK) ends[0] = text_model_end(&text);
    }
    text_model_close(&text);
    if (st != OK) return st;
    c->ends = json_array();
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0 && (i == 0 || ends[1] != ends[0]))
            json_append(c->ends, json_integer(ends[i]), &failed);
    return c->ends && !failed ? OK : FAIL(e, ERR_MEMORY, "the tokens that end a text");
}

/* The run's files beside its weights: what it began with, and its tokenizer. */
static enum status unpack(struct command *c, struct err *e) {
    static const char *const TAKEN[] = { "data/experiment/", NULL };
    struct unpack_report report;
    char inside[PATH_CAP], hf[PATH_CAP];
    TRY(path_join(inside, c->partial, ".experiment", e));
    TRY(bundle_unpack_part(c->path, inside, TAKEN, &BUNDLE_LIMITS, &report, e));
    memcpy(c->work, inside, sizeof inside);
    TRY(path_join(hf, inside, "data/experiment/hf", e));
    if (path_is_directory(hf)) TRY(read_base(c, hf, e));
    return c->generation ? OK : read_ends(c, e);
}

/* transformers rebuilds a tokenizer with another splitter unless its class is this one. */
static enum status put_tokenizer_config(const struct command *c, struct err *e) {
    char path[PATH_CAP], tokenizer[PATH_CAP];
    TRY(path_join(tokenizer, c->partial, "tokenizer.json", e));
    TRY(path_join(path, c->partial, TOKENIZER_CONFIG, e));
    if (!path_exists(tokenizer) || path_exists(path)) return OK;
    cli_note(c->cli, "the run kept no " TOKENIZER_CONFIG ", so the one of the export names no "
             "eos_token, no bos_token and no chat template; if your tokenizer has one beside it, "
             "copy it to %s", cli_value(c->cli, "to"));
    json_t *config = json_pack("{s:s}", "tokenizer_class", "PreTrainedTokenizerFast");
    enum status st = config ? json_file_write(path, config, e) : FAIL(e, ERR_MEMORY, "tokenizer");
    json_decref(config);
    return st;
}

static enum status copy_kept(const struct command *c, const char *folder, const char *file,
                             struct err *e) {
    char from[PATH_CAP], to[PATH_CAP], *bytes = NULL;
    size_t n = 0;
    TRY(path_join(from, folder, file, e));
    TRY(path_join(to, c->partial, file, e));
    TRY(file_read(from, (int64_t)512 << 20, &bytes, &n, e));
    enum status st = file_replace(to, bytes, n, e);
    free(bytes);
    return st;
}

/* Of a run on text or chats what it kept of its tokenizer; of one on tokens the tokenizer of its
 * samples. */
static enum status copy_tokenizer(const struct command *c, struct err *e) {
    const json_t *name, *kept = json_object_get(c->view.ingest, "kept");
    char folder[PATH_CAP], path[PATH_CAP], base[PATH_CAP];
    size_t i;
    TRY(path_join(folder, c->work, INGEST_FOLDER, e));
    json_array_foreach(kept, i, name) {
        const char *file = json_string_value(name);
        if (!file || strchr(file, '/') || *file == '.')
            return FAIL(e, ERR_FORMAT, "the bundle's tokenizer has a file that no run keeps");
        TRY(copy_kept(c, folder, file, e));
    }
    if (!kept && cache_kept_tokenizer(folder, path)) {
        path_base(base, path);
        TRY(copy_kept(c, folder, base, e));
    }
    return put_tokenizer_config(c, e);
}

/* ---- the whole --------------------------------------------------------------------------------*/

/* The run has the best evaluation, perhaps of an earlier step than the weights. */
static void say_best(const struct command *c) {
    const json_t *best = json_object_get(c->view.summary, "eval_loss_best");
    const json_t *last = json_object_get(c->view.summary, "eval_loss_final");
    if (strcmp(c->cli->args[0], "best:eval.loss") != 0 || cli_has(c->cli, "checkpoint")) return;
    if (json_number_value(best) == json_number_value(last)) return;
    bool kept = kept_step(c->view.run, "best") >= 0;
    cli_note(c->cli, "best:eval.loss means the run's lowest held-out loss, %.4f; the weights are "
             "of its newest checkpoint, and the last held-out loss is %.4f%s",
             json_number_value(best), json_number_value(last),
             kept ? "; --checkpoint best has the others" : "");
}

static enum status find(struct command *c, struct err *e) {
    char cache[PATH_CAP];
    TRY(named_run(c->cli, c->cli->args[0], RUNS_WHOLE, c->path, e));
    TRY(run_view_load(c->path, RUN_VIEW_FULL, &c->view, e));
    say_best(c);
    TRY(options_read(c->view.resolved, &c->options, e));
    TRY(cache_folder(cache, cli_value(c->cli, "cache"), cli_runs(c->cli), e));
    const struct init_request q = { .which = cli_value(c->cli, "checkpoint"), .cache = cache };
    return weights_of_run(&q, c->path, &c->found, e);
}

/* Opens and locks a folder; -1: another export has the lock. A file system without such locks gives
 * the folder too: nothing but a warning depends on it. */
static int lock_folder(const char *path, int how) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, how | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
    close(fd);
    return -1;
}

/* It may also be the user's: nothing proves whose it is, so it stays. */
static void warn_of_left(const struct cli *cli, const char *path) {
    int fd = lock_folder(path, LOCK_SH);
    if (fd < 0) return;
    cli_warn(cli, "%s is there, and no export on this host writes it: an export that was killed "
             "may have left it; remove it if it is not yours", path);
    close(fd);
}

/* The folder has another name until it is complete: TO.partial.N, the first N that is free, so that
 * this command removes and renames only what it made. */
static enum status make_folder(struct command *c, const char *to, struct err *e) {
    char name[PATH_CAP];
    if (!to) return FAIL(e, ERR_ARG, "missing flag: fp8lab export RUN --to DIR");
    if (path_exists(to))
        return FAIL(e, ERR_ARG, "%s exists; name a folder that does not, or remove it", to);
    size_t n = strlen(to);
    while (n > 1 && to[n - 1] == '/') n--;
    path_parent(name, to);
    TRY(directory_make(name, e));
    for (int i = 1; i <= 1000; i++) {
        if (snprintf(name, PATH_CAP, "%.*s.partial.%d", (int)n, to, i) >= PATH_CAP)
            return FAIL(e, ERR_ARG, "path too long: %.200s…", to);
        if (mkdir(name, 0777) == 0) {
            memcpy(c->partial, name, sizeof name);
            c->lock = lock_folder(name, LOCK_EX);
            return OK;
        }
        if (errno != EEXIST) break;
        warn_of_left(c->cli, name);
    }
    return FAIL(e, ERR_IO, "make the folder of --to %s: %s", to, strerror(errno));
}

static enum status rename_folder(struct command *c, const char *to, struct err *e) {
    folder_guard_hold(&c->guard);
    bool renamed = !path_exists(to) && rename(c->partial, to) == 0;
    folder_guard_watch(&c->guard, renamed ? "" : c->partial);
    if (renamed) return OK;
    if (path_exists(to))
        return FAIL(e, ERR_ARG, "%s exists now: another command made it; name another folder", to);
    return FAIL(e, ERR_IO, "rename %s to %s: %s", c->partial, to, strerror(errno));
}

/* After an error, which is reported. */
static void remove_folder(struct command *c) {
    struct err ignored;
    folder_guard_hold(&c->guard);
    if (tree_remove(c->partial, &ignored) != OK)
        cli_warn(c->cli, "%s is left behind", c->partial);
    folder_guard_watch(&c->guard, "");
}

static enum status fill_folder(struct command *c, enum export_type type, int64_t shard_mb,
                               bool llmc, struct export_report *report, struct err *e) {
    TRY(unpack(c, e));
    const struct export_request q = {
        .checkpoint = c->found.path, .to = c->partial, .model = &c->options.model,
        .recipe = &c->options.recipe, .type = type, .llmc = llmc, .base = c->base,
        .generation = c->generation, .ends = c->ends, .shard_bytes = shard_mb * 1000000,
    };
    TRY(export_write(&q, report, e));
    if (!llmc) TRY(copy_tokenizer(c, e));
    return tree_remove(c->work, e);
}

static enum status write_folder(struct command *c, enum export_type type, int64_t shard_mb,
                                struct export_report *report, struct err *e) {
    const char *to = cli_value(c->cli, "to");
    bool llmc;
    TRY(read_format(cli_value(c->cli, "format"), &llmc, e));
    folder_guard_hold(&c->guard);
    enum status st = make_folder(c, to, e);
    folder_guard_watch(&c->guard, c->partial);
    TRY(st);
    st = fill_folder(c, type, shard_mb, llmc, report, e);
    if (st == ERR_IO && strstr(e->text, c->partial)) err_prefix(e, "--to %s", to);
    return st == OK ? rename_folder(c, to, e) : st;
}

static void report_folder(const struct command *c, enum export_type type,
                          const struct export_report *r) {
    const char *to = cli_value(c->cli, "to");
    if (c->cli->json) {
        json_t *object = json_pack("{s:s,s:o,s:s,s:I,s:s,s:b,s:I,s:I,s:I}", "schema",
                                   "fp8lab.export/1", "path", json_from_text(to), "run",
                                   c->found.run, "step", (json_int_t)c->found.step, "dtype",
                                   EXPORT_TYPE_NAMES[type], "masters", r->masters, "tensors",
                                   (json_int_t)r->tensors, "files", (json_int_t)r->files, "bytes",
                                   (json_int_t)r->bytes);
        cli_out_json(c->cli, object);
        json_decref(object);
        return;
    }
    cli_out(c->cli, "%s  step %" PRId64 " of %s, %s%s, %" PRId64 " tensors, %.1f MB\n", to,
            c->found.step, c->found.run, EXPORT_TYPE_NAMES[type],
            r->masters ? " of the master weights" : "", r->tensors, (double)r->bytes / 1e6);
}

static int cmd_export(const struct cli *cli) {
    struct command c = { .cli = cli, .lock = -1 };
    struct export_report report;
    struct err e = { 0 };
    enum export_type type = EXPORT_BF16;
    int64_t shard_mb = 5000;
    enum status st = read_type(cli_value(cli, "dtype"), &type, &e);
    if (st == OK) st = cli_int(cli, "shard-mb", 1, 1000000, &shard_mb, &e);
    if (st == OK) st = folder_guard_open(&c.guard, &e); /* before any thread */
    if (st == OK) folder_guard_watch(&c.guard, "");
    if (st == OK) st = find(&c, &e);
    if (st == OK) st = write_folder(&c, type, shard_mb, &report, &e);
    if (st == OK) report_folder(&c, type, &report);
    if (st != OK && *c.partial) remove_folder(&c);
    folder_guard_close(&c.guard);
    if (c.lock >= 0) close(c.lock);
    json_decref(c.base);
    json_decref(c.generation);
    json_decref(c.ends);
    options_free(&c.options);
    run_view_free(&c.view);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}

const struct verb VERB_EXPORT = {
    .name = "export",
    .arguments = "RUN --to DIR",
    .about = "write a run's weights as a Hugging Face folder",
    .more = "The weights that RUN kept, for transformers, vLLM and others, in the folder of --to:\n"
            "config.json, generation_config.json, safetensors and, if the run had one, its\n"
            "tokenizer. f32 are the master weights where the checkpoint has them. fp8-block: the\n"
            "E4M3 codes of fp8.blockwise with a factor for each 128 x 128 block\n"
            "(weight_scale_inv).\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_export,
};
