/* fp8lab show: one run on one screen. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/output_file.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/run_notes.h"
#include "runner/bundle/run_pick.h"
#include "runner/commands.h"
#include "runner/compare/compare.h"
#include "runner/compare/recipe_name.h"
#include "runner/health/spikes.h"
#include "runner/plan/mfu.h"
#include "runner/plan/options.h"
#include "runner/plan/trained.h"
#include "runner/record/run_lock.h"
#include "runner/show_words.h"

/* Prints one line; text may be foreign. */
static void line(const struct cli *cli, const char *name, const char *text) {
    if (text && *text) cli_out(cli, "  %-14s %s\n", name, PLAIN(text));
}

/* `format` takes one double. */
static void number(const struct cli *cli, const char *name, const json_t *object, const char *key,
                   double scale, const char *format) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) return;
    cli_out(cli, "  %-14s ", name);
    cli_out(cli, format, json_number_value(value) * scale);
    cli_out(cli, "\n");
}

/* The decisions on a step's GEMMs: "native 84, emulated 24, bf16 3". */
static void print_gemms(const struct cli *cli, const struct run_view *v) {
    static const char *const WAYS[] = { "native", "emulated", "bf16", "refused" };
    const json_t *ways = json_object_get(v->decisions, "gemm_ways");
    char text[128] = "";
    for (size_t i = 0, used = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        int64_t count = json_int(ways, WAYS[i]);
        if (count > 0)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %" PRId64,
                                     used ? ", " : "", WAYS[i], count);
    }
    line(cli, "GEMMs", text);
}

/* The kernel of attention in each direction: "cudnn", "wgmma", "mma", or "emulated" with FP8. */
static void print_attention(const struct cli *cli, const struct run_view *v) {
    const char *shape;
    json_t *ways;
    json_object_foreach(json_object_get(v->decisions, "attention"), shape, ways) {
        char text[400];
        snprintf(text, sizeof text, "%.80s: forward %.140s; backward %.140s", shape,
                 json_text(ways, "forward", "?"), json_text(ways, "backward", "?"));
        line(cli, "attention", text);
    }
}

/* What was tried on the device before the run, and what failed there and is not used. */
static void print_certificates(const struct cli *cli, const struct run_view *v) {
    static const char *const OUTCOMES[] = { "passed", "failed", "absent" };
    const json_t *list = json_object_get(v->certificates, "certificates"), *one;
    int64_t count[3] = { 0 };
    char text[400];
    size_t i;
    if (!json_array_size(list)) return;
    json_array_foreach(list, i, one)
        for (int k = 0; k < 3; k++)
            count[k] += !strcmp(json_text(one, "outcome", ""), OUTCOMES[k]);
    int n = snprintf(text, sizeof text, "%" PRId64 " passed, %" PRId64 " failed", count[0],
                     count[1]);
    if (count[2])
        snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64 " refused by the backend",
                 count[2]);
    line(cli, "certificates", text);
    json_array_foreach(list, i, one) {
        if (strcmp(json_text(one, "outcome", ""), "failed") != 0) continue;
        snprintf(text, sizeof text, "%.200s: %.120s%s", json_text(one, "way", "?"),
                 json_text(one, "fault", "?"),
                 json_text(one, "forbid", NULL) ? "; not used" : "");
        line(cli, "failed", text);
    }
}

/* The recipe with the options that are not its kind's defaults, and what else is FP8. */
static void print_recipe(const struct cli *cli, const struct run_view *v) {
    bool known = json_object_get(v->resolved, "recipe") != NULL;
    char *text = known ? recipe_text_of_run(v->resolved) : NULL;
    line(cli, "recipe", text);
    free(text);
}

/* What the run does not train, or at another rate. */
static void print_trained(const struct cli *cli, const struct run_view *v) {
    struct text text;
    struct err ignored; /* a configuration of another version */
    if (!v->resolved || trained_text(v->resolved, &text, &ignored) != OK) return;
    if (text.bytes) cli_out(cli, "  %-14s %s\n", "trains", plain_text(text.bytes));
    text_free(&text);
}

