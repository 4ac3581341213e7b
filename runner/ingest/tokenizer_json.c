/* tokenizer.json of Hugging Face: the model, its vocabulary and its added tokens. Whatever the file
 * asks for is done, or rejected by its name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/ingest/tokenizer_content.h"
#include "runner/ingest/tokenizer_parts.h"

/* ---- typed members ------------------------------------------------------------------------- */

static const char *type_name(const json_t *value) {
    static const char *const NAMES[] = { "an object", "an array", "a text", "a whole number",
                                         "a number", "true", "false", "null" };
    return NAMES[json_typeof(value)];
}

enum status get_bool(const char *path, const char *where, const json_t *object, const char *key,
                     bool *out, struct err *e) {
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return OK;
    if (!json_is_boolean(value))
        return FAIL(e, ERR_FORMAT, "%s: %s.%s is %s; true or false belongs there", path, where, key,
                    type_name(value));
    *out = json_is_true(value);
    return OK;
}

enum status get_text(const char *path, const char *where, const json_t *object, const char *key,
                     const char **out, size_t *n, struct err *e) {
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return OK;
    if (!json_is_string(value))
        return FAIL(e, ERR_FORMAT, "%s: %s.%s is %s; a text belongs there", path, where, key,
                    type_name(value));
    *out = json_string_value(value);
    if (n) *n = json_string_length(value);
    return OK;
}

enum status get_array(const char *path, const char *where, const json_t *object, const char *key,
                      const json_t **out, struct err *e) {
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return OK;
    if (!json_is_array(value))
        return FAIL(e, ERR_FORMAT, "%s: %s.%s is %s; an array belongs there", path, where, key,
                    type_name(value));
    *out = value;
    return OK;
}

enum status only_members(const char *path, const char *where, const json_t *object,
                         const char *const *known, struct err *e) {
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return FAIL(e, ERR_FORMAT, "%s: %s is %s; an object belongs there", path, where,
                    type_name(object));
    json_object_foreach((json_t *)object, key, value) {
        bool found = false;
        for (int i = 0; known[i] && !found; i++) found = !strcmp(key, known[i]);
        if (!found)
            return FAIL(e, ERR_FORMAT, "%s: %s.%s is a setting that fp8lab does not know", path,
                        where, key);
    }
    return OK;
}

enum status text_copy(struct text_ref *out, const char *text, size_t n, struct err *e) {
    out->text = malloc(n + 1);
    if (!out->text) return FAIL(e, ERR_MEMORY, "%zu bytes for a tokenizer", n);
    if (n) memcpy(out->text, text, n);
    out->text[n] = 0;
    out->n = n;
    return OK;
}

/* ---- the vocabulary ------------------------------------------------------------------------ */

/* What is known while the file is read. */
struct loading {
    struct tokenizer *t;
    const char *path;
    const json_t *vocab;     /* model.vocab */
    json_t *added;           /* the added tokens so far by their contents; owned */
    struct vocab_rows rows;
    uint8_t *bytes;          /* of tokens, decoded from ByteLevel; owned */
    size_t bytes_used;
    struct err *e;
};

static enum status place_row(struct loading *l, const char *where, const char *text, size_t n,
                             json_int_t id, uint8_t flags) {
    if (id < 0 || id >= VOCAB_MAX)
        return FAIL(l->e, ERR_FORMAT, "%s: %s gives \"%.60s\" the id %" JSON_INTEGER_FORMAT
                    "; ids are 0 to %d", l->path, where, text, id, VOCAB_MAX - 1);
    struct vocab_row *row;
    TRY(vocab_row(&l->rows, id, &row, l->e));
    if (row->flags)
        return FAIL(l->e, ERR_FORMAT, "%s: %s gives the id %" JSON_INTEGER_FORMAT " to \"%.60s\" "
                    "and to another token", l->path, where, id, text);
    *row = (struct vocab_row){ (const uint8_t *)text, n, flags };
    /* In a tokenizer of bytes a token is what its characters stand for. */
    size_t count;
    if (l->t->byte_level &&
        byte_level_bytes(row->text, n, l->bytes + l->bytes_used, &count)) {
        row->text = l->bytes + l->bytes_used;
        row->n = count;
        l->bytes_used += count;
        row->flags |= TOKEN_REACHED;
    } else if (!l->t->byte_level) {
        row->flags |= TOKEN_REACHED;
    }
    if (!(flags & TOKEN_MODEL)) row->flags &= (uint8_t)~TOKEN_REACHED;
    return OK;
}

