/* fp8lab run: the flags and the script. run_preflight.h checks the machine and the data,
 * run/suite.h runs the rows, run_report.h prints what they reached. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/commands.h"
#include "runner/hardware/facts.h"
#include "runner/job/job_follow.h"
#include "runner/job/job_match.h"
#include "runner/job/job_members.h"
#include "runner/job/stop_grace.h"
#include "runner/launch/launch.h"
#include "runner/plan/backends.h"
#include "runner/profile/nvtx.h"
#include "runner/repro/extend.h"
#include "runner/run/close.h"
#include "runner/run/outcome.h"
#include "runner/run/side_by_side.h"
#include "runner/run/slot_rows.h"
#include "runner/run/starting.h"
#include "runner/run/suite.h"
#include "runner/run/tuning.h"
#include "runner/run_preflight.h"
#include "runner/run_report.h"
#include "runner/script/repeat.h"
#include "runner/script/script_flags.h"

struct command {
    const struct cli *cli;
    struct run_settings settings;
    struct extension extension; /* with --extend */
    struct resolution resolution;
    struct suite suite;
    int64_t at_once;           /* rows, with --side-by-side; else 1 */
    struct slot_shares shares; /* of this machine, if several rows run at once */
    struct slot slot;          /* if this process is one that runs them */
    json_t *overrides; /* owned: the texts of --set */
    json_t *facts;     /* owned: of this machine */
    int claim;         /* on the folder of runs (run/sharing.h); -1: not held */
    struct choice_cache cache;
    struct start_clock start;
    struct signals signals;
    struct job_members members; /* if a launcher started several tasks; this is task 0 */
};

/* ---- script -----------------------------------------------------------------------------------*/

/* --extend: the script of the run that is extended, its arithmetic unless --arithmetic names one,
 * and its choice table unless --choices does. */
static enum status read_extended(struct command *c, struct err *e) {
    struct extension *x = &c->extension;
    if (cli_has(c->cli, "smoke") || cli_has(c->cli, "only") || cli_has(c->cli, "repeat"))
        return FAIL(e, ERR_ARG, "--extend takes the script of the run: no --smoke, --only or "
                    "--repeat");
    TRY(extension_open(c->cli, cli_value(c->cli, "extend"), c->settings.runs, x, e));
    c->resolution = x->resolution;
    x->resolution = (struct resolution){ 0 };
    c->overrides = json_incref(x->overrides);
    const char *then = json_text(json_object_get(x->source.view.run, "inputs"), "arithmetic", NULL);
    if (!cli_has(c->cli, "arithmetic"))
        TRY(backend_arithmetic(c->settings.backend, then, &c->settings.arithmetic, e));
    bool table = *x->source.choices && strcmp(c->settings.backend, "cpu") != 0;
    if (!c->settings.choices && table) c->settings.choices = x->source.choices;
    if (x->beginning.step) {
        c->suite.parent = x->source.identity;
        c->suite.beginning = &x->beginning;
    }
    return OK;
}

static enum status read_script(struct command *c, struct err *e) {
    bool failed = false;
    TRY(script_resolve(c->cli, NULL, &c->resolution, e));
    c->overrides = json_array();
    for (int64_t i = 0; i < cli_count(c->cli, "set"); i++)
        json_append(c->overrides, json_from_text(cli_nth(c->cli, "set", i)), &failed);
    return failed || !c->overrides ? FAIL(e, ERR_MEMORY, "the list of --set") : OK;
}

static enum status resolve(struct command *c, struct err *e) {
    bool extends = cli_has(c->cli, "extend");
    if (c->cli->arg_count == 0 && !extends)
        return FAIL(e, ERR_ARG, "missing argument: fp8lab run FILE.lua (or --resume RUN, or "
                    "--extend RUN)");
    if (c->cli->arg_count && extends)
        return FAIL(e, ERR_ARG, "--extend takes the script from the run's bundle; leave out %s",
                    c->cli->args[0]);
    TRY(extends ? read_extended(c, e) : read_script(c, e));
    c->suite.repeat = 1;
    TRY(cli_int(c->cli, "repeat", 1, REPEAT_MAX, &c->suite.repeat, e));
    TRY(resolution_repeat(&c->resolution, c->suite.repeat, e));
    c->suite.settings = &c->settings;
    c->suite.resolution = &c->resolution;
    c->suite.overrides = c->overrides;
    c->suite.again = cli_has(c->cli, "again");
    return suite_init(&c->suite, e);
}

