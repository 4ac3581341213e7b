/* tokenizer.json around the model: normalizer, pre_tokenizer, post_processor, decoder. Each is an
 * object with a "type", or null; a Sequence holds several. */
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/tokenizer_parts.h"

/* One reader of a part's object. `last`: nothing follows it in its sequence. */
typedef enum status (*part_reader)(struct tokenizer *t, const char *path, const char *where,
                                   const json_t *part, const char *type, bool last, struct err *e);

/* Calls the reader for the part, or for each part of its sequences. */
static enum status each_part(struct tokenizer *t, const char *path, const char *where,
                             const json_t *part, const char *list, part_reader reader, bool last,
                             int depth, struct err *e) {
    const char *type = NULL;
    const json_t *parts = NULL, *item;
    size_t i;
    if (!part || json_is_null(part)) return OK;
    if (!json_is_object(part))
        return FAIL(e, ERR_FORMAT, "%s: %s is not an object; an object or null belongs there", path,
                    where);
    TRY(get_text(path, where, part, "type", &type, NULL, e));
    if (!type) return FAIL(e, ERR_FORMAT, "%s: %s has no type", path, where);
    if (strcmp(type, "Sequence")) return reader(t, path, where, part, type, last, e);
    TRY(only_members(path, where, part, (const char *const[]){ "type", list, NULL }, e));
    TRY(get_array(path, where, part, list, &parts, e));
    if (!parts || depth > 4)
        return FAIL(e, ERR_FORMAT, "%s: %s is a Sequence %s", path, where,
                    parts ? "in a Sequence, more than four deep" : "without a list");
    json_array_foreach((json_t *)parts, i, item) {
        char inner[128];
        snprintf(inner, sizeof inner, "%.90s.%s[%zu]", where, list, i);
        TRY(each_part(t, path, inner, item, list, reader, last && i + 1 == json_array_size(parts),
                      depth + 1, e));
    }
    return OK;
}

static enum status unknown(const char *path, const char *where, const char *type,
                           const char *known, struct err *e) {
    return FAIL(e, ERR_FORMAT, "%s: %s asks for %.40s, which fp8lab does not know; it knows %s",
                path, where, type, known);
}

static enum status too_many(const char *path, const char *where, struct err *e) {
    return FAIL(e, ERR_FORMAT, "%s: %s is one part too many; there may be %d", path, where,
                STAGES_MAX);
}

/* A pattern: {"String": text} or {"Regex": text}. */
static enum status get_pattern(const char *path, const char *where, const json_t *part,
                               const char **text, size_t *n, bool *literal, struct err *e) {
    const json_t *pattern = json_object_get(part, "pattern");
    *text = NULL;
    if (json_is_object(pattern)) {
        TRY(only_members(path, where, pattern, (const char *const[]){ "String", "Regex", NULL },
                         e));
        TRY(get_text(path, where, pattern, "Regex", text, n, e));
        *literal = !*text;
        if (!*text) TRY(get_text(path, where, pattern, "String", text, n, e));
    }
    if (!*text || *n == 0)
        return FAIL(e, ERR_FORMAT, "%s: %s.pattern is no {\"Regex\": text} or {\"String\": text}",
                    path, where);
    return OK;
}

/* ---- normalizer ---------------------------------------------------------------------------- */

static enum status read_normal(struct tokenizer *t, const char *path, const char *where,
                               const json_t *part, const char *type, bool last, struct err *e) {
    struct normal_step *step = &t->step[t->steps];
    const char *text = NULL, *content = NULL;
    size_t n = 0, content_n = 0;
    bool literal = false;
    if (t->steps == STAGES_MAX) return too_many(path, where, e);
    if (!strcmp(type, "NFC")) {
        TRY(only_members(path, where, part, (const char *const[]){ "type", NULL }, e));
        step->kind = STEP_NFC;
    } else if (!strcmp(type, "Prepend")) {
        TRY(only_members(path, where, part, (const char *const[]){ "type", "prepend", NULL }, e));
        TRY(get_text(path, where, part, "prepend", &text, &n, e));
        if (n == 0) return FAIL(e, ERR_FORMAT, "%s: %s has no text in prepend", path, where);
        step->kind = STEP_PREPEND;
        TRY(text_copy(&step->a, text, n, e));
    } else if (!strcmp(type, "Replace")) {
        TRY(only_members(path, where, part,
                         (const char *const[]){ "type", "pattern", "content", NULL }, e));
        TRY(get_pattern(path, where, part, &text, &n, &literal, e));
        if (!literal)
            return unknown(path, where, "Replace by a Regex", "Replace by a String", e);
        TRY(get_text(path, where, part, "content", &content, &content_n, e));
        if (!content) return FAIL(e, ERR_FORMAT, "%s: %s has no text in content", path, where);
        step->kind = STEP_REPLACE;
        TRY(text_copy(&step->a, text, n, e));
        t->steps++; /* so that the first is freed if the second fails */
        return text_copy(&step->b, content, content_n, e);
    } else {
        return unknown(path, where, type, "NFC, Prepend, Replace and Sequence", e);
    }
    t->steps++;
    return OK;
}

