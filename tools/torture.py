#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks training runs in every way that one machine allows, and prints what held.

    tools/torture.py [--build build] [--short] [--trials N] [--seed N] [--json FILE] [NAME ...]

A trial trains a tiny model on 8 ranks, is killed, loses a call to the file system or a part of a
file, and is started again with the same command. It holds if the run ends with the bits of the
unbroken run (weights, moments, losses of all steps). With no failure in N trials, the probability of
one is below 3 / N with 95 % confidence.

The exit code is 0 if everything held, 1 if something did not.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS, EVERY, RANKS = 12, 3, 8
LIMIT_S = 120  # of one process: longer is a hang
SETTINGS = f"""
model: {{model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64,
  num_hidden_layers: 2, num_attention_heads: 4, max_position_embeddings: 64}}
data: {{train: tokens, sequence_length: 32}}
batch: {{global_batch_size: 8, micro_batch_size: 1}}
parallel: {{tp: 2, pp: 2, zero: 2}}
checkpoint: {{every: {EVERY}, keep: 3}}
log: {{tensorboard: false}}
steps: {STEPS}
threads: 1
output: out
"""
DAMAGES = ["flip", "splat", "zero page", "truncate", "extend", "swap steps", "remove"]
ERRORS = ["ENOSPC", "short", "EIO", "EINTR", "EDQUOT"]


class Place:
    """A folder with a run, and the ways to start it."""

    def __init__(self, build, folder):
        self.program = str((build / "orthant").resolve())
        self.breaker = str((build / "tests" / "libbreak_calls.so").resolve())
        self.folder = folder

    def prepare(self):
        text = b"".join(hashlib.sha256(bytes([i % 251, i // 251])).hexdigest().encode() for i in range(2000))
        (self.folder / "text.txt").write_bytes(text)
        (self.folder / "run.yaml").write_text(SETTINGS)
        self.run([self.program, "tokenize", "text.txt", "--tokenizer", "bytes", "--out", "tokens"], check=True)

    def run(self, command, check=False, **more):
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S,
                              check=check, **more)

    def train_command(self, launcher, out):
        train = [self.program, "train", "run.yaml", "--set", f"output={out}"]
        if launcher == "mpi":
            return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS)] + train
        return train + ["--ranks", str(RANKS)]

    def start(self, launcher, out, **environment):
        return subprocess.Popen(self.train_command(launcher, out), cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment})

    def train(self, out, launcher="threads", **environment):
        """Exit code and output of a whole run; None: it hangs."""
        process = self.start(launcher, out, **environment)
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            end_group(process)
            return None, "hangs"
        return process.returncode, text

    def broken(self, out, **how):
        return {"LD_PRELOAD": self.breaker, "BREAK_UNDER": str(self.folder / out),
                **{f"BREAK_{key.upper()}": str(value) for key, value in how.items()}}

    def state(self, out):
        """Hash of the last weights and moments, and of the losses of all steps; None: incomplete."""
        total = hashlib.sha256()
        with contextlib.suppress(OSError):
            for name in ("model.safetensors", "optimizer.safetensors"):
                total.update((self.folder / out / f"checkpoints/step-{STEPS:08d}" / name).read_bytes())
            lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(line) for line in lines]
            losses = [(line["step"], repr(line["loss"])) for line in steps if "loss" in line]
            if [step for step, _ in losses] != list(range(1, STEPS + 1)):
                return None
            total.update(repr(losses).encode())
            return total.hexdigest()
        return None

    def clear(self, out):
        shutil.rmtree(self.folder / out, ignore_errors=True)


def end_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


