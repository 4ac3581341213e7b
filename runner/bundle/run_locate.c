/* Finds a run by a user's text: a path, the beginning of an id, or a form of run_pick.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/checkpoint_files.h"
#include "runner/bundle/run_pick.h"
#include "runner/bundle/run_view.h"
#include "runner/record/documents.h"

static const char SUFFIX[] = ".tar.zst";

static bool has_suffix(const char *name) {
    size_t n = strlen(name), s = sizeof SUFFIX - 1;
    return n > s && strcmp(name + n - s, SUFFIX) == 0;
}

void run_stem(char out[PATH_CAP], const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    snprintf(out, PATH_CAP, "%.*s", (int)n, path);
    if (has_suffix(out)) out[strlen(out) - (sizeof SUFFIX - 1)] = '\0';
}

enum status run_packed(const char *dir, char out[PATH_CAP], struct err *e) {
    char stem[PATH_CAP];
    run_stem(stem, dir);
    int n = snprintf(out, PATH_CAP, "%s%s", stem, SUFFIX);
    if (n < PATH_CAP && path_exists(out)) return OK;
    return FAIL(e, ERR_ARG, "%s is gone, and there is no %s%s: the run was removed or renamed", dir,
                stem, SUFFIX);
}

/* A directory is a run if it has a run.json; a file is one if its name ends in .tar.zst. */
static bool is_run(const char *runs_dir, const char *name, struct err *e) {
    char path[PATH_CAP], inner[PATH_CAP];
    if (name[0] == '.' || path_join(path, runs_dir, name, e) != OK) return false;
    if (!path_is_directory(path)) return has_suffix(name);
    return path_join(inner, path, DOCUMENT_run, e) == OK && path_exists(inner);
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct tree_file *)a)->path, ((const struct tree_file *)b)->path);
}

static enum status append(struct tree *out, const char *runs_dir, const char *name,
                          struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, runs_dir, name, e));
    struct tree_file *file = realloc(out->file, (size_t)(out->count + 1) * sizeof *file);
    if (!file) return FAIL(e, ERR_MEMORY, "%lld runs", (long long)out->count + 1);
    out->file = file;
    char *copy = strdup(path);
    if (!copy) return FAIL(e, ERR_MEMORY, "the name %s", path);
    out->file[out->count++] = (struct tree_file){ .path = copy };
    return OK;
}

/* Drops the bundle X.tar.zst if the directory X is in the list too: they are the same run. Other
 * names may stand between the two in the sorted list, so each file searches for its directory. */
static void drop_twins(struct tree *t) {
    int64_t kept = 0;
    for (int64_t i = 0; i < t->count; i++) {
        char *path = t->file[i].path;
        bool twin = false;
        if (has_suffix(path)) {
            path[strlen(path) - (sizeof SUFFIX - 1)] = 0;
            struct tree_file key = { .path = path };
            twin = bsearch(&key, t->file, (size_t)kept, sizeof key, by_path) != NULL;
            path[strlen(path)] = '.';
        }
        if (twin) free(path);
        else t->file[kept++] = t->file[i];
    }
    t->count = kept;
}

enum { STAMP = 16 }; /* 20261128T195717Z */

/* Whether a name begins as the program begins an id. */
static bool is_stamped(const char *name) {
    return strlen(name) > STAMP && name[8] == 'T' && name[STAMP - 1] == 'Z';
}

/* Whether both runs' ids say that they began in the same second. */
static bool same_second(const char *a, const char *b) {
    const char *x = strrchr(a, '/') + 1, *y = strrchr(b, '/') + 1;
    return strncmp(x, y, STAMP) == 0 && is_stamped(x);
}

static bool changed_before(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0) return false;
    return x.st_mtim.tv_sec != y.st_mtim.tv_sec ? x.st_mtim.tv_sec < y.st_mtim.tv_sec
                                                : x.st_mtim.tv_nsec < y.st_mtim.tv_nsec;
}

