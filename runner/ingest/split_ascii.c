/* The patterns on bits. In an expression, `x << 1` has the bits whose byte before is in x, and
 * `x >> 1` those whose next byte is. The first byte of a block begins a piece, so nothing before it
 * matters. A carry of an addition runs to the end of a run of ones. */
#include "runner/ingest/split_ascii.h"

#include <stdbool.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* ---- the bits of a block ------------------------------------------------------------------- */

/* Bit i: the high bit of byte i; the others are 0. */
static inline uint64_t high_bits(uint64_t v) { return (v >> 7) * 0x0102040810204080u >> 56; }

static inline uint64_t equal_to(uint64_t v, uint8_t byte) { return bytes_within(v, byte, byte); }

INLINE struct ascii_bits portable_bits_of(const uint8_t *p) {
    struct ascii_bits b = { 0 };
    for (int i = 0; i < ASCII_BLOCK; i += 8) {
        uint64_t v = load8(p + i), newlines = equal_to(v, '\r') | equal_to(v, '\n');
        uint64_t blanks = equal_to(v, ' ');
        b.letters |= high_bits(bytes_within(v | EACH(0x20ull), 'a', 'z')) << i;
        b.capitals |= high_bits(bytes_within(v, 'A', 'Z')) << i;
        b.numbers |= high_bits(bytes_within(v, '0', '9')) << i;
        b.spaces |= high_bits(bytes_within(v, '\t', '\r') | blanks) << i;
        b.newlines |= high_bits(newlines) << i;
        b.blanks |= high_bits(blanks) << i;
        b.quotes |= high_bits(equal_to(v, '\'')) << i;
        b.slashes |= high_bits(equal_to(v, '/')) << i;
        b.foreign |= high_bits(v & EACH(0x80ull)) << i;
    }
    return b;
}

void ascii_bits_portable(struct ascii_bits *out, const uint8_t *p) { *out = portable_bits_of(p); }

#if defined(__SSE2__)
/* All ones in the bytes that are in from .. from + count - 1. */
static inline __m128i within16(__m128i v, char from, char count) {
    __m128i offset = _mm_sub_epi8(v, _mm_set1_epi8(from));
    return _mm_cmpeq_epi8(_mm_min_epu8(offset, _mm_set1_epi8((char)(count - 1))), offset);
}

static inline __m128i equal16(__m128i v, char byte) {
    return _mm_cmpeq_epi8(v, _mm_set1_epi8(byte));
}

static inline uint64_t mask16(__m128i v, int at) {
    return (uint64_t)(uint32_t)_mm_movemask_epi8(v) << at;
}

/* Inline: a pattern that does not use a class does not make its bits. */
INLINE struct ascii_bits bits_of(const uint8_t *p) {
    struct ascii_bits b = { 0 };
    for (int i = 0; i < ASCII_BLOCK; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i blanks = equal16(v, ' ');
        b.letters |= mask16(within16(_mm_or_si128(v, _mm_set1_epi8(0x20)), 'a', 26), i);
        b.capitals |= mask16(within16(v, 'A', 26), i);
        b.numbers |= mask16(within16(v, '0', 10), i);
        b.spaces |= mask16(_mm_or_si128(within16(v, '\t', 5), blanks), i);
        b.newlines |= mask16(_mm_or_si128(equal16(v, '\n'), equal16(v, '\r')), i);
        b.blanks |= mask16(blanks, i);
        b.quotes |= mask16(equal16(v, '\''), i);
        b.slashes |= mask16(equal16(v, '/'), i);
        b.foreign |= mask16(v, i);
    }
    return b;
}
#else
INLINE struct ascii_bits bits_of(const uint8_t *p) { return portable_bits_of(p); }
#endif

void ascii_bits(struct ascii_bits *out, const uint8_t *p) { *out = bits_of(p); }

/* ---- where pieces begin -------------------------------------------------------------------- */

