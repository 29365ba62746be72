#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records steps of real software, sound and with planted faults, has `orthant judge` judge each, and prints
what was found:  run.py ORTHANT [--trials NAMES] [--only WORDS] [--sample N] [--keep DIR]
  --trials NAMES  of the modules single, torch_ranks, huggingface_ranks, deepspeed_ranks, megatron_ranks
  --only WORDS    cases whose names have all these words, and none with "-" before it: "tp qwen3 -sound"
  --sample N      every Nth fault, and a quarter of the sound steps

Exit code 1 if a sound step has a finding, or fewer than 95 % of the faults have one, or fewer than 90 % the
right class, axis and tensors. tools/judge_field.sh installs what it needs; a trial whose packages are absent is
left out with a note."""
import argparse
import collections
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.dirname(here)]
TRIALS = ("single", "torch_ranks", "huggingface_ranks", "deepspeed_ranks", "megatron_ranks")
LIMIT_S = 900  # of the ranks of one launch
MOST = 60      # cases of one launch

from trial import is_named  # noqa: E402


def quiet():
    import torch
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    import transformers
    transformers.logging.set_verbosity_error()


# ---- on a rank ----


def record_cases(trial, listed, folder):
    """Records the cases of the file `listed`; a case that fails ends the rank."""
    quiet()
    import torch.distributed as dist
    world = int(os.environ["WORLD_SIZE"])
    if world > 1 or trial != "single":
        dist.init_process_group("gloo")
    module = importlib.import_module(trial)
    with open(listed) as file:
        indices = json.load(file)
    for index in indices:
        out = os.path.join(folder, str(index))
        try:
            module.record(out, module.CASES[index])
        except Exception:
            with open(f"{out}.error-{os.environ['RANK']}", "w") as file:
                traceback.print_exc(file=file)
            os._exit(1)
        if dist.is_initialized():
            dist.barrier()
        if os.environ["RANK"] == "0":
            open(out + ".recorded", "w").close()
    os._exit(0)


# ---- launches ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(trial, ranks, indices, folder):
    """Records cases on as many processes as they have ranks. Returns the cases that were recorded."""
    listed = os.path.join(folder, "cases.json")
    with open(listed, "w") as file:
        json.dump(indices, file)
    common = dict(os.environ, WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(free_port()), OMP_NUM_THREADS="1", CUDA_DEVICE_MAX_CONNECTIONS="1",
                  TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore", ACCELERATE_USE_CPU="true")
    with open(os.path.join(folder, "output"), "w") as output:
        processes = [subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--rank", trial, listed, folder],
            env=dict(common, RANK=str(r), LOCAL_RANK=str(r)), stdout=output, stderr=output) for r in range(ranks)]
        try:
            for p in processes:
                if p.wait(timeout=LIMIT_S) != 0:
                    break
        except subprocess.TimeoutExpired:
            pass
        end = time.monotonic() + 3  # for the others to say why
        for p in processes:
            try:
                p.wait(timeout=max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
    return [i for i in indices if os.path.exists(os.path.join(folder, f"{i}.recorded"))]


def why_not(folder, index):
    lines = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(f"{index}.error"):
            with open(os.path.join(folder, name)) as file:
                lines.append(file.read().strip().splitlines()[-1][:200])
    if lines:  # rather than what the others say, whose peer is gone
        return min(lines, key=lambda line: "gloo" in line)
    with open(os.path.join(folder, "output")) as file:
        return (file.read().strip().splitlines() or ["no output"])[-1]


# ---- verdicts ----


def judge(orthant, folder):
    done = subprocess.run([orthant, "judge", folder, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return None, f"exit code {done.returncode}: {done.stderr.strip()}"
    return json.loads(done.stdout), ""


def count(case, report, error, sums):
    """Adds the verdict on a case to the sums, and prints what is not as it should be."""
    kind = "sound" if case.fault == "sound" else "fault"
    found = report["findings"] if report else []
    named = bool(found) and kind == "fault" and is_named(report, case.wanted)
    sums[kind] += 1
    sums[f"{kind} unread"] += report is None
    sums[f"{kind} found"] += bool(found)
    sums[f"{kind} inconclusive"] += bool(report) and report["verdict"] == "inconclusive"
    sums["named"] += named
    if (kind == "sound" and (found or not report)) or (kind == "fault" and not named):
        words = ", ".join(" ".join(str(f.get(k)) for k in ("what", "axis", "factor", "tensors") if f.get(k))
                          for f in found)
        print(f"{case.name}: {error or words or report['verdict']}", flush=True)


def run_cases(a, trial, module, ranks, indices, sums):
    while indices:
        folder = tempfile.mkdtemp()
        now, indices = indices[:MOST], indices[MOST:]
        done = launch(trial, ranks, now, folder)
        for i in done:
            report, error = judge(a.orthant, os.path.join(folder, str(i)))
            count(module.CASES[i], report, error, sums)
        left = [i for i in now if i not in done]
        if left:  # the first of these ended its launch
            print(f"{module.CASES[left[0]].name}: not recorded: {why_not(folder, left[0])}", flush=True)
            sums["not recorded"] += 1
            indices = left[1:] + indices
        if a.keep:
            shutil.copytree(folder, os.path.join(a.keep, f"{trial}-{ranks}"), dirs_exist_ok=True)
        shutil.rmtree(folder)


def chosen(a, module, listed):
    """The indices of the cases to run, by the number of their ranks."""
    every = {"sound": 1 if a.sample == 1 else 4, "fault": a.sample}
    groups = collections.defaultdict(list)
    for i, case in enumerate(module.CASES):
        kind = "sound" if case.fault == "sound" else "fault"
        words = case.name.split()
        if any((word.lstrip("-") in words) == word.startswith("-") for word in a.only.split()):
            continue
        listed[kind] += 1
        if listed[kind] % every[kind] == 0:
            groups[case.ranks].append(i)
    return groups


def import_trial(name):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        print(f"{name}: left out: {e}", flush=True)
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("orthant")
    parser.add_argument("--trials", default=",".join(TRIALS))
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--keep", help="folder for the records")
    a = parser.parse_args()
    quiet()
    sums, listed = collections.Counter(), collections.Counter()
    for trial in a.trials.split(","):
        module = import_trial(trial)
        for ranks, indices in sorted(chosen(a, module, listed).items()) if module else []:
            run_cases(a, trial, module, ranks, indices, sums)
    print(f"sound steps {sums['sound']}: {sums['sound found']} with a finding, {sums['sound inconclusive']} "
          f"inconclusive, {sums['sound unread']} not read")
    print(f"faults {sums['fault']}: {sums['fault found']} found, {sums['named']} with the right class, axis and "
          f"tensors, {sums['fault unread']} not read; {sums['not recorded']} steps were not recorded")
    wrong = sums["sound found"] + sums["sound unread"] + sums["not recorded"]
    return wrong > 0 or sums["fault found"] < 0.95 * sums["fault"] or sums["named"] < 0.9 * sums["fault"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        record_cases(*sys.argv[2:5])
    sys.exit(main())