/* The run that this one extends, and whether the learning rates followed one schedule. */
static void print_extends(const struct cli *cli, const struct run_view *v) {
    const json_t *extends = json_object_get(v->run, "extends");
    const json_t *part = json_object_get(extends, "rates_part");
    char text[400], rates[120] = "";
    if (!json_is_object(extends)) return;
    if (json_is_integer(part))
        snprintf(rates, sizeof rates, "; from step %" JSON_INTEGER_FORMAT " on its learning rates "
                 "were not those of this schedule", json_integer_value(part));
    snprintf(text, sizeof text, "%.160s from step %" PRId64 "%s",
             json_text(extends, "run", "?"), json_int(extends, "step"), rates);
    line(cli, "extends", text);
}

/* Where its initial weights came from, and its optimizer's state. */
static void print_init(const struct cli *cli, const struct run_view *v) {
    const char *run = json_text(v->init, "run", NULL);
    const char *what = json_object_get(v->init, "optimizer") ? "weights and moments" : "weights";
    char text[400], step[48] = "";
    if (!v->init) return;
    if (run) snprintf(step, sizeof step, " of step %" PRId64, json_int(v->init, "step"));
    snprintf(text, sizeof text, "%s%s of %.200s, hash %.16s…", what, step,
             run ? run : json_text(v->init, "from", "?"), json_text(v->init, "sha256", "?"));
    line(cli, "begins with", text);
}

/* What rendered the conversations: a template, or a function of the script. */
static void print_chat(const struct cli *cli, const json_t *chat, const json_t *shards) {
    const char *function = json_text(chat, "render", NULL);
    bool last = !strcmp(json_text(chat, "loss", ""), "last");
    int64_t tokens = json_int(shards, "tokens");
    double share = 100 * (double)json_int(shards, "loss_tokens") / (double)(tokens ? tokens : 1);
    char text[400];
    if (!chat) return;
    if (function)
        snprintf(text, sizeof text, "%.160s, a function of the script; loss on %.1f %% of the "
                 "tokens", function, share);
    else
        snprintf(text, sizeof text, "%.12s; loss on %s assistant turn%s, %.1f %% of the tokens",
                 json_text(chat, "template_sha256", "?"), last ? "the last" : "each",
                 last ? " alone" : "", share);
    line(cli, function ? "rendered by" : "chat template", text);
}

/* What stands behind each document of text; a chat's template ends a conversation. */
static void print_end(const struct cli *cli, const json_t *ingest) {
    const json_t *name = json_object_get(json_object_get(ingest, "tokenizer"), "end");
    const json_t *id = json_object_get(ingest, "end_of_document");
    char text[120] = "no token ends one";
    if (json_object_get(ingest, "chat")) return;
    if (json_is_string(name))
        snprintf(text, sizeof text, "each ends with %.80s", json_string_value(name));
    else if (json_is_integer(id)) /* a run of before 2026-11-30 has no name */
        snprintf(text, sizeof text, "each ends with token %" PRId64, json_int(ingest,
                                                                              "end_of_document"));
    else if (!name) return; /* nor does it say whether the tokenizer itself sets one */
    line(cli, "documents", text);
}

/* What the tokens of the run's text were made of. */
static void print_text(const struct cli *cli, const struct run_view *v) {
    const json_t *sources = json_object_get(v->ingest, "sources"), *row;
    const json_t *tokenizer = json_object_get(v->ingest, "tokenizer");
    const json_t *shards = json_object_get(v->ingest, "shards");
    int64_t bytes = 0, tokens = json_int(shards, "tokens");
    char text[400], size[BYTES_TEXT_CAP];
    size_t i;
    if (!v->ingest) return;
    json_array_foreach(sources, i, row) bytes += json_int(row, "bytes");
    snprintf(text, sizeof text, "%zu file%s of %s, tokens %.12s: %" PRId64 " in %" PRId64
             " documents", i, i == 1 ? "" : "s", bytes_text((double)bytes, size),
             json_text(shards, "sha256", "?"), tokens, json_int(shards, "documents"));
    line(cli, "text", text);
    snprintf(text, sizeof text, "%.160s %.12s, %" PRId64 " tokens",
             json_text(tokenizer, "path", "?"), json_text(tokenizer, "sha256", "?"),
             json_int(tokenizer, "vocab"));
    line(cli, "tokenizer", text);
    print_end(cli, v->ingest);
    print_chat(cli, json_object_get(v->ingest, "chat"), shards);
}

