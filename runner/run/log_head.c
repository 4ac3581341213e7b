#include "runner/run/log_head.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/build_info.h"
#include "runner/base/host_name.h"
#include "runner/base/version.h"
#include "runner/base/words.h"
#include "runner/plan/idle_key.h"
#include "runner/plan/options.h"
#include "runner/plan/trained.h"
#include "runner/record/run_log.h"
#include "runner/run/slot.h"

enum { LINE_CAP = 1000 };

/* A line of parts "name value", separated by commas. */
struct line { char text[LINE_CAP]; size_t used; };

static void add(struct line *l, const char *head, const char *text) {
    if (!text || !*text || l->used + 2 >= sizeof l->text) return;
    int n = snprintf(l->text + l->used, sizeof l->text - l->used, "%s%s%s", l->used ? ", " : "",
                     head, text);
    l->used += n > 0 ? (size_t)n : 0;
    if (l->used >= sizeof l->text) l->used = sizeof l->text - 1;
}

static void add_fact(struct line *l, const char *head, const json_t *facts, const char *fact) {
    add(l, head, json_text(facts, fact, NULL));
}

/* ---- what ------------------------------------------------------------------------------------ */

static void put_program(const struct run_dir *dir, const char *does) {
    struct build_info build = build_info();
    char host[HOST_NAME_CAP];
    host_name(host);
    run_log(dir, "%s fp8lab %s, commit %.12s%s, sources %.12s, on %s", does, FP8LAB_VERSION,
            build.commit, build.dirty ? " with changes" : "", build.build_sha256, host);
}

static void put_command(const struct run_dir *dir, const char *const *argv) {
    struct words words = { 0 };
    for (; *argv; argv++) words_add(&words, *argv);
    char *text = words.count ? words_text(&words) : NULL;
    for (char *c = text; c && *c; c++)
        if (*c == '\n') *c = ' '; /* a line of the log is one line */
    if (text) run_log(dir, "command: %s", text);
    free(text);
    words_free(&words);
}

/* The options of a recipe: "margin=0, format=hybrid"; those of nested tables as
 * "accumulate.fprop". */
static void add_options(struct line *l, const json_t *table, const char *head) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)table, key, value) {
        char name[160], text[80] = "";
        snprintf(name, sizeof name, "%s%s%s", head, *head ? "." : "", key);
        if (!strcmp(name, "kind")) continue;
        if (json_is_object(value)) add_options(l, value, name);
        if (json_is_string(value)) snprintf(text, sizeof text, "=%.70s", json_string_value(value));
        if (json_is_boolean(value))
            snprintf(text, sizeof text, "=%s", json_is_true(value) ? "true" : "false");
        if (json_is_integer(value))
            snprintf(text, sizeof text, "=%" JSON_INTEGER_FORMAT, json_integer_value(value));
        if (json_is_real(value)) snprintf(text, sizeof text, "=%g", json_real_value(value));
        if (json_array_size(value))
            snprintf(text, sizeof text, ": %zu GEMMs with their own", json_array_size(value));
        if (*text) add(l, name, text);
    }
}

static void put_recipe(const struct run_dir *dir, const json_t *recipe) {
    struct line options = { 0 };
    add_options(&options, recipe, "");
    run_log(dir, "recipe %s%s%s", json_text(recipe, "kind", "?"), options.used ? ": " : "",
            options.text);
}

static void put_model(const struct run_dir *dir, const json_t *config) {
    struct run_options run;
    struct err ignored;
    struct text trained;
    if (options_read(config, &run, &ignored) != OK) return;
    const struct model_config *m = &run.model;
    const struct train_options *t = &run.train;
    int64_t tokens = t->global_batch * m->seq_len;
    run_log(dir, "model of %" PRId64 " parameters: %" PRId64 " layers of width %" PRId64
            ", sequences of %" PRId64, model_parameter_count(m), m->layers,
            m->width, m->seq_len);
    run_log(dir, "%" PRId64 " steps of %" PRId64 " tokens, %" PRId64 " in all, on %" PRId64
            " rank%s; seed %" PRId64, t->steps, tokens, tokens * t->steps,
            run.gpus, run.gpus == 1 ? "" : "s", (int64_t)t->seed);
    if (idle_key_text(config, false)) run_log(dir, "%s", idle_key_text(config, false));
    if (trained_text(config, &trained, &ignored) == OK) {
        if (trained.bytes) run_log(dir, "trained are %s", trained.bytes);
        text_free(&trained);
    }
    options_free(&run);
}

