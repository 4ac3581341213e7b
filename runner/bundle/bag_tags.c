#include "runner/bundle/bag_tags.h"

#include <stdlib.h>
#include <string.h>

/* MANIFEST_LIMIT: a manifest with the maximum number of entries, each name of maximum length,
 * fits. */
enum { MANIFEST_LIMIT = 16 << 20, TAG_LIMIT = 64 << 10 };

static const struct {
    const char *name;
    int64_t limit;
} TAGS[BAG_TAG_COUNT] = {
    [BAG_BAGIT] = { "bagit.txt", TAG_LIMIT },
    [BAG_INFO] = { "bag-info.txt", TAG_LIMIT },
    [BAG_MANIFEST] = { "manifest-sha256.txt", MANIFEST_LIMIT },
    [BAG_TAGMANIFEST] = { "tagmanifest-sha256.txt", TAG_LIMIT },
};

const char *bag_tag_name(int tag) { return TAGS[tag].name; }

int bag_tag_of(const char *path) {
    for (int i = 0; i < BAG_TAG_COUNT; i++)
        if (strcmp(path, TAGS[i].name) == 0) return i;
    return -1;
}

enum status bag_tags_take(struct bag_tags *t, int tag, struct bundle *b, struct err *e) {
    size_t n = 0;
    TRY(bundle_read_all(b, TAGS[tag].limit, &t->text[tag], &n, e));
    TRY(sha256_bytes(t->text[tag], n, t->hex[tag], e));
    if (strlen(t->text[tag]) != n)
        return FAIL(e, ERR_FORMAT, "%s holds a NUL byte", TAGS[tag].name);
    if (tag != BAG_MANIFEST) return OK;
    return bag_manifest_parse(t->text[tag], TAGS[tag].name, &t->manifest, e);
}

enum status bag_tags_check(struct bag_tags *t, struct err *e) {
    struct bag_manifest tags;
    for (int i = 0; i < BAG_TAG_COUNT; i++)
        if (!t->text[i])
            return FAIL(e, ERR_VERIFY, "missing file %s (a bundle has it before data/)",
                        TAGS[i].name);
    if (strncmp(t->text[BAG_BAGIT], "BagIt-Version: 1.0\n", 19) != 0)
        return FAIL(e, ERR_VERIFY, "bagit.txt is not of version 1.0");
    TRY(bag_manifest_parse(t->text[BAG_TAGMANIFEST], TAGS[BAG_TAGMANIFEST].name, &tags, e));
    enum status st = OK;
    for (int i = 0; st == OK && i < BAG_TAGMANIFEST; i++) {
        const struct bag_line *line = bag_manifest_find(&tags, TAGS[i].name);
        if (!line)
            st = FAIL(e, ERR_VERIFY, "the tag manifest does not list %s", TAGS[i].name);
        else if (strcmp(line->hex, t->hex[i]) != 0)
            st = FAIL(e, ERR_VERIFY, "wrong hash: %s is %.16s…, the tag manifest says %.16s…",
                      TAGS[i].name, t->hex[i], line->hex);
    }
    bag_manifest_free(&tags);
    t->vouched = st == OK;
    return st;
}

enum status bag_tags_check_hash(struct bag_tags *t, const char *name, const char *hex,
                                struct err *e) {
    struct bag_line *line = bag_manifest_find(&t->manifest, name);
    if (!t->text[BAG_MANIFEST]) return OK;
    if (!line) return FAIL(e, ERR_VERIFY, "extra file that the manifest does not list: %s", name);
    line->seen = true;
    if (strcmp(line->hex, hex) == 0) return OK;
    return FAIL(e, ERR_VERIFY, "wrong hash: %s is %.16s…, the manifest says %.16s…", name, hex,
                line->hex);
}

enum status bag_tags_check_file(struct bag_tags *t, const char *name, const char *bytes, size_t n,
                                struct err *e) {
    char hex[SHA256_HEX];
    if (!t->text[BAG_MANIFEST]) return OK;
    TRY(sha256_bytes(bytes, n, hex, e));
    return bag_tags_check_hash(t, name, hex, e);
}

void bag_tags_free(struct bag_tags *t) {
    for (int i = 0; i < BAG_TAG_COUNT; i++) free(t->text[i]);
    bag_manifest_free(&t->manifest);
    *t = (struct bag_tags){ 0 };
}
