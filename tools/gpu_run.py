# SPDX-License-Identifier: Apache-2.0
"""Parts of tools/gpu_check.sh: each runs commands within its own limit of time, and the report is
written after each (tools/gpu_report.py). One that fails, hangs or lacks something takes no other with it.

A part is passed, failed, timed out, skipped (with the reason; exit code 77 of a test, too) or not
reached: the time of its mode ended first.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import gpu_report

ROOT = Path(__file__).resolve().parent.parent
LOG_BYTES = 12 << 20  # a file of the output may have 16 MiB
SKIPPED_CODE = 77  # of tests


class Failed(Exception):
    pass


class TimedOut(Exception):
    pass


class Skipped(Exception):
    pass


class Run:
    """What all parts share. `pack` has bin/ and lib/; the mode ends after `seconds`."""

    def __init__(self, pack, out, mode, seconds):
        self.pack, self.out, self.mode = Path(pack), Path(out), mode
        self.end = time.monotonic() + seconds
        self.part = threading.local()  # .end: of the part that this thread runs
        self.lock = threading.Lock()
        self.children = set()
        self.emulated, self.device = False, ""
        self.log = open(self.out / "log.txt", "a", errors="replace")
        self.report = gpu_report.read(self.out / "report.json") or gpu_report.empty()

    def program(self, name):
        path = self.pack / "bin" / name
        if not path.is_file():
            raise Skipped(f"the pack has no {name}")
        return str(path)

    def command(self, words, limit, env=None):
        """The standard output of a command; its process group is killed after `limit` seconds, at the
        end of the time of its part, or at that of the mode."""
        started = time.monotonic()
        limit = min(limit, self.end - started, getattr(self.part, "end", self.end) - started)
        env = {**os.environ, "OMP_WAIT_POLICY": "passive", **(env or {})}
        if Path(words[0]).parent == self.pack / "bin":  # Python has libraries of its own
            env["LD_LIBRARY_PATH"] = str(self.pack / "lib")
        with subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT,
                              start_new_session=True, env=env) as child:
            try:
                out, err = child.communicate(timeout=max(limit, 0.1))
            except subprocess.TimeoutExpired:
                out, err = end_group(child)
                self.write_log(words, time.monotonic() - started, "timed out", out, err)
                raise TimedOut(f"no end after {limit:.0f} s: {' '.join(map(str, words))}") from None
        self.write_log(words, time.monotonic() - started, child.returncode, out, err)
        if child.returncode == SKIPPED_CODE:
            raise Skipped(f"{Path(words[0]).name} needs what this machine lacks (exit code {SKIPPED_CODE})")
        if child.returncode != 0:
            raise Failed(f"exit code {child.returncode}: {last_words(out, err)}")
        return out

    def write_log(self, words, seconds, code, out, err):
        text = (f"\n$ {' '.join(map(str, words))}\n[{seconds:.1f} s, exit code {code}]\n"
                f"{out[-400000:]}\n{err[-100000:]}\n")
        with self.lock:
            if self.log.tell() + len(text) < LOG_BYTES:
                self.log.write(text)
                self.log.flush()

    def json(self, words, limit, env=None):
        """The last line of a command's output, as JSON."""
        lines = self.command(words, limit, env).strip().splitlines()
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError):
            raise Failed(f"no JSON from {words[0]}: {lines[-1][:200] if lines else 'no output'}") from None

    def store(self, name, entry):
        with self.lock:
            self.report["parts"][name] = {"mode": self.mode, **entry}
            self.report["emulated"] = self.report["emulated"] or self.emulated
            gpu_report.write(self.report, self.out)


def end_group(child):
    """Kills the processes of `child`; what they wrote. One that left its group may keep the pipes open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        return child.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        for pipe in (child.stdout, child.stderr):
            pipe.close()
        return "", "its output stayed open"


@contextlib.contextmanager
def temporary(path):
    """A file or folder that is removed in the end."""
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)


def last_words(out, err):
    """The lines that tell what failed."""
    lines = (out + "\n" + err).strip().splitlines()
    told = [line for line in lines if re.search(r"error|fail|mismatch|denied|Traceback", line, re.I)]
    return " / ".join((told or lines)[-6:])[:600]


def run_part(run, name, limit, work):
    """Runs `work(run, limit)` as part `name`, in `limit` seconds for all of its commands together; True
    unless it failed."""
    before = run.report["parts"].get(name)
    if before and before["state"] == "passed" and before["mode"] == run.mode:
        return True
    limit *= 10 if run.emulated else 1
    left = run.end - time.monotonic()
    if left < 5:
        run.store(name, {"state": "not reached", "seconds": 0})
        return True
    started = time.monotonic()
    run.part.end = started + limit
    entry = {"state": "passed"}
    try:
        entry["data"] = work(run, min(limit, left))
    except Skipped as reason:
        entry = {"state": "skipped", "error": str(reason)}
    except TimedOut as reason:
        entry = {"state": "timed out", "error": str(reason)}
        if left < limit:
            entry["state"] = "not reached"
    except Exception as reason:  # a part never takes others with it
        entry = {"state": "failed", "error": f"{type(reason).__name__}: {reason}"[:800]}
    entry["seconds"] = round(time.monotonic() - started, 2)
    run.store(name, entry)
    print(f"{entry['state']:>11} {entry['seconds']:7.1f} s  {name}  {entry.get('error', '')}", flush=True)
    return entry["state"] not in ("failed", "timed out")


def run_test(name, env=None):
    """The work of a test program. Many run at once, so each has one thread of the BLAS."""
    def work(run, limit):
        out = run.command([run.program(name)], limit, {"OPENBLAS_NUM_THREADS": "1", **(env or {})})
        return {"lines": out.strip().splitlines()[-40:]}
    return work