/* ---- the two ways to run ----------------------------------------------------------------------*/

static int fail(struct command *c, const struct err *e) {
    if (c->slot.is) return slot_fail(&c->slot, e);
    int code = script_fail(c->cli, &c->resolution, e), signo = c->signals.stopped_by;
    return signo ? EXIT_SIGNAL + signo : code;
}

static enum status check_resume_flags(const struct cli *cli, struct err *e) {
    static const char *const OTHERS[] = { "set", "smoke", "arithmetic", "extend", "only", "again",
                                         "repeat" };
    if (cli->arg_count)
        return FAIL(e, ERR_ARG, "--resume continues a run as it is: leave out %s", cli->args[0]);
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (cli_has(cli, OTHERS[i]))
            return FAIL(e, ERR_ARG, "--resume continues a run as it is: no --%s", OTHERS[i]);
    return OK;
}

static int resume(struct command *c) {
    struct err e = { 0 };
    char path[PATH_CAP];
    struct run_outcome outcome;
    enum status st = check_resume_flags(c->cli, &e);
    if (st == OK) st = run_locate(cli_value(c->cli, "resume"), c->settings.runs, path, &e);
    if (st == OK) st = run_directory(c->cli, path, &e);
    start_clock_lap(&c->start, START_REST);
    if (st == OK) st = preflight_probe(&c->settings, c->facts, &e);
    start_clock_lap(&c->start, START_PROBE);
    if (st == OK) st = run_resume(&c->settings, path, NULL, &outcome, &e);
    if (st != OK) return fail(c, &e);
    if (c->cli->json)
        outcome_print_json(c->cli, json_pack("[o]", outcome_json(outcome.name, &outcome, false)));
    outcome_print(c->cli, &outcome);
    run_report_next(c->cli, &outcome);
    return outcome.exit_code;
}

/* Rows that run at once have a part of the machine each. */
static enum status check_machine(struct command *c, bool *fits, struct err *e) {
    struct run_settings part = c->settings;
    json_t *facts = NULL;
    if (!c->shares.count) return preflight_machine(&c->suite, fits, e);
    TRY(slot_shares_facts(&c->shares, c->facts, &facts, e));
    part.facts = facts;
    c->suite.settings = &part;
    enum status st = preflight_machine(&c->suite, fits, e);
    c->suite.settings = &c->settings;
    json_decref(facts);
    return st;
}

/* Runs the rows, and prints what they reached. */
static enum status run_rows(struct command *c, const struct extension *extension, int *code,
                            struct err *e) {
    bool stop = false;
    c->settings.cli = c->cli;
    if (c->slot.is) return slot_serve(&c->slot, &c->suite, code, e);
    TRY(suite_find_earlier(&c->suite, e));
    TRY(preflight_say(&c->suite, extension, e));
    if (c->shares.count) TRY(side_by_side_run(&c->suite, &c->shares, code, &stop, e));
    if (!stop) TRY(suite_run(&c->suite, code, e));
    *code = run_report_suite(c->cli, &c->suite, *code);
    return OK;
}