static enum status load_vocab(struct loading *l) {
    const char *key;
    json_t *value;
    if (!json_is_object(l->vocab) || json_object_size(l->vocab) == 0)
        return FAIL(l->e, ERR_FORMAT, "%s: model.vocab is not an object with tokens", l->path);
    json_object_foreach((json_t *)l->vocab, key, value) {
        if (!json_is_integer(value))
            return FAIL(l->e, ERR_FORMAT, "%s: model.vocab[\"%.60s\"] is %s; an id belongs there",
                        l->path, key, type_name(value));
        TRY(place_row(l, "model.vocab", key, strlen(key), json_integer_value(value), TOKEN_MODEL));
    }
    l->t->tokens = (int64_t)json_object_size(l->vocab);
    return OK;
}

/* The id of a token by its name in the file, -1 if there is none. */
static json_int_t named(const struct loading *l, const char *name, size_t n) {
    const json_t *value = json_object_getn(l->vocab, name, n);
    return value ? json_integer_value(value) : -1;
}

/* ---- merges -------------------------------------------------------------------------------- */

/* Both names of a merge: "a b", or ["a", "b"]. */
static enum status merge_names(const struct loading *l, size_t i, const json_t *merge,
                               struct text_ref *a, struct text_ref *b) {
    if (json_is_string(merge)) {
        char *text = (char *)json_string_value(merge), *space = strchr(text, ' ');
        if (space && !strchr(space + 1, ' ')) {
            *a = (struct text_ref){ text, (size_t)(space - text) };
            *b = (struct text_ref){ space + 1, strlen(space + 1) };
            return OK;
        }
    } else if (json_is_array(merge) && json_array_size(merge) == 2 &&
               json_is_string(json_array_get(merge, 0)) &&
               json_is_string(json_array_get(merge, 1))) {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        *a = (struct text_ref){ (char *)json_string_value(left), json_string_length(left) };
        *b = (struct text_ref){ (char *)json_string_value(right), json_string_length(right) };
        return OK;
    }
    return FAIL(l->e, ERR_FORMAT, "%s: model.merges[%zu] is not two tokens: \"a b\" or "
                "[\"a\", \"b\"]", l->path, i);
}

static enum status one_merge(struct loading *l, size_t i, const json_t *merge,
                             struct bytes *name) {
    struct text_ref a, b;
    TRY(merge_names(l, i, merge, &a, &b));
    json_int_t left = named(l, a.text, a.n), right = named(l, b.text, b.n);
    if (left < 0 || right < 0) {
        const struct text_ref *missing = left < 0 ? &a : &b;
        return FAIL(l->e, ERR_FORMAT, "%s: model.merges[%zu] names \"%.60s\", and model.vocab has "
                    "no such token", l->path, i, missing->text);
    }
    name->count = 0;
    TRY(bytes_add(name, a.text, a.n, l->e));
    TRY(bytes_add(name, b.text, b.n, l->e));
    json_int_t id = named(l, (const char *)name->bytes, name->count);
    if (id < 0)
        return FAIL(l->e, ERR_FORMAT, "%s: model.merges[%zu] makes \"%.*s\", and model.vocab has "
                    "no such token", l->path, i, (int)(name->count < 60 ? name->count : 60),
                    (const char *)name->bytes);
    if (a.n == 0 || b.n == 0)
        return FAIL(l->e, ERR_FORMAT, "%s: model.merges[%zu] has an empty side", l->path, i);
    bpe_set(l->t->bpe, (uint32_t)left, (uint32_t)right, (uint32_t)i, (uint32_t)id);
    static const char MARK[] = "\xe2\x96\x81"; /* U+2581 */
    const uint8_t *at = name->bytes, *end = at + name->count;
    while ((at = memmem(at, (size_t)(end - at), MARK, 3))) {
        if (at > name->bytes && (at - name->bytes < 3 || memcmp(at - 3, MARK, 3)))
            l->t->cut_at_marks = false;
        at += 3;
    }
    return OK;
}

static enum status load_merges(struct loading *l, const json_t *merges) {
    struct bytes name = { 0 };
    const json_t *merge;
    size_t i;
    enum status st = bpe_create(&l->t->bpe, (int64_t)json_array_size(merges), l->e);
    l->t->merges = (int64_t)json_array_size(merges);
    /* With ignore_merges a part that is a token would not be merged, but the whole piece is. */
    l->t->cut_at_marks = !l->t->byte_level && !l->t->ignore_merges &&
                         named(l, "\xe2\x96\x81", 3) >= 0;
    json_array_foreach((json_t *)merges, i, merge) {
        if (st == OK) st = one_merge(l, i, merge, &name);
    }
    free(name.bytes);
    return st;
}

