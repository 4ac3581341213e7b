#include "runner/run/run_one.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/version.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/certify/certify_run.h"
#include "runner/job/job_members.h"
#include "runner/job/stop_grace.h"
#include "runner/record/choice_cache.h"
#include "runner/record/choice_file.h"
#include "runner/record/documents.h"
#include "runner/record/ingest_record.h"
#include "runner/record/provenance.h"
#include "runner/record/run_log.h"
#include "runner/run/attempts.h"
#include "runner/run/log_head.h"
#include "runner/record/records.h"
#include "runner/run/reopen.h"
#include "runner/run/run_status.h"
#include "runner/run/run_tokens.h"
#include "runner/run/sample_tokenizer.h"
#include "runner/run/sharing.h"
#include "runner/run/slot.h"
#include "runner/run/starting.h"

/* ---- the record -------------------------------------------------------------------------------*/

static int64_t seed_of(const json_t *config) {
    return json_int(json_object_get(config, "train"), "seed");
}

static enum status first_record(struct run_dir *dir, const struct run_request *request,
                                struct err *e) {
    const struct resolved_run *run = request->run;
    char started[32];
    run_time_now(started);
    json_t *record = json_pack(
        "{s:s,s:s,s:s,s:s,s:n,s:n,s:s,s:n,s:I,s:s,s:n,s:o,s:s,s:[],s:s?,s:O?,s:b,s:I}", "schema",
        "fp8lab.run/1", "id", dir->id, "name", run->name, "status", "running", "exit_code", "error",
        "started", started, "ended", "seed", (json_int_t)seed_of(run->config_json), "inputs_sha256",
        request->inputs->all, "results_sha256", "inputs", inputs_json(request->inputs), "version",
        FP8LAB_VERSION, "attempts", "parent", request->parent, "mismatch", request->mismatch,
        "smoke", request->resolution->smoke, "checkpoint_step", (json_int_t)0);
    bool failed = false;
    double guess = request->inputs->guess_loss;
    if (guess > 0) json_put(record, "guess_loss", json_real(guess), &failed);
    json_put(record, "next", json_sprintf("fp8lab show %s", dir->id), &failed);
    record = json_whole(record, failed);
    if (!record) return FAIL(e, ERR_MEMORY, "run record");
    json_decref(dir->run);
    dir->run = record;
    return run_dir_save(dir, e);
}

/* The attempts of the extended run come first in the list, each with that run's id. */
static enum status record_extension(struct run_dir *dir, const struct run_beginning *b,
                                    struct err *e) {
    json_t *run = dir->run, *list = json_object_get(run, "attempts"), *id;
    bool failed = json_object_set(run, "extends", b->extends) != 0;
    const json_t *attempt;
    size_t i;
    json_array_foreach(b->attempts, i, attempt) {
        if (!json_is_object(attempt)) continue; /* an untrusted bundle */
        json_t *row = json_copy((json_t *)attempt);
        id = json_object_get(b->extends, "run");
        if (row && !json_object_get(row, "run")) failed |= json_object_set(row, "run", id) != 0;
        json_append(list, row, &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "run record") : run_dir_save(dir, e);
}

/* Moves the files in a folder of `from` into the same folder of the run. */
static enum status move_folder(const struct run_dir *dir, const char *from, const char *folder,
                               struct err *e) {
    char source[PATH_CAP], target[PATH_CAP], a[PATH_CAP], b[PATH_CAP];
    TRY(path_join(source, from, folder, e));
    TRY(path_join(target, dir->path, folder, e));
    DIR *d = opendir(source);
    if (!d) return FAIL(e, ERR_IO, "open %s: %s", source, strerror(errno));
    enum status st = OK;
    for (const struct dirent *entry; st == OK && (entry = readdir(d));) {
        if (entry->d_name[0] == '.') continue;
        st = path_join(a, source, entry->d_name, e);
        if (st == OK) st = path_join(b, target, entry->d_name, e);
        if (st == OK && rename(a, b) != 0)
            st = FAIL(e, ERR_IO, "rename %s to %s: %s", a, b, strerror(errno));
    }
    closedir(d);
    return st;
}

/* Takes over the records and checkpoints of the extended run. */
static enum status take_beginning(struct run_dir *dir, const struct run_beginning *b,
                                  struct err *e) {
    TRY(record_extension(dir, b, e));
    TRY(move_folder(dir, b->path, "data/metrics", e));
    TRY(move_folder(dir, b->path, RUN_PATH_checkpoints, e));
    run_log(dir, "continues from step %" PRId64 " of another run", b->step);
    return OK;
}

/* Every Lua file as the script loaded it, below data/experiment/. */
static enum status write_files(const struct run_dir *dir, const struct resolution *r,
                               struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, dir->path, "data/experiment", e));
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = OK;
    for (int64_t i = 0; i < r->file_count && st == OK; i++) {
        const struct resolved_file *file = &r->files[i];
        int fd = open_beneath(root, file->name, O_WRONLY | O_CREAT | O_EXCL, 0644, 0777);
        if (fd < 0) st = FAIL(e, ERR_IO, "create %s/%s: %s", path, file->name, strerror(errno));
        else st = write_all(fd, file->text, strlen(file->text), file->name, e);
        if (fd >= 0 && close(fd) != 0 && st == OK)
            st = FAIL(e, ERR_IO, "close %s/%s: %s", path, file->name, strerror(errno));
    }
    close(root);
    return st;
}

