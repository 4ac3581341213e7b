/* fp8lab doctor: what works on this machine, what does not, and the fix. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/commands.h"
#include "runner/doctor/doctor.h"
#include "runner/first_run.h"
#include "runner/hardware/facts.h"
#include "runner/plan/backends.h"

enum { AUDIT_SECONDS = 60 };

static const char *style_of(const char *level) {
    if (!strcmp(level, "wrong")) return "red";
    if (!strcmp(level, "warning")) return "yellow";
    return strcmp(level, "note") ? "green" : "dim";
}

static void print_finding(const struct cli *cli, const json_t *row) {
    const char *level = json_text(row, "level", ""), *fix = json_text(row, "fix", NULL);
    cli_out(cli, "%s%-8s%s %-16s %s\n", cli_style(cli, style_of(level)), level,
            cli_style(cli, NULL), json_text(row, "topic", ""), PLAIN(json_text(row, "found", "")));
    if (fix) cli_out(cli, "%26sfix: %s\n", "", fix);
}

static int64_t count_level(const struct doctor *d, const char *level) {
    int64_t n = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(d->findings, i, row) n += !strcmp(json_text(row, "level", ""), level);
    return n;
}

static void report(const struct cli *cli, const struct doctor *d) {
    if (cli->json) {
        json_t *object = json_pack("{s:s,s:b,s:O,s:O,s:O,s:O,s:O}", "schema",
                                   "fp8lab.doctor/1", "well", doctor_worst(d) != FINDING_WRONG,
                                   "findings", d->findings,
                                   "libraries", d->libraries, "recipes", d->recipes, "ways",
                                   d->ways, "facts", d->facts);
        cli_out_json(cli, object);
        json_decref(object);
        return;
    }
    size_t i;
    const json_t *row;
    json_array_foreach(d->findings, i, row) print_finding(cli, row);
    if (json_array_size(d->ways)) doctor_ways_text(d->ways, stdout);
    int wrong = (int)count_level(d, "wrong"), warnings = (int)count_level(d, "warning");
    if (wrong) cli_out(cli, "%d wrong, %d warning%s\n", wrong, warnings, warnings == 1 ? "" : "s");
    else if (warnings) cli_out(cli, "nothing is wrong, %d warning%s\n", warnings,
                               warnings == 1 ? "" : "s");
    else if (d->here) cli_out(cli, "all is well\n");
    else cli_out(cli, "no fault in these facts; no recipe was tried\n");
}

/* Whether the recipe table's column is the GPU's: there is one, and the user did not ask for the
 * CPU. */
static bool meant_for_gpu(const struct cli *cli, const json_t *facts) {
    const char *backend = cli_value(cli, "backend");
    if (backend && strcmp(backend, "auto") != 0) return !strcmp(backend, "cuda");
    return json_int(facts, "gpu.count") > 0;
}

/* Refuses a flag in the place of the file's name, a report of a machine that is not this one, and
 * a file that cannot be written. */
static enum status check_report(const struct cli *cli, struct err *e) {
    const char *path = cli_value(cli, "report");
    if (!*path || *path == '-')
        return FAIL(e, ERR_ARG, "--report %s: give the name of a file to write; one that begins "
                    "with a dash is ./%s", path, path);
    if (cli_has(cli, "facts"))
        return FAIL(e, ERR_ARG, "--report with --facts: a report says how a machine computes, "
                    "which only that machine can try; run fp8lab doctor --report FILE there");
    return doctor_report_check(path, e);
}

