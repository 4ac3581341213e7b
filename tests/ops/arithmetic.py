#!/usr/bin/env python3
"""Writes tests/ops/arithmetic.txt: products as kernels/arithmetic.h has them, in exact fractions.

    python3 tests/ops/arithmetic.py > tests/ops/arithmetic.txt

It shares no code with the C sources. One output a line:
    arithmetic a b scale fast K  codes of a  codes of b  factors of a  factors of b  the f32 output
All but names and K are hexadecimal; "-" stands for no factors. NVFP4's begin with the amax, an
f32."""
import random
from fractions import Fraction

random.seed(23)
HALF = Fraction(1, 2)
# Group, fraction, mantissa of FP8, then of BF16; chain without fast accumulation; MX is native
MODELS = {"hopper": ((32, 13, 13), (16, 25, 23), 128, False),
          "ada": ((16, 13, 13), (8, 24, 23), 128, False),
          "sm_100": ((32, 25, 23), (16, 25, 23), 0, True),
          "sm_120": ((32, 25, 23), (16, 25, 23), 0, True)}
FP4 = (64, 16, 35, 23)  # sm_100 and sm_120: a group, a block of it; fraction, mantissa
FORMATS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "bf16": (8, 7, 127), "e2m1": (2, 1, 1)}
NAN, INF = "nan", "inf"


def two(e):
    return Fraction(2) ** e


def decode(code, fmt):
    """(signed significand in [0,2), exponent), or (NAN or +-INF, 0)."""
    bits, frac, bias = FORMATS[fmt]
    sign = -1 if code >> (bits + frac) else 1
    e, m = code >> frac & (1 << bits) - 1, code & (1 << frac) - 1
    if fmt == "e4m3" and code & 0x7F == 0x7F:
        return NAN, 0
    if fmt in ("e5m2", "bf16") and e == (1 << bits) - 1:
        return (NAN if m else (sign, INF)), 0
    if e == 0:
        return sign * Fraction(m, 1 << frac), 1 - bias
    return sign * (1 + Fraction(m, 1 << frac)), e - bias


def floor_log2(x):
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if two(e) <= x else e - 1


def toward_zero(x):
    return int(x)  # int() of a Fraction truncates


def nearest(x, bits, least, most):
    """x to `bits` bits after the leading one, ties to even; infinite from 2^(most+1)."""
    if x == 0:
        return Fraction(0)
    step = two(max(floor_log2(abs(x)), least) - bits)
    r = round(x / step) * step  # round() of a Fraction: ties to even
    return (1 if r > 0 else -1, INF) if abs(r) >= two(most + 1) else r


def f32(x):
    return x if isinstance(x, (str, tuple)) else nearest(x, 23, -126, 127)


def bf16(x):
    return x if isinstance(x, (str, tuple)) else nearest(x, 7, -126, 127)


def special(x):
    return isinstance(x, (str, tuple))


def times(x, y):
    if x == NAN or y == NAN:
        return NAN
    if not special(x) and not special(y):
        return x * y
    sx = x[0] if special(x) else (x > 0) - (x < 0)
    sy = y[0] if special(y) else (y > 0) - (y < 0)
    return (sx * sy, INF) if sx * sy else NAN


def plus(x, y):
    if x == NAN or y == NAN or (special(x) and special(y) and x != y):
        return NAN
    return x if special(x) else y if special(y) else x + y


def instruction(pairs, c, group, fraction, mantissa):
    """pairs: ((sig, exp), (sig, exp))."""
    total = c
    for (sa, ea), (sb, eb) in pairs:
        p = times(sa, sb)
        total = plus(total, p if special(p) else Fraction(0))
    if special(total):
        return total
    live = [(sa * sb, ea + eb) for (sa, ea), (sb, eb) in pairs if sa * sb]
    top = max([e for _, e in live] + ([floor_log2(abs(c))] if c else []) + [-126])
    units = sum(toward_zero(s * two(fraction + e - top)) for s, e in live)
    units += toward_zero(c * two(fraction - top))
    x = units * two(top - fraction)
    if x == 0:
        return Fraction(0)
    step = two(max(floor_log2(abs(x)), -126) - mantissa)
    x = toward_zero(x / step) * step
    return (1 if x > 0 else -1, INF) if abs(x) >= two(128) else x


def chain(terms, model):
    c = Fraction(0)
    for k in range(0, len(terms), model[0]):
        c = instruction(terms[k:k + model[0]], c, *model)
    return c