enum status load_normalizer(struct tokenizer *t, const char *path, const json_t *value,
                            struct err *e) {
    return each_part(t, path, "normalizer", value, "normalizers", read_normal, true, 0, e);
}

/* ---- pre_tokenizer ------------------------------------------------------------------------- */

static enum status add_stage(struct tokenizer *t, const char *path, const char *where,
                             struct stage **out, struct err *e) {
    if (t->stages == STAGES_MAX) return too_many(path, where, e);
    *out = &t->stage[t->stages++];
    return OK;
}

static void say_split(struct tokenizer *t, const char *words) {
    size_t n = strlen(t->split_words);
    snprintf(t->split_words + n, sizeof t->split_words - n, "%s%.60s", n ? ", " : "", words);
}

static enum status read_byte_level(struct tokenizer *t, const char *path, const char *where,
                                   const json_t *part, bool last, struct err *e) {
    static const char *const KNOWN[] = { "type", "add_prefix_space", "trim_offsets", "use_regex",
                                         NULL };
    bool space = true, regex = true, ignored = false;
    struct stage *stage = NULL;
    TRY(only_members(path, where, part, KNOWN, e));
    TRY(get_bool(path, where, part, "add_prefix_space", &space, e));
    TRY(get_bool(path, where, part, "use_regex", &regex, e));
    TRY(get_bool(path, where, part, "trim_offsets", &ignored, e));
    if (!last)
        return FAIL(e, ERR_FORMAT, "%s: %s, ByteLevel, is not the last of its Sequence; fp8lab "
                    "knows it only as the last", path, where);
    t->byte_level = true;
    if (space) {
        TRY(add_stage(t, path, where, &stage, e));
        stage->kind = STAGE_SPACE_BEFORE;
    }
    if (!regex) return OK;
    TRY(add_stage(t, path, where, &stage, e));
    stage->split = SPLIT_GPT2;
    say_split(t, split_name(SPLIT_GPT2));
    return OK;
}

static enum status read_split(struct tokenizer *t, const char *path, const char *where,
                              const json_t *part, struct err *e) {
    static const char *const KNOWN[] = { "type", "pattern", "behavior", "invert", NULL };
    static const char *const BEHAVIORS[] = { "Isolated", "Removed", "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous" };
    const char *text, *behavior = "";
    size_t n = 0;
    bool literal = false;
    struct stage *stage = NULL;
    int found = 0;
    TRY(only_members(path, where, part, KNOWN, e));
    TRY(get_pattern(path, where, part, &text, &n, &literal, e));
    TRY(get_text(path, where, part, "behavior", &behavior, NULL, e));
    while (found < 5 && strcmp(behavior, BEHAVIORS[found])) found++;
    if (found == 5)
        return unknown(path, where, *behavior ? behavior : "no behavior",
                       "Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous", e);
    TRY(add_stage(t, path, where, &stage, e));
    TRY(get_bool(path, where, part, "invert", &stage->invert, e));
    stage->behavior = (enum split_behavior)found;
    stage->split = !literal && found == SPLIT_ISOLATED && !stage->invert ? split_known(text)
                                                                         : SPLIT_NONE;
    say_split(t, stage->split ? split_name(stage->split) : literal ? "a text" : "another pattern");
    if (stage->split) return OK;
    stage->kind = STAGE_PATTERN;
    enum status st = pattern_create(&stage->pattern, text, n, literal, e);
    if (st != OK) err_prefix(e, "%s: %s.pattern", path, where);
    return st;
}

static enum status read_digits(struct tokenizer *t, const char *path, const char *where,
                               const json_t *part, struct err *e) {
    bool individual = false;
    struct stage *stage = NULL;
    TRY(only_members(path, where, part, (const char *const[]){ "type", "individual_digits", NULL },
                     e));
    TRY(get_bool(path, where, part, "individual_digits", &individual, e));
    TRY(add_stage(t, path, where, &stage, e));
    stage->split = individual ? SPLIT_DIGITS : SPLIT_DIGIT_RUNS;
    say_split(t, split_name(stage->split));
    return OK;
}

