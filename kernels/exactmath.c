/* The f64 functions. Sums that need more than 53 bits are kept as an unevaluated pair hi + lo,
 * built from Knuth's two-sum and Dekker's split product. These need no fma, and none may be
 * used. */
#include "kernels/exactmath.h"

#include <math.h> /* NAN, INFINITY: constants only */

struct pair { double hi, lo; };

static uint64_t bits_of(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
static double from_bits(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }

/* 2^n for -1022 <= n <= 1023. */
static double pow2(int64_t n) { return from_bits((uint64_t)(n + 1023) << 52); }

/* a + b exactly (Knuth). */
static struct pair two_sum(double a, double b) {
    double s = a + b;
    double v = s - a;
    return (struct pair){ s, (a - (s - v)) + (b - v) };
}

/* a * b exactly (Dekker, Veltkamp's split at 27 bits); |a|, |b| < 2^990. */
static struct pair two_product(double a, double b) {
    double ta = 134217729.0 * a, tb = 134217729.0 * b;
    double ah = ta - (ta - a), bh = tb - (tb - b);
    double al = a - ah, bl = b - bh;
    double p = a * b;
    return (struct pair){ p, ((ah * bh - p) + ah * bl + al * bh) + al * bl };
}

/* Rounds to an integer, |x| < 2^51. */
static double round_even(double x) {
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    return (x + magic) - magic;
}

/* ln 2 in two parts; the first has 32 trailing zero bits, so n * LN2_HI is exact for |n| < 2^11. */
static const double LN2_HI = 0x1.62e42fee00000p-1, LN2_LO = 0x1.a39ef35793c76p-33;

/* e^(x + tail), |tail| small beside ulp(x). */
static double exp_pair(double x, double tail) {
    if (x != x) return NAN;
    if (x > 709.9) return INFINITY;
    if (x < -745.2) return 0.0;
    double n = round_even(x * 0x1.71547652b82fep+0);
    double r = (x - n * LN2_HI) - (n * LN2_LO - tail);
    double p = 0.0, term[] = { 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5 };
    for (int i = 0; i < 12; i++) p = p * r + term[i];
    p = (p * (r * r) + r) + 1.0;
    int64_t k = (int64_t)n, half = k / 2;
    /* Two factors: the first product is exact, so a subnormal result is rounded once. */
    return p * pow2(half) * pow2(k - half);
}

double exact_exp(double x) { return exp_pair(x, 0.0); }

/* ln x as a pair, x positive, finite. ln m = 2 atanh(s), s = (m-1)/(m+1). */
static struct pair log_pair(double x) {
    int64_t k = 0;
    if (x < 0x1p-1022) { x *= 0x1p54; k = -54; }
    uint64_t v = bits_of(x) - 0x3FE6A09E667F3BCDu; /* 1/sqrt 2 */
    k += (int64_t)v >> 52;
    double m = from_bits((v & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
    double f = m - 1.0;
    struct pair d = two_sum(2.0, f);
    double s = f / d.hi;
    struct pair sd = two_product(s, d.hi);
    double s_lo = (((f - sd.hi) - sd.lo) - s * d.lo) / d.hi;
    double z = s * s, p = 0.0;
    for (int i = 23; i >= 3; i -= 2) p = p * z + 2.0 / i;
    double tail = s * (z * p);
    struct pair sum = two_sum((double)k * LN2_HI, 2.0 * s);
    double lo = sum.lo + ((double)k * LN2_LO + (2.0 * s_lo + tail));
    return two_sum(sum.hi, lo);
}

double exact_log(double x) {
    if (x != x || x < 0.0) return NAN;
    if (x == 0.0) return -INFINITY;
    if (x > 1.7976931348623157e308) return INFINITY;
    struct pair l = log_pair(x);
    return l.hi + l.lo;
}

double exact_pow(double x, double y) {
    if (x != x || y != y || x <= 0.0 || x > 1.7976931348623157e308) return NAN;
    struct pair l = log_pair(x);
    double rough = y * l.hi;
    if (rough > 720.0) return INFINITY;
    if (rough < -760.0) return 0.0;
    struct pair p = two_product(y, l.hi);
    return exp_pair(p.hi, p.lo + y * l.lo);
}

/* x - quadrant * pi/2 as a pair, |hi| <= pi/4. pi/2 in three parts; the first two have 33 bits,
 * so that their products with |n| < 2^20 are exact. */
static struct pair reduce_angle(double x, int64_t *quadrant) {
    double n = round_even(x * 0x1.45f306dc9c883p-1);
    *quadrant = (int64_t)n & 3;
    double head = x - n * 0x1.921fb54400000p+0;
    double middle = n * 0x1.0b4611a600000p-34;
    struct pair r = two_sum(head, -middle);
    double rest = r.lo - n * 0x1.3198a2e037073p-69;
    return two_sum(r.hi, rest);
}

static double sin_core(struct pair r) {
    double z = r.hi * r.hi, p = 0.0;
    double term[] = { 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                      -1.0 / 39916800,
                      1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6 };
    for (int i = 0; i < 8; i++) p = p * z + term[i];
    return r.hi + (r.hi * (z * p) + r.lo * (1.0 - 0.5 * z));
}

static double cos_core(struct pair r) {
    double z = r.hi * r.hi, p = 0.0;
    double term[] = { 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                      1.0 / 40320,          -1.0 / 720,         1.0 / 24 };
    for (int i = 0; i < 7; i++) p = p * z + term[i];
    double half = 0.5 * z, w = 1.0 - half;
    return w + (((1.0 - w) - half) + (z * z * p - r.hi * r.lo));
}

static double cos_quadrant(double x, int64_t turn) {
    if (!(x >= -0x1p20 && x <= 0x1p20)) return NAN; /* beyond what the reduction is exact for */
    int64_t q;
    struct pair r = reduce_angle(x, &q);
    q = (q + turn) & 3;
    double y = q & 1 ? sin_core(r) : cos_core(r);
    return q == 1 || q == 2 ? -y : y;
}

double exact_cos(double x) { return cos_quadrant(x, 0); }
/* sin x = cos(x - pi/2), taken in quadrants; -0 stays -0. */
double exact_sin(double x) { return x == 0.0 ? x : cos_quadrant(x, 3); }
