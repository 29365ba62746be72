#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of one mode of tools/gpu_check.sh, each within its own limit of time, and writes
the report after each of them (tools/gpu_report.py).

    tools/gpu_parts.py PACK OUT MODE SECONDS      called by tools/gpu_check.sh, which sets the paths

A part is passed, failed, timed out, skipped (with the reason) or not reached. On an emulated GPU all
models are tiny, and the report says that it is emulated.
"""

import concurrent.futures
import contextlib
import datetime
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import gpu_report

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "parity"
LOG_BYTES = 12 << 20  # a file of the output may have 16 MiB
H100_PEAK = 989.4e12

# name, config, tokens of a sequence, sequences of a micro-batch, micro-batches of 512k tokens, head
MODELS = [
    ("qwen2.5-1.5b T1024", "bench/models/qwen2.5-1.5b.json", 1024, 16, 32, "chunked"),
    ("gpt2-1.5b T1024", "presets/models/gpt2-xl.json", 1024, 16, 32, "plain"),
    ("llama3.2-1b T4096", "bench/models/llama3.2-1b.json", 4096, 4, 32, "chunked"),
    ("llama3.2-1b T8192", "bench/models/llama3.2-1b.json", 8192, 2, 32, "chunked"),
    ("gpt2-124m T1024", "presets/models/gpt2.json", 1024, 32, 16, "plain"),
]
# On an emulated GPU, under the same names.
TINY_MODELS = [(MODELS[0][0], "bench/models/tiny-64.json", 16, 1, 2, "chunked")]
FAMILIES = ["gpt2", "llama", "gemma2-packed", "mixtral-balanced", "deepseek-v3", "llama-residuals"]


class Failed(Exception):
    pass


class TimedOut(Exception):
    pass


class Skipped(Exception):
    pass


class Run:
    """What all parts share."""

    def __init__(self, pack, out, mode, seconds):
        self.pack, self.out, self.mode = Path(pack), Path(out), mode
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.children = set()
        self.emulated, self.device = False, ""
        self.log = open(self.out / "log.txt", "a", errors="replace")
        self.report = gpu_report.read(self.out / "report.json") or gpu_report.empty()

    def models(self):
        return TINY_MODELS if self.emulated else MODELS

    def program(self, name):
        path = self.pack / "bin" / name
        if not path.is_file():
            raise Skipped(f"the pack has no {name}")
        return str(path)

    def command(self, words, limit, env=None):
        """The standard output of a command; its process group is killed after `limit` seconds."""
        limit = min(limit, self.end - time.monotonic())
        started = time.monotonic()
        env = {**os.environ, "OMP_WAIT_POLICY": "passive", **(env or {})}
        if Path(words[0]).parent == self.pack / "bin":  # Python has libraries of its own
            env["LD_LIBRARY_PATH"] = str(self.pack / "lib")
        with subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT,
                              start_new_session=True, env=env) as child:
            try:
                out, err = child.communicate(timeout=max(limit, 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
                self.write_log(words, time.monotonic() - started, "timed out", out, err)
                raise TimedOut(f"no end after {limit:.0f} s: {' '.join(map(str, words))}") from None
        self.write_log(words, time.monotonic() - started, child.returncode, out, err)
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
    """Runs `work(run, limit)` as part `name`; True unless it failed."""
    before = run.report["parts"].get(name)
    if before and before["state"] == "passed" and before["mode"] == run.mode:
        return True
    limit *= 10 if run.emulated else 1
    left = run.end - time.monotonic()
    if left < 5:
        run.store(name, {"state": "not reached", "seconds": 0})
        return True
    started = time.monotonic()
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


# ---- what machine this is ----

def read_machine(run, limit):
    found = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}
    commit = run.pack / "commit"
    found["commit"] = commit.read_text().strip() if commit.is_file() else "unknown"
    found["cores"] = os.cpu_count()
    if shutil.which("nvidia-smi"):
        fields = ("name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,"
                  "power.limit,power.draw,temperature.gpu")
        values = run.command(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], limit)
        found["nvidia_smi"] = dict(zip(fields.split(","), values.strip().splitlines()[0].split(", ")))
    code = ("import json, torch; print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda,"
            "'cudnn': torch.backends.cudnn.version(), 'nccl': list(torch.cuda.nccl.version())"
            " if torch.cuda.is_available() else None, 'device': torch.cuda.get_device_name(0)"
            " if torch.cuda.is_available() else None}))")
    try:
        found["pytorch"] = run.json([sys.executable, "-c", code], limit)
    except Failed:
        found["pytorch"] = None
    return found


def measure_limits(run, limit):
    words = [run.program("gpu_limits")]
    if run.emulated or run.report.get("emulated"):
        words += ["--bytes", "65536", "--size", "64", "--repeats", "2"]
    return run.json(words, limit)


def check_abi(run, limit):
    """Declarations of cuBLASLt against its header, where that and a compiler are."""
    library = os.environ.get("OT_CUDA_LIBRARIES", "").split(":")[0]
    folders = [Path(library).parent / "include", *map(Path, glob.glob("/usr/local/cuda*/include"))]
    header = next((f for f in folders if (f / "cublasLt.h").is_file()), None)
    runtime = next((f for f in folders if (f / "library_types.h").is_file()), None)
    compiler = shutil.which("g++") or shutil.which("c++")
    if not (header and runtime and compiler):
        raise Skipped("no cublasLt.h, library_types.h or C++ compiler")
    run.command([compiler, "-std=c++17", "-fsyntax-only", "-Isrc", "-isystem", header, "-isystem",
                 runtime, "tests/cuda/lt_abi.cc"], limit)
    return {"header": str(header)}


def find_out_device(run):
    """True if a GPU can be used. Its name also tells whether it is emulated."""
    try:
        words = [run.program("gpu_limits"), "--bytes", "65536", "--size", "64", "--repeats", "1"]
        run.device = run.json(words, 60)["device"]
        run.emulated = "emulated" in run.device
    except (Failed, TimedOut, Skipped) as error:
        run.store("device", {"state": "failed", "error": str(error), "seconds": 0})
        print(f"     failed  no GPU can be used: {error}", flush=True)
        return False
    return True


def identity_parts(run):
    return [(f"machine ({run.mode})", 60, read_machine), (f"limits ({run.mode})", 60, measure_limits)]


# ---- quick ----

def run_test(name, env=None):
    def work(run, limit):
        out = run.command([run.program(name)], limit, env)
        return {"lines": out.strip().splitlines()[-40:]}
    return work


def compare_bits(config, precision):
    def work(run, limit):
        words = [run.program("gpu_ops"), "--model", config, "--precision", precision, "--repeats", "0",
                 "--sequence", "24", "--micro-batch", "2", "--bits"]
        rows = run.json(words, limit)["rows"]
        other = [row["key"] for row in rows if row.get("same_bits") is False]
        errors = [f"{row['op']}: {row['error']}" for row in rows if "error" in row]
        if other or errors:
            raise Failed("; ".join(errors + [f"other bits in a second run of {key}" for key in other]))
        return {"operators": sum("same_bits" in row for row in rows)}
    return work


CURVE = """model: {model_type: llama, vocab_size: 257, hidden_size: 64, intermediate_size: 128,
  num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64,
  tie_word_embeddings: true}
