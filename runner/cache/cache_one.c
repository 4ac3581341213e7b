#include "runner/cache/cache_one.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/bytes_text.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_chat.h"
#include "runner/cache/cache_key.h"
#include "runner/ingest/tokenise.h"
#include "runner/ingest/tokenise_screen.h"

/* The index is renamed last and removed first: without it the others are no data. */
static const char *const SUFFIX[] = { ".idx", ".bin", ".json", ".loss", NULL };
enum { NAME_CAP = PATH_CAP + 16 };

enum status cache_folder(char out[PATH_CAP], const char *named, const char *runs, struct err *e) {
    if (!named) return path_join(out, runs, "cache", e);
    snprintf(out, PATH_CAP, "%s", named);
    return OK;
}

void cache_entry_free(struct cache_entry *x) {
    json_decref(x->record);
    json_decref(x->kept);
    x->record = x->kept = NULL;
}

/* ---- what is there --------------------------------------------------------------------------- */

static int64_t size_of(const char *prefix, const char *suffix) {
    char name[NAME_CAP];
    struct stat is;
    snprintf(name, sizeof name, "%s%s", prefix, suffix);
    return stat(name, &is) == 0 ? (int64_t)is.st_size : -1;
}

static void remove_files(const char *prefix) {
    char name[NAME_CAP];
    for (int i = 0; SUFFIX[i]; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, SUFFIX[i]);
        (void)unlink(name); /* a file that cannot be removed is reported when it is written */
    }
}

/* Whether the index is the one that was written. It is small; cache_is_intact() checks the rest. */
static enum status check_index(const json_t *d, const char *prefix, bool *whole, struct err *e) {
    const char *then = json_text(json_object_get(d, "files"), "idx", "");
    char name[NAME_CAP], now[SHA256_HEX];
    snprintf(name, sizeof name, "%s.idx", prefix);
    enum status st = sha256_file(name, now, NULL, e);
    *whole = st == OK && !strcmp(now, then);
    return st == ERR_MEMORY ? st : OK; /* one that cannot be read is written again */
}

/* Whether the description is that of this text and these files. */
static bool describes(const json_t *d, const struct cache_text *t, const char *prefix) {
    const json_t *shards = json_object_get(d, "shards"), *sources = json_object_get(d, "sources");
    int64_t tokens = json_int(shards, "tokens");
    const char *tokenizer = json_text(json_object_get(d, "tokenizer"), "sha256", "");
    struct tokenizer_facts f = tokenizer_facts(t->choice.tokenizer);
    bool same = json_array_size(sources) == json_array_size(t->sources) &&
                !strcmp(tokenizer, f.sha256);
    for (size_t i = 0; same && i < json_array_size(sources); i++)
        same = !strcmp(json_text(json_array_get(sources, i), "sha256", ""),
                       json_text(json_array_get(t->sources, i), "sha256", "?"));
    return same && size_of(prefix, ".bin") == tokens * json_int(shards, "token_bytes");
}

