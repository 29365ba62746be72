#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Paired comparison of bench/step with PyTorch (and llm.c, when LLMC_DIR is set): A B A B ...

    PYTHON=PYTHON_WITH_TORCH python3 bench/compare.py [--rounds 5] [4x1024 1x1024 4x64 16x256]

For every shape (sequences x tokens) one PyTorch process is started, compiles once, then waits.
Each round runs `build/bench/step --json` (its own warm-up, then --repeats steps) and as many steps
in the PyTorch process, so that a slow phase of the machine affects both; the order within a round
alternates. The table gives the median step of each side and the median, lowest and highest of the
ratios per round, other / ours: above 1 ours is faster.

    python3 bench/compare.py --device cuda --model bench/models/qwen2.5-1.5b.json 16x1024 \
        --micro-batches 32 [--rounds 1]

compares bench/gpu_step with bench/pytorch_gpu_step.py on a GPU, which has no room for both: every
measurement is a process of its own, ours before and after each of PyTorch's. Memory excludes the
state of each: weights, accumulators, masters and moments.

On CPUs, memory excludes 16 bytes per parameter (weights, gradients, two moments) for both. Ours is the
arena, which holds every tensor; PyTorch's is the peak resident size of the timed steps minus that
of a process that has only imported PyTorch; llm.c's is its peak resident size.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_ours(command, batch, sequence, repeats):
    words = [*command.split(), "--batch", str(batch), "--sequence", str(sequence),
             "--repeats", str(repeats)]
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    entry = json.loads(out)
    if (entry["batch"], entry["sequence"]) != (batch, sequence):
        sys.exit(f"error: {' '.join(words)} measured another shape")
    return entry


class PyTorch:
    """A compiled model that runs steps on request."""

    def __init__(self, batch, sequence, options):
        python = os.environ.get("PYTHON", sys.executable)
        self.process = subprocess.Popen(
            [python, str(ROOT / "bench" / "pytorch_step.py"), "--serve", "--batch", str(batch),
             "--sequence", str(sequence), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit("error: PyTorch did not start (set PYTHON to a Python that has it)")

    def steps(self, count):
        times = []
        for _ in range(count):
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
            times.append(json.loads(self.process.stdout.readline())["seconds"])
        return statistics.median(times)

    def finish(self):
        self.process.stdin.close()
        result = json.loads(self.process.stdout.readline())
        self.process.wait()
        return result


def compare(batch, sequence, arguments):
    torch = PyTorch(batch, sequence, arguments.pytorch.split())
    ours, theirs, last = [], [], None
    for i in range(arguments.rounds):
        for side in ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours"):
            if side == "ours":
                last = run_ours(arguments.ours, batch, sequence, arguments.repeats)
                ours.append(last["seconds_per_step"])
            else:
                theirs.append(torch.steps(arguments.repeats))
    return summary(f"{batch} x {sequence}", ours, theirs, last, torch.finish())


def compare_llmc(arguments):
    ours, theirs, last, other = [], [], None, None
    for _ in range(arguments.rounds):
        last = run_ours(arguments.ours, 4, 64, arguments.repeats)
        ours.append(last["seconds_per_step"])
        out = subprocess.run([str(ROOT / "bench" / "llmc_step.sh")], check=True, text=True,
                             stdout=subprocess.PIPE, env=dict(os.environ, STEPS="2")).stdout
        other = json.loads(out)
        theirs.append(other["seconds_per_step"])
    return summary("4 x 64", ours, theirs, last, other)


def summary(shape, ours, theirs, our_last, their_last):
    ratios = [theirs[i] / ours[i] for i in range(len(ours))]
    our_beyond = our_last["arena_bytes"] - their_last["state_bytes"]
    their_beyond = their_last.get("beyond_tensors_bytes", their_last["beyond_bytes"])
    return {"shape": shape, "other": their_last["program"] + " " + their_last.get("variant", ""),
            "ours_seconds": statistics.median(ours), "other_seconds": statistics.median(theirs),
            "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios),
            "ours_beyond_bytes": our_beyond, "other_beyond_bytes": their_beyond,
            "memory_share": our_beyond / their_beyond, "rounds": len(ours)}


def print_table(rows):
    print(f"{'shape':>10} {'ours s':>8} {'other s':>8} {'ratio':>6} {'low':>6} {'high':>6}"
          f" {'ours MB':>8} {'other MB':>8} {'share':>6}  other")
    for r in rows:
        print(f"{r['shape']:>10} {r['ours_seconds']:8.3f} {r['other_seconds']:8.3f}"
              f" {r['ratio']:6.2f} {r['ratio_low']:6.2f} {r['ratio_high']:6.2f}"
              f" {r['ours_beyond_bytes'] / 1e6:8.0f} {r['other_beyond_bytes'] / 1e6:8.0f}"
              f" {r['memory_share']:6.0%}  {r['other']}")


# ---- on a GPU ----

def run_json(words):
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    return json.loads(out.strip().splitlines()[-1])


def compare_on_gpu(batch, sequence, a):
    shape = ["--model", a.model, "--sequence", str(sequence), "--micro-batch", str(batch),
             "--micro-batches", str(a.micro_batches), "--repeats", str(a.repeats),
             "--warmup", str(a.warmup)]
    python = os.environ.get("PYTHON", sys.executable)
    theirs = [python, "bench/pytorch_gpu_step.py", *shape, *a.pytorch.split()]
    ours = [*a.ours.split(), *shape]
    first = [run_json(ours)]
    second = []
    for _ in range(a.rounds):
        second.append(run_json(theirs))
        first.append(run_json(ours))
    ratios = [second[i]["step_s"] / statistics.mean((first[i]["step_s"], first[i + 1]["step_s"]))
              for i in range(a.rounds)]
    memory = first[-1]["memory"]
    beyond = memory["planned_bytes"] - memory["state_bytes"]
    tokens = first[-1]["tokens"]
    return {"shape": f"{batch} x {sequence}", "model": a.model, "tokens": tokens,
            "other": second[-1]["program"] + " " + second[-1]["variant"],
            "ours_seconds": statistics.median(r["step_s"] for r in first),
            "ours_steps_s": [r["step_s"] for r in first],
            "other_seconds": statistics.median(r["step_s"] for r in second),
            "other_steps_s": [r["step_s"] for r in second],
            "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios),
            "ours_beyond_bytes": beyond, "other_beyond_bytes": second[-1]["beyond_bytes"],
            "memory_share": beyond / max(1, second[-1]["beyond_bytes"]), "rounds": a.rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=["4x1024", "1x1024", "4x64", "16x256"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="presets/models/gpt2.json", help="config.json, for cuda")
    parser.add_argument("--micro-batches", type=int, default=1, help="of a step, for cuda")
    parser.add_argument("--warmup", type=int, default=2, help="steps before those timed, for cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="steps of each side in a round")
    parser.add_argument("--ours", help="default: build/bench/step or gpu_step, with --json")
    parser.add_argument("--pytorch", default="", help="more options of PyTorch's program, as one word")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    gpu = arguments.device == "cuda"
    arguments.ours = arguments.ours or f"build/bench/{'gpu_step' if gpu else 'step'} --json"
    rows = []
    for shape in arguments.shapes:
        rows.append((compare_on_gpu if gpu else compare)(*map(int, shape.split("x")), arguments))
    if not gpu and os.environ.get("LLMC_DIR"):
        rows.append(compare_llmc(arguments))
    if arguments.json:
        print(json.dumps(rows))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