/* prepend_scheme, or add_prefix_space of older files. */
static enum status get_prepend(const char *path, const char *where, const json_t *part,
                               enum prepend *out, struct err *e) {
    static const char *const SCHEMES[] = { "never", "first", "always" };
    const char *scheme = NULL;
    bool space = true;
    TRY(get_text(path, where, part, "prepend_scheme", &scheme, NULL, e));
    TRY(get_bool(path, where, part, "add_prefix_space", &space, e));
    *out = space ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!scheme) return OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(scheme, SCHEMES[i])) return *out = (enum prepend)i, OK;
    return unknown(path, where, scheme, "prepend_scheme never, first and always", e);
}

static enum status get_replacement(const char *path, const char *where, const json_t *part,
                                   struct text_ref *out, struct err *e) {
    const char *text = "\xe2\x96\x81";
    size_t n = 3;
    int length = 0;
    TRY(get_text(path, where, part, "replacement", &text, &n, e));
    if (n) utf8_at((const uint8_t *)text, &length);
    if (n == 0 || (size_t)length != n)
        return FAIL(e, ERR_FORMAT, "%s: %s.replacement is \"%.20s\"; one character belongs there",
                    path, where, text);
    return text_copy(out, text, n, e);
}

static const char *const METASPACE[] = { "type", "replacement", "prepend_scheme",
                                         "add_prefix_space", "split", "str_rep", NULL };

static enum status read_metaspace(struct tokenizer *t, const char *path, const char *where,
                                  const json_t *part, struct err *e) {
    bool split = true;
    struct stage *stage = NULL;
    TRY(only_members(path, where, part, METASPACE, e));
    TRY(get_bool(path, where, part, "split", &split, e));
    TRY(add_stage(t, path, where, &stage, e));
    stage->kind = STAGE_METASPACE;
    TRY(get_prepend(path, where, part, &stage->prepend, e));
    TRY(get_replacement(path, where, part, &stage->replacement, e));
    say_split(t, "Metaspace");
    if (!split) return OK;
    const struct text_ref *mark = &stage->replacement;
    TRY(add_stage(t, path, where, &stage, e));
    stage->kind = STAGE_PATTERN;
    stage->behavior = SPLIT_MERGED_NEXT;
    return pattern_create(&stage->pattern, mark->text, mark->n, true, e);
}

static enum status read_pre(struct tokenizer *t, const char *path, const char *where,
                            const json_t *part, const char *type, bool last, struct err *e) {
    if (!strcmp(type, "ByteLevel")) return read_byte_level(t, path, where, part, last, e);
    if (!strcmp(type, "Split")) return read_split(t, path, where, part, e);
    if (!strcmp(type, "Digits")) return read_digits(t, path, where, part, e);
    if (!strcmp(type, "Metaspace")) return read_metaspace(t, path, where, part, e);
    return unknown(path, where, type, "ByteLevel, Split, Digits, Metaspace and Sequence", e);
}

enum status load_pre_tokenizer(struct tokenizer *t, const char *path, const json_t *value,
                               struct err *e) {
    TRY(each_part(t, path, "pre_tokenizer", value, "pretokenizers", read_pre, true, 0, e));
    if (!t->stages) say_split(t, "none: a text is one word");
    return OK;
}

/* ---- post_processor ------------------------------------------------------------------------ */

/* Inserts ids at list[at]. */
static enum status insert_ids(uint32_t **list, int64_t *count, int64_t at, const json_t *ids,
                              struct err *e) {
    int64_t n = (int64_t)json_array_size(ids);
    uint32_t *more = realloc(*list, (size_t)(*count + n + 1) * sizeof *more);
    if (!more) return FAIL(e, ERR_MEMORY, "memory for the tokens of a post_processor");
    *list = more;
    memmove(more + at + n, more + at, (size_t)(*count - at) * sizeof *more);
    for (int64_t i = 0; i < n; i++)
        more[at + i] = (uint32_t)json_integer_value(json_array_get(ids, (size_t)i));
    *count += n;
    return OK;
}

/* The ids of a special token of the template. */
static enum status template_ids(const struct tokenizer *t, const char *path, const char *where,
                                const json_t *part, const json_t *special, const json_t **ids,
                                struct err *e) {
    const char *name = NULL;
    const json_t *id;
    size_t i;
    TRY(get_text(path, where, special, "id", &name, NULL, e));
    const json_t *tokens = json_object_get(part, "special_tokens");
    *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
    if (!json_is_array(*ids))
        return FAIL(e, ERR_FORMAT, "%s: %s.special_tokens has no ids of \"%.60s\"", path, where,
                    name ? name : "");
    json_array_foreach((json_t *)*ids, i, id) {
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= t->vocab.size || !t->vocab.flags[value])
            return FAIL(e, ERR_FORMAT, "%s: %s.special_tokens gives \"%.60s\" an id that no token "
                        "has", path, where, name);
    }
    return OK;
}