data: {train: %s/train, tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 8, micro_batch_size: 4}
optimizer: {lr: 3e-3}
steps: %d
threads: 2
"""


def loss_curve(run, folder, device, precision, limit):
    output = folder / device
    words = [run.program("orthant"), "train", folder / "run.yaml", "--set", f"device={device}",
             "--set", f"precision.params={precision}", "--set", f"precision.compute={precision}",
             "--set", f"output={output}"]
    run.command(words, limit)
    with open(output / "metrics.jsonl") as file:
        return [json.loads(line)["loss"] for line in file if '"loss"' in line]


def train_curve(precision, bound):
    """20 steps on the GPU next to the same on the CPU; `bound` is relative, of every loss."""
    def work(run, limit):
        steps = 2 if run.emulated else 20
        with temporary(run.out / f"curve-{precision}") as folder:
            folder.mkdir(exist_ok=True)
            run.command([run.program("orthant"), "tokenize", "--tokenizer", "bytes", "--out",
                         folder / "train", "LICENSE"], limit)
            (folder / "run.yaml").write_text(CURVE % (folder, steps))
            cpu, gpu = (loss_curve(run, folder, device, precision, limit) for device in ("cpu", "cuda"))
        if len(cpu) != steps or len(gpu) != steps:
            raise Failed(f"{len(cpu)} and {len(gpu)} losses in place of {steps}")
        worst = max(abs(g / c - 1) for c, g in zip(cpu, gpu))
        if not worst <= bound:
            raise Failed(f"a loss differs by {worst:.2e} from the CPU's, allowed: {bound:.0e}")
        return {"cpu": cpu, "gpu": gpu, "worst": worst}
    return work


def quick_parts(run):
    whole = ("test_products", "test_cuda_step", "test_cuda_ranks", "test_nccl_one")
    names = sorted(p.name for p in (run.pack / "bin").glob("test_*") if p.name not in whole)
    parts = [(f"kernels {name[5:]}", 150, run_test(name)) for name in names]
    configs = [("tiny-64", "bench/models/tiny-64.json")]
    if not run.emulated:
        configs += [("tiny-128", "bench/models/tiny-128.json")]
        configs += [(f, FIXTURES / f / "config.json") for f in FAMILIES]
    precisions = ("bf16",) if run.emulated else ("bf16", "fp32", "fp64")
    parts += [(f"bits {name} {p}", 60, compare_bits(path, p)) for name, path in configs for p in precisions]
    parts += [("training fp32", 60, train_curve("fp32", 2e-5)),
              ("training bf16", 60, train_curve("bf16", 5e-3))]
    parts += [(name, 150, run_test(name)) for name in whole if (run.pack / "bin" / name).is_file()]
    # Kernels that misunderstand the hardware can end the device's context, so they come last.
    hopper = [(f"kernels {name[5:]} hopper", 150, run_test(name, {"OT_ATTENTION": "hopper"}))
              for name in ("test_attention_bf16",) if (run.pack / "bin" / name).is_file()]
    return parts + [("declarations of cuBLASLt", 60, check_abi)] + hopper


# ---- bench ----

class Clocks:
    """Clocks, power and temperature of the GPU while something runs."""
    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")

    def __init__(self):
        self.child = None
        if shutil.which("nvidia-smi"):
            words = ["nvidia-smi", f"--query-gpu={','.join(self.FIELDS)}", "--format=csv,noheader,nounits",
                     "-lms", "250"]
            self.child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def finish(self):
        """The median of each while the GPU took at least half of its highest power; None if not known."""
        if not self.child:
            return None
        self.child.terminate()
        rows = []
        for line in self.child.communicate()[0].splitlines():
            with contextlib.suppress(ValueError):
                rows.append([float(word) for word in line.split(",")])
        rows = [row for row in rows if len(row) == len(self.FIELDS)]
        busy = [row for row in rows if row[2] >= 0.5 * max(r[2] for r in rows)]
        return dict(zip(self.FIELDS, map(statistics.median, zip(*busy)))) if busy else None


def shape_words(model):
    _, config, sequence, micro_batch, micro_batches, _ = model
    return ["--model", config, "--sequence", sequence, "--micro-batch", micro_batch,
            "--micro-batches", micro_batches]


def measure_cluster(run, limit):
    """What the simulator expects of this GPU: `orthant bench`."""
    with temporary(run.out / "measured.yaml") as path:
        run.command([run.program("orthant"), "bench", "--quick", "--device", "cuda", "--out", path], limit)
        return {"text": path.read_text()}


def cluster_of(run):
    """The cluster of the expected times: measured in this run, else that of the data sheet."""
    measured = run.report["parts"].get("cluster of this GPU", {})
    if run.mode != "bench" or measured.get("state") != "passed":
        return "h200" if "H200" in run.device else "h100"
    path = run.out / "cluster.yaml"
    path.write_text(measured["data"]["text"])
    return path


def our_step(model, more=()):
    def work(run, limit):
        words = [run.program("gpu_step"), *shape_words(model), "--json", "--warmup", 1, "--repeats", 2,
                 "--cluster", cluster_of(run)]
        clocks = Clocks()
        try:
            with temporary(run.out / f"chosen {model[0]}.table") as table:
                data = run.json([*words, "--write-table", table, *more], limit)
                data["table"] = table.read_text() if table.is_file() else ""
        finally:
            seen = clocks.finish()
        return {**data, "clocks": seen}
    return work


def our_operators(model):
    def work(run, limit):
        words = [run.program("gpu_ops"), *shape_words(model), "--repeats", 2 if run.emulated else 10]
        return run.json(words, limit)
    return work


def pytorch_words(run, script):
    if not run.report["parts"][f"machine ({run.mode})"].get("data", {}).get("pytorch"):
        raise Skipped("this Python has no PyTorch")
    return [sys.executable, f"bench/{script}"] + (["--device", "cpu"] if run.emulated else [])


def pytorch_step(model):
    """With half the micro-batch, at as many tokens of a step, where the GPU lacks memory for it."""
    name, config, sequence, micro_batch, micro_batches, head = model

    def work(run, limit):
        for parts in (1, 2, 4):
            shape = (name, config, sequence, max(1, micro_batch // parts), micro_batches * parts, head)
            words = [*pytorch_words(run, "pytorch_gpu_step.py"), *shape_words(shape), "--head", head,
                     "--warmup", 1, "--repeats", 2, *(["--eager"] if run.emulated else [])]
            try:
                return {**run.json(words, limit), "micro_batch": shape[3]}
            except Failed as error:
                if parts == 4 or micro_batch < 2 * parts or "OutOfMemory" not in str(error):
                    raise
    return work


def attention_words(run):
    return ["--tokens", "32", "--shortest", "32", "--width", "128", "--repeats", "1"] if run.emulated else []


def our_attention(run, limit):
    return run.json([run.program("gpu_ops"), "--attention", *attention_words(run)], limit)["attention"]


def pytorch_attention(run, limit):
    return run.json([*pytorch_words(run, "pytorch_attention.py"), *attention_words(run)], limit)


def bench_parts(run):
    """By value: the models' steps, one comparison, operators, attention, the other comparisons."""
    models = run.models()

    def turn(model):
        return [(f"pytorch {model[0]}", 200, pytorch_step(model)),
                (f"step again {model[0]}", 90, our_step(model))]

    parts = [("cluster of this GPU", 90, measure_cluster),
             (f"step {models[0][0]}", 120, our_step(models[0], ["--ops"])), *turn(models[0])]
    parts += [(f"step {m[0]}", 120, our_step(m, ["--ops"])) for m in models[1:]]
    parts += [("attention", 60, our_attention), ("attention of PyTorch", 60, pytorch_attention)]
    parts += [(f"operators {m[0]}", 60, our_operators(m)) for m in models]
    for model in models[1:]:
        parts += turn(model)
    return parts