static json_t *argv_record(const struct cli *cli, const struct run_request *request) {
    json_t *argv = json_array();
    bool failed = false;
    for (int64_t i = 0; cli->argv[i]; i++) json_append(argv, json_from_text(cli->argv[i]), &failed);
    return json_pack("{s:o,s:O,s:O?}", "argv", json_whole(argv, failed), "overrides",
                     request->overrides, "cell", request->run->cell);
}

static enum status write_experiment(const struct run_settings *s, const struct run_dir *dir,
                                    const struct run_request *request, struct err *e) {
    TRY(write_files(dir, request->resolution, e));
    TRY(replace_beneath(dir->root, DOCUMENT_resolved, dir->path,
                        request->run->config, request->run->config_bytes, e));
    TRY(run_dir_put(dir, RUN_PATH_data_files, request->data_files, e));
    if (request->init) TRY(run_dir_put(dir, DOCUMENT_init, request->init, e));
    if (request->tokens) TRY(ingest_record_write(dir, request->tokens, e));
    TRY(sample_tokenizer_keep(dir, request->run->config_json, s->data_root, request->kept, e));
    json_t *argv = argv_record(s->cli, request);
    enum status st = argv ? run_dir_put(dir, DOCUMENT_argv, argv, e)
                          : FAIL(e, ERR_MEMORY, "command line");
    json_decref(argv);
    return st;
}

static enum status write_origin(const struct run_settings *s, const struct run_dir *dir,
                                struct err *e) {
    char warning[256];
    TRY(run_dir_put(dir, DOCUMENT_facts, s->facts, e));
    TRY(provenance_write(dir, warning, sizeof warning, e));
    if (!*warning) return OK;
    cli_warn(s->cli, "%s", warning);
    run_log(dir, "%s", warning);
    return OK;
}

/* Only those who watch the run read the file, so its errors are ignored. */
static void write_rows(const struct run_dir *dir, const json_t *rows) {
    struct err ignored;
    if (rows) (void)!run_dir_put(dir, RUN_PATH_suite, rows, &ignored);
    else (void)unlinkat(dir->root, RUN_PATH_suite, 0); /* the row goes on alone */
}

/* ---- the end ----------------------------------------------------------------------------------*/

