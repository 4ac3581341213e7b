/* What runs left behind: found by `gc`. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/file_tree.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/guard.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_lock.h"
#include "runner/run/removal.h"

static bool ends_in(const char *name, const char *suffix) {
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && !strcmp(name + n - s, suffix);
}

static bool is_live(const char *directory) {
    struct run_writer writer;
    return path_is_directory(directory) && run_lock_look(directory, &writer) != RUN_LIFE_NONE;
}

/* ---- halves of something --------------------------------------------------------------------- */

/* A half-removed run, or the archive that a dead process was writing. The archive of a process on
 * another host without a directory here grew lately if that process lives. */
static enum status add_half(struct removal *r, const char *runs, const char *name,
                            struct err *e) {
    static const char PARTIAL[] = ".tar.zst.partial";
    char path[PATH_CAP], stem[PATH_CAP];
    TRY(path_join(path, runs, name, e));
    if (*name == '.' && ends_in(name, REMOVAL_SUFFIX) && path_is_directory(path))
        return removal_add(r, path, "half-removed run", e);
    if (!ends_in(name, PARTIAL) || path_is_directory(path)) return OK;
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(path) - (sizeof PARTIAL - 1)), path);
    if (!run_dir_is_id(stem + strlen(runs) + 1)) return OK;
    if (!path_is_directory(stem))
        return removal_spare(r, path, "its run's directory is not here", e);
    if (is_live(stem)) return OK;
    return removal_add(r, path, "half-written archive", e);
}

/* Kept checkpoints without their run stay: the bundle may be elsewhere. They may be large, and no
 * other command lists them. */
static enum status spare_orphan(struct removal *r, const char *runs, const char *name,
                                struct err *e) {
    static const char KEPT[] = ".ckpt"; /* bundle/kept.h */
    char id[NAME_MAX + 1], path[PATH_CAP], run[PATH_CAP], bundle[PATH_CAP];
    char size[BYTES_TEXT_CAP], why[160];
    if (!ends_in(name, KEPT)) return OK;
    snprintf(id, sizeof id, "%.*s", (int)(strlen(name) - (sizeof KEPT - 1)), name);
    TRY(path_join(path, runs, name, e));
    TRY(path_join(run, runs, id, e));
    TRY(removal_part(bundle, run, ".tar.zst", e));
    if (!run_dir_is_id(id) || path_exists(run) || path_exists(bundle)) return OK;
    snprintf(why, sizeof why, "%s of kept checkpoints, whose bundle is not here; move the folder "
             "beside it, or delete it", bytes_text((double)tree_bytes(path), size));
    return removal_spare(r, path, why, e);
}

static enum status add_halves(struct removal *r, const char *runs, bool *starting,
                              struct err *e) {
    struct dirent **entries = NULL;
    int count = scandir(runs, &entries, NULL, alphasort);
    enum status st = OK;
    if (count < 0)
        return errno == ENOENT ? OK : FAIL(e, ERR_IO, "%s: %s", runs, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        *starting = *starting || (*name == '.' && ends_in(name, ".new"));
        if (st == OK && r) st = add_half(r, runs, name, e);
        if (st == OK && r) st = spare_orphan(r, runs, name, e);
        free(entries[i]);
    }
    free(entries);
    return st;
}

/* ---- directories beside their bundles -------------------------------------------------------- */

/* Whether everything of a done run's directory is in its bundle too: both were verified just now,
 * the directory has no other file, and no checkpoint stands outside the bag. */
static bool is_double(const char *directory, const char *bundle, char why[200]) {
    char aside[PATH_CAP];
    struct run_view packed, open;
    struct unpack_report report;
    struct err e = { 0 };
    why[0] = '\0';
    if (run_view_load(bundle, RUN_VIEW_BRIEF, &packed, &e) != OK) {
        snprintf(why, 200, "its bundle cannot be read: %.150s", e.text);
        return false;
    }
    enum status st = run_view_load(directory, RUN_VIEW_BRIEF, &open, &e);
    bool same = st == OK && !strcmp(packed.identity, open.identity) && *open.identity;
    bool done = !strcmp(json_text(packed.run, "status", ""), "done");
    if (st == OK) run_view_free(&open);
    run_view_free(&packed);
    if (!done) return false; /* it can be resumed */
    if (!same)
        snprintf(why, 200, "it is not what its bundle holds");
    else if (path_join(aside, directory, ARCHIVE_ASIDE, &e) != OK || path_exists(aside))
        snprintf(why, 200, "it holds checkpoints that its bundle lacks");
    else if (bundle_unpack(directory, NULL, &BUNDLE_LIMITS, &report, &e) != OK)
        snprintf(why, 200, "it is not what its bundle holds: %.150s", e.text);
    else if (bundle_unpack(bundle, NULL, &BUNDLE_LIMITS, &report, &e) != OK)
        snprintf(why, 200, "its bundle is damaged: %.150s", e.text);
    return !*why;
}