# ---- tune ----

def race(model):
    def work(run, limit):
        words = [run.program("gpu_ops"), *shape_words(model), "--race", "--repeats",
                 2 if run.emulated else 10, "--write-table"]
        with temporary(run.out / f"raced {model[0]}.table") as table:
            data = run.json([*words, table], limit)
            data["table"] = table.read_text() if table.is_file() else ""
        data.pop("rows", None)
        return data
    return work


def step_with_winners(model):
    def work(run, limit):
        raced = run.report["parts"].get(f"products {model[0]}", {}).get("data")
        if not raced or not raced["table"]:
            raise Skipped("its products were not raced")
        with temporary(run.out / f"winners {model[0]}.table") as table:
            table.write_text(raced["table"])
            return our_step(model, ["--read-table", table])(run, limit)
    return work


def attention_variant(variant):
    def work(run, limit):
        program = run.program("gpu_ops")
        if b"OT_ATTENTION" not in Path(program).read_bytes():
            raise Skipped("these programs have one kind of attention")
        words = [program, "--attention", *attention_words(run)]
        return run.json(words, limit, {"OT_ATTENTION": variant})["attention"]
    return work


def tune_parts(run):
    parts = [(f"attention {v}", 60, attention_variant(v)) for v in ("mma", "hopper")]
    for model in run.models():
        parts += [(f"products {model[0]}", 60, race(model)),
                  (f"step before {model[0]}", 60, our_step(model)),
                  (f"step with winners {model[0]}", 60, step_with_winners(model))]
    return parts


