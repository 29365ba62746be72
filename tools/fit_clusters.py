#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the constants of presets/clusters to published runs, and tests them on left-out sources.

  tools/fit_clusters.py [--write] [--left-out FILE] [--rounds N] [--data FILE.json...]

Only the constants listed in CONSTANTS are fitted: a few shared by all devices and a few per
generation of devices. Everything else in a preset is a data-sheet figure or measured by others.
build/bench/published --serve computes the prices. The objective is the mean of two means of the
error |ln(predicted / measured)|, each error clipped at MOST: over core rows and over sources. The
search varies one constant at a time, with decreasing steps.

Each source is then left out: constants are fitted without its rows and tested on them. A source
that is the only one of a generation uses the constants of the neighbouring one (NEIGHBOUR).

  --write      writes the fitted values into the presets
  --only       fits only these generations, on their rows
  --constants  writes {PRESET: {key: value}} for build/bench/published --constants
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

# name of a generation: its presets, those with published runs first
GENERATIONS = {
    "volta": ["v100"],
    "ampere": ["a100-80g", "a100-40g"],
    "hopper": ["h100", "h200", "h800"],
    "blackwell": ["gb200-nvl72", "b200", "b300", "gb300-nvl72"],
}
NEIGHBOUR = {"volta": "ampere", "blackwell": "hopper"}

# key of a preset, scope (per generation or shared by all devices), lowest and highest value,
# meaning. Shared ones without "levels" are defaults in src/describe/cluster_keys.c.
CONSTANTS = [
    ("matrix_efficiency", "generation", 0.4, 0.92, "large products"),
    ("attention_efficiency", "generation", 0.1, 0.9, "fused attention"),
    ("attention_1_efficiency", "generation", 0.05, 0.9, "its first generation"),
    ("memory_efficiency", "generation", 0.4, 1.0, "passes over memory"),
    ("host_op_s", "shared", 1e-6, 1e-3, "dispatch of an operator"),
    ("step_s", "shared", 1e-4, 0.2, "host time of a step besides its kernels"),
    ("contention", "shared", 1.0, 3.0, "slowdown of kernels by communication"),
    ("jitter", "shared", 1e-4, 0.05, "waiting for the slowest"),
    ("unaligned_efficiency", "shared", 0.02, 1, "products of unaligned rows"),
]


class Presets:
    """Text of the preset files, and the constants in them by path."""

    def __init__(self):
        self.folder = ROOT / "presets" / "clusters"
        self.table = ROOT / "src" / "describe" / "cluster_keys.c"
        self.keys = self.table.read_text()
        self.text = {p.stem: p.read_text() for p in self.folder.glob("*.yaml")}

    def line(self, preset, key):
        """Index of the line of `key`, "name" or "levels.N.name", in the lines of a preset."""
        _, level, name = key.split(".") if key.startswith("levels.") else (None, -1, key)
        current = -1
        for i, line in enumerate(self.text[preset].split("\n")):
            current += line.startswith("  - ")
            if current == int(level) and re.match(r"[ -]*%s:" % re.escape(name), line):
                return i
        return None

    def default(self, key):
        """Place of the default of a key in the table of keys: before, value, after."""
        return re.search(r'(\.name = "%s",.*?\.fallback = ")([^"]*)(")' % key, self.keys, re.S)

    def get(self, preset, key):
        if preset is None:
            return float(self.default(key).group(2))
        i = self.line(preset, key)
        return None if i is None else float(self.text[preset].split("\n")[i].split(":")[1])

    def put(self, preset, key, value):
        if preset is None:
            found = self.default(key)
            self.keys = self.keys[:found.start(2)] + "%.3g" % value + self.keys[found.end(2):]
            return
        lines = self.text[preset].split("\n")
        i = self.line(preset, key)
        lines[i] = "%s: %.4g" % (lines[i].split(":")[0], value)
        self.text[preset] = "\n".join(lines)

    def write(self):
        self.table.write_text(self.keys)
        for name, text in self.text.items():
            (self.folder / (name + ".yaml")).write_text(text)