/* The user's tags and note, which are kept beside the bundle. */
static void print_notes(const struct cli *cli, const struct run_view *v) {
    json_t *notes = NULL;
    struct err e = { 0 };
    if (run_notes_read(v->path, &notes, &e) != OK) {
        cli_warn(cli, "%s", plain_text(e.text));
        return;
    }
    char *tags = run_notes_tags(notes);
    line(cli, "tags", tags);
    line(cli, "note", json_text(notes, "note", NULL));
    free(tags);
    json_decref(notes);
}

/* *left_open: the run says that it is running, and nothing writes it. Returns a remark beside its
 * status, or "". */
static const char *remark_of(const struct run_view *v, bool *left_open) {
    struct run_writer writer;
    bool open = v->directory && !strcmp(json_text(v->run, "status", "?"), "running");
    *left_open = open && run_lock_look(v->path, &writer) == RUN_LIFE_NONE;
    if (*left_open) return "  (its runner died: `fp8lab close` packs it)";
    if (open) return "  (" RUN_NOT_PACKED ")";
    return v->verified ? "" : "  (" RUN_NOT_VERIFIED ")";
}

/* Rows that ran at the same time, each on GPUs of its own, share processors and disk. */
static void print_side_by_side(const struct cli *cli, const struct run_view *v) {
    const json_t *list = json_object_get(v->run, "attempts"), *slot, *gpu;
    char gpus[96] = "";
    size_t i, n = json_array_size(list), used = 0;
    slot = n ? json_object_get(json_array_get(list, n - 1), "side_by_side") : NULL;
    if (!slot) return;
    json_array_foreach(json_object_get(slot, "gpus"), i, gpu)
        if (used < sizeof gpus)
            used += (size_t)snprintf(gpus + used, sizeof gpus - used, "%s%" PRId64,
                                     i ? ", " : ", on GPU ", (int64_t)json_integer_value(gpu));
    cli_out(cli, "  %-14s %" PRId64 " rows at once; this was slot %" PRId64 "%s\n", "side by side",
            json_int(slot, "rows_at_once"), json_int(slot, "slot"), gpus);
}

static void print_identity(const struct cli *cli, const struct run_view *v) {
    const json_t *error = json_object_get(v->run, "error");
    char words[SHOW_WORDS_CAP];
    bool left_open;
    const char *remark = remark_of(v, &left_open);
    const char *status = left_open ? "left open" : json_text(v->run, "status", "?");
    bool good = strcmp(status, "done") == 0 || strcmp(status, "time_limit") == 0;
    cli_out(cli, "%s%s%s  %s%s%s%s\n", cli_style(cli, "bold"),
            PLAIN(json_text(v->run, "id", v->path)), cli_style(cli, NULL),
            cli_style(cli, good ? "green" : "red"), PLAIN(status), cli_style(cli, NULL), remark);
    line(cli, "about", json_text(v->resolved, "about", NULL));
    line(cli, "error", json_text(error, "text", NULL));
    print_notes(cli, v);
    line(cli, "started", json_text(v->run, "started", NULL));
    line(cli, "ended", json_text(v->run, "ended", NULL));
    print_recipe(cli, v);
    print_trained(cli, v);
    show_words_model(v, words);
    line(cli, "model", words);
    show_words_data(v, words);
    line(cli, "data", words);
    print_text(cli, v);
    line(cli, "backend", json_text(v->decisions, "backend", NULL));
    print_gemms(cli, v);
    print_attention(cli, v);
    print_certificates(cli, v);
    line(cli, "gpu", json_text(v->facts, "gpu.product_name", NULL));
    line(cli, "GPU links", json_text(v->facts, "gpu.links", NULL));
    print_side_by_side(cli, v);
    line(cli, "commit", json_text(v->commit, "commit", NULL));
    print_extends(cli, v);
    print_init(cli, v);
    line(cli, "parent", json_text(v->run, "parent", NULL));
    line(cli, "inputs", json_text(v->run, "inputs_sha256", NULL));
    line(cli, "results", json_text(v->run, "results_sha256", NULL));
    line(cli, "bundle", v->identity);
    if (json_is_true(json_object_get(v->run, "smoke")))
        line(cli, "smoke", "a smoke run: sizes and steps are shrunk, the numbers mean nothing");
    if (json_array_size(json_object_get(v->run, "mismatch")) > 0)
        line(cli, "mismatch", "the machine was not the one the experiment asks for");
}