/* *found is false if the tokens are not there, or not as their description says. */
static enum status find(const struct cache_text *t, const char *prefix, struct cache_entry *out,
                        bool *found, struct err *e) {
    char name[NAME_CAP];
    json_t *d = NULL;
    *found = false;
    if (size_of(prefix, ".idx") < 0) return OK;
    snprintf(name, sizeof name, "%s.json", prefix);
    enum status st = json_file_read(name, &d, e);
    if (st != OK) return st == ERR_MEMORY ? st : OK; /* it is written again */
    if (describes(d, t, prefix)) st = check_index(d, prefix, found, e);
    if (*found) {
        snprintf(out->prefix, PATH_CAP, "%s", prefix);
        out->record = cache_record(t, prefix, d);
        out->kept = json_incref(t->kept);
    }
    json_decref(d);
    return *found && !out->record ? FAIL(e, ERR_MEMORY, "the description of the tokens") : st;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Another process may remove the lock's file between open and flock. */
static enum status lock(const struct cli *cli, const char *prefix, int *fd, struct err *e) {
    char name[NAME_CAP];
    struct stat mine, there;
    snprintf(name, sizeof name, "%s.lock", prefix);
    for (;;) {
        *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (*fd < 0)
            return FAIL(e, ERR_CONFIG, "the cache of tokens cannot be written: create %s: %s; "
                        "--cache DIR names another folder", name, strerror(errno));
        int rc = flock(*fd, LOCK_EX | LOCK_NB);
        if (rc != 0 && errno == EWOULDBLOCK) {
            cli_note(cli, "another process is tokenising this text; waiting for it");
            do rc = flock(*fd, LOCK_EX);
            while (rc != 0 && errno == EINTR);
        }
        if (rc != 0) {
            int why = errno;
            close(*fd);
            return FAIL(e, ERR_CONFIG, "lock %s: %s; --cache DIR names another folder", name,
                        strerror(why));
        }
        if (fstat(*fd, &mine) == 0 && stat(name, &there) == 0 && mine.st_ino == there.st_ino)
            return OK;
        close(*fd);
    }
}

static void unlock(const char *prefix, int fd) {
    char name[NAME_CAP];
    snprintf(name, sizeof name, "%s.lock", prefix);
    (void)unlink(name);
    close(fd);
}

static enum status check_unchanged(const struct cache_text *t, const json_t *description,
                                   struct err *e) {
    const json_t *sources = json_object_get(description, "sources"), *row;
    size_t i;
    json_array_foreach(sources, i, row)
        if (strcmp(json_text(row, "sha256", ""),
                   json_text(json_array_get(t->sources, i), "sha256", "?")) != 0)
            return FAIL(e, ERR_CONFIG, "%s changed while it was read; start again when it is "
                        "complete", t->paths[i]);
    return OK;
}

/* Adds the hash of each file to the description beside them, by which damage is found. */
static enum status describe_files(const char *prefix, json_t *description, struct err *e) {
    char name[NAME_CAP], digest[SHA256_HEX];
    bool failed = false;
    json_t *files = json_object();
    for (int i = 0; files && SUFFIX[i]; i++) {
        if (!strcmp(SUFFIX[i], ".json") || size_of(prefix, SUFFIX[i]) < 0) continue;
        snprintf(name, sizeof name, "%s%s", prefix, SUFFIX[i]);
        enum status st = sha256_file(name, digest, NULL, e);
        if (st == OK) json_put(files, SUFFIX[i] + 1, json_string(digest), &failed);
        if (st != OK) json_decref(files);
        TRY(st);
    }
    json_put(description, "files", files, &failed);
    if (failed) return FAIL(e, ERR_MEMORY, "the hashes of %s", prefix);
    snprintf(name, sizeof name, "%s.json", prefix);
    return json_file_write(name, description, e);
}

static void say_made(const struct cli *cli, const char *prefix, const struct tokenise_result *r) {
    cli_note(cli, "tokenised: %" PRId64 " tokens in %" PRId64 " document%s, %.2f bytes per token, "
             "in %.1f s; kept as %s", r->tokens, r->documents, r->documents == 1 ? "" : "s",
             (double)r->text_bytes / (double)(r->tokens ? r->tokens : 1), (double)r->us / 1e6,
             prefix);
    if (r->loss_tokens) cli_note(cli, "%" PRId64 " of the tokens carry loss", r->loss_tokens);
    if (r->cut)
        cli_note(cli, "%" PRId64 " conversation%s cut to data.max_tokens", r->cut,
                 r->cut == 1 ? " was" : "s were");
    if (r->lossless)
        cli_note(cli, "%" PRId64 " conversation%s left out: no token would carry loss", r->lossless,
                 r->lossless == 1 ? " was" : "s were");
    if (r->duplicates)
        cli_note(cli, "%" PRId64 " document%s that came before %s left out", r->duplicates,
                 r->duplicates == 1 ? "" : "s", r->duplicates == 1 ? "was" : "were");
    if (r->skipped) cli_note(cli, "%" PRId64 " bad line%s left out", r->skipped,
                         r->skipped == 1 ? " was" : "s were");
}

/* A run's own tokenizer may be in a folder that is removed in the end: then its name must do. */
static void say_start(const struct cli *cli, const struct cache_text *t) {
    char base[PATH_CAP], size[BYTES_TEXT_CAP];
    int64_t bytes = 0;
    path_base(base, t->choice.path);
    for (size_t i = 0; i < json_array_size(t->sources); i++)
        bytes += json_int(json_array_get(t->sources, i), "bytes");
    cli_note(cli, "tokenising %" PRId64 " file%s, %s, with %s%s", t->path_count,
             t->path_count == 1 ? "" : "s", bytes_text((double)bytes, size),
             t->of_run ? "the run's own " : "", t->of_run ? base : t->choice.path);
}

static void say_end(const struct cli *cli, const struct cache_text *t) {
    char text[TOKENIZER_END_CAP];
    tokenizer_end_text(&t->choice, text);
    if (!cache_is_chat(t->data)) cli_note(cli, "%s", text);
}

static enum status make(const struct cli *cli, const struct cache_text *t, const char *prefix,
                        struct err *e) {
    struct tokenise_screen screen = tokenise_screen(cli);
    struct tokenise_result result = { 0 };
    struct tokenise_options o = {
        .tokenizer = t->choice.tokenizer,
        .tokenizer_path = t->of_run ? json_text(t->data, "tokenizer", "") : t->choice.path,
        .paths = (const char *const *)t->paths, .path_count = t->path_count, .prefix = prefix,
        .field = json_text(t->data, "field", NULL), .end = t->choice.end,
        .threads = tokenise_threads(), .skip_bad = json_int(t->data, "skip_bad"),
        .unique = json_is_true(json_object_get(t->data, "unique")),
        .lines = cache_is_chat(t->data) ? &t->chat.lines : NULL, .looked = true,
        .in_script = t->of_script,
        .progress = tokenise_screen_progress, .warn = tokenise_screen_warn, .context = &screen,
    };
    say_start(cli, t);
    say_end(cli, t);
    if (size_of(prefix, ".idx") >= 0)
        cli_warn(cli, "%s.* are not as their description says; the text is tokenised again",
                 prefix);
    remove_files(prefix);
    enum status st = tokenise(&o, &result, e);
    tokenise_screen_close(&screen);
    if (st == OK) {
        st = check_unchanged(t, result.description, e);
        if (st == OK) st = describe_files(prefix, result.description, e);
        if (st != OK) remove_files(prefix);
        else say_made(cli, prefix, &result);
    }
    json_decref(result.description);
    return st;
}

static enum status find_or_make(const struct cache_request *q, const struct cache_text *t,
                                struct cache_entry *out, struct err *e) {
    char name[CACHE_NAME + 1], prefix[PATH_CAP];
    struct err why;
    bool found = false;
    int fd;
    snprintf(name, sizeof name, "%.*s", CACHE_NAME, t->key);
    if (directory_make(q->folder, &why) != OK)
        return FAIL(e, ERR_CONFIG, "the cache of tokens cannot be made: %s; --cache DIR names "
                    "another folder", why.text);
    char *whole = realpath(q->folder, NULL); /* workers may have another working directory */
    if (!whole) return FAIL(e, ERR_IO, "%s: %s", q->folder, strerror(errno));
    enum status st = path_join(prefix, whole, name, e);
    free(whole);
    if (st == OK) st = find(t, prefix, out, &found, e);
    if (st == OK && found) {
        cli_note(q->cli, "text already tokenised: %s", prefix);
        say_end(q->cli, t);
        return OK;
    }
    if (st == OK) st = lock(q->cli, prefix, &fd, e);
    if (st != OK) return st;
    st = find(t, prefix, out, &found, e);
    if (st == OK && found) cli_note(q->cli, "text tokenised by the other process: %s", prefix);
    else if (st == OK) st = make(q->cli, t, prefix, e);
    if (st == OK && !found) st = find(t, prefix, out, &found, e);
    unlock(prefix, fd);
    if (st != OK || found) return st;
    return FAIL(e, ERR_IO, "%s.json does not describe the tokens just written", prefix);
}

enum status cache_take_one(const struct cache_request *q, struct cache_entry *out,
                           struct err *e) {
    struct cache_text text;
    *out = (struct cache_entry){ 0 };
    enum status st = cache_text_open(&text, q->config, q->data_root, q->own, q->render,
                                     e);
    if (st == OK) st = find_or_make(q, &text, out, e);
    if (st == ERR_FORMAT) st = e->code = ERR_CONFIG; /* a file that the user must mend */
    if (st != OK) cache_entry_free(out);
    cache_text_close(&text);
    return st;
}

/* ---- of a record ----------------------------------------------------------------------------- */

/* *same is false too if a file is not there or cannot be read. */
static enum status compare_files(const json_t *record, const char *prefix, bool *same,
                                 struct err *e) {
    json_t *files = json_object_get(record, "files"), *then;
    char name[NAME_CAP], now[SHA256_HEX];
    const char *suffix;
    *same = json_object_get(files, "bin") && json_object_get(files, "idx");
    json_object_foreach(files, suffix, then) {
        snprintf(name, sizeof name, "%s.%.8s", prefix, suffix);
        enum status st = *same ? sha256_file(name, now, NULL, e) : OK;
        if (st == ERR_MEMORY) return st;
        *same = *same && st == OK && json_is_string(then) && !strcmp(json_string_value(then), now);
    }
    return OK;
}

static bool may_be_kept(const char *name) {
    static const char *const NAMES[] = { "tokenizer.json", "tokenizer.tiktoken",
                                         "chat_template.json" };
    for (size_t i = 0; name && i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strcmp(name, NAMES[i])) return true;
    for (size_t i = 0; name && CACHE_BESIDE[i]; i++)
        if (!strcmp(name, CACHE_BESIDE[i])) return true;
    return false;
}

enum status cache_entry_recorded(const json_t *record, const char *prefix, const char *own,
                                 struct cache_entry *out, struct err *e) {
    const json_t *names = json_object_get(record, "kept"), *item;
    json_t *copy = json_copy((json_t *)record), *kept = json_object();
    char path[PATH_CAP];
    bool failed = false;
    size_t i;
    enum status st = OK;
    json_put(copy, "prefix", json_string_nocheck(prefix), &failed);
    json_array_foreach(names, i, item) {
        const char *name = json_string_value(item);
        if (st == OK && !may_be_kept(name))
            st = FAIL(e, ERR_FORMAT, "ingest.json names a file that no run keeps: %.80s",
                      name ? name : "not a text");
        if (st == OK) st = path_join(path, own, name, e);
        if (st == OK) json_put(kept, name, json_string_nocheck(path), &failed);
    }
    if (st == OK && (failed || !kept)) st = FAIL(e, ERR_MEMORY, "the record of the tokens");
    *out = (struct cache_entry){ .record = json_whole(copy, st != OK),
                                 .kept = json_whole(kept, st != OK) };
    snprintf(out->prefix, PATH_CAP, "%s", prefix);
    return st;
}

/* The prefix in `folder` by the key of the record, "" if there are none. */
static void find_here(const json_t *record, const char *folder, char out[PATH_CAP]) {
    const char *key = json_text(record, "key", "");
    char name[CACHE_NAME + 1], *whole = realpath(folder, NULL);
    snprintf(name, sizeof name, "%.*s", CACHE_NAME, key);
    bool ours = whole && sha256_is_hex(key) && path_join(out, whole, name, NULL) == OK &&
                size_of(out, ".idx") >= 0;
    if (!ours) *out = '\0';
    free(whole);
}

enum status cache_find_one(const struct cli *cli, const json_t *record, const char *folder,
                           const char *own, struct cache_entry *out, struct err *e) {
    const char *then = json_text(record, "prefix", NULL);
    char here[PATH_CAP];
    bool same = false;
    *out = (struct cache_entry){ 0 };
    find_here(record, folder, here);
    if (*here) TRY(compare_files(record, here, &same, e));
    if (same) return cache_entry_recorded(record, here, own, out, e);
    if (*here) {
        cli_warn(cli, "%s.* are not the tokens that they were; they are made again", here);
        remove_files(here);
    }
    if (then) TRY(compare_files(record, then, &same, e));
    return same ? cache_entry_recorded(record, then, own, out, e) : OK;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

enum status cache_check_one(const struct cli *cli, const json_t *record, const json_t *files,
                            bool *intact, struct err *e) {
    const json_t *written = json_object_get(record, "files"), *row;
    const char *prefix = json_text(record, "prefix", "");
    size_t i, n = strlen(prefix);
    *intact = true;
    if (!files) TRY(compare_files(record, prefix, intact, e));
    if (!*intact) cli_warn(cli, "%s.* are damaged; the text is tokenised again", prefix);
    json_array_foreach(files, i, row) {
        const char *path = json_text(row, "path", ""), *now = json_text(row, "sha256", "");
        const char *suffix = strrchr(path, '.');
        if (strncmp(path, prefix, n) != 0 || suffix != path + n) continue; /* of another text */
        const char *then = json_text(written, suffix ? suffix + 1 : "", now);
        if (!strcmp(then, now)) continue;
        cli_warn(cli, "%s is damaged: its hash is %.12s, written was %.12s; the text is tokenised "
                 "again", path, now, then);
        *intact = false;
    }
    if (!*intact) remove_files(prefix);
    return OK;
}