/* The names of runs of one second are in no order of time. Orders them by their last change. */
static void order_within_seconds(struct tree *t) {
    for (int64_t i = 1; i < t->count; i++)
        for (int64_t k = i; k > 0 && same_second(t->file[k - 1].path, t->file[k].path) &&
             changed_before(t->file[k].path, t->file[k - 1].path); k--) {
            struct tree_file later = t->file[k - 1];
            t->file[k - 1] = t->file[k];
            t->file[k] = later;
        }
}

enum status run_list(const char *runs_dir, struct tree *out, struct err *e) {
    *out = (struct tree){ 0 };
    DIR *dir = opendir(runs_dir);
    if (!dir) return errno == ENOENT ? OK : FAIL(e, ERR_IO, "%s: %s", runs_dir, strerror(errno));
    enum status st = OK;
    const struct dirent *entry;
    while (st == OK && (entry = readdir(dir)))
        if (is_run(runs_dir, entry->d_name, e)) st = append(out, runs_dir, entry->d_name, e);
    closedir(dir);
    if (st != OK) {
        tree_free(out);
        return st;
    }
    if (out->count) qsort(out->file, (size_t)out->count, sizeof *out->file, by_path);
    drop_twins(out);
    order_within_seconds(out);
    return OK;
}

/* ---- what is no run ------------------------------------------------------------------------ */

static bool holds(const char *folder, const char *name) {
    char path[PATH_CAP];
    return path_join(path, folder, name, NULL) == OK && path_exists(path);
}

/* Cuts the end of the name that a folder of kept checkpoints has: what is left is the path of its
 * run's directory. False: the name has no such end. */
static bool cut_kept(char *folder) {
    static const char *const ENDS[] = { ".ckpt", ".checkpoints" };
    size_t n = strlen(folder);
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        size_t m = strlen(ENDS[i]);
        if (n <= m || strcmp(folder + n - m, ENDS[i]) != 0 || folder[n - m - 1] == '/') continue;
        folder[n - m] = '\0';
        return true;
    }
    return false;
}

/* The checkpoints beside a bundle have the name of its run, so they are easily taken for it. */
static enum status refuse_checkpoints(const char *folder, struct err *e) {
    char stem[PATH_CAP], bundle[PATH_CAP + sizeof SUFFIX];
    bool one = holds(folder, CHECKPOINT_JSON);
    if (holds(folder, DOCUMENT_run)) return OK;
    if (one) path_parent(stem, folder);
    else run_stem(stem, folder);
    const char *what = one ? "a checkpoint" : "the folder of checkpoints";
    if (!cut_kept(stem))
        return one ? FAIL(e, ERR_ARG, "%s is a checkpoint, not a run; name the run that wrote it",
                          folder)
                   : OK;
    const char *slash = strrchr(stem, '/'), *id = slash ? slash + 1 : stem;
    snprintf(bundle, sizeof bundle, "%s%s", stem, SUFFIX);
    if (path_exists(bundle) || holds(stem, DOCUMENT_run))
        return FAIL(e, ERR_ARG, "%s is %s of the run %s, not the run; name the run: %s", folder,
                    what, id, path_exists(bundle) ? bundle : stem);
    return FAIL(e, ERR_ARG, "%s is %s of the run %s, not the run, and there is no %s beside it: "
                "name the run where it is now", folder, what, id, bundle);
}

/* The folder of runs itself is easily given for a run of it. */
static enum status refuse_runs(const char *folder, struct err *e) {
    struct tree runs;
    enum status st = OK;
    if (holds(folder, DOCUMENT_run)) return OK;
    TRY(run_list(folder, &runs, e));
    if (runs.count)
        st = FAIL(e, ERR_ARG, "%s is a folder of runs, not a run; name one of them: the "
                  "newest is %s, and `fp8lab list %s` lists them", folder,
                  runs.file[runs.count - 1].path, folder);
    tree_free(&runs);
    return st;
}

