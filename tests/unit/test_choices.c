/* The choice table: a written table reads back; an invalid table is rejected by line, another
 * device or library by name. The CPU backend's table is empty, and it rejects any other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "kernels/cpu/cpu_backend.h"

#define HEAD "fp8lab choices 1\ndevice NVIDIA H200\nlibraries cublaslt 130100, cudnn 91900\n"

static void a_written_table_reads_back(void **state) {
    struct choice list[2] = {
        { .kind = "gemm", .key = { 16384, -1, INT64_MAX }, .keys = 3,
          .value = { 0x00, 0x7F, 0xFF }, .bytes = 3 },
        { .kind = "attention", .key = { 0 }, .keys = 1 },
    }, got;
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    choices_begin(out, "NVIDIA H200", "cublaslt 130100, cudnn 91900");
    fputs("# m n k\n", out);
    for (int i = 0; i < 2; i++) choices_put(out, &list[i]);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, HEAD "# m n k\ngemm 16384 -1 9223372036854775807 : 007fff\n"
                                   "attention 0 : -\n");
    struct choices_reader r;
    struct err e;
    bool more = false;
    assert_int_equal(choices_open(&r, text, &e), OK);
    assert_int_equal(choices_expect(&r, "NVIDIA H200", "cublaslt 130100, cudnn 91900", &e), OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(choices_next(&r, &got, &more, &e), OK);
        assert_true(more);
        assert_memory_equal(&got, &list[i], sizeof got);
    }
    assert_int_equal(choices_next(&r, &got, &more, &e), OK);
    assert_false(more);
    free(text);
}

static enum status read_all(const char *text, struct err *e) {
    struct choices_reader r;
    struct choice c;
    TRY(choices_open(&r, text, e));
    for (bool more = true; more;) TRY(choices_next(&r, &c, &more, e));
    return OK;
}

static void invalid_tables_are_rejected(void **state) {
    static const struct { const char *text, *says; } CASE[] = {
        { "", "not 'fp8lab choices 1'" },
        { "{}\n", "not 'fp8lab choices 1'" },
        { "fp8lab choices 2\n", "not 'fp8lab choices 1'" },
        { "fp8lab choices 1\nmachine x\n", "line 2: expected 'device ...'" },
        { "fp8lab choices 1\ndevice x\n", "expected 'libraries ...'" },
        { HEAD "gemm 1 2 : 00", "line 4: cut off" },
        { HEAD "# fine\ngemm 1 2 : 0\n", "line 5: expected" },
        { HEAD "gemm 1 2 : 0g\n", "line 4: expected" },
        { HEAD "gemm 1 2 : 0G\n", "line 4: expected" },
        { HEAD "gemm 1 2 :\n", "line 4: expected" },
        { HEAD "gemm : 00\n", "line 4: expected" },
        { HEAD "gemm 1 x : 00\n", "line 4: expected" },
        { HEAD "gemm  1 : 00\n", "line 4: expected" },
        { HEAD "gemm 99999999999999999999 : 00\n", "line 4: expected" },
        { HEAD "a_kind_with_a_long_name 1 : 00\n", "line 4: expected" },
        { HEAD "\n", "line 4: expected" },
        { HEAD "gemm 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 : 00\n",
          "line 4: expected" },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct err e = { 0 };
        assert_int_equal(read_all(CASE[i].text, &e), ERR_CONFIG);
        if (!strstr(e.text, CASE[i].says)) fail_msg("case %zu: %s", i, e.text);
    }
}

/* Every prefix of a table is rejected or is a shorter table; no read passes its end. */
static void truncated_tables_are_rejected(void **state) {
    static const char WHOLE[] = HEAD "gemm 1 2 3 : 0011\nattention 8 : -\n";
    struct err e;
    for (size_t n = 0; n < sizeof WHOLE; n++) {
        char *text = malloc(n + 1); /* exact size: a sanitizer sees a read past it */
        assert_non_null(text);
        memcpy(text, WHOLE, n);
        text[n] = '\0';
        bool whole = n >= strlen(HEAD) && text[n - 1] == '\n';
        assert_int_equal(read_all(text, &e) == OK, whole);
        free(text);
    }
}

