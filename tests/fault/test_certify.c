/* Every allocation of a child's answer, and of keeping certificates, that can fail, failing. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/certify/certify_cache.h"
#include "runner/certify/certify_make.h"
#include "runner/certify/forbidden.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"

struct scene {
    char folder[64], ways_file[96];
    struct ways ways;
    json_t *facts, *list; /* certificates of one answer */
};

/* A product and a cast of a few elements. */
static void write_ways(struct scene *s) {
    static struct certify_way way[2];
    way[0] = (struct certify_way){ .section = WAY_GEMM, .m = 16, .n = 16, .k = 32,
                                   .a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_BF16,
                                   .scale_a = SCALE_TENSOR, .scale_b = SCALE_TENSOR };
    way[1] = (struct certify_way){ .section = WAY_CAST, .m = 16, .k = 32, .a = DTYPE_BF16,
                                   .b = DTYPE_E4M3, .scale_b = SCALE_1X32,
                                   .source = SCALE_SOURCE_BLOCK, .codes = true,
                                   .rule = { QUANT_MX, 0, false } };
    s->ways = (struct ways){ .way = way, .count = 2 };
    int fd = open(s->ways_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    MUST(ways_write(&s->ways, fd, E));
    close(fd);
}

/* A way is tried, or the answer says why not; nothing is taken for a failure. */
static enum status answer(void *context, struct err *e) {
    const struct scene *s = context;
    const struct certify_request r = { .backend = "cpu", .ranks = 1, .ways = s->ways_file };
    json_t *out = NULL, *one;
    size_t i;
    TRY(certify_answer(&r, &out, e));
    const json_t *list = json_object_get(out, "certificates");
    const json_t *untried = json_object_get(out, "untried");
    enum status st = json_array_size(list) + json_array_size(untried) == 2
        ? OK : FAIL(e, ERR_VERIFY, "%zu certificates, %zu ways not tried", json_array_size(list),
                    json_array_size(untried));
    json_array_foreach(list, i, one)
        if (strcmp(json_text(one, "outcome", ""), "passed") != 0)
            st = FAIL(e, ERR_VERIFY, "%s: %s", json_text(one, "way", "?"),
                      json_text(one, "found", "?"));
    if (st == OK && json_array_size(untried)) st = FAIL(e, ERR_MEMORY, "not tried");
    json_decref(out);
    return st;
}

/* A failure that forbids its way, and the way without it. */
static json_t *failed_way(const struct scene *s) {
    char text[WAY_TEXT_CAP];
    certify_way_text(&s->ways.way[0], text);
    return json_pack("[{s:s,s:s,s:s,s:s,s:s,s:[]},{s:s,s:s,s:s,s:[s]}]", "way", text, "section",
                     "gemm", "outcome", "failed", "fault", "crash", "forbid",
                     "e4m3 tensor x e4m3 tensor", "without", "way", text, "section", "gemm",
                     "outcome", "passed", "without", "gemm e4m3 tensor x e4m3 tensor");
}

static enum status keep(void *context, struct err *e) {
    struct scene *s = context;
    const struct certify_device device = { .backend = "cuda" };
    struct certify_cache cache = { .key = NULL };
    char unkept[KEPT_PROBLEM_CAP] = "", unread[KEPT_PROBLEM_CAP] = "";
    json_t *list = NULL, *names = NULL;
    char *text = NULL;
    enum status st = certify_cache_open(&cache, s->folder, NULL, s->facts, &device, e);
    if (st == OK) st = certify_cache_add(&cache, s->list, unkept, e);
    if (st == OK) st = certify_cache_read(&cache, &list, unread, e);
    if (st == OK) names = certify_forbids(&s->ways, list);
    if (st == OK) text = names ? forbidden_text(names) : NULL;
    if (st == OK && !text) st = FAIL(e, ERR_MEMORY, "names");
    if (st == OK && !*unkept && !*unread && strcmp(text, "gemm e4m3 tensor x e4m3 tensor") != 0)
        st = FAIL(e, ERR_VERIFY, "forbidden: %s", text);
    free(text);
    json_decref(names);
    json_decref(list);
    certify_cache_close(&cache);
    return st;
}

static void empty_cache(void *context) {
    const struct scene *s = context;
    MUST(tree_remove(s->folder, E));
}

static void test_answer(void **state) {
    fault_every_allocation(&(struct fault_case){ .name = "an answer", .attempt = answer,
                                                 .context = *state });
}

static void test_kept(void **state) {
    fault_every_allocation(&(struct fault_case){ .name = "kept", .before = empty_cache,
                                                 .attempt = keep, .context = *state });
}

int main(void) {
    struct scene s = { .folder = "/tmp/fp8lab-certify-XXXXXX" };
    assert_non_null(mkdtemp(s.folder));
    snprintf(s.ways_file, sizeof s.ways_file, "%s.ways", s.folder);
    write_ways(&s);
    s.facts = json_pack("{s:s}", "gpu.product_name", "a stand-in");
    s.list = failed_way(&s);
    assert_non_null(s.list);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_answer, &s), cmocka_unit_test_prestate(test_kept, &s),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(s.list);
    json_decref(s.facts);
    unlink(s.ways_file);
    MUST(tree_remove(s.folder, E));
    return failed;
}
