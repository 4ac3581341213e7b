/* The outputs of `advise`: five lines, the table of --detail, and JSON. */
#ifndef FP8LAB_RUNNER_ADVISE_ADVICE_REPORT_H
#define FP8LAB_RUNNER_ADVISE_ADVICE_REPORT_H

#include "runner/advise/advice.h"
#include "runner/base/cli.h"

enum { ADVICE_TEXT_CAP = 2048 };

/* What a report needs beside the ranked rows; all borrowed. */
struct advice_context {
    const char *given;   /* the script and its overrides but for the recipe, quoted for a shell */
    const char *machine; /* the GPU or the CPU */
    const struct measured *measured;
    const struct evidence *evidence;
};

/* The command that measures the step whose time is missing, quoted for a shell; "": none is. */
void advice_measure(const struct advice *a, const char *given, char out[ADVICE_TEXT_CAP]);
void advice_print(const struct cli *cli, const struct advice *a, const struct advice_context *x);
void advice_print_table(const struct cli *cli, const struct advice *a);
/* "fp8lab.advise/1"; NULL: no memory. */
struct json_t *advice_json(const struct advice *a, const struct advice_context *x);

#endif