/* What this template sets before a text stands before what an earlier one has set. */
static enum status read_template(struct tokenizer *t, const char *path, const char *where,
                                 const json_t *part, struct err *e) {
    static const char *const KNOWN[] = { "type", "single", "pair", "special_tokens", NULL };
    const json_t *single = NULL, *item, *ids;
    int64_t in_front = 0;
    size_t i, sequences = 0;
    TRY(only_members(path, where, part, KNOWN, e));
    TRY(get_array(path, where, part, "single", &single, e));
    json_array_foreach((json_t *)single, i, item) {
        const json_t *special = json_object_get(item, "SpecialToken");
        if (!special && !json_object_get(item, "Sequence"))
            return FAIL(e, ERR_FORMAT, "%s: %s.single[%zu] is neither a SpecialToken nor a "
                        "Sequence", path, where, i);
        if (!special) {
            sequences++;
            continue;
        }
        TRY(template_ids(t, path, where, part, special, &ids, e));
        if (sequences) {
            TRY(insert_ids(&t->behind, &t->behind_count, t->behind_count, ids, e));
        } else {
            TRY(insert_ids(&t->before, &t->before_count, in_front, ids, e));
            in_front += (int64_t)json_array_size(ids);
        }
    }
    if (sequences == 1) return OK;
    return FAIL(e, ERR_FORMAT, "%s: %s.single has %zu Sequences; it must have one", path, where,
                sequences);
}

static enum status read_post(struct tokenizer *t, const char *path, const char *where,
                             const json_t *part, const char *type, bool last, struct err *e) {
    if (!strcmp(type, "ByteLevel")) return OK; /* it changes offsets, not ids */
    if (!strcmp(type, "TemplateProcessing")) return read_template(t, path, where, part, e);
    return unknown(path, where, type, "ByteLevel, TemplateProcessing and Sequence", e);
}

enum status load_post_processor(struct tokenizer *t, const char *path, const json_t *value,
                                struct err *e) {
    return each_part(t, path, "post_processor", value, "processors", read_post, true, 0, e);
}

/* ---- decoder ------------------------------------------------------------------------------- */

static enum status get_count(const char *path, const char *where, const json_t *part,
                             const char *key, int64_t *out, struct err *e) {
    const json_t *value = json_object_get(part, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return FAIL(e, ERR_FORMAT, "%s: %s.%s is not a whole number from 0 on", path, where, key);
    *out = json_integer_value(value);
    return OK;
}

static enum status read_decoder(struct tokenizer *t, const char *path, const char *where,
                                const json_t *part, const char *type, bool last, struct err *e) {
    static const char *const NAMES[] = { "ByteLevel", "Metaspace", "Replace", "ByteFallback",
                                         "Fuse", "Strip" };
    int kind = 0;
    const char *text = NULL, *content = NULL;
    size_t n = 0, content_n = 0;
    bool literal = false;
    if (t->decoders == STAGES_MAX) return too_many(path, where, e);
    while (kind < 6 && strcmp(type, NAMES[kind])) kind++;
    if (kind == 6)
        return unknown(path, where, type, "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, "
                       "Strip and Sequence", e);
    struct decoder_step *d = &t->decoder[t->decoders++];
    d->kind = (enum decoder_kind)kind;
    if (d->kind == DECODE_METASPACE) {
        TRY(only_members(path, where, part, METASPACE, e));
        TRY(get_prepend(path, where, part, &d->prepend, e));
        return get_replacement(path, where, part, &d->a, e);
    }
    if (d->kind == DECODE_REPLACE) {
        TRY(get_pattern(path, where, part, &text, &n, &literal, e));
        TRY(get_text(path, where, part, "content", &content, &content_n, e));
        if (!literal || !content)
            return unknown(path, where, "Replace by a Regex", "Replace by a String", e);
        TRY(text_copy(&d->a, text, n, e));
        return text_copy(&d->b, content, content_n, e);
    }
    if (d->kind != DECODE_STRIP) return OK;
    TRY(get_text(path, where, part, "content", &content, &content_n, e));
    TRY(get_count(path, where, part, "start", &d->start, e));
    TRY(get_count(path, where, part, "stop", &d->stop, e));
    if (!content || content_n == 0)
        return FAIL(e, ERR_FORMAT, "%s: %s has no character in content", path, where);
    return text_copy(&d->a, content, content_n, e);
}

enum status load_decoder(struct tokenizer *t, const char *path, const json_t *value,
                         struct err *e) {
    return each_part(t, path, "decoder", value, "decoders", read_decoder, true, 0, e);
}
