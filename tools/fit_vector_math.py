#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Prints the polynomial coefficients of src/machine/kernels/vector_math.h: minimax weighted error on an
# interval, found by Lawson's reweighted least squares with 45 digits. Needs mpmath; run it by hand
# to change a degree.
import struct

import mpmath as mp

mp.mp.dps = 45


def fit(f, basis, weight, low, high, nodes=160, rounds=40):
    xs = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (nodes - 1)) for i in range(nodes)]
    xs = [x if abs(x) > mp.mpf(10) ** -8 else mp.mpf(10) ** -8 for x in xs]
    rows = [[g(x) * weight(x) for g in basis] for x in xs]
    targets = [f(x) * weight(x) for x in xs]
    importance = [mp.mpf(1) / nodes] * nodes
    best = None
    n = len(basis)
    for _ in range(rounds):
        matrix, right = mp.matrix(n, n), mp.matrix(n, 1)
        for share, row, target in zip(importance, rows, targets):
            for j in range(n):
                right[j] += share * row[j] * target
                for k in range(n):
                    matrix[j, k] += share * row[j] * row[k]
        c = mp.lu_solve(matrix, right)
        errors = [abs(sum(a * b for a, b in zip(row, c)) - t) for row, t in zip(rows, targets)]
        if best is None or max(errors) < best[0]:
            best = (max(errors), list(c))
        total = sum(s * e for s, e in zip(importance, errors))
        importance = [s * e / total for s, e in zip(importance, errors)]
    return best


def show(name, best, single):
    print(f"{name}: largest error {mp.nstr(best[0], 3)}")
    for c in best[1]:
        value = float(c)
        if single:
            value = struct.unpack("f", struct.pack("f", value))[0]
        print("   ", value.hex())


def powers(first, count):
    return [lambda x, k=k: x**k for k in range(first, first + count)]


half_ln2 = mp.log(2) / 2 * mp.mpf("1.0001")
z_max = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
for single in (True, False):
    type_name = "float" if single else "double"
    show(f"exp {type_name}: r^2 .. of exp(r) - 1 - r",
         fit(lambda r: mp.expm1(r) - r, powers(2, 5 if single else 10), lambda r: 1 / abs(mp.expm1(r)),
             -half_ln2, half_ln2), single)
    show(f"log {type_name}: z .. of (log((1+s)/(1-s)) - 2s)/s, z = s^2",
         fit(lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2, powers(1, 3 if single else 7),
             lambda z: mp.mpf(1), mp.mpf(10) ** -12, z_max), single)
    show(f"erf {type_name}, |x| < 1: erf(x)/x - 1 in z = x^2",
         fit(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, powers(0, 7 if single else 12),
             lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)), mp.mpf(10) ** -10, mp.mpf(1)), single)
    show(f"erf {type_name}, |x| > 1: log(erfc(x)), weight erfc(x)",
         fit(lambda x: mp.log(mp.erfc(x)), powers(0, 7 if single else 17), mp.erfc, mp.mpf(1),
             mp.mpf(4 if single else 6)), single)