/* ---- the model ----------------------------------------------------------------------------- */

static enum status check_model(struct loading *l, const json_t *model) {
    static const char *const KNOWN[] = {
        "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
        "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges", NULL,
    };
    const char *type = "BPE", *text = "";
    struct tokenizer *t = l->t;
    if (!model) return FAIL(l->e, ERR_FORMAT, "%s: there is no member \"model\"", l->path);
    if (json_is_object(model)) TRY(get_text(l->path, "model", model, "type", &type, NULL, l->e));
    if (strcmp(type, "BPE"))
        return FAIL(l->e, ERR_FORMAT, "%s: model.type is \"%.40s\"; only BPE is known", l->path,
                    type);
    TRY(only_members(l->path, "model", model, KNOWN, l->e));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return FAIL(l->e, ERR_FORMAT, "%s: model.dropout is set: the ids would be random; set it "
                    "to null", l->path);
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "end_of_word_suffix" : "continuing_subword_prefix";
        TRY(get_text(l->path, "model", model, key, &text, NULL, l->e));
        if (*text)
            return FAIL(l->e, ERR_FORMAT, "%s: model.%s is \"%.20s\"; fp8lab knows tokenizers "
                        "without one", l->path, key, text);
    }
    TRY(get_bool(l->path, "model", model, "fuse_unk", &t->fuse_unk, l->e));
    TRY(get_bool(l->path, "model", model, "byte_fallback", &t->byte_fallback, l->e));
    return get_bool(l->path, "model", model, "ignore_merges", &t->ignore_merges, l->e);
}

/* The tokens of single bytes: ByteLevel's, or <0xNN>. */
static void find_bytes(struct loading *l) {
    struct tokenizer *t = l->t;
    for (int byte = 0; byte < 256; byte++) {
        char name[16];
        size_t n = t->byte_level ? (size_t)utf8_put(byte_level_character((uint8_t)byte),
                                                    (uint8_t *)name)
                                 : (size_t)snprintf(name, sizeof name, "<0x%02X>", byte);
        json_int_t id = named(l, name, n);
        t->byte_id[byte] = id < 0 ? NO_TOKEN : (uint32_t)id;
    }
}

static enum status load_model(struct loading *l, const json_t *model) {
    const char *unk = NULL;
    const json_t *merges = NULL;
    l->vocab = json_object_get(model, "vocab");
    TRY(load_vocab(l));
    TRY(get_array(l->path, "model", model, "merges", &merges, l->e));
    if (!merges) return FAIL(l->e, ERR_FORMAT, "%s: there is no array model.merges", l->path);
    TRY(load_merges(l, merges));
    TRY(get_text(l->path, "model", model, "unk_token", &unk, NULL, l->e));
    if (unk && *unk) { /* GPT-2's file may have "" */
        json_int_t id = named(l, unk, strlen(unk));
        if (id < 0)
            return FAIL(l->e, ERR_FORMAT, "%s: model.unk_token is \"%.60s\", and model.vocab has "
                        "no such token", l->path, unk);
        l->t->unk = (uint32_t)id;
    }
    find_bytes(l);
    return OK;
}

/* ---- added tokens -------------------------------------------------------------------------- */