static void fill_outcome(const struct run_dir *dir, struct run_outcome *out) {
    snprintf(out->id, sizeof out->id, "%s", dir->id);
    snprintf(out->name, sizeof out->name, "%s", json_text(dir->run, "name", "?"));
    snprintf(out->status, sizeof out->status, "%s", json_text(dir->run, "status", "?"));
    snprintf(out->bundle, sizeof out->bundle, "%s", dir->path);
    out->exit_code = (int)json_int(dir->run, "exit_code");
    out->resumable = run_may_go_on(dir->run, NULL) == OK &&
                     json_int(dir->run, "checkpoint_step") > 0;
    out->fails_again = run_fails_again(dir->run);
}

static void say_end(const struct run_settings *s, const struct run_dir *dir) {
    const json_t *error = json_object_get(dir->run, "error");
    const char *status = json_text(dir->run, "status", "?");
    if (json_is_object(error))
        cli_warn(s->cli, "%s: %s: %s", json_text(dir->run, "name", "run"), status,
                 json_text(error, "text", ""));
    int64_t saved = json_int(dir->run, "checkpoint_step");
    if (saved > 0 && run_may_go_on(dir->run, NULL) == OK && !run_fails_again(dir->run))
        run_log(dir, "it can go on after step %" PRId64 ": fp8lab run --resume %s", saved, dir->id);
    int64_t code = json_int(dir->run, "exit_code");
    char exit_code[48] = "";
    if (code) snprintf(exit_code, sizeof exit_code, ", exit code %" PRId64, code);
    run_log(dir, "run ended: %s%s%s%s", status, exit_code, json_is_object(error) ? ": " : "",
            json_text(error, "text", ""));
}

static int64_t checkpoint_bytes(const struct run_dir *dir) {
    char path[PATH_CAP];
    return path_join(path, dir->path, RUN_PATH_checkpoints, NULL) == OK ? tree_bytes(path) : 0;
}

/* Which checkpoints the bundle takes: those of the policy, or none where a stop request leaves no
 * time to pack them. */
static enum bundle_checkpoints choose_checkpoints(const struct run_settings *s,
                                                  const struct run_dir *dir,
                                                  const json_t *resolved,
                                                  const struct attempt *last,
                                                  const struct run_outcome *out) {
    enum bundle_checkpoints policy = bundle_policy(json_text(resolved, "archive", NULL),
                                                   out->status);
    if (s->only_steps) return BUNDLE_CHECKPOINTS_NONE;
    if (last->end != ATTEMPT_SIGNAL) return policy;
    int64_t bytes = checkpoint_bytes(dir), at_once = slot_rows_at_once(s->slot); /* on one disk */
    if (!bytes || stop_grace_packs(s->stop_grace_s, clock_ms() - last->signal_ms, bytes * at_once))
        return policy;
    cli_warn(s->cli, "%s: %.1f GiB of checkpoints stay in its directory: the bundle must be "
             "written within %" PRId64 " s of the stop request (FP8LAB_STOP_GRACE); `fp8lab close` "
             "packs them later", out->name, (double)bytes / 0x1p30,
             s->stop_grace_s);
    return BUNDLE_CHECKPOINTS_ASIDE;
}

/* Tells the user which checkpoints are kept, and where. */
static void say_kept(const struct run_settings *s, const struct run_dir *dir,
                     struct run_outcome *out) {
    const json_t *row, *kept = json_object_get(dir->run, "kept");
    char which[400] = "", one[64];
    int64_t bytes = 0;
    size_t i, used = 0;
    json_array_foreach(kept, i, row) {
        kept_text(row, one);
        if (used < sizeof which - 80)
            used += (size_t)snprintf(which + used, sizeof which - used, "%s%s", i ? ", " : "", one);
        else if (which[used - 1] != '.')
            used += (size_t)snprintf(which + used, sizeof which - used, ", ...");
        bytes += json_int(row, "bytes");
    }
    if (!used) return;
    bool packed = !strcmp(json_text(json_array_get(kept, 0), "where", ""), "bundle");
    if (!packed && kept_folder(out->checkpoints, out->bundle, NULL) != OK) return;
    cli_note(s->cli, "%s: kept the checkpoint%s of %s, %.1f MiB, in %s", out->name,
             i > 1 ? "s" : "", which, (double)bytes / 0x1p20,
             packed ? "the bundle" : out->checkpoints);
}

