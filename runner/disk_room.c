#include "runner/disk_room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/base/build_info.h"
#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/run_view.h"
#include "runner/cache/cache.h"
#include "runner/cache/cache_room.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"

/* The bytes of a directory to resume that the run takes over, its checkpoints, or replaces, its
 * bundle. A bundle alone frees nothing at first: it is unpacked beside itself. */
static enum status bytes_there(const char *directory, int64_t *out, struct err *e) {
    char inside[PATH_CAP], aside[PATH_CAP], bundle[PATH_CAP + 16];
    struct stat info;
    TRY(path_join(inside, directory, RUN_PATH_checkpoints, e));
    TRY(path_join(aside, directory, ARCHIVE_ASIDE, e));
    snprintf(bundle, sizeof bundle, "%s.tar.zst", directory);
    *out = tree_bytes(inside) + tree_bytes(aside);
    if (stat(bundle, &info) == 0) *out += info.st_size;
    return OK;
}

enum status disk_room_row(const struct row_state *state, struct keep *keep, struct err *e) {
    if (state->kind == ROW_ENDED) *keep = (struct keep){ 0 };
    if (state->kind != ROW_RESUMABLE || !path_is_directory(state->path)) return OK;
    return bytes_there(state->path, &keep->there, e);
}

/* Whether the run is of this row and this program, as far as is known without its data. */
static bool is_of_row(const struct resolved_run *row, const struct run_view *view) {
    const json_t *inputs = json_object_get(view->run, "inputs");
    return !strcmp(json_text(inputs, "config", ""), row->config_sha256) &&
           !strcmp(json_text(inputs, "code", ""), build_info().code_sha256) &&
           !strcmp(json_text(inputs, "parent", ""), "");
}

/* Whether a later row is a repeat of this one (script/repeat.h). */
static bool has_repeat(const struct resolution *r, int64_t row) {
    for (int64_t i = row + 1; i < r->run_count; i++)
        if (!strcmp(r->runs[i].config_sha256, r->runs[row].config_sha256)) return true;
    return false;
}

/* Adds a run of the folder to the state of its row, of repeats to the first that is not done. An
 * open run is resumed, once it is closed. */
static void note_run(const struct resolution *r, const struct run_view *view,
                     struct row_state *states) {
    bool open = !strcmp(json_text(view->run, "status", ""), "running");
    for (int64_t i = 0; i < r->run_count; i++) {
        struct row_state *s = &states[i];
        if (!is_of_row(&r->runs[i], view)) continue;
        if (s->kind == ROW_ENDED && has_repeat(r, i)) continue;
        row_state_note(s, view);
        if (!open || s->kind != ROW_NEW) return;
        s->kind = ROW_RESUMABLE;
        snprintf(s->path, sizeof s->path, "%s", view->path);
        return;
    }
}

/* Takes from `keeps` what the rows' runs in the folder need no more. */
static enum status take_away(const char *folder, const struct resolution *r, struct keep *keeps,
                             struct err *e) {
    struct tree runs;
    struct row_state *states = calloc((size_t)r->run_count + 1, sizeof *states);
    if (!states) return FAIL(e, ERR_MEMORY, "%" PRId64 " runs", r->run_count);
    if (run_list(folder, &runs, NULL) != OK) { /* it has no run to resume */
        free(states);
        return OK;
    }
    for (int64_t i = 0; i < runs.count; i++) {
        struct run_view view;
        if (run_view_load(runs.file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) continue;
        note_run(r, &view, states);
        run_view_free(&view);
    }
    tree_free(&runs);
    enum status st = OK;
    for (int64_t i = 0; i < r->run_count && st == OK; i++)
        st = disk_room_row(&states[i], &keeps[i], e);
    free(states);
    return st;
}

enum status disk_room_find(const char *folder, const struct resolution *r,
                           const struct keep *keeps, struct keep_disk *out, struct err *e) {
    TRY(keep_disk(folder, keeps, r->run_count, out, e));
    if (out->need <= out->free) return OK;
    struct keep *less = calloc((size_t)r->run_count + 1, sizeof *less);
    if (!less) return FAIL(e, ERR_MEMORY, "%" PRId64 " runs", r->run_count);
    memcpy(less, keeps, (size_t)r->run_count * sizeof *less);
    enum status st = take_away(folder, r, less, e);
    if (st == OK) st = keep_disk(folder, less, r->run_count, out, e);
    free(less);
    return st;
}

/* Whether a row asks for a machine that this one is not: `run` would refuse it before it looks at
 * the disk. */
static bool is_for_another(const struct resolution *r) {
    json_t *facts = NULL;
    struct err ignored; /* without facts nothing is known against this machine */
    bool another = false;
    if (facts_gather(&facts, NULL, 0, &ignored) != OK) return false;
    for (int64_t i = 0; i < r->run_count && !another; i++) {
        json_t *mismatch = NULL;
        another = hardware_match(r->runs[i].config_json, facts, &mismatch, &ignored) == OK &&
                  mismatch;
        json_decref(mismatch);
    }
    json_decref(facts);
    return another;
}

int disk_room_check(const struct cli *cli, const struct resolution *r,
                    const struct keep_disk *disk) {
    struct err why = { 0 };
    if (keep_check_disk(disk, &why) == OK) return EXIT_OK;
    if (is_for_another(r)) {
        cli_warn(cli, "%s; the script asks for another machine, whose disk may have room",
                 why.text);
        return EXIT_OK;
    }
    cli_warn(cli, "`run` would not start: %s", why.text);
    return exit_code_of(why.code);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Whether a row before has the same data, and so the same tokens. */
static bool has_data_before(const struct resolution *r, int64_t row) {
    const json_t *data = json_object_get(r->runs[row].config_json, "data");
    for (int64_t i = 0; i < row; i++)
        if (json_equal(json_object_get(r->runs[i].config_json, "data"), data)) return true;
    return false;
}

enum status token_room_find(const char *runs, const char *data_root, const struct resolution *r,
                            struct token_room *out, struct err *e) {
    *out = (struct token_room){ 0 };
    TRY(cache_folder(out->folder, NULL, runs, e));
    for (int64_t i = 0; i < r->run_count; i++)
        if (!has_data_before(r, i))
            out->most += cache_room(r->runs[i].config_json, data_root, out->folder);
    return out->most ? keep_free_bytes(out->folder, &out->free, e) : OK;
}

void token_room_say(const struct cli *cli, const struct token_room *room) {
    char most[32];
    if (room->most == 0) return;
    cli_out(cli, "the tokens of the text need about %s of disk at most, in %s\n",
            bytes_text((double)room->most, most), PLAIN(room->folder));
}

void token_room_warn(const struct cli *cli, const struct token_room *room,
                     const struct keep_disk *disk) {
    char most[32], beside[32], found[32];
    if (room->most == 0 || room->most + disk->need <= room->free) return;
    bytes_text((double)room->most, most);
    bytes_text((double)disk->need, beside);
    bytes_text((double)room->free, found);
    cli_warn(cli, "the disk of %s has %s free, and the tokens of the text may need up to about %s "
             "beside %s of checkpoints: free space, or give `run` --cache DIR on another disk",
             PLAIN(room->folder), found, most, beside);
}

json_t *token_room_json(const struct token_room *room) {
    if (room->most == 0) return json_null();
    return json_pack("{s:o,s:I,s:I}", "folder", json_from_text(room->folder), "bytes_max",
                     (json_int_t)room->most, "free_bytes", (json_int_t)room->free);
}
