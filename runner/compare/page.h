/* The parts of the page that describes one run or compares several. Every text from a bundle is
 * escaped: a foreign run may be called "<script>". Allocation failures set *failed, as in
 * json_safe.h; an incomplete page is not written. */
#ifndef FP8LAB_RUNNER_COMPARE_PAGE_H
#define FP8LAB_RUNNER_COMPARE_PAGE_H

#include "runner/compare/compare.h"

/* Everything before the body: the policy that lets only our script run, the style. ERR_MEMORY. */
NODISCARD enum status page_open(FILE *out, const char *title, struct err *e);
/* The script and the end of the page. */
void page_close(FILE *out);

/* report.js, as the page has it. */
const char *page_script(void);

/* A table with its caption, up to the beginning of its first row. Tables and texts that may scroll
 * are regions with a name, so that keys and screen readers reach them. */
void page_table_begin(FILE *out, const char *caption);
/* The same with the row of titles; a title "" is an empty head. */
void page_table(FILE *out, const char *caption, const char *const *titles, size_t count);
void page_table_end(FILE *out);
/* The begin of a text of fixed width; the caller writes "</pre>" behind it. */
void page_text_begin(FILE *out, const char *label);

/* A run's mark and letter, in the colour of its plots. */
void page_run(FILE *out, const json_t *report, int64_t run);
/* A group's mark and name. */
void page_group(FILE *out, const json_t *report, int64_t group, bool *failed);

/* A section about the first run of each group for which has() is true: `head` once, then each run's
 * mark and what put() writes of it. Nothing without such a run. */
void page_firsts(FILE *out, const struct comparison *c, const char *head,
                 bool (*has)(const struct comparison *c, int64_t run),
                 void (*put)(FILE *out, const struct comparison *c, int64_t run));

/* compare_words.c: what was compared and what came of it, in sentences. */
void page_words(FILE *out, const struct comparison *c, bool *failed);
/* The same of a run by itself. */
void page_one(FILE *out, const struct comparison *c);

/* page_runs.c: where each run's time went; scripts, once for all runs that share them; commands
 * that repeat the runs and the page. */
void page_times(FILE *out, const struct comparison *c);
void page_scripts(FILE *out, const struct comparison *c);
void page_repeat(FILE *out, const struct comparison *c, bool *failed);
/* For a page of one run: configuration, machine, libraries, figures. */
void page_settings(FILE *out, const struct run_view *v, bool *failed);

#endif