/* A directory that a user took for a run. */
static enum status refuse_others(const char *folder, struct err *e) {
    TRY(refuse_checkpoints(folder, e));
    return refuse_runs(folder, e);
}

/* ---- a run by its name or its id ------------------------------------------------------------- */

static const char *base_of(const struct tree_file *run) { return strrchr(run->path, '/') + 1; }

static bool begins(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Whether the name is the text and no more, apart from the suffix. */
static bool is_whole(const char *name, const char *text) {
    const char *rest = name + strlen(text);
    return !*rest || !strcmp(rest, SUFFIX);
}

/* Whether the id in the run begins with the text. */
static bool has_id(const char *path, const char *text) {
    struct run_view view;
    if (run_view_load(path, RUN_VIEW_BRIEF, &view, NULL) != OK) return false;
    bool found = begins(json_text(view.run, "id", ""), text);
    run_view_free(&view);
    return found;
}

/* *found becomes the last run whose id begins with the text, and not its name. Returns how many
 * there are. `stamped`: of the names that begin as an id does, else of the others. */
static int64_t find_ids(const struct tree *runs, const char *text, bool stamped, int64_t *found) {
    int64_t matches = 0;
    for (int64_t i = 0; i < runs->count; i++) {
        const char *base = base_of(&runs->file[i]);
        if (begins(base, text) || is_stamped(base) != stamped) continue;
        if (!has_id(runs->file[i].path, text)) continue;
        matches++;
        *found = i;
    }
    return matches;
}

/* *found becomes the last run whose name or id begins with the text. Returns their number. A name
 * that is the whole text counts alone. Runs that were renamed are opened for
 * their ids. A name with a stamp is rarely one of these, so it is opened only if nothing else
 * matches. */
static int64_t find_runs(const struct tree *runs, const char *text, int64_t *found) {
    int64_t matches = 0;
    *found = -1;
    for (int64_t i = 0; *text && i < runs->count; i++) {
        if (!begins(base_of(&runs->file[i]), text)) continue;
        matches++;
        *found = i;
        if (is_whole(base_of(&runs->file[i]), text)) return 1;
    }
    bool digit = *text >= '0' && *text <= '9'; /* as each id begins */
    if (digit) matches += find_ids(runs, text, false, found);
    if (digit && !matches) matches = find_ids(runs, text, true, found);
    return matches;
}

enum status run_locate(const char *text, const char *runs_dir, char out[PATH_CAP],
                       struct err *e) {
    return run_locate_among(text, runs_dir, RUNS_ALL, out, e);
}

enum status run_locate_among(const char *text, const char *runs_dir, enum run_counts counts,
                             char out[PATH_CAP], struct err *e) {
    struct tree runs;
    int64_t found = -1, matches = 1;
    struct stat info;
    if (stat(text, &info) == 0) {
        snprintf(out, PATH_CAP, "%s", text);
        return S_ISDIR(info.st_mode) ? refuse_others(text, e) : OK;
    }
    int why = errno;
    if (lstat(text, &info) == 0)
        return FAIL(e, ERR_ARG, "%s is a link to nothing: %s", text, strerror(why));
    if (why != ENOENT) return FAIL(e, ERR_ARG, "%s: %s", text, strerror(why));
    TRY(run_list(runs_dir, &runs, e));
    enum status st = OK;
    const struct pick_request q = { text, &runs, runs_dir, counts };
    if (run_is_form(text)) st = run_pick(&q, &found, e);
    else matches = find_runs(&runs, text, &found);
    if (st == OK && matches == 1) snprintf(out, PATH_CAP, "%s", runs.file[found].path);
    else if (st == OK && matches > 1)
        st = FAIL(e, ERR_ARG, "%lld runs begin with %s, the last of them %s; give more of the id",
                  (long long)matches, text, runs.file[found].path);
    else if (st == OK)
        st = FAIL(e, ERR_ARG, "%s is neither a path nor the beginning of a run's id in %s", text,
                  runs_dir);
    tree_free(&runs);
    return st;
}
