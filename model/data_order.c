/* The order of sequences: a permutation without a table, and a blend without a state. */
#include "kernels/rng.h"
#include "model/data_source.h"

/* A four-round Feistel network over the next power of four, repeated until the result is below n
 * (cycle walking, Black & Rogaway 2002). */
int64_t data_permute(uint64_t key, int64_t n, int64_t i) {
    int half = 1;
    while ((int64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (rng_bits(key, right * 4 + round) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* The largest weight becomes 2^32, so that shares are ratios of integers. */
enum status data_blend_weights(struct data *d, const struct data_options *o, struct err *e) {
    double largest = 0;
    uint64_t rest = 0;
    for (int64_t i = 0; o->parts && i < d->part_count; i++) {
        double w = o->parts[i].weight;
        if (!(w > 0 && w < 1e300))
            return FAIL(e, ERR_CONFIG, "part %lld of the data has weight %g; a weight is above 0",
                        (long long)i + 1, w);
        if (w > largest) largest = w;
    }
    for (int64_t i = d->part_count; i-- > 0;) {
        uint64_t weight = o->parts ? (uint64_t)(o->parts[i].weight / largest * 0x1p32 + 0.5) : 1;
        d->part[i].weight = weight ? weight : 1;
        d->part[i].rest = rest += d->part[i].weight;
    }
    return OK;
}

/* How many of the first n positions that earlier parts leave are drawn from this part. */
static int64_t share(const struct token_source *part, int64_t n) {
    return (int64_t)((unsigned __int128)n * part->weight / part->rest);
}

struct blended data_blend(const struct data *d, int64_t position) {
    for (int64_t i = 0; i < d->part_count - 1; i++) {
        int64_t before = share(&d->part[i], position);
        if (share(&d->part[i], position + 1) > before) return (struct blended){ i, before };
        position -= before;
    }
    return (struct blended){ d->part_count - 1, position };
}

int64_t data_blend_count(const struct data *d, int64_t part, int64_t positions) {
    for (int64_t i = 0; i < part; i++) positions -= share(&d->part[i], positions);
    return share(&d->part[part], positions);
}
