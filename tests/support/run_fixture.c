#include "tests/support/run_fixture.h"

#include <archive.h>
#include <archive_entry.h>
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/sha256.h"
#include "runner/base/canonical.h"
#include "runner/record/inputs.h"
#include "runner/record/row_file.h"

struct run_fixture run_fixture_default(void) {
    return (struct run_fixture){ .id = "20261121T024823Z-tiny-0badcafe", .status = "done",
                                 .steps = 20, .seed = 1, .recipe = "fp8.delayed", .tensors = 6,
                                 .checkpoint_bytes = 4096 };
}

static void make_parents(const char *path) {
    char copy[PATH_CAP];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(copy, 0755);
        *slash = '/';
    }
}

static FILE *create(const char *dir, const char *name) {
    char path[PATH_CAP];
    struct err e;
    assert(path_join(path, dir, name, &e) == OK);
    make_parents(path);
    FILE *out = fopen(path, "w+b");
    assert(out);
    return out;
}

void put_file(const char *dir, const char *name, const char *format, ...) {
    FILE *out = create(dir, name);
    va_list args;
    va_start(args, format);
    vfprintf(out, format, args);
    va_end(args);
    assert(fclose(out) == 0);
}

void scratch_directory(char dir[PATH_CAP]) {
    snprintf(dir, PATH_CAP, "/tmp/fp8lab-test-XXXXXX");
    assert(mkdtemp(dir));
}

