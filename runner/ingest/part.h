/* A file that is written from its beginning to its end, PATH.part until it is complete. Its hash
 * is known at each moment. So a later process can go on with it from a point that was recorded, if
 * its bytes up to there are what they were. */
#ifndef FP8LAB_RUNNER_INGEST_PART_H
#define FP8LAB_RUNNER_INGEST_PART_H

#include <jansson.h>

#include "model/ground/sha256.h"
#include "runner/base/paths.h"

enum { PART_NAME = PATH_CAP + 24 };

struct part {
    char path[PART_NAME];
    int fd;              /* locked; -1: none is open */
    int64_t head;        /* bytes at its beginning that are written at the end; not hashed */
    int64_t bytes;       /* behind them */
    struct sha256 *sha;  /* of these; owned, as is the next */
    struct sha256 *mark; /* as it was at the mark, or NULL */
    int64_t mark_bytes;
};

/* Opens and locks p->path, which may have bytes. Call part_begin() or part_restore() before
 * part_add(). *gone: another process has just finished the file, and nothing is open. ERR_STATE if
 * another process writes it; ERR_IO. */
NODISCARD enum status part_open(struct part *p, bool *gone, struct err *e);
/* Closes it, and frees; after part_open() failed, too. `remove`: the file is removed. */
void part_close(struct part *p, bool remove);

/* Empties the file and writes a head of zeros. ERR_IO. */
NODISCARD enum status part_begin(struct part *p, struct err *e);
NODISCARD enum status part_add(struct part *p, const void *bytes, size_t n, struct err *e);

/* Remembers this point; then takes back what was added behind it. */
NODISCARD enum status part_mark(struct part *p, struct err *e);
NODISCARD enum status part_take_back(struct part *p, struct err *e);

/* What part_restore() needs: {"bytes", "sha256"}. NULL: no memory. */
json_t *part_state(const struct part *p);
/* Whether the file has the bytes of `state`. Then what is behind them is cut off, and part_add()
 * goes on. ERR_IO. */
NODISCARD enum status part_restore(struct part *p, const json_t *state, bool *intact,
                                   struct err *e);

#endif
