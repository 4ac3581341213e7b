/* The file of certificates of earlier runs (runner/certify/certify_cache.h): how many it holds, and
 * what is said if its folder cannot be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "runner/certify/certify_cache.h"
#include "tests/support/must.h"

enum { TABLES = 32, CERTIFICATES = 1 << 14 }; /* the most that certify_cache.c keeps */

static char folder[] = "/tmp/fp8lab-certificates-XXXXXX";

/* Of a machine with this driver. */
static struct certify_cache opened(const char *in, const char *spare, int driver) {
    const struct certify_device d = { "cuda", NULL, 0 };
    struct certify_cache c;
    json_t *facts = json_pack("{s:i}", "gpu.driver", driver);
    MUST(certify_cache_open(&c, in, spare, facts, &d, E));
    json_decref(facts);
    return c;
}

/* Adds certificates of the ways from `first` on; *problem gets what is to be said. */
static void add(struct certify_cache *c, int first, int count, char problem[KEPT_PROBLEM_CAP]) {
    json_t *list = json_array();
    for (int i = first; i < first + count; i++)
        json_array_append_new(list, json_pack("{s:o,s:s,s:[]}", "way", json_sprintf("way %d", i),
                                              "outcome", "passed", "without"));
    MUST(certify_cache_add(c, list, problem, E));
    json_decref(list);
}

static void add_one(int driver, int way) {
    char problem[KEPT_PROBLEM_CAP];
    struct certify_cache c = opened(folder, NULL, driver);
    add(&c, way, 1, problem);
    assert_string_equal(problem, "");
    certify_cache_close(&c);
}

static json_t *kept(int driver) {
    char problem[KEPT_PROBLEM_CAP];
    json_t *list;
    struct certify_cache c = opened(folder, NULL, driver);
    MUST(certify_cache_read(&c, &list, problem, E));
    assert_string_equal(problem, "");
    certify_cache_close(&c);
    return list;
}

static void check_kept(int driver, size_t count, const char *first) {
    json_t *list = kept(driver);
    assert_int_equal(json_array_size(list), count);
    assert_string_equal(json_text(json_array_get(list, 0), "way", ""), first);
    json_decref(list);
}

static void a_table_that_grew_makes_no_room(void **state) {
    (void)state;
    add_one(0, 1);
    for (int i = 1; i < TABLES; i++) add_one(i, 1);
    add_one(0, 2);
    add_one(TABLES, 1);
    check_kept(0, 2, "way 1");
    json_t *gone = kept(1);
    assert_int_equal(json_array_size(gone), 0);
    json_decref(gone);
}

static void the_same_certificate_is_kept_once(void **state) {
    (void)state;
    add_one(100, 7);
    add_one(100, 7);
    check_kept(100, 1, "way 7");
}

/* First those of the oldest table, then the oldest ones. */
static void old_certificates_make_room(void **state) {
    (void)state;
    char problem[KEPT_PROBLEM_CAP];
    struct certify_cache c = opened(folder, NULL, 200);
    add_one(199, 1);
    add(&c, 0, CERTIFICATES, problem);
    assert_string_equal(problem, "");
    json_t *gone = kept(199);
    assert_int_equal(json_array_size(gone), 0);
    json_decref(gone);
    add(&c, CERTIFICATES, 10, problem);
    assert_string_equal(problem, "");
    check_kept(200, CERTIFICATES, "way 10");
    certify_cache_close(&c);
}

static void another_folder_is_said(void **state) {
    (void)state;
    char problem[KEPT_PROBLEM_CAP], file[PATH_CAP], other[PATH_CAP], wanted[2 * PATH_CAP];
    MUST(path_join(file, folder, "certificates.json", E));
    MUST(path_join(other, folder, "runs", E));
    struct certify_cache c = opened(file, other, 300), none = opened(file, NULL, 300);
    snprintf(wanted, sizeof wanted, "the certificates are kept for later runs in %s/cache: ",
             other);
    add(&c, 0, 1, problem);
    assert_memory_equal(problem, wanted, strlen(wanted));
    assert_non_null(strstr(problem, file));
    add(&none, 0, 1, problem);
    assert_non_null(strstr(problem, "the certificates are not kept for later runs: "));
    certify_cache_close(&c);
    certify_cache_close(&none);
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int tear_down(void **state) {
    (void)state;
    struct err e;
    return tree_remove(folder, &e) == OK ? 0 : 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_that_grew_makes_no_room),
        cmocka_unit_test(the_same_certificate_is_kept_once),
        cmocka_unit_test(old_certificates_make_room),
        cmocka_unit_test(another_folder_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