static int run_script(struct command *c) {
    const struct extension *extension = cli_has(c->cli, "extend") ? &c->extension : NULL;
    struct err e = { 0 };
    bool fits = true, first = !c->slot.is; /* the parent of a slot has looked and said it */
    int code = EXIT_OK;
    struct cli quiet = *c->cli;
    quiet.quiet = quiet.quiet || c->slot.is;
    c->settings.cli = &quiet;
    start_clock_lap(&c->start, START_REST);
    enum status st = resolve(c, &e);
    start_clock_lap(&c->start, START_SCRIPT);
    if (st == OK && first) st = side_by_side_plan(&c->suite, c->at_once, &c->shares, &e);
    if (st == OK) st = preflight_probe(&c->settings, c->facts, &e);
    start_clock_lap(&c->start, START_PROBE);
    if (st == OK) st = check_machine(c, &fits, &e);
    start_clock_lap(&c->start, START_REST);
    if (st == OK && !fits && !first)
        st = FAIL(&e, ERR_HARDWARE, "its part of this machine is not what the rows ask for");
    if (st == OK && !fits) return preflight_refuse(&c->suite);
    if (st == OK && first) st = preflight_text(&c->suite, extension, &e);
    bool rejected = st == OK && first && !extension && preflight_weights(&c->suite, &e) != OK;
    if (st == OK && !rejected)
        st = preflight_tokens(&c->suite, &c->resolution, extension, &e);
    if (st == OK && !rejected) rejected = preflight_inputs(&c->suite, extension, &e) != OK;
    if (rejected) {
        (void)fail(c, &e); /* the user must fix inputs that are missing or malformed */
        return EXIT_USAGE;
    }
    start_clock_lap(&c->start, START_DATA);
    if (st == OK) st = run_rows(c, extension, &code, &e);
    return st == OK ? code : fail(c, &e);
}

/* ---- the verb ---------------------------------------------------------------------------------*/

static enum status read_settings(struct command *c, struct err *e) {
    const struct cli *cli = c->cli;
    struct run_settings *s = &c->settings;
    *s = (struct run_settings){
        .cli = cli, .signals = &c->signals, .facts = c->facts, .claim = &c->claim,
        .start = &c->start, .slot = c->slot.is ? &c->slot : NULL,
        .runs = cli_runs(cli),
        .backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto",
        .keep_directory = cli_has(cli, "keep-dir"),
        .profile = cli_has(cli, "profile"),
        .caps = cli_has(cli, "caps") ? cli_value(cli, "caps") : NULL,
        .choices = cli_has(cli, "choices") ? cli_value(cli, "choices") : NULL,
        .data_root = cli_value(cli, "data-root"),
        .cache = cli_value(cli, "cache"),
        .fewer_gpus = cli_has(cli, "fewer-gpus"),
        .members = c->members.task.count > 1 ? &c->members : NULL,
    };
    if (s->profile && !nvtx_is_asked())
        cli_warn(cli, "--profile: no profiler asks for ranges (NVTX_INJECTION64_PATH is not set); "
                 "start it around this command: nsys profile fp8lab run ... --profile");
    TRY(backend_check(s->backend, e));
    if (s->caps) TRY(backend_check_caps(s->backend, s->caps, e));
    TRY(backend_arithmetic(s->backend, cli_value(cli, "arithmetic"), &s->arithmetic, e));
    TRY(tuning_settings(s, &c->cache, e));
    TRY(stop_grace_read(&s->stop_grace_s, e));
    TRY(cli_int(cli, "threads", 1, 4096, &s->threads, e));
    TRY(cli_int(cli, "retries", 0, 1000, &s->retries, e));
    TRY(cli_int(cli, "ranks", 1, SUPERVISE_RANKS_MAX, &s->ranks, e));
    c->at_once = 1;
    TRY(cli_int(cli, "side-by-side", 1, SLOTS_MAX, &c->at_once, e));
    if (c->slot.is && c->slot.threads) s->threads = c->slot.threads;
    if (s->ranks && !cli_has(cli, "resume"))
        return FAIL(e, ERR_ARG, "--ranks is for --resume; the number of ranks is part of the "
                    "experiment: --set hardware.gpus=%" PRId64, s->ranks);
    return cli_int(cli, "hang-after", 1, 1000000, &s->hang_s, e);
}

static void tear_down(struct command *c) {
    suite_free(&c->suite);
    slot_shares_free(&c->shares);
    slot_close(&c->slot);
    choice_cache_close(&c->cache);
    json_decref(c->overrides);
    resolution_destroy(&c->resolution);
    extension_close(&c->extension);
    json_decref(c->facts);
    signals_close(&c->signals);
}