def nvfp4_chain(a, b, sa, sb):
    """a, b: codes; sa, sb: the scales' codes, one a block. Blocks are summed exactly."""
    group, block, fraction, mantissa = FP4
    value = lambda code: two(decode(code, "e2m1")[1]) * decode(code, "e2m1")[0]
    c = Fraction(0)
    for at in range(0, len(a), group):
        terms, top = [], floor_log2(abs(c)) if c else -126
        for k in range(at, min(at + group, len(a)), block):
            (xs, xe), (ys, ye) = decode(sa[k // block], "e4m3"), decode(sb[k // block], "e4m3")
            if special(xs) or special(ys):
                return NAN
            dot = sum(value(x) * value(y) for x, y in zip(a[k:k + block], b[k:k + block]))
            terms.append((dot * xs * ys, xe + ye))
            if xs and ys:
                top = max(top, xe + ye)
        x = sum(toward_zero(s * two(fraction + e - top)) for s, e in terms)
        x = (x + toward_zero(c * two(fraction - top))) * two(top - fraction)
        step = two(floor_log2(abs(x)) - mantissa) if x else 1
        c = toward_zero(x / step) * step
    return c


def nvfp4_output(a, b, sa, sb, amax):
    alpha = f32(f32(amax[0] * amax[1]) * f32(1 / Fraction(36 * 448 * 448)))
    return f32(times(nvfp4_chain(a, b, sa, sb), alpha))


def output(name, fa, fb, scale, fast, a, b, sa, sb):
    fp8, wide, promoted, mx = MODELS[name]
    A, B = [decode(x, fa) for x in a], [decode(x, fb) for x in b]
    K, block = len(a), {"1x128": 128, "1x32": 32}.get(scale, 0)
    factor = lambda s, k: s[k // block if block else 0]
    if fa == "bf16":
        return f32(chain(list(zip(A, B)), wide))
    own = name in ("ada", "sm_120") and scale in ("row", "1x128")  # gemm_sync.cu: chains of 128
    native = own or scale == "tensor" or (mx if scale == "1x32" else name == "hopper")
    if not native:  # values widened to BF16: codes, or codes times factors
        def widen(x, s, k):
            v = x[0] if special(x[0]) else x[0] * two(x[1])
            if block:
                v = bf16(f32(times(v, factor(s, k))))
            if special(v) or v == 0:
                return v, 0
            e = max(floor_log2(abs(v)), -126)
            return v / two(e), e
        terms = [(widen(x, sa, k), widen(y, sb, k)) for k, (x, y) in enumerate(zip(A, B))]
        x = chain(terms, wide)
        return f32(x if block else times(x, f32(times(sa[0], sb[0]))))
    if scale == "1x32":
        shift = lambda x, s, k: (x[0], x[1] + floor_log2(factor(s, k)))
        terms = [(shift(x, sa, k), shift(y, sb, k)) for k, (x, y) in enumerate(zip(A, B))]
        return f32(chain(terms, fp8))
    terms = list(zip(A, B))
    if block:
        total = Fraction(0)
        for k in range(0, K, 128):
            x, s, t = chain(terms[k:k + 128], fp8), factor(sa, k), factor(sb, k)
            # 1x128 by 1x128: a's factor first; in gemm_sync.cu both are multiplied first
            x = times(x, f32(times(s, t))) if own else times(f32(times(x, s)), t)
            total = f32(plus(x, total))
        return total
    if not own and (fast or not promoted):
        x = chain(terms, fp8)
    else:
        x = Fraction(0)
        for k in range(0, K, 128):
            x = f32(plus(x, chain(terms[k:k + 128], fp8)))
    if scale == "row" and not own:
        return f32(times(f32(times(x, sb[0])), sa[0]))
    return f32(times(x, f32(times(sa[0], sb[0]))))


def f32_code(x):
    if x == NAN:
        return 0x7FC00000
    if special(x):
        return 0x7F800000 if x[0] > 0 else 0xFF800000
    if x == 0:
        return 0
    sign, x = (1 << 31, -x) if x < 0 else (0, x)
    e = max(floor_log2(x), -126)
    units = int(x / two(e - 23))
    return sign | ((e + 126) << 23) + units


def codes(fmt, kind, K):
    bits, frac, bias = FORMATS[fmt]
    sign = 1 << (bits + frac)
    top = {"e4m3": 0x7E, "e5m2": 0x7B, "bf16": 0x7F7F}[fmt]
    one = bias << frac
    def normal(spread):
        drawn = random.choice((0, sign))
        near = one + random.randrange(-spread << frac, spread << frac)
        return drawn | max(0, min(top, near))
    if kind == "near":
        return [normal(2) for _ in range(K)]
    if kind == "wide":
        return [normal(min(bias - 1, 12)) for _ in range(K)]
    if kind == "all":
        return [random.randrange(top + 1) | random.choice((0, sign)) for _ in range(K)]
    if kind == "subnormal":
        return [random.randrange(1 << frac) | random.choice((0, sign)) for _ in range(K)]
    if kind == "zeros":
        return [normal(2) if random.random() < 0.1 else random.choice((0, sign)) for _ in range(K)]
    if kind == "huge":
        return [top if k == K // 3 else normal(1) for k in range(K)]
    if kind == "largest":
        return [top] * K
    if kind == "cancel":  # the second half of each 64 takes back the first: see cancel_partner
        return [normal(3) for _ in range(K)]
    if kind == "tiny":
        return [random.choice((0, sign)) | random.randrange(75 << frac) for _ in range(K)]
    if kind == "special":
        x = [normal(2) for _ in range(K)]
        x[K // 2] = {"e4m3": 0x7F, "e5m2": 0xFC, "bf16": 0xFF80}[fmt]
        return x
    raise SystemExit(kind)


def line(name, fa, fb, scale, fast, kind, K):
    a, b = codes(fa, kind, K), codes(fb, "near" if kind == "special" else kind, K)
    if kind == "cancel":
        bits, frac, _ = FORMATS[fa]
        for k in range(32, K, 64):
            for i in range(k, min(k + 32, K)):
                a[i], b[i] = a[i - 32] ^ 1 << (bits + frac), b[i - 32]
    blocks = {"1x128": -(-K // 128), "1x32": -(-K // 32)}.get(scale, 1)
    sa = sb = []
    if scale == "1x32":
        ea, eb = ([random.randrange(110, 140) for _ in range(blocks)] for _ in range(2))
        sa, sb, fmt = [two(x - 127) for x in ea], [two(x - 127) for x in eb], "%02x"
    elif scale != "none":
        ea, eb = ([random.randrange(0x3C000000, 0x41000000) for _ in range(blocks)]
                  for _ in range(2))
        real = lambda u: (1 + Fraction(u & 0x7FFFFF, 1 << 23)) * two((u >> 23) - 127)
        sa, sb, fmt = [real(x) for x in ea], [real(x) for x in eb], "%08x"
    text = lambda f, x: "".join(("%04x" if f == "bf16" else "%02x") % c for c in x)
    factors = lambda e: "".join(fmt % x for x in e)
    x = output(name, fa, fb, scale, fast, a, b, sa, sb)
    print(name, fa, fb, scale, int(fast), K, text(fa, a), text(fb, b), factors(ea) if sa else "-",
          factors(eb) if sb else "-", "%08x" % f32_code(x))


for name in MODELS:
    for kind, K in (("near", 1), ("wide", 33), ("all", 129), ("subnormal", 64), ("zeros", 300),
                    ("huge", 100), ("largest", 70), ("cancel", 192), ("special", 40)):
        line(name, "e4m3", "e4m3", "tensor", True, kind, K)
        line(name, "e5m2", "e4m3", "tensor", False, kind, 2 * K)
        line(name, "bf16", "bf16", "none", True, kind, K // 2 + 1)
    for kind, K in (("near", 290), ("all", 130)):
        line(name, "e4m3", "e5m2", "tensor", True, kind, K)
        line(name, "e4m3", "e4m3", "row", False, kind, K)
        line(name, "e4m3", "e4m3", "1x128", False, kind, K)
        line(name, "e5m2", "e4m3", "1x128", True, kind, K)
        line(name, "e4m3", "e4m3", "1x32", True, kind, K)
    line(name, "bf16", "bf16", "none", True, "tiny", 77)


def nvfp4_line(name, kind, K):
    """Kinds: which codes, and how far the scales are apart."""
    blocks = -(-K // 16)
    any_code = lambda: random.randrange(16)
    few = lambda: any_code() if random.random() < 0.1 else random.choice((0, 8))
    a, b = ([few() if kind == "zeros" else 7 if kind == "largest" else any_code()
             for _ in range(K)] for _ in range(2))
    least, most = {"near": (0x30, 0x48), "largest": (0x7E, 0x7F)}.get(kind, (0, 0x7F))
    sa, sb = ([random.randrange(least, most) for _ in range(blocks)] for _ in range(2))
    if kind == "empty":  # the largest scales stand before blocks of zeros
        for block in range(1, blocks, 2):
            sa[block] = sb[block] = 0x7E
            a[16 * block:16 * block + 16] = [0] * len(a[16 * block:16 * block + 16])
        sa[::2], sb[::2] = ([random.randrange(1, 24) for _ in sa[::2]] for _ in range(2))
    if kind == "cancel":  # every second 64 take back the 64 before, but for one product
        for k in range(64, K):
            if k // 64 % 2:
                a[k], b[k] = a[k - 64] ^ 8, b[k - 64]
                sa[k // 16], sb[k // 16] = sa[k // 16 - 4], sb[k // 16 - 4]
        a[K - 1] = 1
    if kind == "special":
        sb[blocks // 2] = 0x7F
    bits = [random.randrange(0x44000000, 0x46000000) for _ in range(2)]
    amax = [(1 + Fraction(u & 0x7FFFFF, 1 << 23)) * two((u >> 23) - 127) for u in bits]
    text = lambda x: "".join("%02x" % c for c in x)
    print(name, "e2m1", "e2m1", "1x16", 0, K, text(a), text(b), "%08x" % bits[0] + text(sa),
          "%08x" % bits[1] + text(sb), "%08x" % f32_code(nvfp4_output(a, b, sa, sb, amax)))


for name in ("sm_100", "sm_120"):
    for kind, K in (("near", 16), ("near", 640), ("wide", 37), ("wide", 704), ("zeros", 320),
                    ("largest", 200), ("empty", 512), ("cancel", 384), ("special", 96)):
        nvfp4_line(name, kind, K)