static uint32_t bits_of(double v) {
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* splitmix64: pseudo-random values, equal on every machine. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double noise(const struct run_fixture *f, int64_t step) {
    return (double)(mix((uint64_t)(f->seed * 1000003 + step)) >> 40) / (double)(1 << 24);
}

static double loss_at(const struct run_fixture *f, int64_t step) {
    return 5.5 / sqrt((double)step) + 0.01 * noise(f, step) + f->loss_shift +
           (step > 10 ? f->loss_late : 0);
}

static double spike_at(const struct run_fixture *f, int64_t step) {
    for (const int64_t *s = f->spikes; s && *s; s++)
        if (*s == step) return 2;
    return 0;
}

static void write_train(const char *dir, const struct run_fixture *f) {
    FILE *out = create(dir, "data/metrics/train.jsonl");
    for (int64_t step = 1; step <= f->steps; step++) {
        double loss = (float)(loss_at(f, step) + spike_at(f, step));
        double norm = (float)(1 + noise(f, -step));
        int64_t time_us = 40000 + (int64_t)(1000 * noise(f, step * 7)) + (step == 1 ? 900000 : 0);
        int64_t tokens = f->step_tokens ? f->step_tokens : 2048;
        if (step % 2) time_us = (int64_t)((double)time_us * (1 + f->jitter));
        if (f->speed != 0) time_us = (int64_t)((double)time_us / f->speed);
        bool none = step == f->lossless_step;
        fprintf(out, "{\"step\":%lld,", (long long)step);
        if (none) fprintf(out, "\"loss\":null,\"loss_bits\":\"7fc00000\",");
        else fprintf(out, "\"loss\":%.17g,\"loss_bits\":\"%08x\",", loss, bits_of(loss));
        if (f->lossless_step) fprintf(out, "\"loss_tokens\":%d,", none ? 0 : 7);
        fprintf(out, "\"grad_norm\":%.17g,\"grad_norm_bits\":\"%08x\",\"lr\":0.0003,"
                "\"tokens\":%lld,\"step_time_us\":%lld,\"tokens_per_s\":%.6f}\n",
                norm, bits_of(norm), (long long)tokens, (long long)time_us,
                1e6 * (double)tokens / (double)time_us);
    }
    assert(fclose(out) == 0);
    out = create(dir, "data/metrics/eval.jsonl");
    int64_t every = f->eval_every ? f->eval_every : 10, more = f->steps > 1000 ? 1000 : every;
    for (int64_t step = every; step <= f->steps; step += more) {
        bool last = f->eval_last != 0 && step + more > f->steps;
        double loss = (float)(last ? f->eval_last : loss_at(f, step) + 0.1);
        fprintf(out, "{\"step\":%lld,\"loss\":%.17g,\"loss_bits\":\"%08x\"", (long long)step,
                loss, bits_of(loss));
        if (f->eval_tokens >= 0)
            fprintf(out, ",\"tokens\":%lld",
                    (long long)(f->eval_tokens ? f->eval_tokens : 4096));
        fputs("}\n", out);
    }
    assert(fclose(out) == 0);
}

/* Writes the rows of a wide stream; `fill` sets the values of a step. */
static void write_rows(const char *dir, enum stream_id stream, const struct run_fixture *f,
                       int64_t width, int64_t steps,
                       void (*fill)(const struct run_fixture *f, struct stream_source *s)) {
    struct fp8_slot slot[8] = { 0 };
    uint64_t *fingerprint = calloc((size_t)width, sizeof *fingerprint);
    struct stream_source source = { .slot = slot, .fingerprint = fingerprint, .width = width };
    struct npy layout;
    struct err e;
    npy_layout(&STREAMS[stream], width, &layout);
    char *row = calloc(1, (size_t)layout.row_bytes);
    FILE *out = create(dir, STREAMS[stream].file);
    struct row_file rows = { .fd = fileno(out) };
    bool ok = row && fingerprint;
    for (int64_t step = 1; ok && step <= steps; step++) {
        source.step_number = step;
        fill(f, &source);
        npy_row(&STREAMS[stream], &source, &layout, row);
        ok = row_file_append(&rows, &STREAMS[stream], row, layout.row_bytes, &e) == OK;
    }
    assert(ok && fclose(out) == 0);
    free(fingerprint);
    free(row);
}

static void fill_fp8(const struct run_fixture *f, struct stream_source *s) {
    struct fp8_slot *slot = (struct fp8_slot *)(uintptr_t)s->slot;
    uint32_t a = bits_of(1 + noise(f, s->step_number * 3)),
             b = bits_of(2 + noise(f, s->step_number * 5));
    if (s->step_number == f->flip_amax_step) b ^= 1u;
    slot[0] = (struct fp8_slot){ .amax_bits = a, .scale = 448, .elements = 1000 };
    slot[1] = (struct fp8_slot){ .amax_bits = b, .scale = 448, .elements = 1000, .saturated = 1 };
    slot[2] = (struct fp8_slot){ .amax_bits = a ^ b, .scale = 448, .elements = 1000,
                                 .underflow = 250 };
}

static void write_fp8(const char *dir, const struct run_fixture *f) {
    if (strncmp(f->recipe, "fp8.", 4) != 0 || f->no_fp8) return;
    put_file(dir, "data/metrics/fp8_slots.json",
             "[\"layers.0.qkv.x\",\"layers.0.qkv.w\",\"layers.0.qkv.dy\"]");
    write_rows(dir, STREAM_FP8, f, 3, f->steps, fill_fp8);
}

static void fill_trace(const struct run_fixture *f, struct stream_source *s) {
    uint64_t *print = (uint64_t *)(uintptr_t)s->fingerprint;
    for (int64_t t = 0; t < s->width; t++) {
        print[t] = mix((uint64_t)(f->seed * 7919 + s->step_number * 131 + t));
        if (f->flip_step && s->step_number >= f->flip_step && t == f->flip_tensor)
            print[t] ^= 1u << 17;
    }
}

static void write_trace(const char *dir, const struct run_fixture *f) {
    if (f->tensors == 0) return;
    FILE *out = create(dir, "data/metrics/trace_tensors.json");
    for (int64_t t = 0; t < f->tensors; t++)
        fprintf(out, "%s\"layers.%lld.qkv.weight\"", t ? "," : "[", (long long)t);
    fprintf(out, "]\n");
    assert(fclose(out) == 0);
    write_rows(dir, STREAM_TRACE, f, f->tensors, f->steps < 20 ? f->steps : 20, fill_trace);
}

/* The losses of further sets: those of the evaluations, 1 higher a set. */
static void write_sets(const char *dir, const struct run_fixture *f) {
    json_t *sets = f->sets ? json_loads(f->sets, 0, NULL) : NULL, *hash;
    int64_t width = (int64_t)json_object_size(sets), every = f->eval_every ? f->eval_every : 10;
    if (f->set_every) every = f->set_every;
    if (width == 0) return;
    struct eval_result *result = calloc((size_t)width, sizeof *result);
    struct stream_source source = { .set = result, .width = width };
    struct npy layout;
    struct err e;
    npy_layout(&STREAMS[STREAM_EVAL_SETS], width, &layout);
    char *row = calloc(1, (size_t)layout.row_bytes);
    FILE *names = create(dir, STREAMS[STREAM_EVAL_SETS].labels);
    FILE *out = create(dir, STREAMS[STREAM_EVAL_SETS].file);
    struct row_file rows = { .fd = fileno(out) };
    const char *name;
    bool ok = row && result;
    int64_t n = 0;
    json_object_foreach(sets, name, hash) fprintf(names, "%s\"%s\"", n++ ? "," : "[", name);
    fputs("]\n", names);
    for (int64_t step = every; ok && step <= f->steps; step += every) {
        source.step_number = step;
        for (int64_t i = 0; i < width; i++) {
            int64_t counted = f->set_tokens && i == width - 1 ? f->set_tokens : 100000;
            result[i] = (struct eval_result){
                .loss = (float)(loss_at(f, step) + 1.1 + (double)i +
                                (f->set_shift ? f->set_shift[i] : 0)),
                .tokens = counted + 31072, .loss_tokens = counted,
            };
        }
        npy_row(&STREAMS[STREAM_EVAL_SETS], &source, &layout, row);
        ok = row_file_append(&rows, &STREAMS[STREAM_EVAL_SETS], row, layout.row_bytes, &e) == OK;
    }
    ok = fclose(out) == 0 && fclose(names) == 0 && ok;
    assert(ok);
    free(result);
    free(row);
    json_decref(sets);
}

static void write_inputs(const char *dir, const struct run_fixture *f) {
    char margin[48] = "";
    if (!strcmp(f->recipe, "fp8.delayed"))
        snprintf(margin, sizeof margin, ",\"margin\":%lld", (long long)f->margin);
    put_file(dir, "data/experiment/main.lua", "return experiment { name = \"tiny\" }\n");
    put_file(dir, "data/experiment/lib/models/tiny.lua", "return { width = 64 }\n");
    put_file(dir, "data/experiment/resolved.json",
             "{\"archive\":\"full\",%s%s%s%s%s%s%s%s%s%s%s%s\"model\":%s,\"name\":\"tiny\","
             "\"recipe\":{\"kind\":\"%s\"%s%s},"
             "\"schema\":\"fp8lab.experiment/1\",\"train\":{\"seed\":%lld,\"steps\":%lld%s}%s}",
             f->attention ? "\"attention\":" : "", f->attention ? f->attention : "",
             f->attention ? "," : "", f->data ? "\"data\":" : "", f->data ? f->data : "",
             f->data ? "," : "", f->init ? "\"init\":" : "", f->init ? f->init : "",
             f->init ? "," : "", f->checkpoint ? "\"checkpoint\":" : "",
             f->checkpoint ? f->checkpoint : "", f->checkpoint ? "," : "",
             f->model ? f->model : "null", f->recipe, margin,
             f->options ? f->options : "",
             (long long)f->seed, (long long)(f->planned ? f->planned : f->steps),
             f->train ? f->train : "", f->config ? f->config : "");
    if (f->init_record) put_file(dir, "data/experiment/init.json", "%s", f->init_record);
    put_file(dir, "data/experiment/argv.json", "{\"argv\":[\"fp8lab\",\"run\",\"tiny.lua\"%s],"
             "\"cell\":{},\"overrides\":[]}", f->argv ? f->argv : "");
    put_file(dir, "data/system/facts.json",
             "{\"cpu.arch\":\"x86_64\",\"gpu.count\":0,\"memory.total\":8000000000%s}",
             f->facts ? f->facts : "");
    put_file(dir, "data/system/environment.json", "{\"kept\":{},\"withheld\":[\"HOME\"]}");
    put_file(dir, "data/source/commit.json",
             "{\"code_sha256\":\"c0de\",\"commit\":\"0123456789abcdef\",\"dirty\":false}");
    char world[32] = "";
    if (f->world) snprintf(world, sizeof world, ",\"world\":%lld", (long long)f->world);
    put_file(dir, "data/decisions.json", "{\"backend\":\"%s\"%s%s}",
             f->backend ? f->backend : "cpu", world, f->decisions ? f->decisions : "");
    put_file(dir, "data/logs/runner.log", "started\nended\n");
}

static void write_checkpoint(const char *dir, const struct run_fixture *f) {
    if (f->checkpoint_bytes == 0) return;
    put_file(dir, "data/checkpoints/step-000020/checkpoint.json", "{\"step\":20}");
    put_file(dir, "data/checkpoints/step-000020/state.safetensors", "optimizer state");
    FILE *out = create(dir, "data/checkpoints/step-000020/model.safetensors");
    assert(ftruncate(fileno(out), f->checkpoint_bytes) == 0);
    assert(fclose(out) == 0);
}

/* Sets the hashes of run.json that depend on resolved.json. */
static void hash_inputs(const char *dir, const char *choices) {
    struct err e;
    char path[PATH_CAP], hex[SHA256_HEX], *text = NULL;
    size_t n = 0;
    json_t *run = NULL, *resolved = NULL;
    bool ok = path_join(path, dir, "data/experiment/resolved.json", &e) == OK &&
              json_file_read(path, &resolved, &e) == OK &&
              (json_object_del(resolved, "tensorboard"), true) && /* no input (inputs.h) */
              json_canonical(resolved, &text, &n, &e) == OK &&
              sha256_bytes(text, n, hex, &e) == OK &&
              path_join(path, dir, "data/run.json", &e) == OK &&
              json_file_read(path, &run, &e) == OK &&
              json_object_set_new(json_object_get(run, "inputs"), "config",
                                  json_string(hex)) == 0 &&
              inputs_record_choices(run, choices, &e) == OK && json_file_write(path, run, &e) == OK;
    assert(ok);
    (void)ok;
    free(text);
    json_decref(resolved);
    json_decref(run);
}

void run_fixture_write(const char *parent, const struct run_fixture *f, char dir[PATH_CAP]) {
    struct err e;
    bool ok = path_join(dir, parent, f->id, &e) == OK;
    assert(ok);
    (void)ok;
    bool bad = strcmp(f->status, "failed") == 0;
    char error[128] = "null";
    const char *status = f->status; /* a run without its last step is not done */
    if (!strcmp(status, "done") && f->planned > f->steps) status = "time_limit";
    if (bad)
        snprintf(error, sizeof error, "{\"code\":\"%s\",\"text\":\"loss is nan at step 7\","
                 "\"where\":\"\"}", f->error ? f->error : "ERR_NUMERIC");
    char guess[48] = "", inputs[400] = "";
    const char *data = f->data_hash ? f->data_hash : "cc";
    if (*data) snprintf(inputs, sizeof inputs, ",\"data\":\"%.64s\"", data);
    if (f->weights)
        snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs),
                 ",\"weights\":\"%.64s\"", f->weights);
    if (f->sets)
        snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), ",\"also\":%.200s",
                 f->sets);
    if (f->guess_loss > 0) snprintf(guess, sizeof guess, ",\"guess_loss\":%.6f", f->guess_loss);
    put_file(dir, "data/run.json",
             "{\"schema\":\"fp8lab.run/1\",\"id\":\"%s\",\"name\":\"tiny\",\"status\":\"%s\","
             "\"exit_code\":%d,\"error\":%s,\"started\":\"%s\","
             "\"ended\":\"2026-11-21T02:50:00Z\",\"seed\":%lld,\"inputs_sha256\":null,"
             "\"results_sha256\":null,\"inputs\":{\"config\":null,\"code\":\"%s\"%s},"
             "\"version\":\"0.1.0\",\"attempts\":%s,"
             "\"parent\":null,\"mismatch\":null,\"smoke\":%s%s}",
             f->id, status, bad ? 1 : 0, error, f->started ? f->started : "2026-11-21T02:48:23Z",
             (long long)f->seed, f->code ? f->code : "bb", inputs,
             f->attempts ? f->attempts : "[]", f->smoke ? "true" : "false", guess);
    write_inputs(dir, f);
    hash_inputs(dir, f->choices ? f->choices : "");
    write_train(dir, f);
    write_fp8(dir, f);
    write_trace(dir, f);
    write_sets(dir, f);
    if (f->histograms) put_file(dir, STREAMS[STREAM_HISTOGRAMS].file, "%s", f->histograms);
    if (f->telemetry) put_file(dir, "data/metrics/telemetry.jsonl", "%s", f->telemetry);
    else if (f->power_mw)
        put_file(dir, "data/metrics/telemetry.jsonl",
                 "{\"step\":1,\"rank\":0,\"gpu_power_mw\":1}\n"
                 "{\"step\":9,\"rank\":0,\"gpu_power_mw\":%lld}\n"
                 "{\"step\":9,\"rank\":1,\"gpu_power_mw\":%lld}\n",
                 (long long)f->power_mw, (long long)f->power_mw);
    else
        put_file(dir, "data/metrics/telemetry.jsonl",
                 "{\"step\":1,\"time\":1,\"rss_bytes\":1000000}\n"
                 "{\"step\":2,\"time\":2,\"rss_bytes\":3000000}\n");
    write_checkpoint(dir, f);
    put_file(dir, "lock", "held by nobody\n");
}

void bundle_as_tar(const char *path, char **out, size_t *n) {
    enum { ROOM = 1 << 24 }; /* far more than any fixture has */
    struct archive *in = archive_read_new();
    struct archive_entry *entry;
    *out = malloc(ROOM);
    *n = 0;
    assert(in && *out);
    archive_read_support_format_raw(in);
    archive_read_support_filter_zstd(in);
    if (archive_read_open_filename(in, path, 65536) == ARCHIVE_OK &&
        archive_read_next_header(in, &entry) == ARCHIVE_OK)
        for (la_ssize_t got; (got = archive_read_data(in, *out + *n, ROOM - *n)) > 0;)
            *n += (size_t)got;
    archive_read_free(in);
    assert(*n > 0 && *n < ROOM);
}