class Torture:
    def __init__(self, place, options):
        self.place, self.short, self.most = place, options.short, options.trials
        self.random = random.Random(options.seed)
        self.rows, self.golden, self.duration_s, self.restarts_s = [], {}, {}, []

    def trials(self, full, short):
        return min(short if self.short else full, self.most or full)

    def note(self, name, held, total, why=""):
        self.rows.append({"name": name, "held": held, "trials": total, "why": why})
        bound = f"< {300 / total:.2g} %" if total >= 30 and held == total else ""
        print(f"{name:44} {held:6} of {total:<6} {bound:10} {why}", flush=True)

    def begin(self):
        """The unbroken run with each launcher: its state, duration and calls."""
        for launcher in self.launchers():
            started = time.monotonic()
            code, text = self.place.train("golden", launcher)
            if code != 0:
                sys.exit(f"error: the unbroken run ends with {code}\n{text}")
            self.duration_s[launcher] = time.monotonic() - started
            self.golden[launcher] = self.place.state("golden")
            self.place.clear("golden")
        count = self.place.folder / "count"
        self.place.train("golden", **self.place.broken("golden", count=count))
        self.calls = int(count.read_text())
        self.place.clear("golden")

    def launchers(self):
        return ["threads", "mpi"] if shutil.which("mpirun") and not self.short else ["threads"]

    def ends_golden(self, out, launcher="threads"):
        """Starts the command again until it ends; True if the bits are those of the unbroken run."""
        code, text = self.place.train(out, launcher)
        held = code == 0 and self.place.state(out) == self.golden[launcher]
        if not held:
            print(f"  {out}: exit {code}, {text.strip().splitlines()[-1:]}", flush=True)
        return held

    # ---- kills ----

    def kill_once(self, launcher, out):
        process = self.place.start(launcher, out)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.random.uniform(0, self.duration_s[launcher]))
        if process.poll() is None:
            os.kill(self.victim(process, launcher), signal.SIGKILL)
        try:
            process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            end_group(process)
            return False
        return True

    def victim(self, process, launcher):
        """The process, or with mpirun one of its ranks or itself."""
        if launcher != "mpi":
            return process.pid
        found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
        return self.random.choice([int(pid) for pid in found.stdout.split()] + [process.pid])

    def kills(self):
        for launcher in self.launchers():
            total = self.trials(100, 1)
            held = kills = 0
            for _ in range(total):
                self.place.clear("out")
                ended = True
                for _ in range(self.random.randint(1, 3)):
                    ended = ended and self.kill_once(launcher, "out")
                    kills += 1
                held += ended and self.ends_golden("out", launcher)
            self.note(f"kill -9 at random times, {launcher}", held, total, f"{kills} kills")

    def save_kills(self):
        total = self.trials(200, 2)
        held = 0
        for call in self.sample_calls(total):
            self.place.clear("out")
            self.place.train("out", **self.place.broken("out", at=call, how="kill"))
            held += self.ends_golden("out")
        self.note("kill -9 at a call to the file system", held, total, f"{self.calls} calls in a run")

    def sample_calls(self, total):
        every = list(range(1, self.calls + 1))
        return sorted(self.random.sample(every, min(total, len(every))))

    # ---- calls that fail ----

    def failing_calls(self):
        for error in ERRORS[:self.trials(len(ERRORS), 2)]:
            calls = self.sample_calls(self.trials(200, 1))
            held = went_on = 0
            for call in calls:
                self.place.clear("out")
                code, _ = self.place.train("out", **self.place.broken("out", at=call, how=error))
                went_on += code == 0
                held += code in (0, 3) and self.ends_golden("out")
            self.note(f"a call fails: {error}", held, len(calls), f"{went_on} runs went on")

    def full_disk(self):
        """A disk that is full after some of the checkpoints, and then has room again."""
        script = ('mkdir -p disk && mount -t tmpfs -o size=$1k none disk && "$2" train run.yaml --ranks 8 '
                  '--set output=disk/out >first 2>&1; echo $? >code; mount -o remount,size=64m disk; '
                  '"$2" train run.yaml --ranks 8 --set output=disk/out >second 2>&1; cp -r disk/out full')
        if self.place.run(["unshare", "-rm", "true"]).returncode != 0:
            self.note("a full disk", 0, 0, "skipped: no right to mount")
            return
        sizes = [200, 500, 900, 1300, 2000, 3000][:self.trials(6, 1)]
        held = 0
        for size in sizes:
            self.place.clear("full")
            self.place.run(["unshare", "-rm", "sh", "-c", script, "sh", str(size), self.place.program])
            code = int((self.place.folder / "code").read_text())
            held += code in (0, 3) and self.place.state("full") == self.golden["threads"]
        self.note("a full disk", held, len(sizes))

    # ---- damaged files ----

    def damage(self, kind, path, other):
        data = bytearray(path.read_bytes())
        at = self.random.randrange(len(data))
        if kind == "flip":
            data[at] ^= 1 << self.random.randrange(8)
        elif kind == "splat":
            data[at] = (data[at] + self.random.randint(1, 255)) % 256
        elif kind == "zero page":
            page = at // 4096 * 4096
            before = bytes(data[page:page + 4096])
            data[page:page + 4096] = bytes(len(before))
            if before == bytes(len(before)):
                data[at] ^= 1
        elif kind == "truncate":
            del data[at:]
        elif kind == "extend":
            data += bytes(self.random.randint(1, 5000))
        elif kind == "swap steps":
            data = bytearray(other.read_bytes())
        if kind == "remove":
            path.unlink()
        else:
            path.write_bytes(data)

    def corruptions(self):
        """Damages a file of the newest checkpoint: `checkpoint verify` must name it."""
        total = self.trials(20000, 28)
        self.place.clear("out")
        self.place.train("out")
        newest = self.place.folder / f"out/checkpoints/step-{STEPS:08d}"
        older = self.place.folder / f"out/checkpoints/step-{STEPS - EVERY:08d}"
        names = sorted(path.name for path in newest.iterdir())
        held = crashes = 0
        for trial in range(total):
            name, kind = self.random.choice(names), DAMAGES[trial % len(DAMAGES)]
            before = (newest / name).read_bytes()
            if kind == "swap steps" and before == (older / name).read_bytes():
                kind = "flip"
            self.damage(kind, newest / name, older / name)
            done = self.place.run([self.place.program, "checkpoint", "verify", str(newest)])
            crashes += done.returncode < 0
            held += done.returncode in (1, 3) and name in done.stdout + done.stderr
            (newest / name).write_bytes(before)
        self.note("a damaged file is found and named", held, total, f"{crashes} crashes")

    def fallbacks(self):
        """A run resumes from the checkpoint before a damaged one, and ends with the same bits."""
        total = self.trials(200, 1)
        held = 0
        for trial in range(total):
            self.place.clear("out")
            self.place.train("out")
            newest = self.place.folder / f"out/checkpoints/step-{STEPS:08d}"
            path = self.random.choice(sorted(newest.iterdir()))
            self.damage("flip" if trial % 2 else "truncate", path, None)
            held += self.ends_golden("out")
        self.note("a damaged checkpoint: the one before it", held, total)

    # ---- numbers ----

    def spoiled_products(self):
        total = self.trials(1000, 1)
        held = 0
        for _ in range(total):
            self.place.clear("out")
            code, text = self.place.train("out", LD_PRELOAD=self.place.breaker,
                                          BREAK_PRODUCT=str(self.random.randint(1, 3000)))
            named = re.search(r"step \d+: the loss is .*(rank|tensor|gradient|output)", text)
            held += code == 5 and named is not None
        self.note("NaN in a product, named before the update", held, total)

    # ---- restarts ----

    def restart(self):
        total = self.trials(20, 1)
        for _ in range(total):
            self.place.clear("out")
            process = self.place.start("threads", "out")
            time.sleep(self.random.uniform(0.3, 0.9) * self.duration_s["threads"])
            process.kill()
            process.communicate()
            self.restarts_s.append(self.first_step_s("out"))
        p50, most = statistics.median(self.restarts_s), max(self.restarts_s)
        fast = sum(seconds < 3 for seconds in self.restarts_s)
        self.note("start to the first new step below 3 s", fast, total, f"p50 {p50:.2f} s, at most {most:.2f} s")

    def first_step_s(self, out):
        started = time.monotonic()
        process = self.place.start("threads", out)
        for line in process.stdout:
            if re.match(r"\s*step ", line) or "is finished" in line:
                break
        seconds = time.monotonic() - started
        process.communicate()
        return seconds

    PARTS = {"kills": kills, "save-kills": save_kills, "failing-calls": failing_calls,
             "full-disk": full_disk, "corruptions": corruptions, "fallbacks": fallbacks,
             "products": spoiled_products, "restart": restart}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--short", action="store_true", help="a few trials of each")
    parser.add_argument("--trials", type=int, help="of each kind, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(Torture.PARTS))
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in Torture.PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]} (try {' '.join(Torture.PARTS)})")
    with tempfile.TemporaryDirectory(prefix="orthant-torture-") as folder:
        place = Place(options.build, Path(folder))
        place.prepare()
        torture = Torture(place, options)
        torture.begin()
        for name in options.names or Torture.PARTS:
            Torture.PARTS[name](torture)
    if options.json:
        options.json.write_text(json.dumps(torture.rows, indent=1) + "\n")
    sys.exit(any(row["held"] < row["trials"] for row in torture.rows))


if __name__ == "__main__":
    main()