/* Packs the bundle. The directory stays if the run can be resumed from its checkpoint. */
static void bundle_run(const struct run_settings *s, struct run_dir *dir, const json_t *resolved,
                       const struct attempt *last, struct run_outcome *out) {
    struct err e = { 0 };
    struct bundle_result result;
    struct bundle_options options = {
        .checkpoints = choose_checkpoints(s, dir, resolved, last, out),
        .keep_directory = s->keep_directory || (out->resumable && !s->only_steps),
        .threads = 1,
    };
    if (bundle_finish(dir->path, &options, &result, &e) == OK) {
        snprintf(out->bundle, sizeof out->bundle, "%s", result.path);
        say_kept(s, dir, out);
        if (*result.stays) cli_note(s->cli, "%s: %s", dir->id, result.stays);
        if (!*result.problem) return;
        cli_warn(s->cli, "%s: %s", dir->id, result.problem);
        if (out->exit_code == EXIT_OK) out->exit_code = EXIT_VERIFY;
        return;
    }
    bool whole = run_may_go_on(dir->run, NULL) != OK; /* it came to its end */
    cli_warn(s->cli, "%s: the bundle could not be written; %s in %s: %s", dir->id,
             whole ? "the run is complete" : "what the run recorded is", dir->path, e.text);
    if (out->exit_code == EXIT_OK) out->exit_code = EXIT_SYSTEM;
}

/* Makes the attempts, then packs the bundle. Closes the directory in any case. */
static enum status run_and_bundle(const struct run_settings *s, struct run_dir *dir,
                                  const json_t *resolved, struct run_outcome *out,
                                  struct err *e) {
    struct attempt last;
    enum status st = attempts_run(s, dir, resolved, &last, e);
    if (st == OK) {
        fill_outcome(dir, out);
        say_end(s, dir);
        if (last.end == ATTEMPT_SIGNAL && last.signalled) {
            /* From here on a further signal has its default action: the process exits. */
            signals_await_parts(s->signals);
            signals_close(s->signals);
        }
        if (last.end != ATTEMPT_ABANDONED) bundle_run(s, dir, resolved, &last, out);
    }
    run_dir_close(dir);
    return st;
}

/* The devices of the ranks on this host that this process sees, rank 0's first. */
static void devices_here(const struct run_settings *s, int64_t ranks, struct certify_options *o) {
    const struct task alone = { .count = 1, .local_count = 1 };
    const struct task *task = s->members ? &s->members->task : &alone;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int64_t each = ranks / task->count > 0 ? ranks / task->count : 1, count = each;
    if (!task_sees_its_own(visible, each)) count *= task->local_count - task->local_index;
    o->devices = count < CERTIFY_DEVICES_MAX ? count : CERTIFY_DEVICES_MAX;
    for (int64_t i = 0; i < o->devices; i++) o->device[i] = task_device(task, visible, each, i);
}

/* The table of choices with which the run begins: that of a user who names one, or its own from an
 * earlier attempt. "": none. */
static enum status first_choices(const struct run_settings *s, const struct run_dir *dir,
                                 bool resumed, char path[PATH_CAP], struct err *e) {
    *path = '\0';
    if (resumed && s->choices) { /* not taken over yet: that must not happen if certificates fail */
        snprintf(path, PATH_CAP, "%s", strcmp(s->choices, "none") ? s->choices : "");
        return OK;
    }
    TRY(path_join(path, dir->path, RUN_PATH_choices, e));
    if (!path_exists(path)) *path = '\0';
    return OK;
}