/* Speed relative to the device, with the reference of the ratio. */
static void print_device(const struct cli *cli, const struct run_view *v) {
    const json_t *s = v->summary;
    struct mfu mfu;
    struct err ignored; /* a configuration of another version: the figures are shown without a
                           reference */
    char text[512] = "";
    number(cli, "TFLOP/s", s, "model_tflops_median", 1, "%.1f per GPU, of the model alone");
    number(cli, "MFU", s, "mfu_peak_median", 100, "%.1f %% of the dense peak");
    number(cli, "", s, "mfu_gemm_median", 100, "%.1f %% of a large GEMM measured here");
    bool gpu = json_is_number(json_object_get(s, "model_tflops_median"));
    if (gpu && v->facts && mfu_make(&mfu, v->resolved, v->facts, 1, &ignored) == OK) {
        mfu_text(&mfu, text, sizeof text);
        line(cli, "", text);
    }
    number(cli, "clock", s, "gpu_clock_sm_mhz_median", 1, "%.0f MHz (median)");
    number(cli, "power", s, "gpu_power_w_median", 1, "%.0f W (median)");
    number(cli, "temperature", s, "gpu_temperature_c_max", 1, "%.0f C at most");
    line(cli, "throttled", json_text(s, "gpu_throttle_reasons", NULL));
    double others = json_number_value(json_object_get(s, "gpu_processes_other_max"));
    if (others > 0)
        number(cli, "shared", s, "gpu_processes_other_max", 1,
               others == 1 ? "%.0f other process uses the GPU: its figures include it"
                           : "%.0f other processes use the GPU: its figures include them");
}

/* The largest share of an FP8 tensor, and where it first occurred. */
static void print_worst(const struct cli *cli, const char *name, const struct columns *fp8) {
    const struct column *step = columns_scalar(fp8, "step");
    struct extreme worst = column_extreme(fp8, name, 1);
    if (worst.row < 0) return;
    const char *label = columns_label(fp8, worst.label);
    char when[48] = "";
    if (step) snprintf(when, sizeof when, " in step %.0f", column_value(step, worst.row, 0));
    if (worst.value > 0)
        cli_out(cli, "  %-14s %.3g %% of %s%s, at worst\n", name, 100 * worst.value,
                PLAIN(label ? label : "a tensor"), when);
    else
        cli_out(cli, "  %-14s nothing\n", name);
}

/* What the casts to FP8 lost. */
static void print_lost(const struct cli *cli, const struct run_view *v) {
    const json_t *recipe = json_object_get(v->resolved, "recipe");
    const struct columns *fp8 = v->columns.of[STREAM_FP8];
    if (!fp8 || (recipe && !options_recipe_is_fp8(recipe))) return;
    if (!recipe || options_recipe_can_saturate(recipe)) print_worst(cli, "saturated", fp8);
    else line(cli, "saturated", "nothing: each scale is from the values themselves");
    print_worst(cli, "underflow", fp8);
}

/* The driver's figures, if there are any: of the whole device, other processes included. */
static void print_memory(const struct cli *cli, const struct run_view *v) {
    const struct columns *telemetry = v->columns.of[STREAM_TELEMETRY];
    struct extreme used = column_extreme(telemetry, "gpu_memory_used_bytes", 1);
    number(cli, "host memory", v->summary, "rss_bytes_peak", 0x1p-20, "%.1f MiB peak");
    number(cli, "arenas", v->summary, "device_bytes_peak", 0x1p-20,
           "%.1f MiB per rank, allocated before the first step");
    if (used.row >= 0)
        cli_out(cli, "  %-14s %.1f MiB in use at most, by all processes\n", "GPU memory",
                used.value * 0x1p-20);
}

