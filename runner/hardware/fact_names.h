/* The names, kinds and meanings of the hardware facts, in one table. The query language checks
 * names against it; `fp8lab hw` prints it in order. */
#ifndef FP8LAB_RUNNER_HARDWARE_FACT_NAMES_H
#define FP8LAB_RUNNER_HARDWARE_FACT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum fact_kind {
    FACT_STRING,
    FACT_NUMBER,
    FACT_COUNT,   /* a whole number, at least 0 */
    FACT_BYTES,   /* a whole number, at least 0, printed and written with KiB ... TiB */
    FACT_VERSION, /* a string of dotted numbers, compared part by part: 12.10 > 12.9 */
    FACT_BOOL
};

struct fact_name {
    const char *name;
    enum fact_kind kind;
    const char *about; /* one line, with its source or unit */
};

extern const struct fact_name FACT_NAMES[];
extern const int64_t FACT_NAME_COUNT;

/* The row of a fact, or NULL. */
const struct fact_name *fact_find(const char *name);
/* All values that a text fact can have, NULL-terminated; NULL: any text. */
const char *const *fact_words(const struct fact_name *fact);
/* More than this no machine has of a fact that is a number. */
double fact_most(const struct fact_name *fact);
/* The fact that a wrong name probably means: by its name in other tools, else the nearest; or
 * NULL. */
const char *fact_meant(const char *name);
/* Whether a text is digits and dots, such as 580.159.04. */
bool fact_is_version(const char *text);

#endif
