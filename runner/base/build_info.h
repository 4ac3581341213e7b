/* What this program was built from; the Makefile writes the values. */
#ifndef FP8LAB_RUNNER_BASE_BUILD_INFO_H
#define FP8LAB_RUNNER_BASE_BUILD_INFO_H

#include <stdbool.h>

struct build_info {
    const char *code_sha256;  /* of the sources that determine a run's results, the plugin's too */
    const char *build_sha256; /* of all sources: equal in all tasks of one job */
    const char *commit;       /* "unknown" if git did not report one at build time */
    bool dirty;              /* the tree had changes that are not in the commit */
    const char *compiler;
};

struct build_info build_info(void);

#endif
