#include "runner/certify/certify_cache.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/plan/backends.h"
#include "runner/record/image_record.h"

/* Tables over this number are dropped, those that grew longest ago first. So are certificates over
 * theirs, which take 20 MB: those of the oldest tables, then the oldest ones. */
enum { TABLES_MAX = 32, CERTIFICATES_MAX = 1 << 14 };

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for kept certificates");
}

static json_t *find_table(const json_t *tables, const json_t *key) {
    json_t *table;
    size_t i;
    json_array_foreach(tables, i, table)
        if (json_equal(json_object_get(table, "key"), key)) return table;
    return NULL;
}

json_t *certificates_of(const json_t *list, const char *way) {
    json_t *one, *found = json_array();
    bool failed = false;
    size_t i;
    json_array_foreach(list, i, one)
        if (!strcmp(json_text(one, "way", ""), way))
            json_append(found, json_incref(one), &failed);
    return json_whole(found, failed);
}

bool certificate_is_same(const json_t *a, const json_t *b) {
    const json_t *x = json_object_get(a, "without"), *y = json_object_get(b, "without");
    return !strcmp(json_text(a, "way", ""), json_text(b, "way", "")) &&
           !strcmp(json_text(a, "forbid", ""), json_text(b, "forbid", "")) &&
           (json_equal(x, y) || json_array_size(x) + json_array_size(y) == 0);
}

/* What certificate_is_same compares, as one text; the caller frees it. NULL: no memory. */
static char *identity(const json_t *one) {
    const json_t *without = json_object_get(one, "without");
    json_t *parts = json_pack("[s,s,O?]", json_text(one, "way", ""), json_text(one, "forbid", ""),
                              json_array_size(without) ? without : NULL);
    char *text = parts ? json_dump_text(parts, JSON_COMPACT) : NULL;
    json_decref(parts);
    return text;
}

/* Adds the certificates of `from` that `to` lacks, which may be thousands. */
static bool add_ways(json_t *to, const json_t *from, bool *failed) {
    json_t *one, *have = json_object();
    size_t i, before = json_array_size(to), all = before + json_array_size(from);
    bool grew = false;
    *failed |= !have;
    for (i = 0; i < all && !*failed; i++) {
        one = i < before ? json_array_get(to, i) : json_array_get(from, i - before);
        char *text = identity(one);
        *failed |= !text;
        if (text && !json_object_get(have, text)) {
            json_put(have, text, json_true(), failed);
            if (i >= before) json_append(to, json_incref(one), failed);
            grew |= i >= before;
        }
        free(text);
    }
    json_decref(have);
    return grew;
}

/* The table of this key; a new one becomes the first. */
static json_t *table_for(json_t *tables, json_t *key, bool *failed) {
    json_t *have = find_table(tables, key);
    if (have) return have;
    have = json_pack("{s:O,s:[]}", "key", key, "certificates");
    *failed |= !have || json_array_insert_new(tables, 0, have) != 0;
    return *failed ? NULL : have;
}

/* A table that grew becomes the first. */
static void move_to_front(json_t *tables, json_t *table, bool *failed) {
    size_t at = 0;
    while (json_array_get(tables, at) != table) at++;
    json_incref(table);
    (void)json_array_remove(tables, at);
    *failed |= json_array_insert_new(tables, 0, table) != 0;
}

static void drop_oldest(json_t *tables) {
    json_t *table;
    size_t i, all = 0;
    while (json_array_size(tables) > TABLES_MAX)
        (void)json_array_remove(tables, json_array_size(tables) - 1);
    json_array_foreach(tables, i, table)
        all += json_array_size(json_object_get(table, "certificates"));
    while (all > CERTIFICATES_MAX) {
        size_t last = json_array_size(tables) - 1;
        json_t *list = json_object_get(json_array_get(tables, last), "certificates");
        size_t count = json_array_size(list);
        if (last > 0) (void)json_array_remove(tables, last);
        for (i = 0; last == 0 && i < all - CERTIFICATES_MAX; i++) (void)json_array_remove(list, 0);
        all = last > 0 ? all - count : CERTIFICATES_MAX;
    }
}

static enum status merge(json_t *tables, const json_t *more, bool *grew, struct err *e) {
    json_t *table;
    size_t i;
    bool failed = false;
    json_array_foreach(more, i, table) {
        json_t *have = table_for(tables, json_object_get(table, "key"), &failed);
        if (failed || !add_ways(json_object_get(have, "certificates"),
                                json_object_get(table, "certificates"), &failed))
            continue;
        move_to_front(tables, have, &failed);
        *grew = true;
    }
    if (failed) return no_memory(e);
    drop_oldest(tables);
    return OK;
}

static enum status check(const json_t *tables, struct err *e) {
    const json_t *table, *one;
    size_t i, k;
    json_array_foreach(tables, i, table) {
        const json_t *list = json_object_get(table, "certificates");
        bool good = json_is_array(list) && json_is_object(json_object_get(table, "key"));
        json_array_foreach(list, k, one)
            good = good && json_text(one, "way", NULL) && json_text(one, "outcome", NULL);
        if (!good) return FAIL(e, ERR_FORMAT, "its table %zu is none", i);
    }
    return OK;
}