/* Whether a signal, to this task or another task of the job, asks the run to stop. */
static bool asked_to_stop(const void *context) {
    const struct run_settings *s = context;
    struct signals *signals = s->signals;
    if (!signals->stopped_by) signals->stopped_by = signals_take_request(signals, clock_ms());
    if (!signals->stopped_by && s->members)
        signals->stopped_by = job_members_stop_signal(s->members);
    return signals->stopped_by != 0;
}

/* Tries how the device computes, before any worker does. */
static enum status certify(const struct run_settings *s, struct run_dir *dir,
                           const json_t *resolved, int64_t ranks, bool resumed, struct err *e) {
    char table[PATH_CAP];
    TRY(first_choices(s, dir, resumed, table, e));
    if (s->choice_cache) choice_cache_begin(s->choice_cache);
    struct certify_options options = {
        .cli = s->cli, .backend = s->backend, .caps = s->caps, .cache = s->cache, .runs = s->runs,
        .facts = s->facts, .resolved = resolved, .ranks = ranks, .then = s->forbidden,
        .resumed = resumed, .choices = s->choice_cache,
        .hosts = s->members ? s->members->hosts : NULL, .table = *table ? table : NULL,
        .asked_to_stop = asked_to_stop, .context = s,
    };
    devices_here(s, ranks, &options);
    start_clock_lap(s->start, START_RECORD);
    enum status st = certify_run(&options, dir, e);
    start_clock_lap(s->start, START_CERTIFICATES);
    if (st != ERR_INTERRUPTED) return st;
    int signo = s->signals->stopped_by;
    return FAIL(e, st, "stopped by signal %d (%s) while it was tried how the device computes",
                signo, strsignal(signo));
}

/* From here on a signal stops the run in good order. Before, while the script is read and data are
 * hashed (minutes), no run exists: signals have their default action. */
static enum status take_signals_over(const struct run_settings *s, struct err *e) {
    return s->signals->fd >= 0 ? OK : signals_open(s->signals, e);
}

enum status run_one(const struct run_settings *s, const struct run_request *request,
                    struct run_outcome *out, struct err *e) {
    struct run_dir dir;
    int64_t ranks;
    *out = (struct run_outcome){ .exit_code = EXIT_SYSTEM };
    start_clock_row(s->start);
    TRY(attempts_check(s, request->run->config_json, request->mismatch, &ranks, e));
    TRY(take_signals_over(s, e));
    TRY(run_dir_create(s->runs, request->run->name, request->inputs->all, &dir, e));
    enum status st = first_record(&dir, request, e);
    claim_drop(s->claim); /* from here on other commands see the run */
    slot_begun(s->slot, dir.path);
    if (st == OK) st = write_experiment(s, &dir, request, e);
    if (st == OK && s->choices) st = choice_file_take(&dir, s->choices, e);
    if (st == OK) log_head(&dir, request->resolution, request->run, s);
    if (st == OK) st = write_origin(s, &dir, e);
    if (st == OK) st = certify(s, &dir, request->run->config_json, ranks, false, e);
    if (st == OK && request->beginning) st = take_beginning(&dir, request->beginning, e);
    if (st != OK) {
        struct err ignored; /* the first error is returned; the directory holds nothing yet */
        if (tree_remove(dir.path, &ignored) != OK) cli_warn(s->cli, "%s", ignored.text);
        run_dir_close(&dir);
        return st;
    }
    write_rows(&dir, request->rows);
    cli_note(s->cli, "%s", dir.path);
    return run_and_bundle(s, &dir, request->run->config_json, out, e);
}

/* ---- resume -----------------------------------------------------------------------------------*/

