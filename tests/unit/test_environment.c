/* The environment of a worker contains only variables of the allow-lists. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/record/environment.h"
#include "runner/script/schema_env.h"

static bool has_var(const struct environment *environment, const char *var) {
    for (char **at = environment->vars; *at; at++)
        if (strcmp(*at, var) == 0) return true;
    return false;
}

static void an_experiment_sets_what_is_allowed(void **state) {
    (void)state;
    struct environment environment;
    struct err e = { 0 };
    json_t *env = json_pack("{s:s, s:s}", "NCCL_ALGO", "Ring", "OMP_NUM_THREADS", "3");
    assert_int_equal(setenv("SECRET_TOKEN", "hunter2", 1), 0);
    assert_int_equal(setenv("OMP_NUM_THREADS", "7", 1), 0);
    assert_int_equal(environment_make(env, false, &environment, &e), OK);
    assert_true(has_var(&environment, "NCCL_ALGO=Ring"));
    assert_true(has_var(&environment, "OMP_NUM_THREADS=3")); /* the experiment's wins */
    assert_false(has_var(&environment, "SECRET_TOKEN=hunter2"));
    char *record = json_dumps(environment.record, 0);
    assert_non_null(strstr(record, "SECRET_TOKEN")); /* its name is listed, */
    assert_null(strstr(record, "hunter2"));          /* its value is not */
    free(record);
    environment_free(&environment);
    json_decref(env);
}

/* A UUID is a serial number: the worker needs it, a stranger who reads the record does not. */
static void no_uuid_is_recorded(void **state) {
    static const struct { const char *list, *recorded; } CASES[] = {
        { "GPU-5b3c8f2a-0001,1,GPU-5b3c8f2a-0002", "GPU-...,1,GPU-..." },
        { "MIG-5b3c8f2a-0001", "MIG-..." }, { "GPU-,GPU-,", "GPU-...,GPU-...," },
        { "0,1", "0,1" }, { "", "" }, { "all", "all" },
    };
    static const char *const NAMES[] = { "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES" };
    for (size_t i = 0; i < 2 * sizeof CASES / sizeof *CASES; i++) {
        struct environment environment;
        struct err e = { 0 };
        char var[128];
        const char *list = CASES[i / 2].list;
        snprintf(var, sizeof var, "%s=%s", NAMES[i % 2], list);
        assert_int_equal(setenv(NAMES[i % 2], list, 1), 0);
        assert_int_equal(environment_make(NULL, false, &environment, &e), OK);
        assert_true(has_var(&environment, var));
        const json_t *kept = json_object_get(environment.record, "kept");
        assert_string_equal(json_string_value(json_object_get(kept, NAMES[i % 2])),
                            CASES[i / 2].recorded);
        environment_free(&environment);
    }
}

/* Waiting threads look a while and sleep, unless OMP_WAIT_POLICY is set; the record says so. */
static void unset_variables_have_defaults(void **state) {
    (void)state;
    struct environment environment;
    struct err e = { 0 };
    assert_int_equal(unsetenv("GOMP_SPINCOUNT"), 0);
    assert_int_equal(unsetenv("OMP_WAIT_POLICY"), 0);
    assert_int_equal(unsetenv("NCCL_NVLS_ENABLE"), 0);
    assert_int_equal(setenv("LANG", "\xff", 1), 0);
    assert_int_equal(environment_make(NULL, false, &environment, &e), OK);
    assert_true(has_var(&environment, "OMP_WAIT_POLICY=passive"));
    assert_true(has_var(&environment, "GOMP_SPINCOUNT=1000"));
    assert_true(has_var(&environment, "NCCL_NVLS_ENABLE=0"));
    assert_false(has_var(&environment, "LANG=\xff")); /* not recordable, so not passed */
    char *record = json_dumps(environment.record, 0);
    assert_non_null(strstr(record, "\"defaults\": [\"GOMP_SPINCOUNT\", \"OMP_WAIT_POLICY\", "
                                   "\"NCCL_NVLS_ENABLE\"]"));
    assert_non_null(strstr(strstr(record, "\"withheld\""), "\"LANG\""));
    free(record);
    environment_free(&environment);
    assert_int_equal(setenv("GOMP_SPINCOUNT", "7", 1), 0);
    assert_int_equal(environment_make(NULL, false, &environment, &e), OK);
    assert_true(has_var(&environment, "GOMP_SPINCOUNT=7"));
    assert_true(has_var(&environment, "OMP_WAIT_POLICY=passive"));
    environment_free(&environment);
    assert_int_equal(unsetenv("GOMP_SPINCOUNT"), 0);
    assert_int_equal(setenv("OMP_WAIT_POLICY", "active", 1), 0);
    assert_int_equal(setenv("NCCL_NVLS_ENABLE", "1", 1), 0);
    assert_int_equal(environment_make(NULL, false, &environment, &e), OK);
    assert_true(has_var(&environment, "OMP_WAIT_POLICY=active"));
    assert_int_equal(json_array_size(json_object_get(environment.record, "defaults")), 0);
    environment_free(&environment);
}

