/* The requirements of a comparison as a JUnit report, which CI systems show. */
#include <string.h>

#include "runner/base/plain_text.h"
#include "runner/base/text_stream.h"
#include "runner/compare/compare_require.h"
#include "runner/compare/svg_plot.h"

/* XML forbids most control characters, and ids and names are foreign text: the report is plain. */
static void put_case(FILE *out, const json_t *statistics, const char *requirement,
                     const json_t *row) {
    char name[8];
    int64_t group = json_integer_value(json_object_get(row, "group"));
    fputs("  <testcase classname=\"", out);
    html_escape(out, requirement);
    fprintf(out, "\" name=\"%s ", compare_group_letter(statistics, group, name));
    html_escape(out, json_text(row, "label", "-"));
    fputs("\">", out);
    if (!json_is_true(json_object_get(row, "met"))) {
        fputs("<failure message=\"", out);
        html_escape(out, json_text(row, "found", ""));
        fputs("\"/>", out);
    }
    fputs("</testcase>\n", out);
}

/* A requirement without a row is a case of its own, which fails. */
static void put_requirement(FILE *out, const json_t *report, const json_t *item) {
    const json_t *rows = json_object_get(item, "rows"), *row;
    const char *text = json_text(item, "requirement", "");
    size_t i;
    json_array_foreach(rows, i, row)
        put_case(out, json_object_get(report, "statistics"), text, row);
    if (i > 0) return;
    fputs("  <testcase classname=\"", out);
    html_escape(out, text);
    fputs("\" name=\"any row\"><failure message=\"" COMPARE_NO_ROW "\"/></testcase>\n", out);
}

static void count_cases(const json_t *list, size_t *cases, size_t *misses) {
    const json_t *item, *row;
    size_t i, k;
    json_array_foreach(list, i, item) {
        json_array_foreach(json_object_get(item, "rows"), k, row) {
            *cases += 1;
            *misses += !json_is_true(json_object_get(row, "met"));
        }
        *cases += k == 0;
        *misses += k == 0;
    }
}

enum status compare_junit(const struct comparison *c, const char *path, struct err *e) {
    struct text text = { 0 };
    json_t *report = plain_tree(c->report);
    const json_t *list = json_object_get(report, "requirements"), *item;
    size_t i, cases = 0, misses = 0;
    FILE *out = report ? text_stream_open(&text) : NULL;
    if (out) {
        count_cases(list, &cases, &misses);
        fprintf(out, JUNIT_BEGINS JUNIT_MARK " tests=\"%zu\" failures=\"%zu\">\n", cases, misses);
        json_array_foreach(list, i, item) put_requirement(out, report, item);
        fputs("</testsuite>\n", out);
    }
    bool whole = out && text_stream_close(out, &text);
    json_decref(report);
    enum status st = whole ? file_replace(path, text.bytes, text.size, e)
                           : FAIL(e, ERR_MEMORY, "no memory for %s", path);
    text_free(&text);
    return st;
}
