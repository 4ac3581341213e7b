/* The page of a comparison: its words, its script and the policy that admits nothing else, and the
 * data of its plots. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/compare/base64.h"
#include "runner/compare/page.h"
#include "runner/compare/plots.h"
#include "runner/base/text_stream.h"
#include "tests/bundle/compare_scene.h"

static void base64_pads(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
        { "\xff\xfe\xfb", "//77" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char text[32] = "";
        FILE *out = fmemopen(text, sizeof text, "w");
        struct base64 b = { .out = out };
        assert_non_null(out);
        for (const char *at = CASES[i][0]; *at; at++) base64_add(&b, at, 1);
        base64_end(&b);
        fclose(out);
        assert_string_equal(text, CASES[i][1]);
    }
}

/* Only the script with the hash in the policy may run, and nothing is loaded. */
static void the_policy_admits_our_script_alone(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    unsigned char digest[SHA256_BYTES];
    char wanted[64] = "";
    two[1].recipe = "</script><script>alert(1)</script><!--";
    compare(&s, two, 2);
    char *html = page_of(&s), *script = strstr(html, "<script>"), *end;
    assert_non_null(script);
    script += strlen("<script>");
    end = strstr(script, "</script>");
    assert_non_null(end);
    CHECK(sha256_digest(script, (size_t)(end - script), digest, &e));
    FILE *out = fmemopen(wanted, sizeof wanted, "w");
    struct base64 b = { .out = out };
    assert_non_null(out);
    base64_add(&b, digest, sizeof digest);
    base64_end(&b);
    fclose(out);
    const char *policy = strstr(html, "default-src 'none'; style-src 'unsafe-inline'; "
                                      "script-src 'sha256-");
    assert_non_null(policy);
    assert_memory_equal(strstr(policy, "sha256-") + 7, wanted, strlen(wanted));
    assert_null(strstr(html, "alert(1)</script>"));
    assert_null(strstr(page_script(), "<!--"));
    static const char *const LOADS[] = { "http:", "https:", "src=", "href=", "url(", "@import" };
    for (size_t i = 0; i < sizeof LOADS / sizeof *LOADS; i++) assert_null(strstr(html, LOADS[i]));
    free(html);
    finish(&s);
}

/* The numbers of the plots are numbers, ids of ours and base64: no text of a run. */
static void the_data_have_no_text_of_a_run(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[0].recipe = "\\\\<'&>";
    compare(&s, two, 2);
    char *html = page_of(&s), *data = strstr(html, " id=\"data\">"), *end;
    assert_non_null(data);
    data += strlen(" id=\"data\">");
    end = strstr(data, "</script>");
    assert_non_null(end);
    *end = '\0';
    json_t *json = json_loads(data, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_array_size(json_object_get(json, "runs")), 2);
    assert_true(json_array_size(json_object_get(json, "plots")) > 5);
    assert_int_equal(strspn(data, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "+/=\",:{}[]_.- \n"), strlen(data));
    json_decref(json);
    free(html);
    finish(&s);
}

/* The largest of the numbers behind a key of a line. */
static double largest(const char *text, const char *key) {
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strstr(text, key);
    double most = -INFINITY;
    unsigned char bytes[4];
    uint32_t bits = 0;
    int count = 0, known = 0;
    assert_non_null(at);
    for (at += strlen(key); *at != '"' && *at != '='; at++) {
        bits = bits << 6 | (uint32_t)(strchr(DIGITS, *at) - DIGITS);
        known += 6;
        if (known < 8) continue;
        known -= 8;
        bytes[count++] = (unsigned char)(bits >> known);
        if (count < 4) continue;
        float f;
        memcpy(&f, bytes, sizeof f);
        most = fmax(most, (double)f);
        count = 0;
    }
    return most;
}

/* One plot of ten runs of 100,000 steps takes its part of 2 MB; no spike is lost. */
static void a_plot_is_thinned_and_keeps_its_spikes(void **state) {
    (void)state;
    enum { ROWS = 100000, LINES = 10, PLOTS = 13, SPIKE = 31415 };
    struct text text = { 0 };
    struct svg_line lines[LINES];
    double *x = malloc(ROWS * sizeof *x), *y = malloc(ROWS * sizeof *y);
    assert_true(x && y);
    uint32_t random = 1;
    for (int i = 0; i < ROWS; i++) {
        random = random * 1664525 + 1013904223;
        x[i] = i + 1;
        y[i] = 2 + 5.0 / (i + 1) + 1e-10 * random;
    }
    y[SPIKE] = 1000;
    for (int i = 0; i < LINES; i++)
        lines[i] = (struct svg_line){ "A", i, i, x, y, NULL, ROWS };
    const struct svg_figure figure = { "loss", "Loss", false };
    FILE *out = text_stream_open(&text);
    plot_data_add(out, &figure, lines, LINES, 750);
    assert_true(text_stream_close(out, &text));
    assert_true(largest(text.bytes, "\"high\":\"") == 1000);
    assert_true(largest(text.bytes, "\"low\":\"") < 8);
    assert_non_null(strstr(text.bytes, "\"x\":[1,134]"));
    size_t bytes = text.size;
    text_free(&text);
    text = (struct text){ 0 };
    out = text_stream_open(&text);
    svg_plot(out, &figure, lines, LINES);
    assert_true(text_stream_close(out, &text));
    assert_true(bytes + text.size < 2000000 / PLOTS);
    text_free(&text);
    free(x);
    free(y);
}