enum status run_directory(const struct cli *cli, char path[PATH_CAP], struct err *e) {
    struct unpack_report report;
    struct run_view view;
    if (path_is_directory(path)) return OK;
    TRY(run_view_load(path, RUN_VIEW_BRIEF, &view, e));
    enum status st = run_may_resume(view.run, e);
    run_view_free(&view);
    if (st != OK) return st;
    char bundle[PATH_CAP], folder[PATH_CAP];
    snprintf(bundle, sizeof bundle, "%s", path);
    TRY(bundle_unpack(bundle, NULL, &BUNDLE_LIMITS, &report, e));
    path_parent(folder, bundle);
    TRY(path_join(path, folder, report.folder, e));
    if (path_is_directory(path)) return OK;
    cli_note(cli, "unpacking %s", bundle);
    return bundle_unpack(bundle, path, &BUNDLE_LIMITS, &report, e);
}

/* Closes the directory of a run that could not go on, with the record that it had before. A run
 * that was open then stays open: `list` closes it as killed. */
static void close_again(const struct run_settings *s, struct run_dir *dir, const json_t *resolved,
                        const json_t *before, const struct err *why) {
    const struct attempt last = { .end = why->code == ERR_INTERRUPTED ? ATTEMPT_SIGNAL
                                                                      : ATTEMPT_FAILED,
                                  .signal_ms = clock_ms() };
    struct run_outcome out = { .exit_code = EXIT_SYSTEM };
    struct err e;
    if (!strcmp(json_text(before, "status", "running"), "running")) return;
    run_log(dir, "not resumed: %s", why->text);
    if (json_object_update(dir->run, (json_t *)(uintptr_t)before) != 0 ||
        run_dir_save(dir, &e) != OK) {
        cli_warn(s->cli, "%s: its record could not be written: `fp8lab close` packs it", dir->path);
        return;
    }
    fill_outcome(dir, &out);
    bundle_run(s, dir, resolved, &last, &out);
}

enum status run_resume(const struct run_settings *s, const char *path, const json_t *rows,
                       struct run_outcome *out, struct err *e) {
    struct run_dir dir;
    json_t *resolved = NULL, *before = NULL;
    struct cache_entry tokens = { 0 };
    struct err changed = { 0 };
    bool reopened = false;
    int64_t ranks = 1;
    *out = (struct run_outcome){ .exit_code = EXIT_SYSTEM };
    start_clock_row(s->start);
    TRY(run_dir_open(path, false, &dir, e));
    claim_drop(s->claim);
    slot_begun(s->slot, dir.path);
    enum status st = run_may_resume(dir.run, e);
    if (st == OK)
        st = json_read_beneath(dir.root, DOCUMENT_resolved, dir.path, &resolved, e);
    if (st == OK) st = run_tokens_find(s, &dir, resolved, &tokens, e);
    if (st == OK) st = reopen_check(&dir, resolved, s->data_root, &tokens, e);
    if (st == OK) st = records_check(&dir, e);
    if (st == OK && !s->choices) st = choice_file_check(&dir, e);
    const json_t *mismatch = json_object_get(dir.run, "mismatch");
    if (st == OK) st = attempts_check(s, resolved, mismatch, &ranks, e);
    if (st == OK) st = take_signals_over(s, e);
    if (st == OK && !(before = json_copy(dir.run))) st = FAIL(e, ERR_MEMORY, "run record");
    if (st == OK) st = reopen_run(&dir, &changed, e);
    reopened = st == OK;
    if (st == OK) st = certify(s, &dir, resolved, ranks, true, e); /* writes to the log */
    if (st == OK) st = run_tokens_record(&dir, &tokens, e);
    if (st == OK && changed.code != OK) {
        cli_warn(s->cli, "%s", changed.text);
        run_log(&dir, "%s", changed.text);
    }
    if (st == OK && s->choices) st = choice_file_take(&dir, s->choices, e);
    if (st == OK) {
        cli_note(s->cli, "%s: resuming", dir.path);
        log_resume(&dir, s);
        write_rows(&dir, rows);
        st = run_and_bundle(s, &dir, resolved, out, e);
    } else {
        if (reopened) close_again(s, &dir, resolved, before, e);
        run_dir_close(&dir);
    }
    cache_entry_free(&tokens);
    json_decref(before);
    json_decref(resolved);
    return st;
}
