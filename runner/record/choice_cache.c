#include "runner/record/choice_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "model/ground/json_safe.h"
#include "runner/plan/backends.h"
#include "runner/record/kept_file.h"

static const char OFFERED[] = "offered.json";
/* Tables over this number are dropped, the ones that grew longest ago first. */
enum { TABLES_MAX = 64 };

/* What a table is for. All must be equal for two tables to be one. */
static const char *const KEYS[] = { "driver", "kernels", "architecture", "device", "libraries" };
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for kept choices");
}

/* ---- tables -----------------------------------------------------------------------------------*/

/* A table is {the KEYS: text, "choices": ["gemm 1 2 3 : 00ff", ...]}, its lines as in
 * kernels/choices.h. */
static bool same_table(const json_t *a, const json_t *b) {
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(json_text(a, KEYS[i], ""), json_text(b, KEYS[i], "")) != 0) return false;
    return true;
}

static json_t *find_table(const json_t *tables, const json_t *like) {
    json_t *table;
    size_t i;
    json_array_foreach(tables, i, table)
        if (same_table(table, like)) return table;
    return NULL;
}

/* The bytes of a line before its value: the kind and the shape. */
static size_t shape_bytes(const char *line) {
    const char *end = strstr(line, " : ");
    return end ? (size_t)(end - line) + 3 : strlen(line);
}

static bool has_shape(const json_t *lines, const char *line) {
    size_t i, n = shape_bytes(line);
    const json_t *have;
    json_array_foreach(lines, i, have)
        if (!strncmp(json_string_value(have), line, n)) return true;
    return false;
}

/* Adds the lines of `from` whose shapes `to` lacks; *grew becomes true if there is one. */
static void add_lines(json_t *to, const json_t *from, bool *grew, bool *failed) {
    json_t *lines = json_object_get(to, "choices"), *line;
    size_t i;
    json_array_foreach(json_object_get(from, "choices"), i, line) {
        if (has_shape(lines, json_string_value(line))) continue;
        json_append(lines, json_incref(line), failed);
        *grew = true;
    }
}

/* Adds to `tables` what `more` has and they lack. A table that grew becomes the first. */
static enum status merge(json_t *tables, const json_t *more, bool *grew, struct err *e) {
    json_t *table;
    size_t i;
    bool failed = false;
    json_array_foreach(more, i, table) {
        json_t *have = find_table(tables, table);
        bool added = !have;
        if (have) add_lines(have, table, &added, &failed);
        *grew |= added;
        if (!added) continue;
        json_t *first = have ? json_incref(have) : json_deep_copy(table);
        size_t at = 0;
        while (have && json_array_get(tables, at) != have) at++;
        if (have) (void)json_array_remove(tables, at);
        failed |= json_array_insert_new(tables, 0, first) != 0;
    }
    while (json_array_size(tables) > TABLES_MAX)
        (void)json_array_remove(tables, json_array_size(tables) - 1);
    return failed ? no_memory(e) : OK;
}

/* The table as a backend reads it; the caller frees *text. */
static enum status table_text(const json_t *table, char **text, struct err *e) {
    size_t i, bytes = 0;
    json_t *line;
    *text = NULL;
    FILE *out = open_memstream(text, &bytes);
    if (!out) return no_memory(e);
    choices_begin(out, json_text(table, "device", ""), json_text(table, "libraries", ""));
    json_array_foreach(json_object_get(table, "choices"), i, line)
        fprintf(out, "%s\n", json_string_value(line));
    bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed && *text) return OK;
    free(*text);
    *text = NULL;
    return no_memory(e);
}

/* A table of the text that a backend wrote; its "choices" are empty if it has no lines. */
static enum status table_of(const struct choice_cache *c, const char *architecture,
                            const char *text, json_t **out, struct err *e) {
    struct choices_reader r;
    TRY(choices_open(&r, text, e));
    json_t *lines = json_array();
    bool failed = false, more = true;
    while (more) {
        const char *at = r.at;
        struct choice ignored;
        enum status st = choices_next(&r, &ignored, &more, e);
        if (st != OK) {
            json_decref(lines);
            return st;
        }
        while (more && *at == '#') at += strcspn(at, "\n") + 1;
        if (more) json_append(lines, json_stringn(at, strcspn(at, "\n")), &failed);
    }
    *out = json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "driver", c->driver, "kernels",
                     backend_kernels_sha256(), "architecture", architecture, "device", r.device,
                     "libraries", r.libraries, "choices", json_whole(lines, failed));
    return *out ? OK : no_memory(e);
}

/* ---- the file ---------------------------------------------------------------------------------*/

/* Checks what the hash cannot: that this program understands the tables. */
static enum status check_tables(const json_t *tables, struct err *e) {
    json_t *table, *line;
    size_t i, k;
    if (!json_is_array(tables)) return FAIL(e, ERR_FORMAT, "it has no list of tables");
    json_array_foreach(tables, i, table) {
        const json_t *lines = json_object_get(table, "choices");
        bool good = json_is_array(lines);
        for (k = 0; k < KEY_COUNT; k++) good = good && json_text(table, KEYS[k], NULL);
        json_array_foreach(lines, k, line) good = good && json_is_string(line);
        if (!good) return FAIL(e, ERR_FORMAT, "its table %zu is none", i);
        char *text;
        TRY(table_text(table, &text, e));
        struct choices_reader r;
        struct choice c;
        bool more = true;
        enum status st = choices_open(&r, text, e);
        while (st == OK && more) st = choices_next(&r, &c, &more, e);
        free(text);
        TRY(st);
    }
    return OK;
}