/* NCCL gets a cluster's own settings; settings that may change bits come only from scripts. */
static void a_site_configures_the_network(void **state) {
    (void)state;
    struct environment environment;
    struct err e = { 0 };
    assert_int_equal(setenv("NCCL_IB_GID_INDEX", "3", 1), 0);
    assert_int_equal(setenv("NCCL_NET_PLUGIN", "other", 1), 0);
    assert_int_equal(setenv("NVIDIA_TF32_OVERRIDE", "1", 1), 0);
    assert_int_equal(environment_make(NULL, false, &environment, &e), OK);
    assert_true(has_var(&environment, "NCCL_IB_GID_INDEX=3"));
    assert_false(has_var(&environment, "NCCL_NET_PLUGIN=other"));
    assert_false(has_var(&environment, "NVIDIA_TF32_OVERRIDE=1"));
    environment_free(&environment);
}

/* LD_PRELOAD loads code, so it is withheld unless a profiler is to follow. */
static void a_profiler_follows_on_request(void **state) {
    (void)state;
    struct environment environment;
    struct err e = { 0 };
    assert_int_equal(setenv("NVTX_INJECTION64_PATH", "/tool.so", 1), 0);
    assert_int_equal(setenv("NSYS_EXAMPLE", "1", 1), 0);
    for (int profile = 0; profile < 2; profile++) {
        assert_int_equal(environment_make(NULL, profile != 0, &environment, &e), OK);
        assert_int_equal(has_var(&environment, "NVTX_INJECTION64_PATH=/tool.so"), profile);
        assert_int_equal(has_var(&environment, "NSYS_EXAMPLE=1"), profile);
        environment_free(&environment);
    }
    assert_int_equal(unsetenv("NVTX_INJECTION64_PATH"), 0);
    assert_int_equal(unsetenv("NSYS_EXAMPLE"), 0);
}

/* Sent in one line of a handshake, however long the variables of a host are. */
static void a_task_sends_no_more_than_fits(void **state) {
    (void)state;
    char name[64], *path = strdup(getenv("PATH")), *large = calloc(1, ENVIRONMENT_SENT_MAX);
    for (int i = 0; i < ENVIRONMENT_SENT_MAX / 32; i++) {
        snprintf(name, sizeof name, "UNHEARD_OF_AND_RATHER_LONG_%05d", i);
        assert_int_equal(setenv(name, "secret", 1), 0);
    }
    json_t *record = environment_of_task();
    assert_true(json_is_string(json_object_get(record, "withheld")));
    assert_true(json_is_object(json_object_get(record, "kept")));
    json_decref(record);
    memset(large, 'x', ENVIRONMENT_SENT_MAX - 1);
    assert_int_equal(setenv("PATH", large, 1), 0);
    record = environment_of_task();
    assert_true(json_is_string(json_object_get(record, "kept")));
    assert_true(json_dumpb(record, NULL, 0, JSON_COMPACT) < 1000);
    json_decref(record);
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
    free(large);
}

static void variables_that_load_code_or_name_files_are_rejected(void **state) {
    (void)state;
    static const char *const NAMES[] = { "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PATH",
                                         "X_PRELOAD", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN",
                                         "CUDA_INJECTION64_PATH", "NCCL_CONF_FILE", "HOME",
                                         "NCCL_TOPO_FILE", "OMP_TOOL_LIBRARIES", "BASH_ENV",
                                         "GCONV_PATH", "LUA_INIT", "ld_preload", "" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        struct environment environment;
        struct err e = { 0 };
        json_t *env = json_pack("{s:s}", NAMES[i], "x");
        assert_non_null(env_refusal(NAMES[i]));
        assert_int_equal(environment_make(env, false, &environment, &e), ERR_CONFIG);
        assert_non_null(strstr(e.text, "may not be set"));
        environment_free(&environment);
        json_decref(env);
    }
}

static void the_list_is_sorted_and_allowed(void **state) {
    (void)state;
    for (int i = 0; ENV_ALLOWED[i]; i++) {
        assert_null(env_refusal(ENV_ALLOWED[i]));
        if (i) assert_true(strcmp(ENV_ALLOWED[i - 1], ENV_ALLOWED[i]) < 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_experiment_sets_what_is_allowed),
        cmocka_unit_test(unset_variables_have_defaults),
        cmocka_unit_test(a_site_configures_the_network),
        cmocka_unit_test(variables_that_load_code_or_name_files_are_rejected),
        cmocka_unit_test(the_list_is_sorted_and_allowed),
        cmocka_unit_test(a_profiler_follows_on_request),
        cmocka_unit_test(a_task_sends_no_more_than_fits),
        cmocka_unit_test(no_uuid_is_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
