#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The forest plot and the table of docs/recipe.md from a ledger.

  orthant ledger report --ledger tools/recipe/ledger --json | tools/recipe_figure.py docs/recipe.svg

Writes the figure: the multiplier of each change with its 95 % interval, on a logarithmic axis; prints
the table as Markdown.
"""
import json
import math
import pathlib
import sys

COLOURS = {"better": "#1a7f37", "worse": "#c0392b", "equal": "#555", "undecided": "#999"}
LEFT, TOP, WIDTH, ROW = 150, 16, 420, 22
MARKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6)


def note(change):
    path = pathlib.Path(__file__).parent / "recipe/ledger/changes" / f"{change}.yaml"
    return next(line[6:].strip() for line in path.read_text().splitlines() if line.startswith("note: "))


def figure(rows):
    low = min(min(math.exp(r["look"]["ci"][0]) for r in rows), 0.9)
    high = max(max(math.exp(r["look"]["ci"][1]) for r in rows), 1.1)
    low, high = max(low, 0.2), min(high, 8)
    x = lambda m: LEFT + WIDTH * math.log(min(max(m, low), high) / low) / math.log(high / low)
    bottom = TOP + ROW * len(rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 180}" height="{bottom + 50}" '
           'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="white"/>']
    for mark in MARKS:
        if not low <= mark <= high:
            continue
        shade = "#888" if mark == 1 else "#ddd"
        out.append(f'<path d="M{x(mark):.1f} {TOP}V{bottom}" stroke="{shade}"/>'
                   f'<text x="{x(mark):.1f}" y="{bottom + 18}" text-anchor="middle">{mark:g}</text>')
    for i, row in enumerate(rows):
        at, (from_, to) = TOP + ROW * (i + 0.5), map(math.exp, row["look"]["ci"])
        m, colour = math.exp(row["look"]["mean"]), COLOURS[row["verdict"]]
        out.append(f'<text x="{LEFT - 10}" y="{at + 4:.1f}" text-anchor="end">{row["change"]}</text>'
                   f'<path d="M{x(from_):.1f} {at:.1f}H{x(to):.1f}" stroke="{colour}" stroke-width="2"/>'
                   f'<circle cx="{x(m):.1f}" cy="{at:.1f}" r="4" fill="{colour}"/>'
                   f'<text x="{LEFT + WIDTH + 12}" y="{at + 4:.1f}">{m:.3f} [{from_:.3f}, {to:.3f}]</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 40}" text-anchor="middle">'
               'compute multiplier, 95 % interval</text></svg>')
    return "\n".join(out) + "\n"


report = json.load(sys.stdin)
looked = [row for row in report["changes"] if "look" in row]
looked.sort(key=lambda row: -row["look"]["mean"])
pathlib.Path(sys.argv[1]).write_text(figure(looked))
print("| change | | m | 95 % interval | verdict |\n|---|---|---|---|---|")
for row in looked:
    low, high = map(math.exp, row["look"]["ci"])
    print(f'| {row["change"]} | {note(row["change"])} | {math.exp(row["look"]["mean"]):.3f} | '
          f'{low:.3f} to {high:.3f} | {row["verdict"]} |')