class Server:
    """build/bench/published, queried line by line."""

    def __init__(self, files):
        command = [str(ROOT / "build/bench/published"), "--serve", *files]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, constants):
        self.process.stdin.write(json.dumps(constants) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("build/bench/published ended")
        return json.loads(line)["seconds"]


def spread(values):
    """{(key, generation or None): value} as {PRESET: {key: value}}."""
    out = {}
    for (key, generation), value in values.items():
        for name, presets in GENERATIONS.items():
            if generation in (None, name):
                for preset in presets:
                    out.setdefault(preset, {})[key] = value
    return out


def start_values(presets):
    values, bounds = {}, {}
    for key, scope, low, high, _ in CONSTANTS:
        for name in GENERATIONS if scope == "generation" else [None]:
            value = presets.get(GENERATIONS[name][0] if name else None, key)
            values[(key, name)] = min(max(value, low), high)
            bounds[(key, name)] = (low, high)
    return values, bounds


class Fit:
    def __init__(self, rows, server, bounds):
        self.rows, self.server, self.bounds = rows, server, bounds

    def errors(self, values, rows):
        seconds = self.server.seconds(spread(values))
        out = []
        for row in rows:
            predicted = seconds.get(row["id"])
            ratio = predicted / row["step_time_s"] if predicted else 2.0
            out.append((row, ratio))
        return out

    def loss(self, values, rows):
        sources, core = {}, []
        for row, ratio in self.errors(values, rows):
            e = min(abs(math.log(ratio)), MOST)
            sources.setdefault(row["source"], []).append(e)
            if row.get("core"):
                core.append(e)
        macro = sum(sum(e) / len(e) for e in sources.values()) / len(sources)
        return 0.5 * macro + 0.5 * (sum(core) / len(core) if core else macro)

    def search(self, values, rows, rounds, keys=None):
        values = dict(values)
        keys = list(keys or values)
        step = {k: 1.2 for k in keys}
        best = self.loss(values, rows)
        for _ in range(rounds):
            for k in keys:
                for factor in (step[k], 1 / step[k]):
                    low, high = self.bounds[k]
                    tried = dict(values)
                    tried[k] = min(max(values[k] * factor, low), high)
                    if tried[k] == values[k]:
                        continue
                    loss = self.loss(tried, rows)
                    if loss < best - 1e-6:
                        best, values = loss, tried
                        break
                else:
                    step[k] = 1 + (step[k] - 1) * 0.5
            if max(step.values()) < 1.01:
                break
        return values, best


def mape(errors):
    return 100 * sum(abs(ratio - 1) for _, ratio in errors) / max(1, len(errors))


def by_source(errors):
    out = {}
    for row, ratio in errors:
        out.setdefault(row["source"], []).append((row, ratio))
    return out


def device_generation(row):
    name = row["gpu"]["name"]
    for word, generation in (("V100", "volta"), ("A100", "ampere"), ("H100", "hopper"),
                             ("H200", "hopper"), ("H800", "hopper"), ("B200", "blackwell"),
                             ("B300", "blackwell")):
        if word in name:
            return generation
    return None


def left_out(fit, values, rows, source, rounds):
    """Constants without the rows of `source`; the neighbour's if it is the only one of a generation."""
    kept = [r for r in rows if r["source"] != source]
    known = {device_generation(r) for r in kept}
    mine = {device_generation(r) for r in rows if r["source"] == source}
    start = dict(values)
    alone = mine - known
    for generation in alone:
        for key, scope, *_ in CONSTANTS:
            if scope == "generation" and generation in NEIGHBOUR:
                start[(key, generation)] = values[(key, NEIGHBOUR[generation])]
    keys = [k for k in start if k[1] is None or k[1] in mine & known]
    return fit.search(start, kept, rounds, keys)[0], bool(alone)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(GENERATIONS), default=[])
    parser.add_argument("--constants")
    parser.add_argument("--left-out")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--every", type=int, default=6,
                        help="of sources with more than 300 rows, every N-th row")
    parser.add_argument("--data", nargs="+", required=True)
    options = parser.parse_args()

    rows, count = [], {}
    loaded = [r for name in options.data for r in json.load(open(name))]
    for row in loaded:
        count[row["source"]] = count.get(row["source"], 0) + 1
    seen = {}
    for row in loaded:
        seen[row["source"]] = seen.get(row["source"], 0) + 1
        thin = count[row["source"]] > 300 and seen[row["source"]] % options.every != 0
        known = device_generation(row) in (options.only or GENERATIONS)
        if row["usable_for_step_time"] and known and not thin:
            rows.append(row)
    thinned = ROOT / "build" / "fit_rows.json"
    thinned.write_text(json.dumps(rows))

    presets = Presets()
    values, bounds = start_values(presets)
    fit = Fit(rows, Server([str(thinned)]), bounds)
    print("start: loss %.4f" % fit.loss(values, rows), flush=True)
    keys = [k for k in values if not options.only or k[1] in options.only]
    values, loss = fit.search(values, rows, options.rounds, keys)
    print("fitted: loss %.4f on %d rows" % (loss, len(rows)))
    for key, scope, _, _, what in CONSTANTS:
        for name in GENERATIONS if scope == "generation" else [None]:
            users = sorted({r["source"] for r in rows if name in (None, device_generation(r))})
            print("  %-22s %-10s %-10.4g %s; %d sources" %
                  (key, name or "all", values[(key, name)], what, len(users)))
    if options.constants:
        pathlib.Path(options.constants).write_text(json.dumps(spread(values), indent=1) + "\n")
    if options.write:
        for (key, generation), value in values.items():
            for preset in GENERATIONS[generation] if generation else [None]:
                presets.put(preset, key, value)
        presets.write()

    errors = by_source(fit.errors(values, rows))
    result, shared, alone_rows = {}, [], []
    fitted_on = {r["source"] for r in rows if r.get("core")}
    for source in [s for s in errors if s in fitted_on] if options.left_out else []:
        constants, alone = left_out(fit, values, rows, source, 2)
        mine = [r for r in rows if r["source"] == source]
        tried = fit.errors(constants, mine)
        (alone_rows if alone else shared).append((source, mape(tried)))
        result[source] = spread(constants)
        print("  %-52.52s %4d rows: %5.1f %%, left out %5.1f %%%s" %
              (source, len(mine), mape(errors[source]), mape(tried),
               " (alone in a generation)" if alone else ""), flush=True)
    if options.left_out:
        both = [mape(errors[s]) for s, _ in shared]
        print("source-macro %.1f %%, left out %.1f %%" %
              (sum(both) / len(both), sum(m for _, m in shared) / len(shared)))
        pathlib.Path(options.left_out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