/* The sentences at the top say the verdict, or what one lacks. */
static void the_words_say_the_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].loss_shift = 0.1 * (i % 3) + (i < 3 ? 0 : 0.4);
        runs[i].speed = i < 3 ? 1 : 1.25;
    }
    compare(&s, runs, 6);
    char *html = page_of(&s);
    const char *words = strstr(html, "<ul class=\"words\">"), *tables = strstr(html, "<h2>");
    assert_true(words && words < tables);
    assert_non_null(strstr(words, "A… bf16, 3 seeds: the baseline.</li>"));
    assert_non_null(strstr(words, "it <strong class=\"bad\">does not hold</strong> the loss of A. "
                                  "Its mean evaluation loss is "));
    assert_non_null(strstr(words, " × the tokens/s of A"));
    free(html);
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].loss_shift = i < 3 ? 0 : 0.005 + 0.03 * (i - 4);
    compare(&s, runs, 6);
    html = page_of(&s);
    words = strstr(html, "it is <strong class=\"soft\">undecided</strong> whether it holds the "
                         "loss of A. ");
    assert_non_null(words);
    assert_non_null(strstr(words, " seeds per side would decide, if "));
    free(html);
    finish(&s);
    runs[1].status = "killed";
    compare(&s, (struct run_fixture[]){ runs[0], runs[3], runs[1] }, 3);
    html = page_of(&s);
    words = strstr(html, "<ul class=\"words\">");
    assert_non_null(strstr(words, "no verdict</strong>."));
    assert_non_null(strstr(words, " Missing for a verdict: row and baseline need 3 seeds each; "));
    assert_non_null(strstr(words, "<li>Run C ended as killed.</li>"));
    free(html);
    finish(&s);
}

/* Of the last counted step; rows are layers in order, and a foreign text ends where it is none. */
static void the_page_maps_the_last_histograms(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[0].recipe = "bf16"; /* another colour, without histograms */
    two[1].histograms =
        "{\"step\":5,\"tensors\":{\"layers.1.qkv.weight\":\"100:7\"}}\n"
        "{\"step\":10,\"tensors\":{\"<b>.weight\":\"64:1 90:1\",\"grad:head.weight\":\"129:4\","
        "\"layers.10.qkv.weight\":\"90:1\",\"layers.2.a.weight\":\"26:1 64:4 102:2 5:9\","
        "\"layers.2.b.weight\":\"94:1 x\",\"out:layers.0\":3}}\n";
    compare(&s, two, 2);
    char *html = page_of(&s), *maps = strstr(html, "<h2>Histograms</h2>"), *end;
    assert_non_null(maps);
    end = strstr(maps, "<h2>What differs");
    assert_non_null(end);
    *end = '\0';
    assert_non_null(strstr(maps, "Weights in step 10, by powers of two"));
    assert_null(strstr(maps, "Gradients in step"));  /* NaN alone */
    assert_null(strstr(maps, "Outputs of blocks in")); /* no text */
    /* rows 2, 10, <b>; columns 2^-23 to 2^-11, so the fifth is 2^-19 */
    assert_non_null(strstr(maps, "<path class=\"spread\" d=\"M217 10h39v14h-39z"));
    assert_non_null(strstr(maps, "<tr><th scope=\"row\">Weights</th><td>2</td>"
                                 "<td class=\"n\">50</td><td class=\"n\">2^-10</td>"
                                 "<td class=\"n\">2^-10</td><td class=\"n\">0</td></tr>\n"
                                 "<tr><th scope=\"row\">Weights</th><td>10</td>"));
    assert_non_null(strstr(maps, "<td>&lt;b&gt;</td><td class=\"n\">50</td>"));
    assert_non_null(strstr(maps, "<th scope=\"row\">Gradients</th><td>head</td>"));
    assert_non_null(strstr(maps, "<td class=\"n\">4</td></tr>")); /* NaN */
    free(html);
    finish(&s);
}

