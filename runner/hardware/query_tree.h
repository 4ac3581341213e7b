/* The parsed query; private to query_parse.c and query_match.c. */
#ifndef FP8LAB_RUNNER_HARDWARE_QUERY_TREE_H
#define FP8LAB_RUNNER_HARDWARE_QUERY_TREE_H

#include "runner/hardware/fact_names.h"
#include "runner/hardware/query.h"

enum query_kind { QUERY_TERM, QUERY_NOT, QUERY_AND, QUERY_OR };
enum query_op { QUERY_EQ, QUERY_NE, QUERY_LT, QUERY_LE, QUERY_GT, QUERY_GE, QUERY_GLOB };

struct query_node {
    enum query_kind kind;
    const struct fact_name *fact; /* QUERY_TERM */
    enum query_op op;
    char *text;                   /* the value as written, without quotes; owned */
    double number;                /* the value of a number, and of a FACT_BOOL */
    struct query_node *left, *right; /* owned; NOT has only left */
};

struct query {
    struct query_node *root; /* owned */
};

/* "<=" and so on. */
const char *query_op_text(enum query_op op);

#endif
