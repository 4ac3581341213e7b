/* Certificates that runs of this user made, kept in certificates.json of the cache folder. A table
 * in it belongs to one device, driver, build of the kernels, set of libraries, and `--caps`. */
#ifndef FP8LAB_RUNNER_CERTIFY_CERTIFY_CACHE_H
#define FP8LAB_RUNNER_CERTIFY_CERTIFY_CACHE_H

#include "runner/base/run_files.h"
#include "runner/record/kept_file.h"

struct json_t;

#define CERTIFICATES_FILE "certificates.json" /* its name in a folder */

struct certify_cache {
    char folder[PATH_CAP], spare[PATH_CAP]; /* as kept_folders has them; "": none */
    bool homeless; /* the user's own folder is not known; `folder` is the spare one, if any */
    struct json_t *key; /* owned: what the certificates of this machine are for */
};

struct certify_device {
    const char *backend, *caps; /* caps may be NULL */
    int64_t index;              /* as backend_open takes it */
};

/* facts: of this machine, with the library versions that a probe found. */
NODISCARD enum status certify_cache_open(struct certify_cache *c, const char *folder,
                                         const char *spare, const struct json_t *facts,
                                         const struct certify_device *d, struct err *e);
/* The same for a run: folder NULL is the default one, in a container the folder `cache` in runs. */
NODISCARD enum status certify_cache_of_run(struct certify_cache *c, const char *folder,
                                           const char *runs, const struct json_t *facts,
                                           const struct certify_device *d, struct err *e);
void certify_cache_close(struct certify_cache *c);

/* *list: the certificates of this machine, an array of the caller's; empty if there are none.
 * problem: a sentence if the file cannot be used, else "". */
NODISCARD enum status certify_cache_read(const struct certify_cache *c, struct json_t **list,
                                         char problem[KEPT_PROBLEM_CAP], struct err *e);
/* Keeps certificates for later runs. problem: why that was not possible, or that it was possible
 * elsewhere alone; else "". */
NODISCARD enum status certify_cache_add(const struct certify_cache *c, struct json_t *list,
                                        char problem[KEPT_PROBLEM_CAP], struct err *e);

/* Whether two certificates are of one way, without the same names, and forbid the same. */
bool certificate_is_same(const struct json_t *a, const struct json_t *b);
/* The certificates of a way in a list: one, or more if it failed and another way was tried. New
 * array; empty if there are none. */
struct json_t *certificates_of(const struct json_t *list, const char *way);

#endif