/* Tokens a second are of all tokens that the model processed, padding and prompts too. */
static void print_masked(const struct cli *cli, const json_t *s) {
    double loss = json_number_value(json_object_get(s, "loss_tokens"));
    double all = json_number_value(json_object_get(s, "tokens"));
    double speed = json_number_value(json_object_get(s, "tokens_per_s_median"));
    if (!json_object_get(s, "loss_tokens") || all <= 0) return;
    cli_out(cli, "  %-14s %.0f, %.1f %% of the tokens", "with loss", loss, 100 * loss / all);
    if (speed > 0) cli_out(cli, "; about %.1f of them per second", speed * loss / all);
    cli_out(cli, "\n");
}

/* "12,800" */
static void grouped(int64_t value, char out[32]) {
    char digits[24];
    size_t n = (size_t)snprintf(digits, sizeof digits, "%" PRId64, value < 0 ? 0 : value), to = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[to++] = ',';
        out[to++] = digits[i];
    }
    out[to] = '\0';
}

/* What was computed again on the host. A difference is the run's error. */
static void print_audit(const struct cli *cli, const struct run_view *v) {
    const json_t *products = json_object_get(v->summary, "audit_products");
    char text[160], count[32], codes[32];
    if (!json_is_integer(products)) return;
    int64_t unknown = json_int(v->summary, "audit_unknown");
    grouped(json_integer_value(products), count);
    grouped(json_int(v->summary, "audit_codes"), codes);
    int n = snprintf(text, sizeof text, "%s products and %s FP8 codes compared, all equal", count,
                     codes);
    if (unknown)
        snprintf(text + n, sizeof text - (size_t)n, "; %" PRId64 " products not comparable",
                 unknown);
    line(cli, "audit", text);
}

/* The loss of the last step. */
static void print_loss(const struct cli *cli, const struct run_view *v) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    if (train && train->rows && step_lacks_loss(train, train->rows - 1))
        line(cli, "loss", "none: no token of the last step has loss");
    else number(cli, "loss", v->summary, "loss_final", 1, "%.6f nats");
}

/* The last loss of each set of eval.also. Names may be foreign. */
static void print_sets(const struct cli *cli, const json_t *s) {
    const char *name;
    json_t *set;
    json_object_foreach(json_object_get(s, "eval_sets"), name, set) {
        const json_t *loss = json_object_get(set, "loss");
        char text[160], value[40] = "not finite";
        if (json_is_number(loss))
            snprintf(value, sizeof value, "%.6f nats", json_number_value(loss));
        snprintf(text, sizeof text, "%.40s: %s, on %" PRId64 " tokens", name, value,
                 json_int(set, "loss_tokens"));
        line(cli, "eval set", text);
    }
}

static void print_numbers(const struct cli *cli, const struct run_view *v,
                          const struct spikes *spikes) {
    char found[SPIKES_TEXT_CAP];
    const json_t *s = v->summary;
    number(cli, "step", s, "step_last", 1, "%.0f");
    number(cli, "tokens", s, "tokens", 1, "%.0f");
    print_masked(cli, s);
    print_loss(cli, v);
    (void)spikes_text(spikes, found);
    line(cli, "spikes", found);
    number(cli, "eval loss", s, "eval_loss_final", 1, "%.6f nats");
    number(cli, "best eval", s, "eval_loss_best", 1, "%.6f nats");
    number(cli, "accuracy", s, "eval_accuracy_final", 100, "%.2f %% of the evaluated tokens");
    print_sets(cli, s);
    double bytes = run_view_bytes_a_token(v);
    if (run_view_is_tokenised(v) && bytes > 0)
        number(cli, "eval per byte", s, "eval_loss_final", 1 / bytes,
               "%.6f nats per byte of text, by the bytes per token of the whole text");
    number(cli, "step time", s, "step_time_us_median", 1e-3, "%.3f ms (median, steady window)");
    number(cli, "tokens/s", s, "tokens_per_s_median", 1, "%.1f (median, steady window)");
    number(cli, "waiting", s, "wait_share_median", 100, "%.1f %% of a step, for the slowest rank");
    number(cli, "exposed", s, "exposed_share_median", 100,
           "%.2f %% of a step, communication and waiting not hidden");
    number(cli, "slowest rank", s, "slowest_rank", 1, "%.0f (most often)");
    if (json_int(s, "ranks_steps_missing") > 0)
        number(cli, "not reported", s, "ranks_steps_missing", 1,
               "%.0f steps are missing in the three lines above");
    print_memory(cli, v);
    print_lost(cli, v);
    print_audit(cli, v);
}

