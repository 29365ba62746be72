#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the constants of presets/clusters to published runs, and tests them on left-out sources.

  tools/fit_clusters.py [--write] [--left-out FILE] [--rounds N] --data FILE.json...

A few numbers are shared by all devices (SHARED); each generation of devices may deviate from three
of them (DEVIATIONS). All have log-normal priors from literature, towards which they are shrunk. The
loss is the mean of two means of the error |ln(predicted / measured)|, over core rows and over
sources, each error clipped at MOST, plus PENALTY times the squared distances from the priors in
standard deviations. Gauss-Newton with reweighting; build/bench/published --serve computes prices.

Each source is then left out: the constants are fitted without its rows, to the same derivatives; a
source that has only memory keeps the common fit.

  --write      writes the fitted values into the presets
  --left-out   writes {SOURCE: {PRESET: {key: value}}} for build/bench/published --left-out
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = math.log(1.5)
PENALTY = 3e-4
STEP = 0.02    # of a logarithm, for derivatives
LEAST = 0.01   # errors below this count as squares

# presets of a generation
GENERATIONS = {
    "volta": ["v100"],
    "ampere": ["a100-80g", "a100-40g", "a800", "l40s", "rtx-4090", "rtx-5090"],
    "hopper": ["h100", "h200", "h800", "h20"],
    "blackwell": ["gb200-nvl72", "b200", "b300", "gb300-nvl72"],
}

# prior and its standard deviation (of the logarithm)
SHARED = {
    "matrix": (0.88, 0.05),     # of MAMF: products of layers reach less than the best product
    "memory": (0.85, 0.08),     # of memory_bytes_per_s
    "attention": (0.80, 0.15),  # of published rates of attention
    "contention": (1.9, 0.30),
    "host_op_s": (7e-5, 0.50),
    "step_s": (4e-3, 1.00),
    "jitter": (2.5e-3, 1.00),
    "unaligned_efficiency": (0.11, 0.50),
}
DEVIATIONS = {"matrix": 0.04, "memory": 0.08, "attention": 0.12}

# Best rate of any product (MAMF, stas00/ml-engineering), for Volta that of Ampere.
MAMF = {"volta": 0.869, "ampere": 0.869, "hopper": 0.803, "blackwell": 0.776}
# Rates of attention, forward and backward, causal, heads of 128 (Dao 2023; Shah et al. 2024; cuDNN
# 9 on Blackwell). Older kernels on Blackwell: their instructions run at Hopper's rate. Volta: that
# of Ampere's FlashAttention 1.
ATTENTION = {
    "attention_efficiency":
        {"volta": 0.32, "ampere": 0.50, "hopper": 0.50, "blackwell": 0.40},
    "attention_2_efficiency": {"hopper": 0.30, "blackwell": 0.13},
    "attention_1_efficiency":
        {"volta": 0.32, "ampere": 0.32, "hopper": 0.17, "blackwell": 0.075},
}


def start():
    return {key: 0.0 for key in keys()}


def keys():
    return list(SHARED) + [(k, g) for g in GENERATIONS for k in DEVIATIONS]


def deviation(key):
    return SHARED[key][1] if key in SHARED else DEVIATIONS[key[0]]


def constants(x):
    """{PRESET: {key: value}} for logarithms of values over priors."""
    shared = {k: SHARED[k][0] * math.exp(x[k]) for k in SHARED}
    out = {}
    for g, presets in GENERATIONS.items():
        at = {k: shared[k] * math.exp(x[(k, g)]) for k in DEVIATIONS}
        values = {"matrix_efficiency": min(1, at["matrix"] * MAMF[g]),
                  "memory_efficiency": min(1, at["memory"])}
        for key, rates in ATTENTION.items():
            if g in rates:
                values[key] = min(1, at["attention"] * rates[g])
        for k in SHARED:
            if k not in DEVIATIONS:
                values[k] = shared[k]
        for preset in presets:
            out[preset] = {k: float("%.3g" % v) for k, v in values.items()}
    return out


# ---- presets ----

def write_presets(fitted):
    table = ROOT / "src" / "core" / "describe" / "cluster_keys.c"
    text = table.read_text()
    for k in SHARED:
        if k in DEVIATIONS:
            continue
        value = fitted["h100"][k]
        place = re.search(r'\{"%s", .*?"([^"]*)"' % k, text, re.S)
        assert place, k
        text = text[:place.start(1)] + "%.3g" % value + text[place.end(1):]
    table.write_text(text)
    for preset, values in fitted.items():
        path = ROOT / "presets" / "clusters" / (preset + ".yaml")
        text = path.read_text()
        for key, value in values.items():
            text = re.sub(r"(?m)^%s: .*$" % key, "%s: %.3g" % (key, value), text)
        path.write_text(text)


# ---- prices ----

