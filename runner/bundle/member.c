#include "runner/bundle/member.h"

#include <stdlib.h>
#include <string.h>

#include "runner/base/plain_text.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/bag_tags.h"
#include "runner/bundle/bundle_reader.h"

static enum status find(struct bundle *b, struct bag_tags *tags, const char *name, int64_t limit,
                        char **out, size_t *n, struct err *e) {
    for (bool first = true;;) {
        struct bundle_entry entry;
        TRY(bundle_next(b, &entry, e));
        if (!entry.path || archive_is_checkpoint(entry.path)) return OK;
        int tag = bag_tag_of(entry.path);
        if (tag >= 0) {
            TRY(bag_tags_take(tags, tag, b, e));
            continue;
        }
        if (first) TRY(bag_tags_check(tags, e));
        first = false;
        if (strcmp(entry.path, name) != 0) continue;
        TRY(bundle_read_all(b, limit, out, n, e));
        return bag_tags_check_file(tags, name, *out, *n, e);
    }
}

enum status bundle_member(const char *path, const char *name, int64_t limit, char **out,
                          size_t *n, struct err *e) {
    struct bag_tags tags = { 0 };
    struct bundle *b;
    *out = NULL;
    *n = 0;
    TRY(bundle_open(path, &BUNDLE_LIMITS, &b, e));
    enum status st = find(b, &tags, name, limit, out, n, e);
    if (st != OK) {
        free(*out);
        *out = NULL;
        err_prefix(e, "%s", path);
        if (e) plain_text(e->text); /* the text may quote the bundle */
    }
    bag_tags_free(&tags);
    bundle_close(b);
    return st;
}