static enum status one_added(struct loading *l, size_t i, json_t *item, json_int_t *next) {
    static const char *const KNOWN[] = { "id", "content", "single_word", "lstrip", "rstrip",
                                         "normalized", "special", NULL };
    char where[40];
    const char *content = NULL;
    size_t n = 0;
    bool single_word = false;
    struct added token = { .normalized = true };
    snprintf(where, sizeof where, "added_tokens[%zu]", i);
    TRY(only_members(l->path, where, item, KNOWN, l->e));
    TRY(get_text(l->path, where, item, "content", &content, &n, l->e));
    TRY(get_bool(l->path, where, item, "single_word", &single_word, l->e));
    TRY(get_bool(l->path, where, item, "lstrip", &token.lstrip, l->e));
    TRY(get_bool(l->path, where, item, "rstrip", &token.rstrip, l->e));
    TRY(get_bool(l->path, where, item, "normalized", &token.normalized, l->e));
    TRY(get_bool(l->path, where, item, "special", &token.special, l->e));
    const json_t *id = json_object_get(item, "id");
    if (!content || n == 0 || !json_is_integer(id))
        return FAIL(l->e, ERR_FORMAT, "%s: %s needs a content, which is a text, and an id, which "
                    "is a whole number", l->path, where);
    if (single_word)
        return FAIL(l->e, ERR_FORMAT, "%s: %s, \"%.60s\", has single_word, which fp8lab does not "
                    "know", l->path, where, content);
    const json_t *earlier = json_object_getn(l->added, content, n);
    if (earlier && json_equal(earlier, item)) return OK;
    if (earlier)
        return FAIL(l->e, ERR_FORMAT, "%s: %s, \"%.60s\", is there already with other settings: "
                    "keep one of them", l->path, where, content);
    if (json_object_setn(l->added, content, n, item))
        return FAIL(l->e, ERR_MEMORY, "memory for added tokens");
    /* `tokenizers` ignores the id in the file: it is the model's, or the next free one. */
    json_int_t real = named(l, content, n);
    if (real < 0) real = (*next)++;
    if (json_integer_value(id) != real)
        return FAIL(l->e, ERR_FORMAT, "%s: %s, \"%.60s\", has the id %" JSON_INTEGER_FORMAT ", and "
                    "the package tokenizers would give it %" JSON_INTEGER_FORMAT ": ids of added "
                    "tokens follow the model's without a gap", l->path, where, content,
                    json_integer_value(id), real);
    uint8_t flags = (uint8_t)(TOKEN_ADDED | (token.special ? TOKEN_SPECIAL : 0));
    token.id = (uint32_t)real;
    token.text = content;
    token.n = n;
    TRY(add_token(l->t, &token, l->e));
    if (named(l, content, n) >= 0) return l->rows.row[real].flags |= flags, OK;
    /* It decodes to its normalised text. */
    const struct added_pass *pass = token.normalized ? &l->t->normalized : &l->t->raw;
    const struct added *last = &pass->token[pass->count - 1];
    return place_row(l, where, last->text, last->n, real, flags);
}

static enum status load_added(struct loading *l, const json_t *file) {
    const json_t *list = NULL;
    json_t *item;
    json_int_t next = (json_int_t)json_object_size(l->vocab);
    size_t i;
    l->added = json_object();
    if (!l->added) return FAIL(l->e, ERR_MEMORY, "memory for added tokens");
    TRY(get_array(l->path, "the file", file, "added_tokens", &list, l->e));
    json_array_foreach((json_t *)list, i, item) TRY(one_added(l, i, item, &next));
    return OK;
}

/* ---- the file ------------------------------------------------------------------------------ */

static enum status load_parts(struct loading *l, const json_t *file) {
    static const char *const KNOWN[] = { "version", "truncation", "padding", "added_tokens",
                                         "normalizer", "pre_tokenizer", "post_processor",
                                         "decoder", "model", NULL };
    const char *version = "";
    const json_t *model = json_object_get(file, "model");
    struct tokenizer *t = l->t;
    TRY(only_members(l->path, "the file", file, KNOWN, l->e));
    TRY(get_text(l->path, "the file", file, "version", &version, NULL, l->e));
    if (strcmp(version, "1.0"))
        return FAIL(l->e, ERR_FORMAT, "%s: version is \"%.20s\"; 1.0 is known", l->path, version);
    TRY(check_model(l, model));
    TRY(load_normalizer(t, l->path, json_object_get(file, "normalizer"), l->e));
    TRY(load_pre_tokenizer(t, l->path, json_object_get(file, "pre_tokenizer"), l->e));
    TRY(load_decoder(t, l->path, json_object_get(file, "decoder"), l->e));
    TRY(load_model(l, model));
    TRY(load_added(l, file));
    TRY(vocab_build(&t->vocab, &l->rows, l->e));
    return load_post_processor(t, l->path, json_object_get(file, "post_processor"), l->e);
}

enum status tokenizer_load_json(struct tokenizer *t, const char *path, const char *text, size_t n,
                                struct err *e) {
    json_t *file = NULL;
    json_error_t why;
    struct loading l = { .t = t, .path = path, .e = e };
    enum status st = json_parse(&file, text, n, JSON_REJECT_DUPLICATES, &why);
    if (st == ERR_FORMAT) return FAIL(e, st, "%s:%d: no JSON: %s", path, why.line, why.text);
    if (st != OK) return FAIL(e, st, "memory to read %s", path);
    l.bytes = malloc(n + 1); /* decoded names are no longer than the file */
    st = l.bytes ? load_parts(&l, file) : FAIL(e, ERR_MEMORY, "memory to load %s", path);
    if (st == OK) st = tokenizer_content(file, t->content, e);
    free(l.rows.row);
    free(l.bytes);
    json_decref(l.added);
    json_decref(file);
    return st;
}
