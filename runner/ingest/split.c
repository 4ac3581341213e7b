/* The known split patterns, each as one function that finds the end of the piece at p. The regular
 * expressions are in split_known(); the comments name their alternatives in order. */
#include "runner/ingest/split.h"

#include <string.h>

#include "runner/ingest/split_ascii.h"

static const struct { enum split_kind kind; const char *name, *regex; } KNOWN[] = {
    { SPLIT_NONE, "none", NULL },
    { SPLIT_GPT2, "gpt2",
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_LLAMA3, "llama3",
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_QWEN2, "qwen2",
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_CL100K, "cl100k", NULL }, /* tokenizer.json means another by its expression */
    { SPLIT_O200K, "o200k",
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_TEKKEN, "tekken",
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
      "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_DEEPSEEK, "deepseek",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    { SPLIT_NUMBERS_3, "numbers", "\\p{N}{1,3}" },
    { SPLIT_CJK, "cjk", "[一-龥぀-ゟ゠-ヿ]+" },
    { SPLIT_DIGITS, "digits", NULL },
    { SPLIT_DIGIT_RUNS, "digit runs", NULL },
};
_Static_assert(sizeof KNOWN / sizeof *KNOWN == SPLIT_KINDS, "one row for each kind, in its order");

enum split_kind split_known(const char *regex) {
    for (int i = 0; i < SPLIT_KINDS; i++)
        if (KNOWN[i].regex && !strcmp(KNOWN[i].regex, regex)) return KNOWN[i].kind;
    return SPLIT_NONE;
}

const char *split_name(enum split_kind kind) { return KNOWN[kind].name; }

/* ---- eight bytes at once ------------------------------------------------------------------- */

/* The callers' constants decide what is left of such a function, and a call costs as much as most
 * words. */
#define INLINE static inline __attribute__((always_inline))

static inline uint64_t bytes_not_letters(uint64_t v) { /* of ASCII */
    return bytes_within(v | EACH(0x20ull), 'a', 'z') ^ EACH(0x80ull);
}

static inline uint64_t bytes_not_spaces(uint64_t v) { /* of ASCII */
    return (bytes_within(v, '\t', '\r') | bytes_within(v, ' ', ' ')) ^ EACH(0x80ull);
}

/* ---- runs of characters -------------------------------------------------------------------- */

/* The character at p: its classes, and where the next begins. */
struct at { uint32_t code; uint16_t class; const uint8_t *next; };

static inline struct at at_(const struct unicode *u, const uint8_t *p) {
    int length;
    uint32_t code = utf8_at(p, &length);
    return (struct at){ code, u->class_of[code], p + length };
}

/* The end of the run whose characters have one of the classes. */
static inline const uint8_t *run_of(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                                    uint16_t classes) {
    while (p < end) {
        if (*p < 0x80) {
            if (!(u->class_of[*p] & classes)) break;
            p++;
            continue;
        }
        struct at c = at_(u, p);
        if (!(c.class & classes)) break;
        p = c.next;
    }
    return p;
}

/* The end of the run of letters, or with `marks` of letters and marks. */
INLINE const uint8_t *letters_of(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                                 bool marks) {
    while (end - p >= 8) {
        uint64_t others = bytes_not_letters(load8(p));
        if (others) {
            p = first_of(others, p);
            if (*p < 0x80) return p;
            break;
        }
        p += 8;
    }
    return run_of(u, p, end, marks ? UC_LETTER | UC_MARK : UC_LETTER);
}

/* The end of the white space of ASCII. */
static inline const uint8_t *ascii_spaces(const struct unicode *u, const uint8_t *p,
                                          const uint8_t *end) {
    while (end - p >= 8) {
        uint64_t others = bytes_not_spaces(load8(p));
        if (others) return first_of(others, p);
        p += 8;
    }
    while (p < end && *p < 0x80 && u->class_of[*p] & UC_SPACE) p++;
    return p;
}

/* The end of the run whose characters have none of the classes. */
static inline const uint8_t *run_without(const struct unicode *u, const uint8_t *p,
                                         const uint8_t *end, uint16_t classes) {
    while (p < end) {
        struct at c = at_(u, p);
        if (c.class & classes) break;
        p = c.next;
    }
    return p;
}

static inline bool is_newline(uint32_t code) { return code == '\r' || code == '\n'; }

/* White space at p. In order: \s++$ where `whole_at_end`; \s*[\r\n]+ where `newlines`;
 * \s+(?!\S); \s+. */
static const uint8_t *spaces(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                             bool newlines, bool whole_at_end) {
    const uint8_t *q = ascii_spaces(u, p, end), *last = q - (q > p), *line = q;
    while (newlines && line > p && !is_newline(line[-1])) line--;
    if (line == p) line = NULL;
    while (q < end) {
        struct at c = at_(u, q);
        if (!(c.class & UC_SPACE)) break;
        last = q;
        q = c.next;
        if (is_newline(c.code)) line = q;
    }
    if (q == end && whole_at_end) return q;
    if (newlines && line) return line;
    return q == end || last == p ? q : last;
}

/* A contraction after an apostrophe at p: its end, or p. `any_case`: also U+017F, whose upper case
 * is S. */
static const uint8_t *contraction(const uint8_t *p, const uint8_t *end, bool any_case) {
    static const char TWO[][3] = { "re", "ve", "ll" };
    ptrdiff_t n = end - p;
    if (n < 2 || p[0] != '\'') return p;
    uint8_t fold = any_case ? 0x20 : 0, a = p[1] | fold;
    if (p[1] < 0x80 && (a == 's' || a == 't' || a == 'm' || a == 'd')) return p + 2;
    if (n < 3) return p;
    if (any_case && p[1] == 0xc5 && p[2] == 0xbf) return p + 3;
    for (int i = 0; i < 3; i++)
        if (a == TWO[i][0] && (p[2] | fold) == TWO[i][1]) return p + 3;
    return p;
}

static inline const uint8_t *up_to_digits(const struct unicode *u, const uint8_t *p,
                                          const uint8_t *end, int most) {
    for (int i = 0; i < most && p < end; i++) {
        struct at c = at_(u, p);
        if (!(c.class & UC_NUMBER)) break;
        p = c.next;
    }
    return p;
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n]*`, with `/` among the last where `slash`: the end, or p. */
static inline const uint8_t *others(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                                    bool slash) {
    const uint8_t *q = p + (*p == ' ');
    const uint8_t *r = run_without(u, q, end, UC_SPACE | UC_LETTER | UC_NUMBER);
    if (r == q) return p;
    while (r < end && (is_newline(*r) || (slash && *r == '/'))) r++;
    return r;
}

/* ---- the patterns -------------------------------------------------------------------------- */

static const uint8_t *gpt2(const struct unicode *u, const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = p + (*p == ' '), *r = letters_of(u, q, end, false);
    if (r > q) return r;
    r = *p == '\'' ? contraction(p, end, false) : p;
    if (r > p) return r;
    if (q < end) {
        struct at c = at_(u, q);
        if (c.class & UC_NUMBER) return run_of(u, c.next, end, UC_NUMBER);
        if (!(c.class & UC_SPACE))
            return run_without(u, c.next, end, UC_SPACE | UC_LETTER | UC_NUMBER);
    }
    return spaces(u, p, end, false, false);
}

/* Llama-3, Qwen2 and cl100k differ in the digits of a number and in white space at the end. */
INLINE const uint8_t *llama3(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                             int digits, bool whole_at_end) {
    const uint8_t *from = p + (*p == ' '), *q = letters_of(u, from, end, false);
    if (q > from) return q; /* most words */
    q = *p == '\'' ? contraction(p, end, true) : p;
    if (q > p) return q;
    if (*p == ' ' && from < end && (*from == ' ' || is_newline(*from)))
        return spaces(u, p, end, true, whole_at_end);
    struct at c = at_(u, p);
    if (c.class & UC_NUMBER) return up_to_digits(u, p, end, digits);
    if (!is_newline(c.code)) {
        q = letters_of(u, c.next, end, false);
        if (q > c.next || c.class & UC_LETTER) return q;
    }
    q = others(u, p, end, false);
    return q > p ? q : spaces(u, p, end, true, whole_at_end);
}

/* The two first alternatives of o200k from q on, or q. Upper: Lu Lt Lm Lo M; lower: Ll Lm Lo M. */
static const uint8_t *cased(const struct unicode *u, const uint8_t *q, const uint8_t *end) {
    const uint8_t *r = q, *both = NULL; /* both: behind the last that is upper and lower */
    while (r < end) {
        struct at c = at_(u, r);
        if (!(c.class & (UC_LETTER | UC_MARK)) || c.class & UC_LOWER) break;
        r = c.next;
        if (!(c.class & UC_UPPER)) both = r;
    }
    const uint8_t *s = r;
    while (s < end) {
        struct at c = at_(u, s);
        if (!(c.class & (UC_LETTER | UC_MARK)) || c.class & UC_UPPER) break;
        s = c.next;
    }
    if (s > r) return s;
    return both ? both : r;
}

/* Whether the first alternative matches at q, which is tried with and without the character before
 * the letters before the second is. */
static bool cased_first(const struct unicode *u, const uint8_t *q, const uint8_t *end) {
    while (q < end) {
        struct at c = at_(u, q);
        if (!(c.class & (UC_LETTER | UC_MARK))) return false;
        if (!(c.class & UC_UPPER)) return true;
        q = c.next;
    }
    return false;
}

static const uint8_t *o200k(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                            bool contractions, int digits) {
    struct at c = at_(u, p);
    bool before = !is_newline(c.code) && !(c.class & (UC_LETTER | UC_NUMBER));
    const uint8_t *from = before ? c.next : p, *q;
    if (before && !cased_first(u, from, end) && cased_first(u, p, end)) from = p;
    q = cased(u, from, end);
    if (q > from) return contractions ? contraction(q, end, true) : q;
    if (c.class & UC_NUMBER) return up_to_digits(u, p, end, digits);
    q = others(u, p, end, true);
    return q > p ? q : spaces(u, p, end, true, false);
}

static inline bool is_ascii_letter(uint8_t c) { return (uint8_t)((c | 0x20) - 'a') < 26; }

/* The end of the match of DeepSeek's third pattern at p, or p. */
static const uint8_t *deepseek_match(const struct unicode *u, const uint8_t *p,
                                     const uint8_t *end) {
    struct at c = at_(u, p);
    const uint8_t *q = c.next;
    if (c.code < 0x80 && c.class & (UC_PUNCTUATION | UC_SYMBOL) && q < end && is_ascii_letter(*q)) {
        while (q < end && is_ascii_letter(*q)) q++;
        return q;
    }
    if (c.class & (UC_LETTER | UC_MARK)) return letters_of(u, q, end, true);
    if (!is_newline(c.code) && !(c.class & (UC_PUNCTUATION | UC_SYMBOL))) {
        q = letters_of(u, c.next, end, true);
        if (q > c.next) return q;
    }
    const uint8_t *from = p + (*p == ' ');
    q = run_of(u, from, end, UC_PUNCTUATION | UC_SYMBOL);
    if (q > from) {
        while (q < end && is_newline(*q)) q++;
        return q;
    }
    return c.class & UC_SPACE ? spaces(u, p, end, true, false) : p;
}

/* What no alternative matches is a piece up to the next match. */
static const uint8_t *deepseek(const struct unicode *u, const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = deepseek_match(u, p, end);
    if (q > p) return q;
    do {
        p = at_(u, p).next;
    } while (p < end && deepseek_match(u, p, end) == p);
    return p;
}

static bool is_cjk(uint32_t c) {
    return (c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff);
}

static const uint8_t *cjk(const struct unicode *u, const uint8_t *p, const uint8_t *end) {
    bool inside = is_cjk(at_(u, p).code);
    while (p < end) {
        if (*p < 0xe3) { /* below U+3000 */
            if (inside) break;
            p++;
            continue;
        }
        struct at c = at_(u, p);
        if (is_cjk(c.code) != inside) break;
        p = c.next;
    }
    return p;
}

static const uint8_t *numbers_3(const struct unicode *u, const uint8_t *p, const uint8_t *end) {
    const uint8_t *q = up_to_digits(u, p, end, 3);
    return q > p ? q : run_without(u, p, end, UC_NUMBER);
}

static const uint8_t *digits(const struct unicode *u, const uint8_t *p, const uint8_t *end,
                             bool runs) {
    struct at c = at_(u, p);
    if (!(c.class & UC_DIGIT)) return run_without(u, p, end, UC_DIGIT);
    return runs ? run_of(u, p, end, UC_DIGIT) : c.next;
}

/* One loop for each pattern, so that the compiler can put the pattern into it. */
#define PIECES(call)                              \
    do {                                          \
        while (count < most && p < end) {         \
            p = (call);                           \
            ends[count++] = p;                    \
        }                                         \
    } while (0)

/* The pieces that a block of ASCII at p has, 0: the piece at p is to be found alone. *foreign: no
 * block is worth its time up to there; NULL: any is. */
INLINE int block_pieces(enum ascii_pattern pattern, const uint8_t *p, const uint8_t *end,
                        const uint8_t **foreign, const uint8_t **ends, int most) {
    int ascii;
    if ((*foreign && p <= *foreign) || end - p < ASCII_BLOCK || load8(p) & EACH(0x80ull)) return 0;
    int count = split_ascii(pattern, p, ends, most, &ascii);
    *foreign = count && ascii == ASCII_BLOCK ? NULL : p + ascii;
    return count;
}

/* The same by blocks of ASCII where the text has them. A block is not begun without room for most
 * of the pieces that it may have. */
#define PIECES_OF_BLOCKS(pattern, call)                                                           \
    do {                                                                                          \
        const uint8_t *foreign = NULL;                                                            \
        while (p < end && (count == 0 || count + BLOCK_PIECES <= most)) {                         \
            int more = block_pieces(pattern, p, end, &foreign, ends + count, most - count);       \
            if (more == 0) ends[count] = (call);                                                  \
            count += more + (more == 0);                                                          \
            p = ends[count - 1];                                                                  \
        }                                                                                         \
    } while (0)

int split_next(const struct unicode *u, enum split_kind kind, const uint8_t *p, const uint8_t *end,
               const uint8_t **ends, int most) {
    int count = 0;
    switch (kind) {
    case SPLIT_GPT2: PIECES_OF_BLOCKS(ASCII_GPT2, gpt2(u, p, end)); break;
    case SPLIT_LLAMA3: PIECES_OF_BLOCKS(ASCII_LLAMA3, llama3(u, p, end, 3, false)); break;
    case SPLIT_QWEN2: PIECES_OF_BLOCKS(ASCII_QWEN2, llama3(u, p, end, 1, false)); break;
    case SPLIT_CL100K: PIECES_OF_BLOCKS(ASCII_LLAMA3, llama3(u, p, end, 3, true)); break;
    case SPLIT_O200K: PIECES_OF_BLOCKS(ASCII_O200K, o200k(u, p, end, true, 3)); break;
    case SPLIT_TEKKEN: PIECES_OF_BLOCKS(ASCII_TEKKEN, o200k(u, p, end, false, 1)); break;
    case SPLIT_DEEPSEEK: PIECES(deepseek(u, p, end)); break;
    case SPLIT_NUMBERS_3: PIECES(numbers_3(u, p, end)); break;
    case SPLIT_CJK: PIECES(cjk(u, p, end)); break;
    case SPLIT_DIGITS: PIECES(digits(u, p, end, false)); break;
    case SPLIT_DIGIT_RUNS: PIECES(digits(u, p, end, true)); break;
    default: PIECES(end); break;
    }
    return count;
}
