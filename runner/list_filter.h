/* Which runs `list` shows, and in which order. */
#ifndef FP8LAB_RUNNER_LIST_FILTER_H
#define FP8LAB_RUNNER_LIST_FILTER_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/bundle/run_view.h"

/* The flags of a verb that filters runs. */
#define LIST_FILTER_FLAGS                                                                        \
    { "recipe", "GLOB", "runs of these recipes: a kind, or with options", false },              \
    { "status", "STATUS", "runs with this status: done, failed, running, ...", false },         \
    { "since", "TIME", "runs since 2026-11-20, 2026-11-20T10:00:00Z, 3d, 12h", false },         \
    { "name", "GLOB", "runs with such a name: 'gpt2-*'", false },                               \
    { "tag", "TAG", "runs with this tag; all of them if repeated", true }

struct list_filter {
    const struct cli *cli; /* borrowed */
    const char *recipe, *status, *name;
    int64_t since; /* s since 1970; 0: no limit */
};

/* Reads the flags; `now`: s since 1970. ERR_ARG. */
NODISCARD enum status list_filter_read(const struct cli *cli, int64_t now, struct list_filter *out,
                                       struct err *e);

/* What one run is, as `list` shows it; texts are foreign. */
struct list_facts {
    char recipe[80]; /* with its options, cut */
    char kind[32];
    char model[32];  /* "32x4096": layers x width */
    char device[64]; /* "2x H200", "cpu" */
    char date[20];   /* "2026-11-21 02:48" */
};
void list_facts_of(const struct run_view *v, struct list_facts *out);

bool list_filter_takes(const struct list_filter *f, const struct run_view *v,
                       const struct list_facts *facts, const char *status, const json_t *notes);

#endif