class Server:
    """build/bench/published, queried line by line."""

    def __init__(self, files):
        command = [str(ROOT / "build/bench/published"), "--serve", *files]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def logs(self, rows, x):
        """ln(predicted / measured) of `rows`; None if not priced."""
        self.process.stdin.write(json.dumps(constants(x)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("build/bench/published ended")
        seconds = json.loads(line)["seconds"]
        return [math.log(seconds[r["id"]] / r["step_time_s"]) if r["id"] in seconds else None
                for r in rows]


# ---- the loss ----

def weights(rows, used):
    """Of each row in the loss."""
    count, core = {}, 0
    for row, use in zip(rows, used):
        if use:
            count[row["source"]] = count.get(row["source"], 0) + 1
            core += bool(row.get("core"))
    return [0 if not use else 0.5 / len(count) / count[row["source"]] +
            (0.5 / core if row.get("core") and core else 0) for row, use in zip(rows, used)]


def penalty(x):
    return PENALTY * sum((x[k] / deviation(k)) ** 2 for k in x)


def loss(x, y, w):
    return sum(wi * min(abs(yi), MOST) for wi, yi in zip(w, y) if yi is not None) + penalty(x)


def solve(a, b):
    """a x = b by elimination with pivots."""
    n = len(b)
    m = [row[:] + [b[i]] for i, row in enumerate(a)]
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(m[r][i]))
        m[i], m[p] = m[p], m[i]
        for r in range(i + 1, n):
            f = m[r][i] / m[i][i]
            for c in range(i, n + 1):
                m[r][c] -= f * m[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (m[i][n] - sum(m[i][c] * x[c] for c in range(i + 1, n))) / m[i][i]
    return x


def step(x, y, slopes, w, rounds=30):
    """The least loss if y were linear in x, from there: the change of x."""
    names = list(x)
    n = len(names)
    change = [0.0] * n
    for _ in range(rounds):
        a = [[0.0] * n for _ in range(n)]
        b = [0.0] * n
        for i, (yi, wi) in enumerate(zip(y, w)):
            if wi == 0 or yi is None:
                continue
            now = yi + sum(slopes[k][i] * change[k] for k in range(n))
            if abs(now) > MOST:
                continue
            f = wi / max(abs(now), LEAST)
            s = [slopes[k][i] for k in range(n)]
            for k in range(n):
                if s[k] == 0:
                    continue
                b[k] -= f * s[k] * yi
                for j in range(n):
                    a[k][j] += f * s[k] * s[j]
        for k, name in enumerate(names):
            f = 2 * PENALTY / deviation(name) ** 2
            a[k][k] += f
            b[k] -= f * x[name]
        change = solve(a, b)
    return dict(zip(names, change))


def derivatives(server, rows, x, y):
    out = []
    for k in x:
        moved = dict(x)
        moved[k] += STEP
        z = server.logs(rows, moved)
        out.append([0 if a is None or b is None else (b - a) / STEP for a, b in zip(y, z)])
    return out


def fit(server, rows, rounds):
    x = start()
    w = weights(rows, [True] * len(rows))
    y = server.logs(rows, x)
    best = loss(x, y, w)
    print("priors: loss %.4f" % best, flush=True)
    for _ in range(rounds):
        slopes = derivatives(server, rows, x, y)
        change = step(x, y, slopes, w)
        share, better = 1.0, False
        while share > 0.1 and not better:
            tried = {k: x[k] + share * change[k] for k in x}
            z = server.logs(rows, tried)
            value = loss(tried, z, w)
            better = value < best - 1e-6
            share /= 2
        if not better:
            break
        x, y, best = tried, z, value
        print("        loss %.4f" % best, flush=True)
    return x, y, derivatives(server, rows, x, y)


def macro(rows, y, core):
    by = {}
    for row, yi in zip(rows, y):
        if row.get("core") or not core:
            by.setdefault(row["source"], []).append(abs(math.exp(yi) - 1) if yi is not None else 1)
    return 100 * sum(sum(e) / len(e) for e in by.values()) / len(by)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--left-out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", nargs="+", required=True)
    options = parser.parse_args()
    stated = [r for name in options.data for r in json.load(open(name))]
    rows = [r for r in stated if r["usable_for_step_time"]]
    used = ROOT / "build" / "fit_rows.json"
    used.write_text(json.dumps(rows))
    server = Server([str(used)])
    x, y, slopes = fit(server, rows, options.rounds)
    print("%d rows: source-macro core %.1f %%, all %.1f %%" %
          (len(rows), macro(rows, y, True), macro(rows, y, False)))
    for k in x:
        value = SHARED[k][0] * math.exp(x[k]) if k in SHARED else math.exp(x[k])
        name = k if k in SHARED else "%s of %s" % k
        print("  %-26s %-10.4g %+.1f sd from its prior" % (name, value, x[k] / deviation(k)))
    if options.write:
        write_presets(constants(x))
    if not options.left_out:
        return
    result = {}
    for source in dict.fromkeys(r["source"] for r in rows):
        w = weights(rows, [r["source"] != source for r in rows])
        change = step(x, y, slopes, w)
        result[source] = constants({k: x[k] + change[k] for k in x})
    # Sources of memory alone are in no fit.
    for row in stated:
        if row["memory_gb"] and row["source"] not in result:
            result[row["source"]] = constants(x)
    pathlib.Path(options.left_out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