static inline int lowest(uint64_t bits) { return __builtin_ctzll(bits); }
static inline int highest(uint64_t bits) { return 63 - __builtin_clzll(bits); }

/* The bytes of a contraction at the apostrophe p: 2, 3, or 0. */
static inline int contraction(const uint8_t *p, bool any_case) {
    uint8_t fold = any_case ? 0x20 : 0, a = p[1] | fold, b = p[2] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Sets the ends of the contractions that begin at `quotes`. What the letter behind an apostrophe
 * would begin is part of the contraction. All lie two bytes before `last`, or more. */
static uint64_t contractions(const uint8_t *p, uint64_t begins, uint64_t quotes, int last,
                             bool any_case) {
    for (; quotes; quotes &= quotes - 1) {
        int at = lowest(quotes), length = contraction(p + at, any_case);
        if (length) begins &= ~(2ull << at);
        if (length && at + length < last) begins |= 1ull << (at + length);
    }
    return begins;
}

/* The apostrophes before which a piece ends and behind which two bytes are known. */
static inline uint64_t quotes_of(const struct ascii_bits *b, uint64_t signs, int last) {
    uint64_t known = last > 1 ? (1ull << (last - 1)) - 1 : 0;
    return b->quotes & signs & b->letters >> 1 & known;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
INLINE uint64_t gpt2(const struct ascii_bits *b, uint64_t others, const uint8_t *p,
                            int last) {
    uint64_t behind_blank = b->blanks << 1;
    uint64_t signs = others & ~(others << 1) & ~behind_blank;
    uint64_t letters = b->letters & ~(b->letters << 1) & ~behind_blank;
    uint64_t numbers = b->numbers & ~(b->numbers << 1) & ~behind_blank;
    uint64_t spaces = b->spaces & ~(b->spaces << 1 & b->spaces >> 1); /* the first and the last */
    return contractions(p, signs | letters | numbers | spaces, quotes_of(b, signs, last), last,
                        false);
}

/* The first of white space behind the last newline of a run: `\s*[\r\n]+` ends there. A run of
 * white space may have several newlines with other space between them. */
static inline uint64_t behind_newlines(uint64_t newlines, uint64_t space) {
    uint64_t first = space & newlines << 1;
    for (uint64_t more = (first + space) & newlines; more; more &= more - 1) {
        uint64_t before = ~space & ((more & -more) - 1); /* a newline follows: this is no end */
        first &= ~(1ull << (highest(before) + 1));
    }
    return first;
}

/* Each number, or every third digit of a run. */
INLINE uint64_t numbers_of(uint64_t N, int digits) {
    if (digits == 1) return N;
    uint64_t four = N & N << 1 & N << 2 & N << 3, next = N & ~(N << 1), begins = next;
    while ((next = next << 3 & four)) begins |= next;
    return begins;
}

/* White space behind signs that take the first newlines of it, and other white space. `taken`: the
 * first of such newlines. */
INLINE uint64_t spaces_of(const struct ascii_bits *b, uint64_t taken) {
    uint64_t newlines = b->newlines, space = b->spaces & ~newlines;
    uint64_t behind = (taken + newlines) & ~newlines;
    return (b->spaces & ~(b->spaces << 1) & ~taken) | (space & ~(b->spaces >> 1)) | behind |
           behind_newlines(newlines, space);
}

/* Llama-3's pattern, and with one digit Qwen2's. cl100k's differs only where the text ends. */
INLINE uint64_t llama3(const struct ascii_bits *b, uint64_t others, int digits, const uint8_t *p,
                       int last) {
    uint64_t L = b->letters, space = b->spaces & ~b->newlines;
    uint64_t signs = others & ~(others << 1) & ~(b->blanks << 1);
    uint64_t before_letters = signs & L >> 1; /* one sign, which the letters take */
    uint64_t letters = L & ~(L << 1) & ~(space << 1) & ~(before_letters << 1);
    uint64_t begins = signs | letters | numbers_of(b->numbers, digits) |
                      spaces_of(b, b->newlines & others << 1);
    return contractions(p, begins, quotes_of(b, before_letters, last), last, true);
}

/* Contractions that letters take behind them, at most one each. */
static uint64_t suffixes(const uint8_t *p, uint64_t begins, uint64_t quotes, int last) {
    for (int end = 0; quotes; quotes &= quotes - 1) {
        int at = lowest(quotes), length = at == end && end > 0 ? 0 : contraction(p + at, true);
        if (!length) continue;
        end = at + length;
        begins &= ~(((1ull << length) - 1) << at);
        if (end < last) begins |= 1ull << end;
    }
    return begins;
}

/* o200k's pattern, and without contractions and with one digit that of Mistral NeMo. A small letter
 * and a capital behind it are of two pieces. No slash follows a newline. */
INLINE uint64_t o200k(const struct ascii_bits *b, uint64_t others, bool contracts, int digits,
                      const uint8_t *p, int last) {
    uint64_t L = b->letters, small = L & ~b->capitals, space = b->spaces & ~b->newlines;
    uint64_t signs = others & ~(others << 1) & ~(b->blanks << 1);
    uint64_t before_letters = signs & L >> 1;
    uint64_t letters = (L & ~(L << 1) & ~(space << 1) & ~(before_letters << 1)) |
                       (b->capitals & small << 1);
    uint64_t begins = signs | letters | numbers_of(b->numbers, digits) |
                      spaces_of(b, b->newlines & others << 1);
    if (!contracts) return begins;
    uint64_t behind_letters = before_letters & L << 1;
    begins &= ~(b->quotes & behind_letters & (1ull << last) >> 1); /* not decided */
    return suffixes(p, begins, quotes_of(b, behind_letters, last), last);
}

/* White space at the end may go on, and what a piece is depends on the byte behind it. So only what
 * begins before the last byte that is no space is sure. */
INLINE int pieces(enum ascii_pattern pattern, const uint8_t *p, const uint8_t **ends, int most,
                  int *ascii) {
    struct ascii_bits b = bits_of(p);
    int count = 0;
    bool cased = pattern == ASCII_O200K || pattern == ASCII_TEKKEN;
    uint64_t stop = b.foreign | (cased ? b.slashes & b.newlines << 1 : 0);
    *ascii = stop ? lowest(stop) : ASCII_BLOCK;
    uint64_t known = stop ? (stop & -stop) - 1 : UINT64_MAX, begins = 0;
    if (!(known & ~b.spaces)) return 0;
    uint64_t others = known & ~(b.letters | b.numbers | b.spaces);
    int last = highest(known & ~b.spaces);
    switch (pattern) {
    case ASCII_GPT2: begins = gpt2(&b, others, p, last); break;
    case ASCII_LLAMA3: begins = llama3(&b, others, 3, p, last); break;
    case ASCII_QWEN2: begins = llama3(&b, others, 1, p, last); break;
    case ASCII_O200K: begins = o200k(&b, others, true, 3, p, last); break;
    case ASCII_TEKKEN: begins = o200k(&b, others, false, 1, p, last); break;
    }
    begins &= ((1ull << last) - 1) & ~1ull;
    for (; begins && count < most; begins &= begins - 1) ends[count++] = p + lowest(begins);
    return count;
}

int split_ascii(enum ascii_pattern pattern, const uint8_t *p, const uint8_t **ends, int most,
                int *ascii) {
    switch (pattern) { /* each with its own code */
    case ASCII_GPT2: return pieces(ASCII_GPT2, p, ends, most, ascii);
    case ASCII_LLAMA3: return pieces(ASCII_LLAMA3, p, ends, most, ascii);
    case ASCII_QWEN2: return pieces(ASCII_QWEN2, p, ends, most, ascii);
    case ASCII_O200K: return pieces(ASCII_O200K, p, ends, most, ascii);
    case ASCII_TEKKEN: return pieces(ASCII_TEKKEN, p, ends, most, ascii);
    }
    return 0;
}