static void put_data(const struct run_dir *dir, const json_t *data) {
    const json_t *paths = json_object_get(data, "paths");
    const char *first = json_string_value(json_array_get(paths, 0));
    size_t more = json_array_size(paths);
    run_log(dir, "data %s%s%.300s%s", json_text(data, "kind", "?"), first ? ": " : "",
            first ? first : "", more > 1 ? " and others (data/experiment/data.json)" : "");
}

/* ---- on what --------------------------------------------------------------------------------- */

static void put_machine(const struct run_dir *dir, const json_t *facts) {
    struct line gpu = { 0 }, host = { 0 };
    char text[64];
    if (json_int(facts, "gpu.count") > 0) {
        snprintf(text, sizeof text, "%" PRId64 " x ", json_int(facts, "gpu.count"));
        add_fact(&gpu, text, facts, "gpu.product_name");
        add_fact(&gpu, "driver ", facts, "gpu.driver");
        add_fact(&gpu, "CUDA ", facts, "cuda.runtime");
        add_fact(&gpu, "cuBLASLt ", facts, "cublaslt.version");
        add_fact(&gpu, "cuDNN ", facts, "cudnn.version");
        add_fact(&gpu, "NCCL ", facts, "nccl.version");
        run_log(dir, "GPUs of this host: %s", gpu.text);
    }
    add_fact(&host, "", facts, "cpu.model");
    snprintf(text, sizeof text, "%" PRId64 " cores, %.1f GiB", json_int(facts, "cpu.cores"),
             (double)json_int(facts, "memory.total") / 0x1p30);
    add(&host, "", text);
    add_fact(&host, "", facts, "os.id");
    add_fact(&host, "kernel ", facts, "os.kernel");
    add(&host, "libc ", gnu_get_libc_version());
    add(&host, "compiler ", build_info().compiler);
    run_log(dir, "machine: %s", host.text);
}

/* Facts that are not those that the experiment asks for (--anywhere). */
static void put_mismatch(const struct run_dir *dir) {
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(dir->run, "mismatch"), i, row)
        run_log(dir, "warning: another machine than the experiment asks for: %.80s wanted %.120s, "
                "found %.120s", json_text(row, "fact", "?"), json_text(row, "wanted", "?"),
                json_text(row, "found", "?"));
}

/* Of `run --side-by-side`: what ran beside the run may have slowed it. */
static void put_slot(const struct run_dir *dir, const struct slot *slot) {
    struct line gpus = { 0 };
    char text[32];
    if (slot_rows_at_once(slot) < 2) return;
    for (size_t i = 0; i < json_array_size(slot->gpus); i++) {
        snprintf(text, sizeof text, "%" PRId64,
                 (int64_t)json_integer_value(json_array_get(slot->gpus, i)));
        add(&gpus, "GPU ", text);
    }
    run_log(dir, "side by side: slot %" PRId64 " of %" PRId64 " rows at once%s%s", slot->index,
            slot->count, gpus.used ? ", on " : "", gpus.text);
}

void log_head(const struct run_dir *dir, const struct resolution *script,
              const struct resolved_run *run, const struct run_settings *s) {
    run_log(dir, "run %s%s", dir->id,
            script->smoke ? ": a smoke run; sizes and steps are shrunk" : "");
    put_program(dir, "program");
    put_command(dir, s->cli->argv);
    put_slot(dir, s->slot);
    if (script->file_count)
        run_log(dir, "script %.300s, sha256 %.16s", script->files[0].path, script->files[0].sha256);
    put_recipe(dir, json_object_get(run->config_json, "recipe"));
    put_model(dir, run->config_json);
    put_data(dir, json_object_get(run->config_json, "data"));
    put_machine(dir, s->facts);
    put_mismatch(dir);
}

void log_resume(const struct run_dir *dir, const struct run_settings *s) {
    put_program(dir, "resumed by");
    put_slot(dir, s->slot);
}