/* The runner that leads the job; without a launcher it is the only one. */
static int lead(struct command *c, const struct task *task, int64_t wait_s) {
    struct err e = { 0 };
    enum status st = job_members_gather(c->cli, task, cli_runs(c->cli), wait_s, c->facts,
                                        &c->members, &e);
    if (st == OK) st = read_settings(c, &e);
    if (st == OK && strcmp(c->settings.backend, "cpu") != 0)
        st = job_places(c->facts, c->settings.members, &e);
    int code = EXIT_OK;
    if (st != OK) {
        code = cli_fail(c->cli, &e);
        if (c->members.stopped_by) code = EXIT_SIGNAL + c->members.stopped_by;
    } else {
        /* --resume closes nothing first: a run without a checkpoint would be lost. */
        if (!cli_has(c->cli, "resume") && !c->slot.is) close_dead_runs(c->cli, c->settings.runs);
        code = cli_has(c->cli, "resume") ? resume(c) : run_script(c);
    }
    job_members_release(&c->members, code);
    return code;
}

/* Refuses flags that are about one run. */
static enum status check_side_by_side(const struct cli *cli, struct err *e) {
    static const struct { const char *flag, *why; } REFUSED[] = {
        { "resume", "it continues one run" }, { "extend", "it continues one run" },
        { "profile", "a profiler follows one run" },
    };
    if (!cli_has(cli, "side-by-side")) return OK;
    if (cli_has(cli, "launch") && !strcmp(cli_value(cli, "launch"), "srun"))
        return FAIL(e, ERR_ARG, "--side-by-side runs rows on one host, and --launch srun asks for "
                    "GPUs of one row; start one job for each row that is to run at once, in the "
                    "same folder of runs: they share the rows (containers/LAUNCHING.md)");
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        if (cli_has(cli, REFUSED[i].flag))
            return FAIL(e, ERR_ARG, "--side-by-side runs several rows at once: no --%s, since %s",
                        REFUSED[i].flag, REFUSED[i].why);
    return OK;
}

/* Tasks of a launcher share each run. */
static enum status refuse_tasks(const struct task *task, struct err *e) {
    if (task->count < 2) return OK;
    return FAIL(e, ERR_ARG, "--side-by-side starts its own processes on one host, but %s started "
                "%" PRId64 " tasks, which share one run; start one task, or one command a host in "
                "the same folder of runs: they share the rows", task->launcher, task->count);
}

static const char *variable(const char *name) { return getenv(name); }

static int cmd_run(const struct cli *cli) {
    struct command c = { .cli = cli, .signals = { .fd = -1 }, .claim = -1 };
    struct task task;
    struct err e = { 0 };
    char problem[256] = "";
    int64_t wait_s = JOB_WAIT_S;
    start_clock_begin(&c.start, "the command");
    enum status st = check_side_by_side(cli, &e);
    if (st == OK && cli_has(cli, "launch")) return launch_run(cli);
    if (st == OK) st = launch_check_flags(cli, &e);
    if (st == OK) st = cli_int(cli, "tasks-within", 1, 86400, &wait_s, &e);
    if (st == OK) st = task_find(variable, &task, &e);
    if (st == OK && cli_has(cli, "side-by-side")) st = refuse_tasks(&task, &e);
    if (st == OK && cli_has(cli, "side-by-side")) st = slot_attach(&c.slot, &e);
    if (st == OK) st = facts_gather(&c.facts, problem, sizeof problem, &e);
    start_clock_lap(&c.start, START_PROBE);
    if (st == OK && *problem) cli_warn(cli, "%s", problem);
    int code;
    if (st != OK) code = cli_fail(cli, &e);
    else if (task.index > 0) code = job_follow(cli, &task, cli_runs(cli), wait_s, c.facts);
    else code = lead(&c, &task, wait_s);
    tear_down(&c);
    return code;
}

