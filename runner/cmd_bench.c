/* fp8lab bench: the speed of the operators of a training step, and of a whole step. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bench/bench.h"
#include "runner/bench/bench_energy.h"
#include "runner/certify/forbidden.h"
#include "runner/commands.h"
#include "runner/first_run.h"
#include "runner/model_ways.h"
#include "runner/plan/backends.h"
#include "runner/profile/profile.h"
#include "runner/script/script_flags.h"

static const struct kind {
    const char *name;
    enum status (*run)(const struct cli *cli, struct backend *b, const struct energy_meter *m,
                       json_t *rows, struct err *e); /* NULL: the steps of a script */
    const char *flags;   /* flags of this kind, besides the common ones */
    const char *next[4]; /* function that measures */
} KINDS[] = {
    { "gemm", bench_gemm, " m n k dtype scale arithmetic repeats energy ", { "attention" } },
    { "attention", bench_attention, " batch seq-len heads kv-heads head-dim repeats energy ",
      { "quantise" } },
    { "quantise", bench_quantise, " m k scale repeats energy ",
      { "step", "experiments/quickstart.lua", "--only", "*bf16" } },
    { "step", NULL, " steps detail each-gemm energy arithmetic set only smoke lib ", { "gemm" } },
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };
static const char EVERY_KIND[] = " threads backend device json quiet no-color ";

static bool is_listed(const char *list, const char *flag) {
    char word[40];
    snprintf(word, sizeof word, " %s ", flag);
    return strstr(list, word) != NULL;
}

/* Refuses flags of another kind: they would change nothing, and the user would trust the figure. */
static enum status check_flags(const struct cli *cli, const struct kind *kind, struct err *e) {
    for (int64_t i = 0; i < cli->flag_count; i++) {
        const char *flag = cli->flags[i].name;
        if (!is_listed(kind->flags, flag) && !is_listed(EVERY_KIND, flag))
            return FAIL(e, ERR_ARG, "bench %s takes no --%s; `fp8lab bench --help` says which kind "
                        "does", kind->name, flag);
    }
    return OK;
}

static enum status find_kind(const struct cli *cli, const struct kind **out, struct err *e) {
    bool file = cli->arg_count > 1;
    int i = 0;
    while (i < KIND_COUNT && strcmp(KINDS[i].name, cli->args[0]) != 0) i++;
    if (i == KIND_COUNT)
        return FAIL(e, ERR_ARG, "bench %s: gemm, attention, quantise or step", cli->args[0]);
    *out = &KINDS[i];
    if (file && KINDS[i].run)
        return FAIL(e, ERR_ARG, "bench %s takes no file, found %s", cli->args[0], cli->args[1]);
    if (!file && !KINDS[i].run)
        return FAIL(e, ERR_ARG, "bench step takes an experiment: fp8lab bench step FILE.lua");
    return check_flags(cli, *out, e);
}

static enum status print_report(const struct cli *cli, const struct kind *kind, struct backend *b,
                                const struct device_info *info, json_t *rows, struct err *e) {
    json_t *object = json_pack("{s:s,s:s,s:s,s:s,s:s,s:O}", "schema", "fp8lab.bench/1", "kind",
                               kind->name, "backend", b->ops->name, "device", info->name,
                               "architecture", info->architecture, "rows", rows);
    if (!object) return FAIL(e, ERR_MEMORY, "a report as JSON");
    cli_out_json(cli, object);
    json_decref(object);
    return OK;
}

/* Ranges of what the kind measures, if a profiler asks for them. */
static enum status run_kind(const struct cli *cli, const struct kind *kind,
                            const struct resolution *script, struct backend *b,
                            const struct energy_meter *meter, json_t *rows, struct err *e) {
    struct profile profile;
    TRY(profile_start(b, false, &profile, e));
    if (nvtx_is_asked()) cli_note(cli, "%s", profile.text);
    enum status st = kind->run ? kind->run(cli, b, meter, rows, e)
                               : bench_step(cli, script, b, meter, rows, e);
    profile_stop(&profile);
    return st;
}

/* A step computes as a run would: without what failed on this device. Other kinds measure what they
 * are asked for. */
static enum status forbid_ways(const struct cli *cli, const struct kind *kind, const char *backend,
                               int64_t device, char **forbidden, struct err *e) {
    if (kind->run) return OK;
    return model_ways_kept(cli, backend, device, forbidden, e);
}

static enum status bench(const struct cli *cli, const struct kind *kind,
                         const struct resolution *script, json_t *rows, struct err *e) {
    int64_t threads = 0, device = 0;
    TRY(cli_int(cli, "threads", 0, 1024, &threads, e));
    TRY(cli_int(cli, "device", 0, 1024, &device, e));
    struct backend_handle h = { 0 };
    struct energy_meter meter = { 0 };
    struct device_info info;
    const char *name = cli_value(cli, "backend") ? cli_value(cli, "backend") : "auto";
    char *forbidden = NULL;
    TRY(forbid_ways(cli, kind, name, device, &forbidden, e));
    enum status st = backend_open(name, threads, device, &h, e);
    struct backend *b = h.backend;
    if (st == OK) st = b->ops->comm.init(b, NULL, e);
    if (st == OK) st = forbidden_apply(b, forbidden, e);
    free(forbidden);
    if (st == OK && cli_has(cli, "arithmetic"))
        st = backend_calculate(&h, cli_value(cli, "arithmetic"), e);
    if (st == OK) st = b->ops->info(b, &info, e);
    if (st == OK) cli_note(cli, "%s", info.name);
    if (st == OK) st = energy_meter_open(cli, b, &meter, e);
    if (st == OK) st = run_kind(cli, kind, script, b, &meter, rows, e);
    energy_meter_close(&meter);
    if (st == OK && cli->json) st = print_report(cli, kind, b, &info, rows, e);
    backend_close(&h);
    return st;
}