static const struct kept_kind KIND = {
    .schema = "fp8lab.choices/1", .file = "choices.json", .lock = "choices.lock",
    .about = "keeps the algorithms that earlier runs timed", .check = check_tables,
    .merge = merge,
};

/* ---- interface --------------------------------------------------------------------------------*/

enum status choice_cache_open(struct choice_cache *c, const char *folder, const char *spare,
                              const char *driver, struct err *e) {
    *c = (struct choice_cache){ 0 };
    snprintf(c->driver, sizeof c->driver, "%s", driver);
    c->tables = json_array();
    if (!c->tables) return no_memory(e);
    return kept_folders(folder, spare, c->folder, c->spare, e);
}

enum status choice_cache_open_anew(struct choice_cache *c, const char *driver, struct err *e) {
    TRY(choice_cache_open(c, "", NULL, driver, e));
    c->anew = true;
    return OK;
}

void choice_cache_begin(struct choice_cache *c) {
    if (c->anew) json_array_clear(c->tables);
}

void choice_cache_close(struct choice_cache *c) {
    json_decref(c->tables);
    c->tables = NULL;
}

enum status choice_cache_withdraw(const char *run_path, struct err *e) {
    char path[PATH_CAP];
    TRY(path_join(path, run_path, OFFERED, e));
    return tree_remove(path, e);
}

/* Adds what the files have and this process lacks. */
static enum status read_files(struct choice_cache *c, char problem[CHOICE_PROBLEM_CAP],
                              struct err *e) {
    const char *const places[] = { c->folder, c->spare };
    bool ignored = false;
    *problem = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char one[CHOICE_PROBLEM_CAP];
        json_t *kept = NULL;
        TRY(kept_read(&KIND, places[i], &kept, one, e));
        if (*one) snprintf(problem, CHOICE_PROBLEM_CAP, "%s", one);
        enum status st = merge(c->tables, kept, &ignored, e);
        json_decref(kept);
        TRY(st);
    }
    return OK;
}

enum status choice_cache_offer(struct choice_cache *c, const char *run_path,
                               char problem[CHOICE_PROBLEM_CAP], struct err *e) {
    char path[PATH_CAP];
    json_t *table, *offered = json_array();
    size_t i;
    bool failed = false;
    enum status st = offered ? OK : no_memory(e);
    *problem = '\0';
    if (st == OK) st = read_files(c, problem, e);
    json_array_foreach(c->tables, i, table)
        if (!strcmp(json_text(table, "driver", ""), c->driver) &&
            !strcmp(json_text(table, "kernels", ""), backend_kernels_sha256()))
            json_append(offered, json_incref(table), &failed);
    if (st == OK && failed) st = no_memory(e);
    if (st == OK) st = choice_cache_withdraw(run_path, e);
    if (st == OK && json_array_size(offered)) {
        st = path_join(path, run_path, OFFERED, e);
        if (st == OK) st = json_file_write(path, offered, e);
    }
    json_decref(offered);
    return st;
}

/* Stores the tables of `list` in a file; a problem is said once. Of a newer program's file the
 * offer has said it. */
static void store(struct choice_cache *c, const json_t *list, char problem[CHOICE_PROBLEM_CAP]) {
    struct err why, ignored;
    if (!*c->folder || kept_store(&KIND, c->folder, list, &why) == OK) return;
    bool kept = *c->spare && kept_store(&KIND, c->spare, list, &ignored) == OK;
    if (!c->said && why.code != ERR_UNSUPPORTED)
        snprintf(problem, CHOICE_PROBLEM_CAP, "the algorithms that this run timed are %s%s: %s",
                 kept ? "kept for later runs in " : "not kept for later runs, which time their own",
                 kept ? c->spare : "", why.text);
    c->said = c->said || why.code != ERR_UNSUPPORTED;
}

enum status choice_cache_add(struct choice_cache *c, const char *architecture, const char *timed,
                             enum choice_state state, char problem[CHOICE_PROBLEM_CAP],
                             struct err *e) {
    json_t *table = NULL, *list;
    bool grew = false;
    *problem = '\0';
    if (!*timed) return OK;
    TRY(table_of(c, architecture, timed, &table, e));
    if (!json_array_size(json_object_get(table, "choices"))) {
        json_decref(table);
        return OK;
    }
    list = json_pack("[o]", table);
    if (!list) return no_memory(e);
    enum status st = OK;
    if (state != CHOICES_DISTURBED) store(c, list, problem);
    if (state == CHOICES_UNUSED) {
        char ignored[CHOICE_PROBLEM_CAP]; /* the offer to the worker says it */
        st = read_files(c, ignored, e);
    }
    if (st == OK) st = merge(c->tables, list, &grew, e);
    json_decref(list);
    return st;
}

enum status choice_cache_take(const char *run_path, struct backend *b, struct err *e) {
    char path[PATH_CAP];
    struct device_info info;
    json_t *offered = NULL, *table;
    size_t i;
    TRY(path_join(path, run_path, OFFERED, e));
    if (!path_exists(path)) return OK;
    TRY(b->ops->info(b, &info, e));
    TRY(json_file_read(path, &offered, e));
    enum status st = OK;
    json_array_foreach(offered, i, table) {
        char *text = NULL;
        struct err other;
        if (strcmp(json_text(table, "architecture", ""), info.architecture) != 0) continue;
        st = table_text(table, &text, e);
        if (st != OK) break;
        bool fits = b->ops->choices_offer(b, text, &other) == OK; /* not another device's */
        free(text);
        if (fits) break;
    }
    json_decref(offered);
    return st;
}