static const struct flag FLAGS[] = {
    { "set", "KEY=VALUE", "override a key: --set train.steps=20", true },
    { "only", "NAME", "only the rows of a suite with this name (* and ?)", true },
    { "smoke", NULL, "shrink sizes and steps, for a test on a CPU", false },
    { "anywhere", NULL, "run even if the hardware does not match; the run records this", false },
    { "backend", "NAME", "auto (default), cpu or cuda", false },
    { "caps", "ARCH", "use only the features of ARCH (sm_121), for tests", false },
    { "arithmetic", "NAME", "multiply as an H200 (hopper) or other GPUs do, on a CPU", false },
    { "choices", "FILE", "choice table: choices.txt, a checkpoint, or none", false },
    { "data-root", "DIR", "data paths are relative to DIR (default: here)", false },
    { "cache", "DIR", "keeps tokens of text (default: RUNS/cache) and GPU choices", false },
    { "threads", "N", "threads of the cpu backend (default: all processors)", false },
    { "runs", "DIR", "where runs are written (default: runs)", false },
    { "resume", "RUN", "resume an interrupted run from its checkpoint", false },
    { "extend", "RUN", "continue a done run as a new one: --set train.steps=N", false },
    { "tasks-within", "SECONDS", "how long to wait for a launcher's tasks (default: 300)", false },
    { "fewer-gpus", NULL, "a retry may leave out the GPU or host that failed", false },
    { "ranks", "N", "with --resume: N ranks instead of hardware.gpus", false },
    { "retries", "N", "new attempts after a worker dies or hangs (default: 0)", false },
    { "hang-after", "SECONDS", "time without events that counts as a hang", false },
    { "again", NULL, "run again, even if a run with these inputs exists", false },
    { "repeat", "N", "run each row N times, in turns: row 1, 2, 1, 2, ...", false },
    { "side-by-side", "N", "N rows at once, each on GPUs or threads of its own", false },
    { "profile", NULL, "for nsys: a range for each operator, no CUDA graphs", false },
    { "keep-dir", NULL, "keep the run's directory beside its bundle", false },
    { "lib", "DIR", "where require finds the shared presets", false },
    { "image", "IMAGE", "with --launch: this image instead of the experiment's", false },
    LAUNCH_FLAGS,
};

const struct verb VERB_RUN = {
    .name = "run",
    .arguments = "FILE.lua | --resume RUN | --extend RUN",
    .about = "run an experiment and pack it into a bundle",
    .more = "Writes runs/<run-id>/ during the run, and runs/<run-id>.tar.zst however it ends.\n"
            "The same command again resumes a stopped run, and does not repeat a done one.\n"
            "A suite runs row by row and ends with a comparison. The same command may run in\n"
            "several places at once: they share the rows.\n"
            "--repeat N runs row after row, N times, so that a GPU that warms up slows all rows\n"
            "alike, and compares all runs. Earlier runs of a row count among its N, and the same\n"
            "command again makes the runs that are missing; with --again it makes N new ones.\n"
            "--side-by-side N runs N rows at the same time, each on hardware.gpus GPUs of its own\n"
            "among those of CUDA_VISIBLE_DEVICES, or with its part of the processors. With\n"
            "--repeat each GPU runs all rows in turns. So recipes are compared, not GPUs.\n"
            "At SIGTERM or Ctrl-C it finishes the step, saves a checkpoint, packs the bundle and\n"
            "exits with 128+N. Another signal, after a second or later, exits at once. A worker\n"
            "counts as hung after 10 minutes without events, or 20 times its longest silence.\n"
            "Before its first step the limit is an hour.\n"
            SCRIPT_SET_FORMS
            "--extend begins a new run at the last checkpoint that RUN kept, with the schedule of\n"
            "the new train.steps. It warns if RUN had other learning rates at the same steps.\n"
            "--launch starts the same command in the experiment's image, or in that of\n"
            "`make image` if it names none (--image none: srun without an image). Folders have\n"
            "the same path inside (containers/LAUNCHING.md).\n",
    VERB_FLAGS(FLAGS),
    .args_min = 0,
    .args_max = 1,
    .run = cmd_run,
};
