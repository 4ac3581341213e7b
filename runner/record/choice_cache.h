/* The choices that runs of this user timed, kept in the file choices.json of a folder, so that the
 * next run of a shape takes the same algorithm at once. A table in it belongs to one driver, one
 * build of the kernels, one architecture, one device and one set of libraries.
 *
 * A kept choice is never replaced: the first one stays until the file is deleted. So two runs of an
 * experiment have equal bits, whatever ran between them. */
#ifndef FP8LAB_RUNNER_RECORD_CHOICE_CACHE_H
#define FP8LAB_RUNNER_RECORD_CHOICE_CACHE_H

#include "runner/base/run_files.h"

/* Of one process. Zero-initialised: nothing is offered or kept. */
struct choice_cache {
    char folder[PATH_CAP]; /* "": the choices stay in this process */
    char spare[PATH_CAP];  /* used where `folder` cannot be written; "": none */
    char driver[96];       /* of the GPUs, "" if there is none */
    json_t *tables; /* owned; what earlier runs of this process were offered or timed, which wins
                     * over the file: the rows of a suite then have the same algorithms */
    bool said;              /* that they cannot be stored */
    bool anew;              /* nothing is kept from one run to the next: --choices none */
};

enum { CHOICE_PROBLEM_CAP = 2 * PATH_CAP };

/* folder NULL: $XDG_CACHE_HOME/fp8lab, or ~/.cache/fp8lab. spare: the folder of runs, or NULL. Its
 * folder `cache` serves without these variables, or if the first folder cannot be written, as in a
 * container. Reads and makes nothing. */
NODISCARD enum status choice_cache_open(struct choice_cache *c, const char *folder,
                                        const char *spare, const char *driver, struct err *e);
/* For --choices none: neither reads nor writes a file, and choice_cache_begin forgets. */
NODISCARD enum status choice_cache_open_anew(struct choice_cache *c, const char *driver,
                                             struct err *e);
void choice_cache_close(struct choice_cache *c);
/* Before each run: what was timed for the one before is forgotten if `anew`. */
void choice_cache_begin(struct choice_cache *c);

/* Writes the tables of this driver and these kernels, of both folders, into offered.json of the
 * run, for its worker; removes that file if there are none. `problem` gets a sentence if a file of
 * the cache cannot be used, else "". */
NODISCARD enum status choice_cache_offer(struct choice_cache *c, const char *run_path,
                                         char problem[CHOICE_PROBLEM_CAP], struct err *e);
/* Removes offered.json. */
NODISCARD enum status choice_cache_withdraw(const char *run_path, struct err *e);

/* Of choices that were just timed. */
enum choice_state {
    CHOICES_USED,     /* a run of this process has computed with them */
    CHOICES_UNUSED,   /* none has: where another process has stored a choice for the same shape
                       * meanwhile, that one serves this process too */
    CHOICES_DISTURBED /* used, and not for the file: they might be slow */
};

/* Adds the choices of the text `timed` (choices_timed of a backend on `architecture`) that are new:
 * to the file, and for later runs of this process. `problem` gets a sentence the first time that
 * they cannot be stored in `folder`, else "". ERR_CONFIG: `timed` is no table. */
NODISCARD enum status choice_cache_add(struct choice_cache *c, const char *architecture,
                                       const char *timed, enum choice_state state,
                                       char problem[CHOICE_PROBLEM_CAP], struct err *e);

struct backend;

/* In the worker: offers the backend the table of the run's offered.json that is of its device and
 * libraries, if there is one. */
NODISCARD enum status choice_cache_take(const char *run_path, struct backend *b, struct err *e);

#endif