/* Whether the run was stopped or killed, and has a checkpoint. */
static bool can_go_on(const struct run_view *v) {
    const char *status = json_text(v->run, "status", "");
    bool stopped = !strcmp(status, "interrupted") || !strcmp(status, "killed");
    return stopped && json_array_size(v->checkpoints) > 0;
}

/* Checkpoints beside the bundle, and whether they still exist. */
static void print_kept(const struct cli *cli, const struct run_view *v) {
    char folder[PATH_CAP], step[PATH_CAP], which[64], text[1024];
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(v->run, "kept"), i, row) {
        if (strcmp(json_text(row, "where", ""), "beside") != 0) continue;
        kept_text(row, which);
        int64_t number = json_int(row, "step");
        if (kept_folder(folder, v->path, NULL) != OK ||
            checkpoint_path(step, folder, number, NULL) != OK)
            continue;
        snprintf(text, sizeof text, "%s, %.1f MiB, %s %.800s", which,
                 json_number_value(json_object_get(row, "bytes")) / 0x1p20,
                 path_is_directory(step) ? "in" : "is no longer in", step);
        line(cli, "kept", text);
    }
}

/* How long steps waited for checkpoints, and whether one could not be written. */
static void print_saves(const struct cli *cli, const json_t *saves) {
    char text[200];
    if (!json_is_object(saves)) return;
    int64_t failed = json_int(saves, "failed");
    snprintf(text, sizeof text, "%" PRId64 " saved; a step waited %.1f ms at most, a write took "
             "%.1f ms at most", json_int(saves, "written"),
             1e-3 * (double)json_int(saves, "stall_us_max"),
             1e-3 * (double)json_int(saves, "write_us_max"));
    line(cli, "checkpoints", text);
    if (!failed) return;
    snprintf(text, sizeof text, "%" PRId64 " could not be written: logs/runner.log", failed);
    line(cli, "checkpoints", text);
}

/* Newlines would be '?' in a line of ours. */
static void spaces_for_lines(char *text) {
    for (; *text; text++)
        if (*text == '\n' || *text == '\t' || *text == '\r') *text = ' ';
}

/* A text, or token ids as "1 2 3": what fits. */
static const char *text_or_ids(const json_t *x, char room[200]) {
    size_t i, used = 0;
    const json_t *id;
    room[0] = '\0';
    if (json_is_string(x)) return json_string_value(x);
    json_array_foreach(x, i, id) {
        if (used > 170) break;
        used += (size_t)snprintf(room + used, 200 - used, "%s%lld", i ? " " : "",
                                 (long long)json_integer_value(id));
    }
    return room;
}

/* What the run generated last: prompt and text. */
static void print_samples(const struct cli *cli, const struct run_view *v) {
    size_t i;
    const json_t *row;
    json_array_foreach(v->samples, i, row) {
        char text[700], before[200], after[200];
        bool speaks = json_is_string(json_object_get(row, "text"));
        snprintf(text, sizeof text, "step %" PRId64 ": %.250s | %.400s", json_int(row, "step"),
                 text_or_ids(json_object_get(row, "prompt"), before),
                 text_or_ids(json_object_get(row, speaks ? "text" : "ids"), after));
        spaces_for_lines(text);
        line(cli, "sample", text);
    }
}

/* The run as a page: a comparison of one. */
static enum status write_page(const struct cli *cli, const char *path, const char *file,
                              struct err *e) {
    struct comparison c = { 0 };
    enum status st = compare_runs(&path, 1, NULL, &c, e);
    if (st == OK) st = compare_html(&c, file, e);
    if (st == OK) cli_note(cli, "wrote %s", file);
    compare_free(&c);
    return st;
}

