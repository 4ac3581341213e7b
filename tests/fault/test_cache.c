/* Every allocation of making, finding and checking the tokens of an experiment's text that can
 * fail, failing. After an error nothing is left under a final name. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/sha256.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"

static const char TALK[] = "{\"text\":\"a text\",\"messages\":["
                           "{\"role\":\"user\",\"content\":\"q\"},"
                           "{\"role\":\"assistant\",\"content\":\"a\"}]}\n";

struct scene {
    char folder[64], cache[96];
    struct cli cli;
    json_t *config;
    char key[SHA256_HEX], wanted[SHA256_HEX];
    struct cache_entry made; /* of find_recorded */
};

static void empty_cache(void *context) {
    const struct scene *s = context;
    MUST(tree_remove(s->cache, E));
}

static enum status take(void *context, struct err *e) {
    struct scene *s = context;
    const struct cache_request q = { .cli = &s->cli, .config = s->config, .folder = s->cache };
    struct cache_entry entry;
    *s->key = '\0';
    TRY(cache_take(&q, &entry, e));
    snprintf(s->key, sizeof s->key, "%s", json_text(entry.record, "key", ""));
    bool intact;
    enum status st = cache_check(&s->cli, &entry, NULL, &intact, e);
    cache_entry_free(&entry);
    return st == OK && !intact ? FAIL(e, ERR_VERIFY, "damaged") : st;
}

/* Whether the folder has no index whose shards are not complete: an index is renamed last. */
static enum status check(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    if (st == OK && strcmp(s->key, s->wanted) != 0) return FAIL(e, ERR_VERIFY, "another key");
    DIR *d = opendir(s->cache);
    bool part = false;
    for (const struct dirent *entry; d && (entry = readdir(d));)
        part = part || strstr(entry->d_name, ".part") || strstr(entry->d_name, ".lock");
    if (d) closedir(d);
    return part ? FAIL(e, ERR_VERIFY, "a part or a lock is left in %s", s->cache) : OK;
}

static enum status find_recorded(void *context, struct err *e) {
    struct scene *s = context;
    struct cache_entry found;
    TRY(cache_find_recorded(&s->cli, s->made.record, s->cache, "own", &found, e));
    bool any = found.record != NULL;
    cache_entry_free(&found);
    return any ? OK : FAIL(e, ERR_VERIFY, "the tokens are not found");
}

static void survives(struct scene *s, const char *name, const char *data) {
    s->config = json_pack("{s:{s:i},s:o}", "model", "vocab", 256, "data",
                          json_loads(data, 0, NULL));
    assert_non_null(s->config);
    empty_cache(s);
    MUST(take(s, E));
    strcpy(s->wanted, s->key);
    fault_every_allocation(&(struct fault_case){ .name = name, .before = empty_cache,
                                                 .attempt = take, .after = check, .context = s });
    const struct cache_request q = { .cli = &s->cli, .config = s->config, .folder = s->cache };
    MUST(cache_take(&q, &s->made, E));
    fault_every_allocation(&(struct fault_case){ .name = "found by its record",
                                                 .attempt = find_recorded, .context = s });
    cache_entry_free(&s->made);
    json_decref(s->config);
}

static void tokens_survive(void **state) {
    struct scene s = { .folder = "/tmp/fp8lab-test-XXXXXX", .cli = { .quiet = true } };
    char text[96], template[96], data[640];
    static const char TEMPLATE[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n"
                                   "{% endfor %}";
    (void)state;
    assert_non_null(mkdtemp(s.folder));
    snprintf(s.cache, sizeof s.cache, "%s/cache", s.folder);
    snprintf(text, sizeof text, "%s/text.jsonl", s.folder);
    snprintf(template, sizeof template, "%s/t.jinja", s.folder);
    MUST(file_replace(text, TALK, sizeof TALK - 1, E));
    MUST(file_replace(template, TEMPLATE, sizeof TEMPLATE - 1, E));
    snprintf(data, sizeof data, "{\"kind\":\"text\",\"paths\":[\"%s\"],\"tokenizer\":\"bytes\","
             "\"unique\":true}", text);
    survives(&s, "text", data);
    snprintf(data, sizeof data, "{\"kind\":\"chats\",\"paths\":[\"%s\"],\"tokenizer\":\"bytes\","
             "\"template\":\"%s\",\"loss\":\"all\",\"max_tokens\":64}", text, template);
    survives(&s, "chats", data);
    MUST(tree_remove(s.folder, E));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(tokens_survive) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
