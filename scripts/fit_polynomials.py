#!/usr/bin/env python3
"""Fits the polynomials of src/backends/llvm_cpu/vector_math.cpp and prints their coefficients.

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


half_ln2 = mp.log(2) / 2 * 1.0001
fit("exp: (e^r - 1 - r) / r^2", series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5), -half_ln2, half_ln2, 5,
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
print("pi/2 in parts:")
rest = mp.pi / 2
for bits in (8, 11, 24, 24):
    part = mp.mpf(struct.unpack("f", struct.pack("f", float(rest)))[0])
    scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(abs(rest), 2)))
    part = mp.nint(rest * scale) / scale
    print("  ", mp.nstr(part, 20))
    rest -= part
