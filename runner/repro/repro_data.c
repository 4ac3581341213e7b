#include "runner/repro/repro_data.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/sha256.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/cache/eval_sets.h"
#include "runner/plan/options.h"
#include "runner/record/data_other.h"

struct wanted {
    const char *path, *sha256; /* borrowed from the bundle's list */
    int64_t bytes;
    char *found; /* owned; NULL until the file is found */
    char *namesake; /* owned; a file in the searched folder with the same name; NULL: none so far */
};

/* A configuration names at most 4,096 data files, one to evaluate on and those of further sets,
 * each with up to one index. */
enum { FILES_MAX = 2 * (4096 + 1 + EVAL_SET_FILES_MAX) };

struct read_file {
    dev_t device;
    ino_t inode;
    char sha256[SHA256_HEX]; /* "": it cannot be read */
};

struct search {
    struct wanted *file; /* owned */
    int64_t count;
    struct read_file *read; /* owned: files whose bytes were hashed */
    int64_t read_count;
    int up; /* most levels above the root that a path begins with */
};

/* ---- the list -------------------------------------------------------------------------------- */

/* The number of ".." at the beginning of a foreign path, or -1 if it is empty, too long, or has
 * ".." behind a name. */
static int levels_up(const char *path) {
    int up = 0;
    bool named = false;
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.') {
            if (named || *path == '/') return -1;
            up++;
        } else if (n > 1 || (n == 1 && *at != '.')) {
            named = true;
        }
        at += n + strspn(at + n, "/");
    }
    return named && strlen(path) < PATH_CAP ? up : -1;
}

/* Raises *up to the levels of one path. */
static bool note_levels(const char *path, int *up) {
    int n = levels_up(path);
    if (n > *up) *up = n;
    return n >= 0;
}

