#include "runner/plan/keep.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/paths.h"
#include "runner/base/plain_text.h"

/* Whether every so many steps is this one; 0: never. */
static bool every(int64_t step, int64_t n) { return n > 0 && step % n == 0; }

static int64_t gcd(int64_t a, int64_t b) { return b == 0 ? a : gcd(b, a % b); }

static int64_t milestones_within(const struct run_options *run) {
    int64_t count = 0;
    for (int64_t i = 0; i < run->checkpoint.milestone_count; i++)
        count += run->checkpoint.milestones[i] <= run->train.steps;
    return count;
}

/* The most checkpoints that a run to its last step writes, each step's once: what plan/tiers.c
 * saves, and an evaluation may be the best. INT64_MAX: not known. */
static int64_t most_writes(const struct run_options *run, int64_t epochs) {
    const struct checkpoint_options *c = &run->checkpoint;
    int64_t steps = run->train.steps, n = c->every, m = c->best ? run->eval.every : 0;
    if (run->epochs > 0 && steps <= 1) return INT64_MAX; /* of text that is not tokenised yet */
    if (c->minutes > 0) return steps + c->init;
    int64_t count = (n ? steps / n : 0) + (m ? steps / m : 0);
    if (n && m) count -= steps / (n / gcd(n, m) * m);
    if (!every(steps, n) && !every(steps, m)) count++; /* the last */
    for (int64_t i = 0; i < c->milestone_count; i++) {
        int64_t at = c->milestones[i];
        count += at < steps && !every(at, n) && !every(at, m);
    }
    return count + (epochs ? epochs - 1 : 0) + c->init; /* an epoch ends with the last step */
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t epochs_kept(const struct run_options *run) {
    return run->checkpoint.epoch ? (int64_t)ceil(run->epochs) : 0;
}

static struct keep_counts count_kept(const struct run_options *run, bool smoke) {
    const struct checkpoint_options *c = &run->checkpoint;
    bool packed = run->archive == ARCHIVE_FULL;
    /* Without `checkpoint` the last step is saved for an archive; a smoke run is small. */
    int64_t some = c->given || run->archive != ARCHIVE_NONE;
    if (!c->given || smoke) return (struct keep_counts){ .during = some, .held = some };
    int64_t epochs = epochs_kept(run);
    int64_t further = milestones_within(run) + epochs + c->init + c->best;
    int64_t writes = most_writes(run, epochs), newest = c->keep > 1 ? c->keep : 1;
    return (struct keep_counts){
        .during = least(further + newest + 1, writes), /* one more during a write */
        .held = least(further + newest, writes),
        .count = least(further + (packed ? newest : c->keep > 0), writes),
    };
}

static struct run_options change(struct run_options run, enum keep_way way) {
    struct checkpoint_options *c = &run.checkpoint;
    bool counted = run.epochs == 0 || run.train.steps > 1; /* else not tokenised yet */
    if (way == KEEP_ONE) c->keep = least(c->keep, 1);
    if (way == KEEP_LAST_STEP && c->every && counted) c->every = run.train.steps;
    if (way == KEEP_UNPACKED) run.archive = ARCHIVE_NONE;
    return run;
}

struct keep keep_which(const struct run_options *run, bool smoke) {
    const struct checkpoint_options *c = &run->checkpoint;
    bool asked = c->given && !smoke, packed = asked && run->archive == ARCHIVE_FULL;
    struct keep k = { .asked = asked, .init = asked && c->init,
                      .last = asked && (c->keep > 0 || packed), .best = asked && c->best,
                      .packed = packed, .steps = run->train.steps };
    if (asked) k.milestones = milestones_within(run);
    if (asked) k.epochs = epochs_kept(run);
    for (int way = 0; way < KEEP_WAYS; way++) {
        const struct run_options changed = change(*run, (enum keep_way)way);
        k.counts[way] = count_kept(&changed, smoke);
    }
    return k;
}

static bool keeps_any(const struct keep *k) {
    return k->init || k->last || k->best || k->milestones || k->epochs;
}

static bool begins(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Whether a checkpoint holds what this row of the plan allocates (model/checkpoint.h). */
static bool is_saved(const struct plan_row *row) {
    bool weights = begins(row->arena, "weights") || begins(row->arena, "master weights");
    return weights || begins(row->arena, "optimizer") || !strcmp(row->item, "amax history");
}

enum status keep_plan(const json_t *config, bool smoke, struct keep *out, struct err *e) {
    struct run_options run;
    struct plan plan = { 0 };
    int64_t weights = 0;
    *out = (struct keep){ 0 };
    TRY(options_read(config, &run, e));
    *out = keep_which(&run, smoke);
    out->loses = json_is_object(json_object_get(config, "init")) && !smoke &&
                 !run.checkpoint.given && run.archive == ARCHIVE_NONE;
    /* A checkpoint is the same for any number of ranks: one rank holds all of it. */
    enum status st = trainer_plan(&plan, &run.model, &run.recipe, &run.train, 1, e);
    for (int64_t i = 0; i < plan.row_count && st == OK; i++) {
        if (is_saved(&plan.row[i])) out->bytes += plan.row[i].bytes;
        if (!strcmp(plan.row[i].arena, "weights")) weights += plan.row[i].bytes;
    }
    if (run.archive != ARCHIVE_NONE)
        out->bundled = run.archive == ARCHIVE_FULL ? out->bytes : weights;
    plan_free(&plan);
    options_free(&run);
    return st;
}

json_t *keep_json(const struct keep *keep) {
    if (!keep->asked) return json_null();
    return json_pack("{s:b,s:b,s:b,s:I,s:I,s:I,s:s?}", "init", keep->init, "last", keep->last,
                     "best", keep->best, "milestones", (json_int_t)keep->milestones, "epochs",
                     (json_int_t)keep->epochs, "bytes", (json_int_t)keep->bytes, "where",
                     !keeps_any(keep) ? NULL : keep->packed ? "bundle" : "beside");
}

/* ---- the disk -------------------------------------------------------------------------------- */

enum status keep_free_bytes(const char *folder, int64_t *out, struct err *e) {
    char at[PATH_CAP], above[PATH_CAP];
    struct statvfs disk;
    snprintf(at, sizeof at, "%s", folder);
    while (statvfs(at, &disk) != 0) {
        if (errno != ENOENT) return FAIL(e, ERR_IO, "the disk of %s: %s", at, strerror(errno));
        path_parent(above, at);
        if (!strcmp(above, at)) return FAIL(e, ERR_IO, "the disk of %s is not known", folder);
        memcpy(at, above, sizeof at);
    }
    *out = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
    return OK;
}

/* What a run needs in addition to what is there. */
static int64_t beyond(int64_t bytes, int64_t there) { return bytes > there ? bytes - there : 0; }

/* What a run needs while it trains or while its bundle is packed, and then keeps. */
static void run_bytes(const struct keep *k, enum keep_way way, int64_t *most, int64_t *kept) {
    const struct keep_counts *n = &k->counts[way];
    bool packed = k->packed && way != KEEP_UNPACKED;
    int64_t bundled = way == KEEP_UNPACKED ? 0 : k->bundled * n->held;
    int64_t training = k->bytes * n->during, packing = k->bytes * n->held + bundled;
    *most = beyond(training > packing ? training : packing, k->there);
    *kept = beyond((packed ? 0 : k->bytes * n->count) + bundled, k->there);
}

/* The bytes that the runs need at once: what earlier runs keep, and a run at its largest. *largest
 * is the index of that run. */
static int64_t disk_bytes(const struct keep *keeps, int64_t count, enum keep_way way,
                          int64_t *largest) {
    int64_t before = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t here, kept;
        run_bytes(&keeps[i], way, &here, &kept);
        if (before + here > most) *largest = i;
        if (before + here > most) most = before + here;
        before += kept;
    }
    return most;
}

enum status keep_disk(const char *folder, const struct keep *keeps, int64_t count,
                      struct keep_disk *out, struct err *e) {
    int64_t largest = 0, ignored;
    *out = (struct keep_disk){ .folder = folder };
    for (int way = KEEP_WAYS - 1; way >= KEEP_AS_SET; way--)
        out->ways[way] = disk_bytes(keeps, count, (enum keep_way)way, &largest);
    out->need = out->ways[KEEP_AS_SET];
    if (out->need == 0) return OK;
    out->one = keeps[largest].bytes;
    out->during = keeps[largest].counts[KEEP_AS_SET].during;
    for (int64_t i = 0; i < count; i++) {
        int64_t alone = disk_bytes(&keeps[i], 1, KEEP_AS_SET, &ignored);
        if (alone > out->alone) out->alone = alone;
        if (keeps[i].steps > out->steps) out->steps = keeps[i].steps;
        if (keeps[i].bundled && !keeps[i].counts[KEEP_UNPACKED].count) out->archive_only = true;
    }
    return keep_free_bytes(folder, &out->free, e);
}

/* Appends a change and the bytes that are needed then, unless it saves nothing or too little. */
static void add_way(const struct keep_disk *d, int64_t bytes, const char *change, const char *note,
                    char out[400]) {
    char size[32];
    size_t at = strlen(out);
    if (bytes >= d->need || bytes > d->free) return;
    bytes_text((double)bytes, size);
    snprintf(out + at, 400 - at, "%s%s (then %s%s)", at ? ", " : ", or keep less: ", change, size,
             note);
}

enum status keep_check_disk(const struct keep_disk *d, struct err *e) {
    char wanted[32], found[32], one[32], last[64], ways[400] = "";
    if (d->need <= d->free) return OK;
    bytes_text((double)d->need, wanted);
    bytes_text((double)d->free, found);
    bytes_text((double)d->one, one);
    snprintf(last, sizeof last, "--set checkpoint.every=%" PRId64, d->steps);
    add_way(d, d->ways[KEEP_ONE], "--set checkpoint.keep=1", "", ways);
    add_way(d, d->ways[KEEP_LAST_STEP], last, "; saves only after the last step", ways);
    add_way(d, d->ways[KEEP_UNPACKED], "--set archive=none",
            d->archive_only ? "; keeps no weights" : "", ways);
    add_way(d, d->alone, "--only NAME", " a row", ways);
    return FAIL(e, ERR_IO, "checkpoints need up to %s of disk, and the disk of %s has %s free: a "
                "checkpoint is %s, and a run has up to %" PRId64 " on the disk at once; free "
                "space or give --runs DIR on another disk%s", wanted, d->folder, found, one,
                d->during, ways);
}

void keep_say_disk(const struct cli *cli, const struct keep_disk *d) {
    char wanted[32];
    if (d->need == 0 || d->need > d->free) return;
    bytes_text((double)d->need, wanted);
    cli_out(cli, "the disk of %s has room: checkpoints need up to %s at once\n",
            PLAIN(d->folder), wanted);
}

json_t *keep_disk_json(const struct keep_disk *d) {
    if (d->need == 0) return json_null();
    return json_pack("{s:o,s:I,s:I,s:b}", "folder", json_from_text(d->folder), "bytes",
                     (json_int_t)d->need, "free_bytes", (json_int_t)d->free, "fits",
                     d->need <= d->free);
}

/* ---- in words -------------------------------------------------------------------------------- */

/* "those of 3 epochs and 2 milestones"; "": there are none. */
static void further_text(const struct keep *k, char out[96]) {
    char epochs[32] = "", milestones[32] = "";
    if (k->epochs) snprintf(epochs, 32, "%" PRId64 " epoch%s", k->epochs, k->epochs > 1 ? "s" : "");
    if (k->milestones)
        snprintf(milestones, 32, "%" PRId64 " milestone%s", k->milestones,
                 k->milestones > 1 ? "s" : "");
    bool any = *epochs || *milestones, both = *epochs && *milestones;
    snprintf(out, 96, "%s%s%s%s", any ? "those of " : "", epochs, both ? " and " : "", milestones);
}

static void say_kept(const struct cli *cli, const struct keep *keep, int64_t rows, int64_t bytes,
                     bool on_stdout) {
    static const char *const WHICH[] = { "", "the best checkpoint", "the last checkpoint",
                                         "the last and the best checkpoint",
                                         "the first checkpoint",
                                         "the first and the best checkpoint",
                                         "the first and the last checkpoint",
                                         "the first, the last and the best checkpoint" };
    const char *which = WHICH[keep->init << 2 | keep->last << 1 | (int)keep->best];
    char text[500], all[32], one[32], more[96];
    bytes_text((double)bytes, all);
    bytes_text((double)keep->bytes, one);
    further_text(keep, more);
    const char *and = *which && *more ? ", " : "";
    snprintf(text, sizeof text, "kept: %s%s%s of %s%s, %s; %s per checkpoint, at most %s in all",
             which, and, more,
             rows > 1 ? "each run" : "the run",
             rows > 1 ? " that is done" : ", once it is done",
             keep->packed ? "in its bundle" : "beside its bundle in <run-id>.ckpt/", one,
             all);
    if (on_stdout) cli_out(cli, "%s\n", text);
    else cli_note(cli, "%s", text);
}

static bool alike(const struct keep *a, const struct keep *b) {
    return a->init == b->init && a->last == b->last && a->best == b->best &&
           a->milestones == b->milestones && a->epochs == b->epochs && a->packed == b->packed;
}

/* Runs that keep the same checkpoints share a line, which has the size of the largest one. */
void keep_say(const struct cli *cli, const struct keep *keeps, int64_t count, bool on_stdout) {
    int64_t nothing = 0, lost = 0;
    for (int64_t i = 0; i < count; i++) {
        struct keep largest = keeps[i];
        int64_t rows = 0, bytes = 0;
        bool said = false;
        lost += largest.loses;
        if (!keeps_any(&largest)) {
            nothing += largest.asked;
            continue;
        }
        for (int64_t k = 0; k < count; k++) {
            if (!alike(&keeps[k], &keeps[i])) continue;
            said = said || k < i;
            rows++;
            bytes += keeps[k].bytes * keeps[k].counts[KEEP_AS_SET].count;
            if (keeps[k].bytes > largest.bytes) largest.bytes = keeps[k].bytes;
        }
        if (!said) say_kept(cli, &largest, rows, bytes, on_stdout);
    }
    if (nothing)
        cli_warn(cli, "no checkpoint of %s is kept at the end, although `checkpoint` is set: "
                 "checkpoint.keep is 0; --set checkpoint.keep=1 keeps the last one",
                 nothing > 1 ? "these runs" : "the run");
    if (lost)
        cli_warn(cli, "no checkpoint of %s is kept at the end, so the weights that `init` begins "
                 "with are trained in vain; --set checkpoint.every=100 keeps the last one",
                 lost > 1 ? "these runs" : "the run");
}
