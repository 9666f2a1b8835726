#!/usr/bin/env python3
"""Fits the polynomials of src/backends/llvm_cpu/emit/vector_math.cpp and prints their coefficients.

Needs mpmath (it comes with torch). Each fit interpolates at Chebyshev nodes, which is within a small
factor of the best one; the table in docs/reference/math-accuracy.md says what the functions reach.
"""

import struct

import mpmath as mp

mp.mp.prec = 200


def fit(name, function, low, high, degree, weight=lambda x: 1, single=True):
    """Coefficients, highest power first, of a polynomial close to `function` on [low, high]."""
    count = degree + 1
    low, high = mp.mpf(low), mp.mpf(high)
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    matrix = mp.matrix(count, count)
    values = mp.matrix(count, 1)
    for row, x in enumerate(nodes):
        for power in range(count):
            matrix[row, power] = x**power
        values[row] = function(x)
    solution = mp.lu_solve(matrix, values)
    rounded = [struct.unpack("f", struct.pack("f", float(c)))[0] if single else float(c) for c in solution]
    samples = [low + (high - low) * i / 997 for i in range(998)]
    error = max(abs((mp.polyval(list(reversed(rounded)), x) - function(x)) * weight(x)) for x in samples)
    print(f"{name}: degree {degree} on [{mp.nstr(low, 6)}, {mp.nstr(high, 6)}], weighted error {mp.nstr(error, 3)}")
    digits = 9 if single else 17
    print("  {" + ", ".join(f"{c:.{digits}g}" for c in reversed(rounded)) + "}")


def series(function, at_zero):
    """`function`, with its limit at 0, where the quotient has none."""
    return lambda x: mp.mpf(at_zero) if abs(x) < mp.mpf(10) ** -30 else function(x)


def fit_best(name, function, low, high, degree, weight, rounds):
    """As `fit`, nearer to the best: least squares whose weights grow where the error is large (Lawson)."""
    count, terms = 60, degree + 1
    low, high = mp.mpf(low), mp.mpf(high)
    nodes = [low + (high - low) * (1 - mp.cos(mp.pi * (i + 0.5) / count)) / 2 for i in range(count)]
    values, weights = [function(x) for x in nodes], [weight(x) for x in nodes]
    shares, best = [mp.mpf(1)] * count, None
    for _ in range(rounds):
        matrix, right = mp.matrix(terms, terms), mp.matrix(terms, 1)
        for x, value, w, share in zip(nodes, values, weights, shares):
            row = [w * x**power for power in range(terms)]
            for a in range(terms):
                right[a] += share * row[a] * w * value
                for b in range(terms):
                    matrix[a, b] += share * row[a] * row[b]
        solution = list(mp.lu_solve(matrix, right))
        errors = [abs((mp.polyval(solution[::-1], x) - value) * w) for x, value, w in zip(nodes, values, weights)]
        largest = max(errors)
        if best is None or largest < best[0]:
            best = (largest, solution)
        shares = [share * (error / largest + mp.mpf("1e-3")) for share, error in zip(shares, errors)]
        total = sum(shares)
        shares = [share * count / total for share in shares]
    print(f"{name}: degree {degree} on [{mp.nstr(low, 6)}, {mp.nstr(high, 6)}], weighted error {mp.nstr(best[0], 3)}")
    print("  {" + ", ".join(f"{struct.unpack('f', struct.pack('f', float(c)))[0]:.9g}" for c in best[1][::-1]) + "}")


half_ln2 = mp.log(2) / 2 * 1.0001
fit_best("exp: (e^r - 1 - r) / r^2", series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5), -half_ln2, half_ln2, 4,
         lambda r: r**2, 12)
fit("expm1: (e^r - 1 - r) / r^2", series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5), -half_ln2, half_ln2, 5,
    lambda r: r**2)
fit("exp, double", series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5), -half_ln2, half_ln2, 11,
    lambda r: r**2, single=False)
low, high = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
fit("log: (log(1+f) - f + f^2/2) / f^3", series(lambda f: (mp.log(1 + f) - f + f**2 / 2) / f**3, mp.mpf(1) / 3), low,
    high, 8, lambda f: f**2)
fit("tanh: (tanh(x)/x - 1) / z, z = x^2", series(lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -mp.mpf(1) / 3),
    0, mp.mpf(0.625) ** 2, 5, lambda z: z)
quarter = (mp.pi / 4) ** 2 * 1.0002
fit("sin: (sin(x)/x - 1) / z", series(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -mp.mpf(1) / 6), 0, quarter,
    3, lambda z: z)
fit("cos: (cos(x) - 1 + z/2) / z^2", series(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, mp.mpf(1) / 24), 0,
    quarter, 3, lambda z: z**2)
fit("erf, |x| < 0.95: erf(x)/x - 1", series(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 2 / mp.sqrt(mp.pi) - 1), 0,
    mp.mpf(0.95) ** 2, 6)
fit("erf, |x| > 0.95: -log(erfc(t)) / t", lambda t: -mp.log(mp.erfc(t)) / t, 0.95, 4.0, 8,
    lambda t: t * mp.erfc(t))
tail_slope, tail_from = mp.mpf("0.4"), mp.mpf("1.25")
tail_place = lambda t: (1 / t - 1) / tail_slope
fit_best("normal_cdf, |x| < 1.25: erf(x / sqrt 2) / (2 x), z = x^2",
         series(lambda z: mp.erf(mp.sqrt(z / 2)) / (2 * mp.sqrt(z)), 1 / mp.sqrt(2 * mp.pi)), 0, tail_from**2, 5,
         lambda z: mp.sqrt(z) + mp.mpf("0.05"), 10)
fit_best("normal_cdf, |x| > 1.25: erfc(a) e^(a^2) / (2 t), a = |x| / sqrt 2, t = 1 / (1 + 0.4 a)",
         lambda t: mp.erfc(tail_place(t)) * mp.exp(tail_place(t) ** 2) / (2 * t), 1 / (1 + 5 * tail_slope),
         1 / (1 + tail_slope * tail_from / mp.sqrt(2)), 4,
         lambda t: t * mp.exp(-mp.mpf("0.7") * tail_place(t) ** 2), 10)
print("pi/2 in parts:")
rest = mp.pi / 2
for bits in (8, 11, 24, 24):
    part = mp.mpf(struct.unpack("f", struct.pack("f", float(rest)))[0])
    scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(abs(rest), 2)))
    part = mp.nint(rest * scale) / scale
    print("  ", mp.nstr(part, 20))
    rest -= part