static enum status read_list(const json_t *list, struct search *s, struct err *e) {
    size_t n = json_array_size(list);
    if (n > FILES_MAX)
        return FAIL(e, ERR_FORMAT, "the bundle lists %zu files of data; a run has at most %d", n,
                    FILES_MAX);
    s->file = calloc(n + 1, sizeof *s->file);
    if (!s->file) return FAIL(e, ERR_MEMORY, "%zu files of data", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(list, i);
        struct wanted *w = &s->file[s->count++];
        *w = (struct wanted){ .path = json_text(row, "path", ""),
                              .sha256 = json_text(row, "sha256", ""),
                              .bytes = json_int(row, "bytes") };
        if (!sha256_is_hex(w->sha256) || !note_levels(w->path, &s->up))
            return FAIL(e, ERR_FORMAT, "the bundle's list of data: entry %zu, %.200s, is not a "
                        "path with a SHA-256; \"..\" may stand only at its beginning", i + 1,
                        PLAIN(w->path));
    }
    return OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The file, if it was hashed before, under any name; else NULL. */
static const struct read_file *find_read(const struct search *s, const struct stat *info) {
    for (int64_t i = 0; i < s->read_count; i++)
        if (s->read[i].device == info->st_dev && s->read[i].inode == info->st_ino)
            return &s->read[i];
    return NULL;
}

/* Hashes the file and records it. */
static enum status hash_file(struct search *s, const char *path, const struct stat *info,
                             char hex[SHA256_HEX], struct err *e) {
    struct read_file *more = realloc(s->read, (size_t)(s->read_count + 1) * sizeof *s->read);
    if (!more) return FAIL(e, ERR_MEMORY, "%" PRId64 " files of data", s->read_count + 1);
    s->read = more;
    struct read_file *f = &more[s->read_count++];
    *f = (struct read_file){ .device = info->st_dev, .inode = info->st_ino };
    if (sha256_file(path, hex, NULL, NULL) != OK) *hex = '\0'; /* unreadable: not a match */
    memcpy(f->sha256, hex, SHA256_HEX);
    return OK;
}

/* Matches a file with the wanted ones by content. Reads only files of a wanted size, each once. */
static enum status offer(struct search *s, const char *path, const struct stat *info,
                         struct err *e) {
    char hex[SHA256_HEX] = "", *full = NULL;
    for (int64_t i = 0; i < s->count; i++) {
        struct wanted *w = &s->file[i];
        if (w->found || w->bytes != info->st_size) continue;
        if (!*hex && find_read(s, info)) return OK;
        if (!*hex) TRY(hash_file(s, path, info, hex, e));
        if (!*hex) return OK;
        if (strcmp(hex, w->sha256) != 0) continue;
        full = realpath(path, NULL); /* absolute: the link is in another folder */
        if (!full) return FAIL(e, ERR_IO, "%s: %s", path, strerror(errno));
        w->found = full;
    }
    return OK;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Notes the file beside wanted ones of its name: if none has the content, it is probably meant. */
static enum status note_name(struct search *s, const char *path, struct err *e) {
    for (int64_t i = 0; i < s->count; i++) {
        struct wanted *w = &s->file[i];
        if (w->namesake || strcmp(name_of(w->path), name_of(path)) != 0) continue;
        if (!(w->namesake = strdup(path))) return FAIL(e, ERR_MEMORY, "%.512s", path);
    }
    return OK;
}

static enum status look_in(struct search *s, const char *folder, struct err *e) {
    char *const roots[] = { (char *)folder, NULL };
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    if (!walk) return FAIL(e, ERR_IO, "open %s: %s", folder, strerror(errno));
    enum status st = OK;
    for (FTSENT *entry; st == OK && (entry = fts_read(walk)) != NULL;) {
        if (entry->fts_info == FTS_F && S_ISREG(entry->fts_statp->st_mode)) {
            st = offer(s, entry->fts_path, entry->fts_statp, e);
            if (st == OK) st = note_name(s, entry->fts_path, e);
        } else if (entry->fts_level == FTS_ROOTLEVEL && entry->fts_info == FTS_NS) {
            st = FAIL(e, ERR_ARG, "--data %s: %s", folder, strerror(entry->fts_errno));
        }
    }
    fts_close(walk);
    return st;
}

static enum status look_at_recorded(struct search *s, struct err *e) {
    for (int64_t i = 0; i < s->count; i++) {
        struct stat info;
        if (s->file[i].found || stat(s->file[i].path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        TRY(offer(s, s->file[i].path, &info, e));
    }
    return OK;
}

/* ---- laying out ------------------------------------------------------------------------------ */

static enum status lay_out(const struct search *s, const char *root, struct err *e) {
    for (int64_t i = 0; i < s->count; i++) {
        char at[PATH_CAP], folder[PATH_CAP];
        TRY(path_join(at, root, s->file[i].path, e));
        path_parent(folder, at);
        TRY(directory_make(folder, e));
        if (symlink(s->file[i].found, at) != 0 && errno != EEXIST)
            return FAIL(e, ERR_IO, "link %s: %s", at, strerror(errno));
    }
    return OK;
}

/* A line if the wanted file is not at the path, but something else is. Returns whether it is. Says
 * a file's hash only if the size is right: one of another size was not read, and is named by a
 * bundle that may be hostile. */
static bool say_other(const struct search *s, const char *path, struct text *out) {
    struct stat info;
    char words[DATA_OTHER_CAP];
    const char *odd = NULL;
    const struct read_file *read = NULL;
    if (stat(path, &info) != 0) {
        bool lost = errno == ENOENT || errno == ELOOP;
        if (lstat(path, &info) != 0) return false;
        odd = lost ? " is here, but is a link that leads to no file" : " cannot be read";
    } else if (!S_ISREG(info.st_mode)) {
        odd = " is here, but is not a regular file";
    } else {
        read = find_read(s, &info);
        if (read && !*read->sha256) odd = " is here, but cannot be read";
    }
    data_other_words(words, PLAIN(path), info.st_size, read ? read->sha256 : "");
    text_puts(out, "    ");
    text_puts(out, odd ? PLAIN(path) : words);
    text_puts(out, odd ? odd : "");
    text_puts(out, "\n");
    return true;
}

static enum status list_missing(const struct search *s, const char *folder, char **out,
                                struct err *e) {
    struct text t = { 0 };
    char line[PATH_CAP + 160], below[PATH_CAP];
    for (int64_t i = 0; i < s->count; i++) {
        const struct wanted *w = &s->file[i];
        if (w->found) continue;
        snprintf(line, sizeof line, "  %s  %" PRId64 " bytes, sha256 %s\n",
                 PLAIN(w->path), w->bytes, PLAIN(w->sha256));
        text_puts(&t, line);
        (void)say_other(s, w->path, &t);
        bool said = folder && path_join(below, folder, w->path, NULL) == OK &&
                    say_other(s, below, &t);
        if (!said && w->namesake) (void)say_other(s, w->namesake, &t);
    }
    if (t.failed) {
        text_free(&t);
        return FAIL(e, ERR_MEMORY, "a list of files");
    }
    *out = t.bytes; /* moved; NULL where nothing was written */
    return OK;
}

/* Checks the configuration's paths: none may lead out of the root and `up` folders above it, which
 * hold only listed files. */
static enum status check_named(const json_t *config, int *up, struct err *e) {
    struct data_options data;
    TRY(options_read_data(config, &data, e));
    const char *climbs = data.eval_path && !note_levels(data.eval_path, up) ? data.eval_path : NULL;
    for (int64_t i = 0; i < data.path_count; i++)
        if (!note_levels(data.paths[i], up)) climbs = data.paths[i];
    for (int64_t i = 0; i < data.set_count; i++)
        for (int64_t k = 0; k < data.sets[i].path_count; k++)
            if (!note_levels(data.sets[i].paths[k], up)) climbs = data.sets[i].paths[k];
    enum status st = OK;
    if (climbs)
        st = FAIL(e, ERR_FORMAT, "the bundle's configuration names data at %.200s; \"..\" may "
                  "stand only at the beginning of a path", PLAIN(climbs));
    options_free_data(&data);
    return st;
}

/* Makes the root so deep in the work folder that no path leads out of the work folder. */
static enum status make_root(const struct repro_source *source, const char *name, int up,
                             char root[PATH_CAP], struct err *e) {
    char deeper[PATH_CAP];
    TRY(path_join(root, source->work, name, e));
    for (int i = 0; i < up; i++) {
        TRY(path_join(deeper, root, "below", e));
        memcpy(root, deeper, PATH_CAP);
    }
    return directory_make(root, e);
}

enum status repro_stage_data(const struct repro_source *source, const json_t *list,
                             const char *name, const char *folder, char root[PATH_CAP],
                             char **missing, struct err *e) {
    struct search s = { 0 };
    *missing = NULL;
    enum status st = check_named(source->config, &s.up, e);
    if (st == OK) st = read_list(list, &s, e);
    if (st == OK && folder) st = look_in(&s, folder, e);
    if (st == OK) st = look_at_recorded(&s, e);
    if (st == OK) st = list_missing(&s, folder, missing, e);
    if (st == OK) st = make_root(source, name, s.up, root, e);
    if (st == OK && !*missing) st = lay_out(&s, root, e);
    for (int64_t i = 0; i < s.count; i++) {
        free(s.file[i].found);
        free(s.file[i].namesake);
    }
    free(s.file);
    free(s.read);
    return st;
}