# ---- sanitize ----

def around_false_reports(sanitizer, tool):
    """Options and variables by which `tool` reports no fault where there is none. Before 2026.1 racecheck
    does not follow an arrival at an mbarrier that one lane makes for its warp: __syncwarp orders what the
    lanes have read before it, and the threads that overwrite it wait for it, as hopper_key_gradient_kernel
    does for states of queries (without the wait, tests on the emulated GPU fail: planted_faults.txt). And
    initcheck does not see what cuBLASLt stores by the tensor memory accelerator, so that each kernel that
    reads a product would read memory never written."""
    version = subprocess.run([sanitizer, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"(20\d\d)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) >= (2026, 1):
        return [], []
    options = {"racecheck": ["--kernel-name-exclude", "kernel_substring=hopper_key_gradient_kernel"]}
    variables = {"initcheck": ["OT_PRODUCTS=own"]}
    return options.get(tool, []), variables.get(tool, [])


def run_sanitizer(run, tool, words, limit):
    sanitizer = shutil.which("compute-sanitizer")
    if not sanitizer:
        raise Skipped("compute-sanitizer is not found")
    options, variables = around_false_reports(sanitizer, tool)
    out = run.command([sanitizer, "--tool", tool, *options, "--target-processes", "all", "--error-exitcode", "9",
                       "--print-limit", "5", "env", f"LD_LIBRARY_PATH={run.pack / 'lib'}", *variables, *words],
                      limit)
    summary = [line for line in out.splitlines() if "SUMMARY" in line]
    if not summary:
        raise Failed("compute-sanitizer printed no summary")
    return {"summary": summary[-1].strip("= ")}


def sanitize(tool, config, precision):
    def work(run, limit):
        words = [run.program("gpu_step"), "--model", config, "--precision", precision, "--sequence", "24",
                 "--micro-batch", "2", "--micro-batches", "2", "--warmup", "0", "--repeats", "1"]
        return run_sanitizer(run, tool, words, limit)
    return work


def sanitize_test(name):
    def work(run, limit):
        return run_sanitizer(run, "memcheck", [run.program(name)], limit)
    return work


def sanitize_parts(run):
    configs = [("tiny-64", "bench/models/tiny-64.json")]
    tools = ("memcheck", "racecheck")
    if not run.emulated:
        configs += [("tiny-128", "bench/models/tiny-128.json")]
        configs += [(family, FIXTURES / family / "config.json") for family in FAMILIES]
        tools = ("memcheck", "racecheck", "synccheck", "initcheck")
    # bf16 has the kernels of training; fp64 shares the sources of fp32.
    parts = [(f"{tool} {name} bf16", 90, sanitize(tool, path, "bf16")) for tool in tools for name, path in configs]
    parts += [(f"memcheck {name} fp32", 90, sanitize("memcheck", path, "fp32")) for name, path in configs]
    # Kernels of other steps: decoding, ranks of an axis, optimizers.
    names = sorted(p.name for p in (run.pack / "bin").glob("test_*"))
    return parts + [(f"memcheck {name}", 200, sanitize_test(name)) for name in names if not run.emulated]


# ---- the program ----

MODES = {"quick": quick_parts, "bench": bench_parts, "tune": tune_parts, "sanitize": sanitize_parts}
# Parts of these modes only check, so several may share the GPU.
CONCURRENT = {"quick": 4, "sanitize": 4}


def run_mode(run):
    """The number of parts that failed."""
    run.report["parts"].pop("device", None)
    for part in identity_parts(run):
        run.report["parts"].pop(part[0], None)  # of this run, not of an earlier one
    failures = sum(not run_part(run, *part) for part in identity_parts(run))
    parts = MODES[run.mode](run)
    for name, _, _ in parts:
        if name not in run.report["parts"]:
            run.store(name, {"state": "not reached", "seconds": 0})
    with concurrent.futures.ThreadPoolExecutor(CONCURRENT.get(run.mode, 1)) as pool:
        failures += sum(not ok for ok in pool.map(lambda part: run_part(run, *part), parts))
    return failures


def main():
    if len(sys.argv) != 5 or sys.argv[3] not in MODES:
        sys.exit(f"usage: {Path(sys.argv[0]).name} PACK OUT {'|'.join(MODES)} SECONDS")
    run = Run(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
    if not find_out_device(run):
        sys.exit(3)
    failures = run_mode(run)
    print(f"{failures} parts failed; {run.out / 'report.md'}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