static int cmd_show(const struct cli *cli) {
    static const struct output_kind PAGE = { "page", PAGE_BEGINS, PAGE_MARK };
    const char *html = cli_value(cli, "html");
    char path[PATH_CAP];
    struct run_view view;
    struct spikes spikes;
    struct err e = { 0 };
    enum status st = run_locate(cli->args[0], cli_runs(cli), path, &e);
    if (st == OK && html) st = output_may_replace("html", html, &PAGE, &e);
    if (st == OK && html) st = write_page(cli, path, html, &e);
    if (st == OK) st = run_view_load(path, RUN_VIEW_FULL, &view, &e);
    if (st != OK) return cli_fail(cli, &e);
    if (spikes_make(view.columns.of[STREAM_TRAIN], &spikes, &e) != OK)
        cli_warn(cli, "%s", plain_text(e.text));
    if (cli->json) {
        double bytes = run_view_bytes_a_token(&view);
        json_t *notes = NULL;
        if (run_notes_read(path, &notes, &e) != OK) cli_warn(cli, "%s", plain_text(e.text));
        json_t *object =
            json_pack("{ss so ss sb sO sO? sO? sO? sO? sO? sO? sO? sO sO so? sO? sO? so?}",
                      "schema", "fp8lab.show/1", "path", json_from_text(path), "identity",
                      view.identity, "verified", view.verified, "run", view.run, "summary",
                      view.summary, "resolved", view.resolved, "ingest", view.ingest, "init",
                      view.init, "facts", view.facts, "commit", view.commit, "decisions",
                      view.decisions, "checkpoints", view.checkpoints, "samples", view.samples,
                      "bytes_a_token", bytes > 0 ? json_real(bytes) : NULL, "tags",
                      json_object_get(notes, "tags"), "note", json_object_get(notes, "note"),
                      "spikes", spikes_json(&spikes));
        cli_out_json(cli, object);
        json_decref(object);
        json_decref(notes);
    } else {
        print_identity(cli, &view);
        print_numbers(cli, &view, &spikes);
        print_device(cli, &view);
        size_t i;
        const json_t *item;
        json_array_foreach(view.checkpoints, i, item) line(cli, "checkpoint",
                                                           json_string_value(item));
        print_samples(cli, &view);
        print_saves(cli, json_object_get(view.run, "saves"));
        print_kept(cli, &view);
        json_array_foreach(json_object_get(view.summary, "problems"), i, item)
            line(cli, "problem", json_string_value(item));
    }
    spikes_free(&spikes);
    bool left_open;
    (void)remark_of(&view, &left_open);
    if (left_open) cli_next(cli, "close", path, NULL);
    else if (can_go_on(&view)) cli_next(cli, "run", "--resume", path, NULL);
    else if (view.identity[0]) cli_next(cli, "verify", path, NULL);
    run_view_free(&view);
    return EXIT_OK;
}

static const struct flag FLAGS[] = {
    { .name = "html", .value = "FILE", .help = "also write a page with plots" },
    { .name = "runs", .value = "DIR", .help = "where runs are looked up by id (default: runs)" },
};

const struct verb VERB_SHOW = {
    .name = "show",
    .arguments = "RUN",
    .about = "one run: what it was, how it ended, its numbers",
    .more = RUN_FORMS
            "\n"
            "loss: mean nats per token, of the last training batch. eval loss: of held-out data.\n"
            "spikes: steps whose loss or gradient norm is far above those before, for a moment.\n"
            "eval set: the same of a further set of eval.also.\n"
            "steady window: all steps after the first fifth; at most 50 steps are left out.\n"
            "host memory: of the process. arenas: tensors that the run allocates at its start.\n"
            "saturated, underflow: the largest share of an FP8 tensor's elements that did not\n"
            "fit the format, or became 0. layers.1.qkv.dy: layer 1, GEMM qkv, operand dy, which\n"
            "is the gradient of the output (x: the input; weight: the weight).\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_show,
};
