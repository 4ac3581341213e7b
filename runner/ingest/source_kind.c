#include "runner/ingest/source_kind.h"

#include <string.h>

#include "model/ground/input_kind.h"

/* Files of numbers. A byte text would be learnt from them without an error. */
static const struct { size_t at, bytes; const char *magic, *name, *instead; } ARRAYS[] = {
    /* Little-endian 20240520 and 20240801 (model/data_tokens.c). */
    { 0, 4, "\x88\xd8\x34\x01", "a token shard of llm.c",
      "data = tokens { path = \"FILE\", format = \"llmc\" } reads it" },
    { 0, 4, "\xa1\xd9\x34\x01", "a token shard of llm.c",
      "data = tokens { path = \"FILE\", format = \"llmc\" } reads it" },
    { 0, 9, "MMIDIDX\0", "an index of token shards",
      "data = tokens { path = \"FILE.bin\" } reads the shards, and their index beside them" },
    /* The header's length, below 4 GiB, and its first character. */
    { 4, 5, "\0\0\0\0{", "a safetensors file",
      "it has weights: init = \"FOLDER\" begins with those of its folder" },
    { 0, 6, "\x93NUMPY", "a NumPy array",
      "write its text to a file, or its tokens as shards, for data = tokens" },
};

/* Of the kinds of input_kind(). */
static const struct source_kind PACKED[] = {
    { "a gzip file", NULL, true },
    { "a zstd file", NULL, true },
    { "a tar file", NULL, true },
    { "a Parquet file", "make JSON lines of it: python3 -c \"import pandas; "
      "pandas.read_parquet('IN').to_json('OUT.jsonl', orient='records', lines=True)\"", false },
};

static const struct source_kind UTF16 = {
    "text in UTF-16", "make UTF-8 of it: iconv -f UTF-16 -t UTF-8 IN >OUT", false,
}, UTF32 = {
    "text in UTF-32", "make UTF-8 of it: iconv -f UTF-32 -t UTF-8 IN >OUT", false,
};

/* A byte-order mark, and behind it neither U+0000 nor half of a pair of surrogates, which bytes of
 * another kind have soon. */
static bool is_utf16(const unsigned char *head, size_t n) {
    bool little = n >= 4 && head[0] == 0xff && head[1] == 0xfe;
    bool big = n >= 4 && head[0] == 0xfe && head[1] == 0xff, high = false;
    for (size_t i = 2; (little || big) && i + 1 < n; i += 2) {
        unsigned unit = (unsigned)head[i + little] << 8 | head[i + big];
        bool low = unit >= 0xdc00 && unit < 0xe000;
        if (unit == 0 || low != high) return false;
        high = unit >= 0xd800 && unit < 0xdc00;
    }
    return little || big;
}

/* A byte-order mark, and behind it code points other than U+0000. */
static bool is_utf32(const unsigned char *head, size_t n) {
    bool little = n >= 8 && !memcmp(head, "\xff\xfe\0\0", 4);
    bool big = n >= 8 && !memcmp(head, "\0\0\xfe\xff", 4);
    for (size_t i = 4; (little || big) && i + 3 < n; i += 4) {
        const unsigned char *unit = head + i;
        unsigned point = little ? (unsigned)unit[2] << 16 | (unsigned)unit[1] << 8 | unit[0]
                                : (unsigned)unit[1] << 16 | (unsigned)unit[2] << 8 | unit[3];
        bool surrogate = point >= 0xd800 && point < 0xe000;
        if (unit[little ? 3 : 0] || point == 0 || point > 0x10ffff || surrogate) return false;
    }
    return little || big;
}

struct source_kind source_kind(const void *head, size_t n) {
    if (is_utf16(head, n)) return UTF16;
    if (is_utf32(head, n)) return UTF32;
    for (size_t i = 0; i < sizeof ARRAYS / sizeof *ARRAYS; i++)
        if (n >= ARRAYS[i].at + ARRAYS[i].bytes &&
            !memcmp((const char *)head + ARRAYS[i].at, ARRAYS[i].magic, ARRAYS[i].bytes))
            return (struct source_kind){ ARRAYS[i].name, ARRAYS[i].instead, false };
    const char *name = input_kind(head, n);
    for (size_t i = 0; name && i < sizeof PACKED / sizeof *PACKED; i++)
        if (!strcmp(name, PACKED[i].name)) return PACKED[i];
    return (struct source_kind){ .name = name };
}