static void another_device_or_library_is_named(void **state) {
    struct choices_reader r;
    struct err e = { 0 };
    const char *const libraries = "cublaslt 130100, cudnn 91900";
    assert_int_equal(choices_open(&r, HEAD, &e), OK);
    assert_int_equal(choices_expect(&r, "NVIDIA H100", libraries, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "NVIDIA H200"));
    assert_non_null(strstr(e.text, "NVIDIA H100"));
    assert_int_equal(choices_expect(&r, "NVIDIA H200", "cublaslt 130200, cudnn 0", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, libraries));
    assert_non_null(strstr(e.text, "cublaslt 130200, cudnn 0"));
}

static void a_choice_is_found_by_its_whole_key(void **state) {
    static const char TABLE[] = HEAD "# gemm 7 : 99\ngemm 1 2 3 : 0a\ngemm 1 2 : 0b0c\n"
                                     "attention 1 2 : -\ngemm 8 : zz\ngemm -5 : 0d\ngemm 9 : 0e";
    static const struct { const char *kind; int64_t key[3]; int keys, bytes, first; } FOUND[] = {
        { "gemm", { 1, 2, 3 }, 3, 1, 0x0a }, { "gemm", { 1, 2 }, 2, 2, 0x0b },
        { "attention", { 1, 2 }, 2, 0, 0 },  { "gemm", { -5 }, 1, 1, 0x0d },
        { "gemm", { 9 }, 1, 1, 0x0e },       { "gemm", { 1 }, 1, -1, 0 },
        { "gemm", { 7 }, 1, -1, 0 },         { "gemm", { 8 }, 1, -1, 0 },
        { "emm", { 9 }, 1, -1, 0 },          { "gemm", { 2, 3 }, 2, -1, 0 },
    };
    for (size_t i = 0; i < sizeof FOUND / sizeof *FOUND; i++) {
        struct choice got;
        bool found = choices_find(TABLE, FOUND[i].kind, FOUND[i].key, FOUND[i].keys, &got);
        if (found != (FOUND[i].bytes >= 0)) fail_msg("case %zu", i);
        if (!found) continue;
        assert_int_equal(got.bytes, FOUND[i].bytes);
        assert_int_equal(got.value[0], FOUND[i].first);
    }
}

static void the_cpu_chooses_nothing(void **state) {
    struct backend *b = NULL;
    struct err e = { 0 };
    struct decision d;
    char *text = NULL;
    assert_int_equal(cpu_backend_open(&b, 1, &e), OK);
    assert_int_equal(b->ops->choices_save(b, &text, &e), OK);
    assert_string_equal(text, "");
    assert_int_equal(b->ops->choices_load(b, text, &e), OK);
    free(text);
    assert_int_equal(b->ops->choices_load(b, HEAD "gemm 1 : 00\n", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "NVIDIA H200 (cublaslt 130100, cudnn 91900)"));
    assert_int_equal(b->ops->choices_load(b, "no table", &e), ERR_CONFIG);
    assert_int_equal(b->ops->choices_offer(b, HEAD "gemm 1 : 00\n", &e), ERR_CONFIG);
    assert_int_equal(b->ops->choices_offer(b, "", &e), OK);
    assert_int_equal(b->ops->choices_timed(b, &text, &e), OK);
    assert_string_equal(text, "");
    free(text);
    assert_false(b->ops->decision(b, 0, &d));
    assert_int_equal(b->ops->assume_architecture(b, "sm_121", &e), ERR_UNSUPPORTED);
    assert_int_equal(b->ops->set_exact(b, true, &e), OK);
    b->ops->close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_table_reads_back),
        cmocka_unit_test(invalid_tables_are_rejected),
        cmocka_unit_test(truncated_tables_are_rejected),
        cmocka_unit_test(another_device_or_library_is_named),
        cmocka_unit_test(a_choice_is_found_by_its_whole_key),
        cmocka_unit_test(the_cpu_chooses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
