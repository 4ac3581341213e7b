#include "runner/compare/page.h"

#include <stdlib.h>
#include <string.h>

#include "model/ground/sha256.h"
#include "runner/compare/base64.h"
#include "runner/compare/svg_plot.h"

/* The bytes of a file of this folder, with a NUL behind them. The Makefile names both files. */
#define EMBED(name, file)                                                                         \
    __asm__(".section .rodata\n" #name ": .incbin \"runner/compare/" file "\"\n.byte 0\n"          \
            ".previous\n");                                                                       \
    extern const char name[]
EMBED(report_js, "report.js");
EMBED(report_css, "report.css");

const char *page_script(void) { return report_js; }

enum status page_open(FILE *out, const char *title, struct err *e) {
    unsigned char digest[SHA256_BYTES];
    struct base64 hash = { .out = out };
    TRY(sha256_digest(report_js, strlen(report_js), digest, e));
    fputs(PAGE_BEGINS
          "<meta name=\"viewport\" content=\"width=device-width\">"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'sha256-", out);
    base64_add(&hash, digest, sizeof digest);
    base64_end(&hash);
    fputs("'\"><title>", out);
    html_escape(out, title);
    fprintf(out, "</title>\n<style>\n%s%s</style></head><body>\n", report_css, svg_css());
    return OK;
}

void page_close(FILE *out) {
    fprintf(out, "<script>%s</script>\n</body></html>\n", report_js);
}

static void put_region(FILE *out, const char *element, const char *label) {
    fprintf(out, "<%s tabindex=\"0\" role=\"region\" aria-label=\"", element);
    html_escape(out, label);
    fputs("\">", out);
}

void page_text_begin(FILE *out, const char *label) { put_region(out, "pre", label); }

void page_table_begin(FILE *out, const char *caption) {
    put_region(out, "div class=\"wide\"", caption);
    fprintf(out, "<table><caption>%s</caption><tr>", caption);
}

void page_table(FILE *out, const char *caption, const char *const *titles, size_t count) {
    page_table_begin(out, caption);
    for (size_t k = 0; k < count; k++) {
        if (*titles[k]) fprintf(out, "<th scope=\"col\">%s</th>", titles[k]);
        else fputs("<td></td>", out);
    }
    fputs("</tr>\n", out);
}

void page_table_end(FILE *out) {
    fputs("</table></div>\n", out);
}

void page_run(FILE *out, const json_t *report, int64_t run) {
    char name[8];
    svg_key(out, compare_group_of(report, run));
    fprintf(out, " %s", compare_letter(run, name));
}

void page_group(FILE *out, const json_t *report, int64_t group, bool *failed) {
    char *label = compare_group_label(report, group);
    svg_key(out, group);
    fputc(' ', out);
    if (label) html_escape(out, label);
    *failed = *failed || !label;
    free(label);
}

static bool is_first(const struct comparison *c, int64_t run,
                     bool (*has)(const struct comparison *c, int64_t run)) {
    int64_t group = compare_group_of(c->report, run);
    if (!has(c, run)) return false;
    for (int64_t i = 0; i < run; i++)
        if (compare_group_of(c->report, i) == group && has(c, i)) return false;
    return true;
}

void page_firsts(FILE *out, const struct comparison *c, const char *head,
                 bool (*has)(const struct comparison *c, int64_t run),
                 void (*put)(FILE *out, const struct comparison *c, int64_t run)) {
    bool first = true;
    for (int64_t i = 0; i < c->count; i++) {
        char name[8];
        if (!is_first(c, i, has)) continue;
        if (first) fputs(head, out);
        first = false;
        fputs("<h3>", out);
        svg_key(out, compare_group_of(c->report, i));
        fprintf(out, " %s</h3>\n", compare_letter(i, name));
        put(out, c, i);
    }
}
