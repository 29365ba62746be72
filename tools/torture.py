#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks training runs in every way that one machine allows, and prints what held.

    tools/torture.py [--build build] [--short] [--trials N] [--seed N] [--json FILE] [NAME ...]

A trial trains a tiny model on 8 ranks, is killed, hangs, loses a call to the file system or a part
of a file, and is started again with the same command. It holds if the run ends with the bits of the
unbroken run (weights, moments, losses of all steps); docs/failures.md tells what other rows ask. The
bound is that of the probability of a failure, with 95 % confidence: without one in N trials, 3 / N.

The exit code is 0 if everything held, 1 if something did not.
"""

import argparse
import contextlib
import hashlib
import json
import math
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
WATCHDOG_S = 3
HEALTHY_STEPS = 6000  # on which hangs and stragglers would be false alarms
# A run whose steps take long enough to be left, or for times of ranks to be compared.
LONG_STEPS = ["steps=3", "checkpoint.every=1000", "batch.global_batch_size=800"]
TIMED_STEPS = ["parallel={zero: 1}", "checkpoint.every=100000", "model.hidden_size=64",
               "model.intermediate_size=256", "data.sequence_length=64", "log.every=100000"]
ELASTIC = ["parallel={zero: 2}", "batch.global_batch_size=24", "checkpoint.every=10", "steps=120"]
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

    def train_command(self, launcher, out, sets=(), supervise=False):
        train = [self.program, "train", "run.yaml", "--set", f"output={out}"]
        train += [word for one in sets for word in ("--set", one)]
        mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
        if supervise:
            train += ["--supervise", "--ranks", str(RANKS)]
            return train + (["--"] + mpi + ["{ranks}"] if launcher == "mpi" else [])
        return mpi + [str(RANKS)] + train if launcher == "mpi" else train + ["--ranks", str(RANKS)]

    def start(self, launcher, out, sets=(), supervise=False, **environment):
        return subprocess.Popen(self.train_command(launcher, out, sets, supervise), cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                env={**os.environ, **environment})

    def train(self, out, launcher="threads", sets=(), **environment):
        """Exit code and output of a whole run; None: it hangs."""
        process = self.start(launcher, out, sets, **environment)
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            end_group(process)
            return None, "hangs"
        return process.returncode, text

    def broken(self, out, **how):
        return {"LD_PRELOAD": self.breaker, "BREAK_UNDER": str(self.folder / out),
                **{f"BREAK_{key.upper()}": str(value) for key, value in how.items()}}

    def events(self, out, kind):
        """The events of a kind of a run, oldest first."""
        with contextlib.suppress(OSError):
            lines = (self.folder / out / "events.jsonl").read_text().splitlines()
            return [event for event in map(json.loads, lines) if event["event"] == kind]
        return []

    def losses(self, out):
        """Loss by step, of the steps so far."""
        with contextlib.suppress(OSError):
            text = (self.folder / out / "metrics.jsonl").read_text()
            lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
            return {line["step"]: line["loss"] for line in lines if "loss" in line}
        return {}

    def wait_for_step(self, out, step):
        limit = time.monotonic() + LIMIT_S
        while max(self.losses(out), default=0) < step and time.monotonic() < limit:
            time.sleep(0.02)

    def state(self, out, last=STEPS):
        """Hash of the last weights and moments, and of the losses of all steps; None: incomplete."""
        total = hashlib.sha256()
        with contextlib.suppress(OSError):
            for name in ("model.safetensors", "optimizer.safetensors"):
                total.update((self.folder / out / f"checkpoints/step-{last:08d}" / name).read_bytes())
            lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(line) for line in lines]
            losses = [(line["step"], repr(line["loss"])) for line in steps if "loss" in line]
            if [step for step, _ in losses] != list(range(1, last + 1)):
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


def children(pid):
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def most_failures(held, total):
    """The probability of a failure is below this with 95 % confidence (Clopper and Pearson 1934)."""
    if total == 0 or held == 0:
        return 1.0
    low, high, failures = 0.0, 1.0, total - held
    for _ in range(60):
        p = (low + high) / 2
        logs = [math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)
                + k * math.log(p) + (total - k) * math.log1p(-p) for k in range(failures + 1)]
        low, high = (p, high) if sum(map(math.exp, logs)) > 0.05 else (low, p)
    return high


class Torture:
    def __init__(self, place, options):
        self.place, self.short, self.most = place, options.short, options.trials
        self.random, self.seed = random.Random(options.seed), options.seed
        self.rows, self.golden, self.duration_s, self.restarts_s = [], {}, {}, []
        self.loads_s = []
        self.began, self.launcher_hangs = time.monotonic(), 0

    def trials(self, full, short):
        return min(short if self.short else full, self.most or full)

    def note(self, name, held, total, why="", asked=True):
        """A row of the scorecard; with `asked` false it is a measurement that nothing promises."""
        seconds = time.monotonic() - self.began
        self.began = time.monotonic()
        self.rows.append({"name": name, "held": held, "trials": total, "bound": most_failures(held, total),
                          "seconds": round(seconds), "why": why, "asked": asked})
        bound = f"< {100 * most_failures(held, total):.2g} %" if asked and total else ""
        print(f"{name:44} {held:6} of {total:<6} {bound:10} {seconds:6.0f} s  {why}", flush=True)

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
        self.calls, self.allocations = map(int, count.read_text().split())
        self.place.clear("golden")

    def launchers(self):
        return ["threads", "mpi"] if shutil.which("mpirun") and not self.short else ["threads"]

    def program_rows(self, name, *arguments, **environment):
        """The rows that a test program prints: name, found, total, trials without an effect."""
        program = str(Path(self.place.program).parent / "tests" / name)
        done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True,
                              env={**os.environ, **environment})
        rows = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("row\t")]
        if done.returncode or not rows:
            print("\n".join(done.stdout.splitlines()[-8:] + done.stderr.splitlines()[-8:]), flush=True)
        return [(row, int(found), int(total), int(harmless)) for row, found, total, harmless in rows]

    def ends_golden(self, out, launcher="threads", sets=(), last=STEPS, golden=None):
        """Starts the command again until it ends; True if the bits are those of the unbroken run."""
        code, text = self.place.train(out, launcher, sets)
        held = code == 0 and self.place.state(out, last) == (golden or self.golden[launcher])
        if not held:
            print(f"  {out}: exit {code}, {text.strip().splitlines()[-1:]}", flush=True)
        return held

    # ---- kills ----

    def kill_once(self, launcher, out):
        process = self.place.start(launcher, out)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.random.uniform(0, self.duration_s[launcher]))
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end meanwhile
                os.kill(self.victim(process, launcher), signal.SIGKILL)
        try:
            process.communicate(timeout=LIMIT_S / 4)
        except subprocess.TimeoutExpired:
            # Open MPI 4.1 sometimes hangs after its last process; --supervise ends such a launcher.
            left = [pid for pid in children(process.pid) if is_running(pid)] if launcher == "mpi" else [process.pid]
            end_group(process)
            self.launcher_hangs += not left
            if left:
                print(f"  after a kill {len(left)} processes hang", flush=True)
            return not left
        return True

    def victim(self, process, launcher):
        """The process, or with mpirun one of its ranks or itself."""
        if launcher != "mpi":
            return process.pid
        return self.random.choice(children(process.pid) + [process.pid])

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
            hung = f", of mpirun hung {self.launcher_hangs}" if self.launcher_hangs else ""
            self.note(f"kill -9 at random times, {launcher}", held, total, f"{kills} kills{hung}")

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

    def refused_memory(self):
        """An allocation of the program or of a library of its is refused; OpenMP then ends the process."""
        total = self.trials(300, 3)
        held = went_on = 0
        for allocation in self.random.sample(range(1, self.allocations + 1), total):
            self.place.clear("out")
            code, text = self.place.train("out", **self.place.broken("out", memory=allocation))
            went_on += code == 0
            openmp = code == 1 and "libgomp: Out of memory" in text or code == -6 and "/libomp." in text
            named = code == 3 and "error: " in text or openmp
            if code != 0 and not named:
                print(f"  allocation {allocation}: exit code {code}: {text[-200:]}", flush=True)
            held += (code == 0 or named) and self.ends_golden("out")
        self.note("an allocation is refused", held, total, f"{self.allocations} in a run; {went_on} runs went on")

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

    def injections(self):
        """NaN, Inf and flipped bits in memory, many in one process."""
        trials = str(self.trials(125, 2))
        for row, found, total, harmless in self.program_rows("test_injections", trials, str(self.seed)):
            asked = "transient" not in row
            self.note(row, found, total, f"{harmless} more had no effect", asked)

    # ---- meshes ----

    def meshes(self):
        """Each mesh writes the files of one rank, and loads them: so it loads those of any other."""
        for row, found, total, _ in self.program_rows("test_checkpoint_meshes", OT_TESTS="full"):
            self.note(row, found, total, f"hence {found * found} pairs")

    # ---- stops ----

    def stops(self):
        """A signal in a long step: it is left, all ranks end, and the run continues with its bits."""
        for launcher in self.launchers():
            self.place.train("long", launcher, LONG_STEPS)
            golden, took, held = self.place.state("long", 3), [], 0
            total = self.trials(20, 1)
            self.place.clear("long")
            for _ in range(total):
                self.place.clear("out")
                process = self.place.start(launcher, "out", LONG_STEPS)
                self.place.wait_for_step("out", 1)
                time.sleep(self.random.uniform(0, 0.3))
                took.append(self.stop(process, launcher))
                held += process.returncode == 75 and self.ends_golden("out", launcher, LONG_STEPS, 3, golden)
            p50 = statistics.median(took)
            self.note(f"a signal in a long step, {launcher}", held, total,
                      f"ranks end after p50 {p50:.2f} s, at most {max(took):.2f} s")

    def stop(self, process, launcher):
        """Seconds from the signal until the last rank has ended; mpirun takes a second more."""
        ranks = children(process.pid) if launcher == "mpi" else [process.pid]
        started = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        while any(is_running(pid) for pid in ranks):
            time.sleep(0.005)
        seconds = time.monotonic() - started
        process.communicate()
        return seconds

    # ---- hangs ----

    def hangs(self):
        """A rank never returns from a kernel: found within twice the timeout, and the run goes on."""
        sets = [f"parallel.watchdog_seconds={WATCHDOG_S}"]
        for launcher in self.launchers():
            total, held, took = self.trials(20, 1), 0, []
            for _ in range(total):
                self.place.clear("out")
                once = self.place.folder / "hung"
                once.unlink(missing_ok=True)
                rank = self.random.randrange(RANKS)
                where = {"BREAK_RANK": str(rank)} if launcher == "mpi" else {}
                product = self.random.randint(1, 3000 // (RANKS if where else 1))
                process = self.place.start(launcher, "out", sets, True, LD_PRELOAD=self.place.breaker,
                                           BREAK_HANG=str(product), BREAK_ONCE=str(once), **where)
                text, _ = process.communicate(timeout=LIMIT_S)
                failures = self.place.events("out", "failure")
                if not once.exists():
                    continue  # the run had fewer products
                seconds = failures[0]["time"] - once.stat().st_mtime if failures else LIMIT_S
                took.append(seconds)
                said = failures[0].get("detail", "") if failures else ""
                named = re.search(rf"rank {rank}\b" if where else r"rank \d", said)
                good = seconds < 2 * WATCHDOG_S and named and self.place.state("out") == self.golden[launcher]
                if not good:
                    print(f"  rank {rank}, {seconds:.2f} s, {said}, {text.strip().splitlines()[-1:]}", flush=True)
                held += bool(good)
            self.note(f"a hang: rank named in twice the timeout, {launcher}", held, len(took),
                      f"p50 {statistics.median(took):.2f} s, at most {max(took):.2f} s of {2 * WATCHDOG_S} s")

    # ---- stragglers ----

    def stragglers(self):
        """A slow rank is named within 6 windows of 16 steps; healthy ranks and steps are not."""
        if "mpi" in self.launchers():
            for percent in (30, 100):
                total, held, others = self.trials(20, 1), 0, 0
                for _ in range(total):
                    self.place.clear("out")
                    rank = self.random.randrange(RANKS)
                    self.place.train("out", "mpi", [*TIMED_STEPS, "steps=97"], LD_PRELOAD=self.place.breaker,
                                     BREAK_SLOW=str(percent), BREAK_RANK=str(rank))
                    named = {event["rank"] for event in self.place.events("out", "straggler")}
                    held += rank in named
                    others += bool(named - {rank})
                self.note(f"a rank whose products take {1 + percent / 100} x", held, total,
                          f"other ranks named in {others}", asked=percent == 100)
        self.healthy()

    def healthy(self):
        """No rank is named, and no hang found, in steps that nothing disturbs but the machine."""
        steps = 64 if self.short else HEALTHY_STEPS
        self.place.clear("out")
        process = self.place.start("threads", "out", [*TIMED_STEPS, f"steps={steps}",
                                   f"parallel.watchdog_seconds={WATCHDOG_S}"], supervise=True)
        process.communicate()
        windows = steps // 16 * RANKS
        events = self.place.events("out", "straggler")
        named = [event["rank"] for event in events]
        failures = len(self.place.events("out", "failure"))
        self.note("healthy ranks in windows, not named", windows - len(named), windows, f"named: {named[:8]}")
        self.note("healthy steps, no hang found", steps - failures, steps)

    # ---- elastic ----

    def elastic(self):
        """8 ranks, 6, 8 again: before the first loss the same bits, then the same losses to rounding."""
        place, total, held, worst = self.place, self.trials(20, 1), 0, 0.0
        (place.folder / "launch.sh").write_text(
            'ranks=$1; shift\n[ -e down ] && [ "$ranks" -gt 6 ] && exit 1\nexec "$@" --ranks "$ranks"\n')
        place.train("whole", "threads", ELASTIC)
        whole = place.losses("whole")
        for _ in range(total):
            place.clear("out")
            command = place.train_command("threads", "out", ELASTIC)
            command += ["--supervise", "--min-ranks", "6", "--", "sh", "launch.sh", "{ranks}"]
            process = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.STDOUT)
            first = self.random.randint(12, 40)
            place.wait_for_step("out", first)
            (place.folder / "down").touch()
            self.kill_child(process)
            while process.poll() is None and len(place.events("out", "first_step")) < 2:
                time.sleep(0.02)
            time.sleep(self.random.uniform(0.05, 0.5))
            (place.folder / "down").unlink()
            self.kill_child(process)
            text, _ = process.communicate(timeout=LIMIT_S)
            losses = place.losses("out")
            starts = place.events("out", "start")  # the second is that of 6 ranks, from a checkpoint
            ranks, begin = [event["ranks"] for event in starts], starts[1]["step"] if len(starts) > 1 else 0
            apart = max((abs(losses[step] / loss - 1) for step, loss in whole.items() if step in losses), default=1)
            same = begin > first - 20 and all(losses.get(step) == whole[step] for step in range(1, begin + 1))
            good = ranks == [8, 6, 8] and losses.keys() == whole.keys() and same and apart < 1e-5
            worst, held = max(worst, apart), held + good
            if not good:
                print(f"  ranks {ranks}, {apart:.1e}, same {same}, {text.strip().splitlines()[-3:]}", flush=True)
        self.note("8, 6, 8 ranks: losses of the unbroken run", held, total, f"differ by {worst:.1e} at most")

    def kill_child(self, process):
        for pid in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

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
        loaded = statistics.median(self.loads_s)
        self.note("start to the first new step below 3 s", fast, total, asked=p50 >= 3,
                  why=f"p50 {p50:.2f} s, at most {most:.2f} s; {loaded:.2f} s until the checkpoint is loaded")

    def first_step_s(self, out):
        started, began = time.monotonic(), time.time()
        process = self.place.start("threads", out)
        for line in process.stdout:
            if re.match(r"\s*step ", line) or "is finished" in line:
                break
        seconds = time.monotonic() - started
        process.communicate()
        starts = self.place.events(out, "start")
        self.loads_s.append(max(starts[-1]["time"] - began, 0) if starts else 0)
        return seconds

    PARTS = {"kills": kills, "save-kills": save_kills, "failing-calls": failing_calls,
             "memory": refused_memory,
             "full-disk": full_disk, "corruptions": corruptions, "fallbacks": fallbacks,
             "products": spoiled_products, "injections": injections, "meshes": meshes, "stops": stops,
             "hangs": hangs, "stragglers": stragglers, "elastic": elastic, "restart": restart}
    # Their short forms are test_injections, test_checkpoint_meshes, test_stop, test_supervise.
    LONG = ("injections", "meshes", "stops", "elastic")


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
    os.environ["OMP_WAIT_POLICY"] = "passive"
    with tempfile.TemporaryDirectory(prefix="orthant-torture-") as folder:
        place = Place(options.build, Path(folder))
        place.prepare()
        torture = Torture(place, options)
        torture.begin()
        every = [name for name in Torture.PARTS if not (options.short and name in Torture.LONG)]
        for name in options.names or every:
            Torture.PARTS[name](torture)
    if options.json:
        options.json.write_text(json.dumps(torture.rows, indent=1) + "\n")
    sys.exit(any(row["held"] < row["trials"] and row["asked"] for row in torture.rows))


if __name__ == "__main__":
    main()