enum status removal_add_garbage(struct removal *r, const char *runs, struct err *e) {
    struct tree all;
    bool starting = false;
    TRY(add_halves(r, runs, &starting, e));
    TRY(run_list(runs, &all, e));
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < all.count; i++) {
        const char *path = all.file[i].path;
        char bundle[PATH_CAP], why[200];
        if (!path_is_directory(path) || is_live(path)) continue;
        st = removal_part(bundle, path, ".tar.zst", e);
        if (st != OK || !path_exists(bundle)) continue;
        if (is_double(path, bundle, why)) st = removal_add(r, path, "its bundle holds the same", e);
        else if (*why) st = removal_spare(r, path, why, e);
    }
    tree_free(&all);
    return st;
}

/* ---- kept checkpoints ------------------------------------------------------------------------ */

/* Whether the run keeps this checkpoint as its last or its best. */
static bool is_chosen(const json_t *row) {
    const json_t *as;
    size_t i;
    json_array_foreach(json_object_get(row, "as"), i, as)
        if (json_is_string(as) && (!strcmp(json_string_value(as), "last") ||
                                   !strcmp(json_string_value(as), "best")))
            return true;
    return false;
}

static enum status add_kept(struct removal *r, const struct run_view *v,
                            const struct run_needs *needs, enum removal_checkpoints which,
                            struct err *e) {
    char folder[PATH_CAP], step[CHECKPOINT_PATH_CAP], why[200], as[64];
    const json_t *row;
    size_t i;
    TRY(kept_folder(folder, v->path, e));
    json_array_foreach(json_object_get(v->run, "kept"), i, row) {
        int64_t number = json_int(row, "step");
        if (strcmp(json_text(row, "where", ""), "beside") != 0) continue;
        if (which == REMOVAL_OLD && is_chosen(row)) continue;
        TRY(checkpoint_path(step, folder, number, e));
        if (!path_is_directory(step)) continue;
        const char *const own[] = { step };
        const struct run_need *need =
            run_needs_of(needs, json_text(v->run, "id", ""), number, own, 1);
        snprintf(why, sizeof why, "%.150s began with it", need ? need->child : "");
        kept_text(row, as);
        if (need) TRY(removal_spare(r, step, why, e));
        else TRY(removal_add(r, step, as, e));
    }
    return OK;
}

static enum status add_all_kept(struct removal *r, const char *runs, const struct run_needs *needs,
                                enum removal_checkpoints which, struct err *e) {
    struct tree all;
    TRY(run_list(runs, &all, e));
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < all.count; i++) {
        struct run_view view;
        if (is_live(all.file[i].path) ||
            run_view_load(all.file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK)
            continue;
        bool done = !strcmp(json_text(view.run, "status", ""), "done");
        if (done) st = add_kept(r, &view, needs, which, e);
        run_view_free(&view);
    }
    tree_free(&all);
    return st;
}

enum status removal_add_checkpoints(struct removal *r, const char *runs,
                                    enum removal_checkpoints which, struct err *e) {
    struct run_needs needs;
    bool starting = false;
    TRY(add_halves(NULL, runs, &starting, e));
    if (starting)
        return removal_spare(r, runs, "all its checkpoints stay: a run is being started in it", e);
    TRY(run_needs_find(runs, NULL, 0, &needs, e));
    enum status st = *needs.unread
                         ? removal_spare(r, needs.unread, "it cannot be read, so all checkpoints "
                                         "stay: it may need one", e)
                         : add_all_kept(r, runs, &needs, which, e);
    run_needs_free(&needs);
    return st;
}
