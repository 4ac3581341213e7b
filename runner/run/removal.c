#include "runner/run/removal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/base/canonical.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_notes.h"
#include "runner/bundle/run_view.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_lock.h"

/* ---- a run ----------------------------------------------------------------------------------- */

/* What the removal of a run concerns. */
struct parts {
    char stem[PATH_CAP], bundle[PATH_CAP], kept[PATH_CAP], notes[PATH_CAP], band[PATH_CAP],
        partial[PATH_CAP];
};

static enum status find_parts(const char *path, struct parts *p, struct err *e) {
    run_stem(p->stem, path);
    TRY(removal_part(p->bundle, p->stem, ".tar.zst", e));
    TRY(removal_part(p->band, p->stem, ".band.json", e));
    TRY(removal_part(p->partial, p->stem, ".tar.zst.partial", e));
    TRY(run_notes_path(p->notes, path, e));
    return kept_folder(p->kept, path, e);
}

/* ERR_ARG unless the path is a run, readable or with a run's file name; *id: "" if not readable. */
static enum status check_run(const char *path, char id[160], struct err *e) {
    struct stat info;
    struct run_view view;
    struct err why = { 0 };
    char stem[PATH_CAP], base[PATH_CAP];
    id[0] = '\0';
    if (lstat(path, &info) != 0) return FAIL(e, ERR_ARG, "%s: %s", path, strerror(errno));
    if (S_ISLNK(info.st_mode))
        return FAIL(e, ERR_ARG, "%s is a link; name the run that it leads to, or remove the link",
                    path);
    if (run_view_load(path, RUN_VIEW_BRIEF, &view, &why) == OK) {
        snprintf(id, 160, "%s", json_text(view.run, "id", ""));
        run_view_free(&view);
        return OK;
    }
    run_stem(stem, path);
    path_base(base, stem);
    if (run_dir_is_id(base)) return OK;
    return FAIL(e, ERR_ARG, "%s; its name is not a run's id, so it may be something else: remove "
                "it yourself", why.text);
}

static enum status check_dead(const char *stem, struct err *e) {
    struct run_writer writer;
    if (!path_is_directory(stem) || run_lock_look(stem, &writer) == RUN_LIFE_NONE) return OK;
    return FAIL(e, ERR_STATE, "%s is running%s%s; stop it first", stem, *writer.host ? " on " : "",
                writer.host);
}

/* Adds the directory beside a bundle if it is the same run's: any other may have this name too. */
static enum status add_directory(struct removal *r, const char *stem, const char *path,
                                 const char *id, struct err *e) {
    char file[PATH_CAP];
    json_t *run = NULL;
    if (!path_is_directory(stem)) return OK;
    TRY(path_join(file, stem, DOCUMENT_run, e));
    bool same = json_file_read(file, &run, NULL) == OK && *id &&
                !strcmp(json_text(run, "id", ""), id);
    json_decref(run);
    if (same || !strcmp(stem, path)) return removal_add(r, stem, "directory", e);
    return removal_spare(r, stem, "it is not known to be the directory of this run", e);
}

enum status removal_add_run(struct removal *r, const char *path, const struct run_needs *needs,
                            struct err *e) {
    struct parts p;
    char id[160];
    TRY(check_run(path, id, e));
    TRY(find_parts(path, &p, e));
    TRY(check_dead(p.stem, e));
    const char *const own[] = { p.stem, p.bundle, p.kept };
    const struct run_need *need = run_needs_of(needs, id, -1, own, 3);
    if (need)
        return FAIL(e, ERR_STATE, "%s began with a checkpoint of %s (step %lld) and needs it to be "
                    "repeated; remove both in one command, or keep both", need->child, path,
                    (long long)need->step);
    if (*needs->unread)
        return FAIL(e, ERR_STATE, "%s cannot be read, so whether it began with %s is not known; "
                    "repair it, or remove it first", needs->unread, path);
    TRY(add_directory(r, p.stem, path, id, e));
    TRY(removal_add(r, p.kept, "kept checkpoints", e));
    TRY(removal_add(r, p.band, "seed band", e));
    TRY(removal_add(r, p.partial, "half-written archive", e));
    TRY(removal_add(r, p.notes, "tags and note", e));
    return removal_add(r, p.bundle, "bundle", e);
}
