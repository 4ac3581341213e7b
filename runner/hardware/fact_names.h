/* The names of the hardware facts, their kinds, and what they mean: one table, which the query
 * language checks against and `fp8lab hw` prints in order. */
#ifndef FP8LAB_RUNNER_HARDWARE_FACT_NAMES_H
#define FP8LAB_RUNNER_HARDWARE_FACT_NAMES_H

#include <stdint.h>

enum fact_kind {
    FACT_STRING,
    FACT_NUMBER,
    FACT_BYTES,   /* a number, printed and written with KiB ... TiB */
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
/* All values that a text can have, NULL-terminated; NULL: any text. */
const char *const *fact_words(const struct fact_name *fact);
/* What a wrong name was meant to be: by other tools' names, else the nearest one; or NULL. */
const char *fact_meant(const char *name);

#endif
