#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports of tools/gpu_check.sh: figures from the parts that ran, goals, text, and the figures of
the pages in docs/.

    tools/gpu_report.py text REPORT.json            report.md of it
    tools/gpu_report.py merge A.json B.json OUT     one report of two runs; B's parts win
    tools/gpu_report.py check [ROOT]                do the pages say what the newest report shows?
    tools/gpu_report.py docs [ROOT]                 makes them say it

A page marks a figure `<!-- gpu: KEY -->TEXT<!-- /gpu -->`; TEXT must be what the newest report in
docs/gpu/ shows for KEY, `not run yet` without one. KEY `goals` is the table of goals. Outside of
marks, docs/gpu.md has no speeds, and lines of README.md and docs/speed.md that name a GPU have none.
"""

import json
import os
import re
import sys
from pathlib import Path

from gpu_figures import GOALS, MODES, NOT_RUN, figures_of, shown

MODE_TITLES = {"quick": "Tests", "mend": "Faults of the first report", "bench": "Benchmarks", "tune": "Variants", "sanitize": "compute-sanitizer"}


# ---- the file ----

def empty():
    return {"format": 1, "emulated": False, "parts": {}}


def read(path):
    """The report at `path`, or None."""
    try:
        report = json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    if report.get("format") != 1 or not isinstance(report.get("parts"), dict):
        raise SystemExit(f"error: {path}: not a report of tools/gpu_check.sh, format 1")
    return report


def complete(report):
    """`report` with what is derived from its parts."""
    report["modes"] = {}
    for mode in MODES:
        parts = [part for part in report["parts"].values() if part["mode"] == mode]
        states = [part["state"] for part in parts]
        report["modes"][mode] = {state: states.count(state) for state in sorted(set(states))} or NOT_RUN
    report["figures"] = figures_of(report)
    report["goals"] = [goal_entry(goal, report["figures"]) for goal in GOALS]
    return report


def goal_entry(goal, figures):
    value = figures.get(goal.key)
    met = None if value is None else goal.met(value)
    return {"key": goal.key, "goal": goal.text, "value": value, "met": met}


def write(report, folder):
    """report.json and report.md, each replaced as a whole."""
    complete(report)
    for name, text in (("report.json", json.dumps(report, indent=1) + "\n"), ("report.md", text_of(report))):
        partial = Path(folder) / f"{name}.partial"
        partial.write_text(text)
        os.replace(partial, Path(folder) / name)


def merge(first, second):
    parts = {**first["parts"]}
    for name, part in second["parts"].items():
        if part["state"] != "not reached" or name not in parts:
            parts[name] = part
    notes = [*first.get("notes", []), *second.get("notes", [])]
    return {"format": 1, "emulated": first["emulated"] or second["emulated"],
            **({"notes": notes} if notes else {}), "parts": parts}


# ---- text ----

def table(head, rows):
    """A table of Markdown; numbers to the right."""
    line = "|".join("---" for _ in head)
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", f"|{line}|", *body]) + "\n"


def goals_table(figures):
    rows = []
    for goal in GOALS:
        value = figures.get(goal.key)
        verdict = "" if value is None else "yes" if goal.met(value) else "no"
        rows.append((goal.name, goal.text, NOT_RUN if value is None else shown(goal.key, value), verdict))
    return table(("", "goal", "measured", "met"), rows)


def data_of(report, name):
    part = report["parts"].get(name, {})
    return part.get("data") if part.get("state") == "passed" else None


def machine_text(report):
    lines = []
    for mode in MODES:
        machine, limits = (data_of(report, f"{what} ({mode})") for what in ("machine", "limits"))
        if not machine:
            continue
        lines.append((mode, machine["date"], machine["commit"][:12],
                      limits["device"] if limits else "", limits["driver"] if limits else "",
                      limits["library"] if limits else "",
                      (machine.get("pytorch") or {}).get("torch", "none"),
                      *(shown(f"limits.{key}", limits[key]) if limits else ""
                        for key in ("copy_bytes_per_s", "product_flops_per_s", "launch_s"))))
    if not lines:
        return NOT_RUN + "\n"
    clocks = ""
    for mode in MODES:
        smi = (data_of(report, f"machine ({mode})") or {}).get("nvidia_smi")
        if smi:
            clocks += f"\n{mode}: " + ", ".join(f"{k} {v}" for k, v in smi.items()) + "\n"
    head = ("run", "date", "commit", "device", "driver", "library", "PyTorch", "copy", "product", "launch")
    return table(head, lines) + clocks


def clocks_text(step):
    units = {"clocks.sm": "MHz", "clocks.mem": "MHz", "power.draw": "W", "temperature.gpu": "degrees C"}
    return ", ".join(f"{value:.0f} {units[key]}" for key, value in (step.get("clocks") or {}).items())


def steps_text(report):
    rows = []
    for name in report["parts"]:
        step = data_of(report, name)
        if not re.match(r"step ", name) or not step:
            continue
        memory = step["memory"]
        rows.append((name, shown("x.step_s", step["step_s"]), f"{step['tokens_per_s']:,.0f}",
                     shown("mfu", step["mfu"]), shown("x.step_s", step["predicted_s"]) if "predicted_s" in step else "",
                     *(f"{memory[key] / 1e9:.3f}" for key in
                       ("planned_bytes", "created_bytes", "code_bytes", "grown_bytes", "context_bytes",
                        "state_bytes")), clocks_text(step)))
    for name in report["parts"]:
        step = data_of(report, name)
        if name.startswith("pytorch ") and step:
            rows.append((f"{name}: {step['program']}, {step['variant']}, micro-batch {step['micro_batch']}", shown("x.step_s", step["step_s"]),
                         f"{step['tokens_per_s']:,.0f}", "", "", f"{step['peak_bytes'] / 1e9:.3f}",
                         f"{step['reserved_bytes'] / 1e9:.3f}", "", "", "",
                         f"{step['state_bytes'] / 1e9:.3f}", ""))
    head = ("run", "step", "tokens/s", "MFU", "expected", "planned GB (PyTorch: peak)",
            "created GB (reserved)", "code GB", "grown GB", "context GB", "state GB",
            "clocks")
    return table(head, rows) if rows else NOT_RUN + "\n"


def operator_rows(step, alone, limits):
    """Rows of a step of one micro-batch, with times of the operators alone."""
    of_key = {row["key"]: row for row in (alone or {}).get("rows", [])}
    rows = []
    for row in sorted(step["rows"], key=lambda r: -r.get("step_s", 0)):
        seconds, count = row.get("step_s", 0), row["count"]
        one = of_key.get(row["key"], {}).get("alone_s")
        best = one or seconds / count
        share = row["bytes"] / best / limits["copy_bytes_per_s"] if best else 0
        rows.append((f"`{row['key']}`", count, f"{1e6 * seconds / count:.1f}",
                     f"{1e6 * one:.1f}" if one else "", f"{1e6 * row.get('predicted_s', 0):.1f}",
                     f"{row['bytes'] / 1e6:.2f}", f"{100 * share:.0f} %",
                     f"{row['matrix_flops'] / best / 1e12:.0f}" if best and row["matrix_flops"] else ""))
    return rows


def operators_text(report):
    text, limits = "", data_of(report, "limits (bench)")
    for name in report["parts"]:
        step = data_of(report, name)
        if not name.startswith("step ") or not step or not limits or "one_micro_batch" not in step:
            continue
        alone = data_of(report, "operators" + name[4:])
        rows = operator_rows(step["one_micro_batch"], alone, limits)
        head = ("operator", "count", "us in a step", "us alone", "us expected", "MB", "share of the copy", "TFLOP/s")
        text += f"\n### {name[5:]}, one micro-batch\n\n" + table(head, rows)
    return text or NOT_RUN + "\n"


def attention_text(report):
    ours, library = data_of(report, "attention"), data_of(report, "attention of PyTorch") or []
    if not ours:
        return NOT_RUN + "\n"
    of_case = {(c["sequence"], c["head_dim"]): c for c in library}
    rows = []
    for case in ours:
        other = of_case.get((case["sequence"], case["head_dim"]), {})
        row = [case["sequence"], case["head_dim"], f"{1e6 * case['forward_s']:.0f}",
               f"{1e6 * case['backward_s']:.0f}", f"{case['forward_flops_per_s'] / 1e12:.0f}",
               f"{case['backward_flops_per_s'] / 1e12:.0f}"]
        for name in ("cudnn", "flash"):
            found = other.get(name, {})
            row += [f"{1e6 * found[key]:.0f}" if key in found else found.get("error", "")[:40]
                    for key in ("forward_s", "deterministic_backward_s")]
        rows.append(row)
    head = ("T", "head size", "forward us", "backward us", "forward TFLOP/s", "backward TFLOP/s",
            "cuDNN forward us", "cuDNN deterministic backward us", "flash forward us",
            "flash deterministic backward us")
    return table(head, rows)


def products_text(report):
    rows = []
    for name in report["parts"]:
        data = data_of(report, name)
        if not name.startswith("products ") or not data:
            continue
        for p in data["products"]:
            times = [t for t in p.get("seconds", []) if t > 0]
            flops = 2.0 * p["rows"] * p["columns"] * p["depth"]
            best = min(times) if times else 0
            gain = f"{100 * (p['seconds'][0] / best - 1):.1f} %" if best and p["seconds"][0] else ""
            form = ("T" if p["a_transposed"] else "N") + ("T" if p["b_transposed"] else "N")
            rows.append((name[9:], f"{p['rows']} x {p['columns']} x {p['depth']}", form,
                         f"{p['operands']}, {p['result']}" + (", bias" if p["bias"] else "") +
                         (", addend" if p["addend"] else ""), len(p.get("seconds", [])),
                         p["seconds"].index(best) + 1 if best else "", gain,
                         f"{flops / best / 1e12:.0f}" if best else "own kernel"))
    head = ("model", "rows x columns x depth", "transposed", "types", "proposals", "fastest",
            "gain over the first", "TFLOP/s")
    return table(head, rows) if rows else NOT_RUN + "\n"


def parts_text(report, mode):
    rows = [(name, part["state"], f"{part['seconds']:.1f}", part.get("error", "").replace("|", "/"))
            for name, part in report["parts"].items() if part["mode"] == mode]
    return table(("part", "", "s", "error"), rows) if rows else NOT_RUN + "\n"


def text_of(report):
    text = "# Report of a GPU\n\n"
    text += "".join(f"- {note}\n" for note in report.get("notes", [])) + ("\n" if report.get("notes") else "")
    if report["emulated"]:
        text += "**Emulated: no figure on this page is a measurement.**\n\n"
    text += "## Machine and limits\n\n" + machine_text(report)
    text += "\n## Goals\n\n" + goals_table(report["figures"])
    text += "\n## Steps\n\n" + steps_text(report)
    text += "\n## Attention\n\n" + attention_text(report)
    text += "\n## Operators\n\n" + operators_text(report)
    text += "\n## Products\n\n" + products_text(report)
    for mode in MODES:
        text += f"\n## {MODE_TITLES[mode]} (`{mode}`)\n\n" + parts_text(report, mode)
    return text


# ---- figures of pages ----

MARK = re.compile(r"<!-- gpu: (\S+) -->(.*?)<!-- /gpu -->", re.S)
FENCE = re.compile(r"^```.*?^```$", re.S | re.M)
COMMENT = re.compile(r"<!--.*?-->", re.S)
GPU_WORD = re.compile(r"\b(GPUs?|CUDA|H100|H200|NVIDIA|Hopper|cuBLASLt?)\b")
SPEED = re.compile(r"\d[\d.,]*k?\s*(?:%|x\b|times\b|tokens/s|tok/s|[KMGTP]?FLOP/s|[kMGT]?B/s|[mµun]?s\b|seconds)"
                   r"|MFU\s+(?:of\s+)?\d", re.I)


def newest(root):
    """Name and contents of the newest report, or (None, None)."""
    found = sorted(Path(root, "docs", "gpu").glob("*.json"))
    return (found[-1], read(found[-1])) if found else (None, None)


def render(key, figures):
    if key == "goals":
        return "\n\n" + goals_table(figures) + "\n"
    return shown(key, figures[key]) if key in figures else NOT_RUN


def pages(root):
    return [path for path in [Path(root, "README.md"), *sorted(Path(root, "docs").glob("*.md"))] if path.is_file()]


def unmarked(path, text):
    """Lines with a speed outside of marks, where pages may have none."""
    blank = lambda match: "\n" * match.group(0).count("\n")
    for pattern in (MARK, FENCE, COMMENT):
        text = pattern.sub(blank, text)
    for number, line in enumerate(text.splitlines(), 1):
        if SPEED.search(line) and (path.name == "gpu.md" or GPU_WORD.search(line)):
            yield number, line.strip()


def check(root):
    """Findings, one line each."""
    where, report = newest(root)
    findings = []
    if report and report["emulated"]:
        findings.append(f"{where}: of an emulated GPU")
    figures = complete(report)["figures"] if report else {}
    for path in pages(root):
        text = path.read_text()
        for match in MARK.finditer(text):
            wanted = render(match.group(1), figures)
            if match.group(2) != wanted:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{path}:{line}: {match.group(1)} is not what the newest report shows:"
                                f" {wanted.strip()[:60]} (tools/gpu_report.py docs)")
        if path.name in ("README.md", "gpu.md", "speed.md"):
            findings += [f"{path}:{number}: a figure of a GPU without a mark: {line[:80]}"
                         for number, line in unmarked(path, text)]
    return findings


def update(root):
    _, report = newest(root)
    figures = complete(report)["figures"] if report else {}
    for path in pages(root):
        text = path.read_text()
        new = MARK.sub(lambda m: f"<!-- gpu: {m.group(1)} -->{render(m.group(1), figures)}<!-- /gpu -->", text)
        if new != text:
            path.write_text(new)
            print(f"updated {path}")


# ---- the program ----

def main():
    words = sys.argv[1:]
    root = Path(words[1]) if len(words) == 2 else Path(__file__).resolve().parent.parent
    if words[:1] == ["text"] and len(words) == 2:
        print(text_of(complete(read(words[1]) or sys.exit(f"error: there is no {words[1]}"))), end="")
    elif words[:1] == ["merge"] and len(words) == 4:
        Path(words[3]).mkdir(parents=True, exist_ok=True)
        write(merge(read(words[1]), read(words[2])), words[3])
    elif words[:1] == ["check"] and len(words) <= 2:
        findings = check(root)
        print("\n".join(findings) or "pages and report agree")
        sys.exit(1 if findings else 0)
    elif words[:1] == ["docs"] and len(words) <= 2:
        update(root)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