/* Runs of one script share its text; each has the commands that repeat it. */
static void the_page_says_how_to_repeat_it(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    char command[PATH_CAP + 64];
    two[1].recipe = "bf16";
    compare(&s, two, 2);
    char *html = page_of(&s), *script = strstr(html, "<h2>Scripts</h2>");
    assert_non_null(script);
    script = strstr(script, "return experiment { name = &quot;tiny&quot; }");
    assert_non_null(script);
    assert_null(strstr(script + 1, "return experiment"));
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "<code>fp8lab repro %s</code>", s.path[i]);
        assert_non_null(strstr(html, command));
    }
    assert_non_null(strstr(html, "started by <code>fp8lab run tiny.lua</code>"));
    assert_non_null(strstr(html, "role=\"region\" aria-label=\"The command of this page\">fp8lab "
                                 "compare --html page.html \\\n"));
    const char *times = strstr(html, "<h2>Where the time went</h2>");
    assert_non_null(times);
    assert_non_null(strstr(times, "<td class=\"n\">40."));
    free(html);
    char *huge = calloc(1, 200001);
    assert_non_null(huge);
    memset(huge, 'x', 200000);
    assert_int_equal(json_object_set_new(s.c.run[1].scripts, "main.lua", json_string(huge)), 0);
    html = page_of(&s);
    assert_non_null(strstr(html, "main.lua</code>: 200000 bytes, too long for this page"));
    assert_null(strstr(html, "xxxxxxxx"));
    free(huge);
    free(html);
    finish(&s);
}

/* Files for papers: whole, named by what they show, with rows named by what differs. */
static void each_plot_is_a_file(void **state) {
    struct scene s;
    struct err e = { 0 };
    char dir[PATH_CAP], path[PATH_CAP], *text = NULL;
    int64_t files = 0;
    size_t n = 0;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 3; i < 6; i++) runs[i].recipe = "<script>\\u0001</script>";
    compare(&s, runs, 6);
    CHECK(path_join(dir, s.parent, "figures/of it", &e));
    CHECK(compare_svg(&s.c, dir, &files, &e));
    assert_int_equal(files, 8);
    CHECK(path_join(path, dir, "train_gap.svg", &e));
    CHECK(file_read(path, 1 << 24, &text, &n, &e));
    assert_memory_equal(text, "<?xml version", 13);
    assert_string_equal(text + n - 7, "</svg>\n");
    assert_null(strstr(text, "<script"));
    assert_null(strchr(text, '\001'));
    assert_non_null(strstr(text, "A… bf16, 3 seeds</text>"));
    assert_non_null(strstr(text, "&lt;script&gt;?&lt;/script&gt;, 3 seeds</text>"));
    assert_non_null(strstr(text, "Helvetica"));
    assert_non_null(strstr(text, "<path class=\"band k0\" d=\"M")); /* of the baseline's seeds */
    free(text);
    finish(&s);
}

/* A page of one run has nothing that compares. */
static void one_run_has_a_page(void **state) {
    static const struct { const char *recipe; bool saturates, underflows; } CASES[] = {
        { "bf16", false, false }, { "fp8.tensorwise", false, true }, { "fp8.delayed", true, true },
    };
    struct scene s;
    struct run_fixture one = run_fixture_default();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        one.recipe = CASES[i].recipe;
        compare(&s, &one, 1);
        char *html = page_of(&s);
        assert_int_equal(strstr(html, "% saturated.</li>") != NULL, CASES[i].saturates);
        assert_int_equal(strstr(html, "% became zero.</li>") != NULL, CASES[i].underflows);
        free(html);
        finish(&s);
    }
    compare(&s, &one, 1);
    char *html = page_of(&s);
    assert_non_null(strstr(html, "<li>fp8.delayed: <strong>done</strong>, after 20 steps"));
    assert_non_null(strstr(html, "<h2>Settings</h2>"));
    assert_non_null(strstr(html, "data-plot=\"train_loss\""));
    assert_null(strstr(html, "data-plot=\"train_gap\""));
    assert_null(strstr(html, "<h2>What differs</h2>"));
    assert_null(strstr(html, "the baseline"));
    free(html);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_pads),
        cmocka_unit_test(the_policy_admits_our_script_alone),
        cmocka_unit_test(the_data_have_no_text_of_a_run),
        cmocka_unit_test(a_plot_is_thinned_and_keeps_its_spikes),
        cmocka_unit_test(the_page_maps_the_last_histograms),
        cmocka_unit_test(the_page_says_how_to_repeat_it),
        cmocka_unit_test(each_plot_is_a_file),
        cmocka_unit_test(one_run_has_a_page),
        cmocka_unit_test(the_words_say_the_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