static const struct kept_kind KIND = {
    .schema = "fp8lab.certificates/1", .file = CERTIFICATES_FILE, .lock = "certificates.lock",
    .about = "keeps the certificates of earlier runs", .check = check, .merge = merge,
};

/* On a host with GPUs of several products each GPU has a table of its own. The facts have names in
 * the driver's order, CUDA has an order of its own: so its index and what determines it. */
static void put_index(json_t *key, const json_t *facts, int64_t device, bool *failed) {
    static const char *const VARIABLES[] = { "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER" };
    if (!json_is_true(json_object_get(facts, "gpu.mixed"))) return;
    json_put(key, "device", json_integer(device), failed);
    for (int i = 0; i < 2; i++) {
        const char *value = getenv(VARIABLES[i]);
        json_put(key, VARIABLES[i], value ? json_from_text(value) : json_null(), failed);
    }
}

enum status certify_cache_open(struct certify_cache *c, const char *folder, const char *spare,
                               const json_t *facts, const struct certify_device *d,
                               struct err *e) {
    static const char *const FACTS[] = { "gpu.product_name", "gpu.cc", "gpu.driver",
                                         "cuda.runtime", "cublaslt.version", "cudnn.version" };
    bool failed = false;
    *c = (struct certify_cache){ .key = json_pack("{s:s,s:s,s:s?}", "kernels",
                                                  backend_kernels_sha256(), "backend",
                                                  d->backend, "caps", d->caps) };
    if (!c->key) return no_memory(e);
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++) {
        json_t *value = json_object_get(facts, FACTS[i]);
        json_put(c->key, FACTS[i], value ? json_incref(value) : json_null(), &failed);
    }
    put_index(c->key, facts, d->index, &failed);
    if (failed) return no_memory(e);
    TRY(kept_folders(folder, spare, c->folder, c->spare, e));
    c->homeless = !folder && !*c->spare && (spare || !*c->folder);
    return OK;
}

enum status certify_cache_of_run(struct certify_cache *c, const char *folder, const char *runs,
                                 const json_t *facts, const struct certify_device *d,
                                 struct err *e) {
    char beside[PATH_CAP];
    if (!folder && image_inside()) { /* its home folder ends with the container */
        TRY(path_join(beside, runs, "cache", e));
        folder = beside;
    }
    return certify_cache_open(c, folder, folder ? NULL : runs, facts, d, e);
}

void certify_cache_close(struct certify_cache *c) {
    json_decref(c->key);
    c->key = NULL;
}

enum status certify_cache_read(const struct certify_cache *c, json_t **list,
                               char problem[KEPT_PROBLEM_CAP], struct err *e) {
    const char *const places[] = { c->folder, c->spare };
    json_t *tables = NULL;
    bool failed = false;
    *problem = '\0';
    *list = json_array();
    enum status st = *list ? OK : no_memory(e);
    for (int i = 0; i < 2 && st == OK; i++) {
        char one[KEPT_PROBLEM_CAP];
        st = kept_read(&KIND, places[i], &tables, one, e);
        if (st != OK) break;
        if (*one) memcpy(problem, one, sizeof one);
        (void)add_ways(*list, json_object_get(find_table(tables, c->key), "certificates"),
                       &failed);
        json_decref(tables);
        if (failed) st = no_memory(e);
    }
    if (st == OK) return OK;
    json_decref(*list);
    *list = NULL;
    return st;
}

enum status certify_cache_add(const struct certify_cache *c, json_t *list,
                              char problem[KEPT_PROBLEM_CAP], struct err *e) {
    static const char HOMELESS[] = "HOME and XDG_CACHE_HOME name no absolute folder";
    struct err why, ignored;
    *problem = '\0';
    if (!json_array_size(list)) return OK;
    if (!*c->folder) {
        if (c->homeless)
            snprintf(problem, KEPT_PROBLEM_CAP, "certificates are not kept: %s", HOMELESS);
        return OK;
    }
    if (c->homeless)
        snprintf(problem, KEPT_PROBLEM_CAP, "%s: certificates are kept in %s", HOMELESS, c->folder);
    json_t *tables = json_pack("[{s:O,s:O}]", "key", c->key, "certificates", list);
    if (!tables) return no_memory(e);
    if (kept_store(&KIND, c->folder, tables, &why) != OK) {
        bool kept = *c->spare && kept_store(&KIND, c->spare, tables, &ignored) == OK;
        if (why.code != ERR_UNSUPPORTED) /* who read the file has said it */
            snprintf(problem, KEPT_PROBLEM_CAP, "the certificates are %s%s: %s",
                     kept ? "kept for later runs in " : "not kept for later runs",
                     kept ? c->spare : "", why.text);
    }
    json_decref(tables);
    return OK;
}
