#include "model/ground/input_kind.h"

#include <string.h>

const char *input_kind(const void *head, size_t n) {
    static const struct { size_t at, bytes; const char *magic, *name; } KINDS[] = {
        { 0, 3, "\x1f\x8b\x08", "a gzip file" },
        { 0, 4, "\x28\xb5\x2f\xfd", "a zstd file" },
        { 1, 3, "\x2a\x4d\x18", "a zstd file" }, /* one that begins with a skippable frame */
        { 0, 4, "\x04\x22\x4d\x18", "an lz4 file" },
        { 0, 6, "\xfd" "7zXZ", "an xz file" }, /* with its NUL */
        { 0, 4, "7z\xbc\xaf", "a 7-Zip file" },
        { 0, 4, "PK\x03\x04", "a zip file" },
        { 0, 4, "PAR1", "a Parquet file" },
        { 4, 6, "1AY&SY", "a bzip2 file" },
        { 257, 6, "ustar", "a tar file" },   /* with its NUL */
        { 257, 6, "ustar ", "a tar file" },
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (n >= KINDS[i].at + KINDS[i].bytes &&
            !memcmp((const char *)head + KINDS[i].at, KINDS[i].magic, KINDS[i].bytes))
            return KINDS[i].name;
    return NULL;
}