/* Before a device is opened: the errors of a script need none. */
static enum status read_script(const struct cli *cli, const struct kind *kind,
                               struct resolution *out, struct err *e) {
    struct cli script = *cli; /* the same command line without the word "step" */
    if (kind->run) return OK;
    script.args++;
    script.arg_count--;
    return script_resolve(&script, NULL, out, e);
}

static int cmd_bench(const struct cli *cli) {
    struct err e = { 0 };
    const struct kind *kind = NULL;
    struct resolution script = { 0 };
    json_t *rows = json_array();
    int code = EXIT_OK;
    enum status st = find_kind(cli, &kind, &e);
    if (st == OK) st = read_script(cli, kind, &script, &e);
    if (st == OK) st = bench(cli, kind, &script, rows, &e);
    if (st != OK) code = script_fail(cli, &script, &e);
    resolution_destroy(&script);
    json_decref(rows);
    if (st != OK) return code;
    const char *const *next = kind->next;
    char quick[PATH_CAP]; /* where the quick start is */
    const char *second = next[1] && first_run_script(quick) ? quick : next[1];
    cli_next(cli, "bench", next[0], second, next[2], next[3], NULL);
    return EXIT_OK;
}

static const struct flag FLAGS[] = {
    { "m", "ROWS", "gemm: rows of A and of the product; quantise: rows (1024)", false },
    { "n", "ROWS", "gemm: rows of B, columns of the product (1024)", false },
    { "k", "LENGTH", "gemm: length of the sums; quantise: of a row (1024)", false },
    { "dtype", "TYPE", "f32, bf16, e4m3, e5m2 (B e4m3), e2m1 (NVFP4); default: three", false },
    { "scale", "KIND", "tensor, row, 1x128 (B 128x128), 1x32; NVFP4: 1x16 (B 16x16)", false },
    { "arithmetic", "NAME", "gemm, step: multiply as an H200 (hopper) does, on a CPU", false },
    { "batch", "N", "attention: sequences (1)", false },
    { "seq-len", "N", "attention: tokens of each (1024)", false },
    { "heads", "N", "attention: query heads (8)", false },
    { "kv-heads", "N", "attention: key and value heads (as --heads)", false },
    { "head-dim", "N", "attention: of each head (64)", false },
    { "repeats", "N", "samples, of which the median is printed (11)", false },
    { "steps", "N", "step: whole steps, of which the median is printed (10)", false },
    { "detail", NULL, "step: also every operator and every shape of GEMM", false },
    { "each-gemm", NULL, "step: also whole steps with one kind of GEMM in BF16", false },
    { "energy", "SECONDS", "also joules, of calls and steps repeated for that long", false },
    { "set", "KEY=VALUE", "step: override a key of the experiment", true },
    { "only", "NAME", "step: rows of this name of a suite (* and ?)", true },
    { "smoke", NULL, "step: shrink the experiment as run --smoke does", false },
    { "lib", "DIR", "step: folder in which require finds shared presets", false },
    { "threads", "N", "of the cpu backend; 0, the default: all", false },
    { "backend", "NAME", "cpu, cuda or auto (the default)", false },
    { "device", "INDEX", "of the cuda backend (0)", false },
};

const struct verb VERB_BENCH = {
    .name = "bench",
    .arguments = "gemm|attention|quantise|step [FILE.lua]",
    .about = "measure the operators of a training step, and a whole step",
    .more = "gemm: out [m,n] = A [m,k] B^T [n,k], 2 m n k operations. A sample is as many calls\n"
            "as fit in 20 ms; the median of the samples and the best one are printed, and their\n"
            "share of the fastest product of this type here: a large square one or this one.\n"
            "attention: causal, forward and backward, 4 and 10 B H D T^2/2 operations. Each\n"
            "is compared with a plain version, which stores T x T scores: time, and memory in\n"
            "addition to the operands.\n"
            "quantise: BF16 into E4M3 codes, for 1x16 and 16x16 into E2M1, with and without the\n"
            "transposed copy.\n"
            "step: the step of each run of an experiment, on generated tokens, graphs replayed;\n"
            "then its parts, each operator timed alone, with their floor (the least time). The\n"
            "floor of a GEMM or an attention is its time alone and repeated; of other operators,\n"
            "the time to move their bytes at the bandwidth of a copy. This command measures all\n"
            "figures itself. Rows of a suite are then compared with that in BF16, part by part.\n"
            "--each-gemm: whole steps of an FP8 recipe with one kind of GEMM in BF16: qkv,\n"
            "attn_out, ffn_in, ffn_out, fprop, dgrad, wgrad. Also with the head the other way.\n"
            "--energy: joules by the driver's counter, of a call repeated for that long; of a\n"
            "step and of each of its operators, with the operands of the step.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 2,
    .run = cmd_bench,
    .computes = true,
};
