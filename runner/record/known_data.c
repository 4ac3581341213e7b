#include "runner/record/known_data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Times of files advance in steps: of the kernel's clock tick, or of a second. */
static const int64_t SETTLED_NS = 2000000000;

static bool same_file(const struct data_file *a, const struct data_file *b) {
    return a->bytes == b->bytes && memcmp(a->version, b->version, sizeof a->version) == 0;
}

void known_data_find(struct known_data *k, const struct data *data, struct data_file *files) {
    struct timespec clock;
    (void)clock_gettime(CLOCK_REALTIME, &clock);
    k->began_ns = (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
    for (int64_t i = 0; i < data_file_count(data); i++) {
        struct data_file now = data_file_at(data, i);
        for (int64_t j = 0; j < k->count; j++) {
            if (!same_file(&now, &k->file[j])) continue;
            files[i] = k->file[j];
            files[i].path = now.path; /* the rest is this run's */
            files[i].set = now.set;
        }
    }
}

static bool is_known(const struct known_data *k, const struct data_file *file) {
    for (int64_t j = 0; j < k->count; j++)
        if (same_file(file, &k->file[j])) return true;
    return false;
}

enum status known_data_add(struct known_data *k, const struct data *data,
                           const struct data_file *files, struct err *e) {
    for (int64_t i = 0; i < data_file_count(data); i++) {
        struct data_file now = data_file_at(data, i);
        bool settled = k->began_ns - now.version[3] > SETTLED_NS;
        if (!settled || !same_file(&now, &files[i]) || is_known(k, &now)) continue;
        void *list = realloc(k->file, (size_t)(k->count + 1) * sizeof *k->file);
        if (!list) return FAIL(e, ERR_MEMORY, "%" PRId64 " known files of data", k->count + 1);
        k->file = list;
        k->file[k->count] = files[i];
        k->file[k->count++].path = NULL;
    }
    return OK;
}

void known_data_free(struct known_data *k) {
    free(k->file);
    *k = (struct known_data){ 0 };
}