static enum status examine(const struct cli *cli, struct doctor *d, struct err *e) {
    const char *file = cli_value(cli, "facts"), *backend = cli_value(cli, "backend");
    char problem[256] = "";
    int64_t seconds = AUDIT_SECONDS;
    TRY(cli_int(cli, "seconds", 1, 86400, &seconds, e));
    if (backend) TRY(backend_check_name(backend, e));
    if (cli_has(cli, "report")) TRY(check_report(cli, e));
    if (file) TRY(facts_load(file, &d->facts, e));
    else TRY(facts_gather(&d->facts, problem, sizeof problem, e));
    d->here = !file;
    d->gpu = meant_for_gpu(cli, d->facts);
    d->caps = cli_value(cli, "caps");
    if (d->caps) TRY(backend_check_caps(d->gpu ? "cuda" : "cpu", d->caps, e)); /* as run does */
    if (*problem)
        doctor_say(d, FINDING_WRONG, "driver", "nvidia-smi must work before fp8lab can; after an "
                   "update of the driver, restart the machine", "%s", problem);
    doctor_cuda(d);
    doctor_machine(d);
    doctor_libraries(d);
    doctor_toolkit(d);
    doctor_disk(d);
    doctor_launcher(d);
    TRY(doctor_recipes(d, !cli_has(cli, "quick"), e));
    if (cli_has(cli, "audit")) doctor_audit(d, seconds);
    bool asked = cli_has(cli, "report") || (d->gpu && !cli_has(cli, "quick"));
    return asked ? doctor_ways(d, e) : OK;
}

static enum status write_report(const struct cli *cli, const struct doctor *d, struct err *e) {
    const char *path = cli_value(cli, "report");
    if (!path) return OK;
    TRY(doctor_report(d, path, e));
    cli_note(cli, "%s: attach this file to an issue", path);
    return OK;
}

/* Prints the findings, then writes the report: a full disk must not hide what was found. */
static int conclude(const struct cli *cli, const struct doctor *d) {
    struct err e = { 0 };
    report(cli, d);
    enum status st = write_report(cli, d, &e);
    if (st != OK) { /* stdout has its JSON object already */
        cli_warn(cli, "%s", e.text);
        return exit_code_of(st);
    }
    if (doctor_worst(d) == FINDING_WRONG) return EXIT_RUN_FAILED;
    first_run_next(cli);
    return EXIT_OK;
}

static int cmd_doctor(const struct cli *cli) {
    struct doctor d = { .findings = json_array(), .libraries = json_array(),
                        .recipes = json_array(), .ways = json_array() };
    struct err e = { 0 };
    enum status st = examine(cli, &d, &e);
    int code = st == OK ? conclude(cli, &d) : cli_fail(cli, &e);
    json_decref(d.findings);
    json_decref(d.libraries);
    json_decref(d.recipes);
    json_decref(d.ways);
    json_decref(d.facts);
    return code;
}

static const struct flag FLAGS[] = {
    { "quick", NULL, "skip the GEMM and the training of each recipe", false },
    { "report", "FILE", "write one file to attach to an issue, with all certificates", false },
    { "facts", "FILE", "examine the machine that FILE describes (fp8lab hw --json)", false },
    { "backend", "NAME", "whose recipes: auto (default), cpu or cuda", false },
    { "audit", NULL, "compute results of every GPU again on the host, to the bit", false },
    { "seconds", "N", "how long --audit takes for each GPU (60)", false },
    { "caps", "ARCH", "show the recipes as on a GPU of ARCH (sm_121); without a GPU, of --facts",
      false },
};

const struct verb VERB_DOCTOR = {
    .name = "doctor",
    .arguments = "",
    .about = "what works on this machine, what does not, and the fix",
    .more = "Driver, libraries, compiler, memory and limits; then each recipe: native, emulated\n"
            "or refused, with a GEMM and ten steps of training compared with the reference: to\n"
            "the bit on a CPU, within stated bounds on a GPU. On a GPU also a table of ways: each\n"
            "kind of GEMM, cast and attention, tried against the reference (certificates).\n"
            "Exit 1 if a finding is wrong, otherwise 0: notes and warnings do not count.\n",
    VERB_FLAGS(FLAGS),
    .run = cmd_doctor,
    .computes = true,
};
