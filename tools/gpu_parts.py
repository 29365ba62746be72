#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of one mode of tools/gpu_check.sh, each within its own limit of time, and writes
the report after each of them (tools/gpu_report.py).

    tools/gpu_parts.py PACK OUT MODE SECONDS      called by tools/gpu_check.sh, which sets the paths

States of parts: tools/gpu_run.py. On an emulated GPU all models are tiny, and the report says that
it is emulated.
"""

import concurrent.futures
import contextlib
import datetime
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import gpu_mend
import gpu_report
from gpu_run import ROOT, Failed, Run, Skipped, TimedOut, run_part, run_test, temporary

FIXTURES = ROOT / "tests" / "fixtures" / "parity"

# name, config, tokens of a sequence, sequences of a micro-batch, micro-batches of a step, head
MODELS = [
    ("qwen2.5-1.5b T1024", "bench/models/qwen2.5-1.5b.json", 1024, 16, 8, "chunked"),
    ("gpt2-1.5b T1024", "presets/models/gpt2-xl.json", 1024, 16, 8, "plain"),
    ("llama3.2-1b T4096", "bench/models/llama3.2-1b.json", 4096, 4, 8, "chunked"),
    ("llama3.2-1b T8192", "bench/models/llama3.2-1b.json", 8192, 2, 8, "chunked"),
    ("gpt2-124m T1024", "presets/models/gpt2.json", 1024, 32, 8, "plain"),
]
# On an emulated GPU, under the same names.
TINY_MODELS = [(MODELS[0][0], "bench/models/tiny-64.json", 16, 1, 2, "chunked")]
FAMILIES = ["gpt2", "llama", "gemma2-packed", "mixtral-balanced", "deepseek-v3", "llama-residuals"]


def models_of(run):
    return TINY_MODELS if run.emulated else MODELS


def known_parts(run):
    """Parts of the newest report in docs/gpu/, by name: their times, and what has a figure already."""
    report = None if run.emulated else gpu_report.newest(ROOT)[1]
    return report["parts"] if report else {}


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


def find_headers(run, names):
    """Folders that have `names`: of the library, of the packages of PyTorch, of CUDA, of the pack."""
    folders = [Path(folder).parent / "include"
               for folder in os.environ.get("OT_CUDA_LIBRARIES", "").split(":") if folder]
    with contextlib.suppress(ImportError):
        import nvidia
        folders += [Path(f) for root in nvidia.__path__ for f in glob.glob(f"{root}/**/include", recursive=True)]
    folders += [Path(f) for pattern in ("include", "targets/*/include")
                for f in glob.glob(f"/usr/local/cuda*/{pattern}")]
    folders.append(run.pack / "include")
    found = [next((f for f in folders if (f / name).is_file()), None) for name in names]
    missing = [name for name, folder in zip(names, found) if not folder]
    if missing:
        raise Skipped(f"no {', '.join(missing)} on this machine")
    return found


def check_abi(run, limit):
    """Declarations of cuBLASLt against its header, where that and a compiler are."""
    folders = find_headers(run, ("cublasLt.h", "library_types.h", "crt/host_defines.h"))
    compiler = shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise Skipped("no C++ compiler")
    run.command([compiler, "-std=c++17", "-fsyntax-only", *(f"-I{group}" for group in sorted(glob.glob("src/*/"))),
                 *(word for folder in folders for word in ("-isystem", folder)), "tests/cuda/lt_abi.cc"], limit)
    return {"header": str(folders[0])}


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
    parts = [(f"kernels {name[5:]}", 60, run_test(name)) for name in names]
    configs = [("tiny-64", "bench/models/tiny-64.json")]
    if not run.emulated:
        configs += [("tiny-128", "bench/models/tiny-128.json")]
        configs += [(f, FIXTURES / f / "config.json") for f in FAMILIES]
    precisions = ("bf16",) if run.emulated else ("bf16", "fp32", "fp64")
    parts += [(f"bits {name} {p}", 60, compare_bits(path, p)) for name, path in configs for p in precisions]
    parts += [("training fp32", 60, train_curve("fp32", 2e-5)),
              ("training bf16", 60, train_curve("bf16", 5e-3))]
    parts += [(name, 60, run_test(name)) for name in whole if (run.pack / "bin" / name).is_file()]
    # The longest ones first, so that none runs alone at the end.
    known = known_parts(run)
    parts.sort(key=lambda part: -known.get(part[0], {}).get("seconds", 0))
    # Kernels that misunderstand the hardware can end the device's context, so they come last.
    hopper = [(f"kernels {name[5:]} hopper", 60, run_test(name, {"OT_ATTENTION": "hopper"}))
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


PYTORCH_MODELS = 2  # of a run: each takes a minute to compile


def bench_parts(run):
    """The measured cluster, which expected times need, then what the newest report lacks."""
    models, known = models_of(run), known_parts(run)

    def is_known(group):
        return all(known.get(name, {}).get("state") == "passed" for name, _, _ in group)

    groups = [[(f"step {m[0]}", 40, our_step(m, ["--ops"]))] for m in models]
    groups += [[("attention", 30, our_attention)], [("attention of PyTorch", 30, pytorch_attention)]]
    groups += [[(f"operators {m[0]}", 20, our_operators(m))] for m in models]
    groups.sort(key=is_known)
    others = [[(f"pytorch {m[0]}", 95, pytorch_step(m))] for m in models]
    others.sort(key=is_known)
    chosen = {group[0][0] for group in others[:PYTORCH_MODELS]}
    for m in models:
        if f"pytorch {m[0]}" in chosen:
            groups.append([(f"pytorch {m[0]}", 95, pytorch_step(m)), (f"step again {m[0]}", 40, our_step(m))])
    return [("cluster of this GPU", 45, measure_cluster)] + [part for group in groups for part in group]


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
    models = models_of(run)
    parts = [(f"attention {v}", 30, attention_variant(v)) for v in ("mma", "hopper")]
    parts += [(f"products {m[0]}", 25, race(m)) for m in models]
    for m in dict.fromkeys((models[0], models[-1])):
        parts += [(f"step before {m[0]}", 40, our_step(m)), (f"step with winners {m[0]}", 40, step_with_winners(m))]
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

def mend_parts(run):
    racecheck, initcheck = (sanitize(tool, FIXTURES / "llama" / "config.json", "bf16")
                            for tool in ("racecheck", "initcheck"))
    more = [("G6 declarations of cuBLASLt", 20, check_abi),
            ("G7 racecheck of attention", 50, sanitize("racecheck", "bench/models/tiny-128.json", "bf16")),
            ("G7 racecheck of llama", 50, racecheck), ("G7 initcheck of llama", 50, initcheck)]
    return gpu_mend.parts_of(run) + more


MODES = {"quick": quick_parts, "mend": mend_parts, "bench": bench_parts, "tune": tune_parts,
         "sanitize": sanitize_parts}
# Parts of these modes only check, so several may share the GPU, but for those that gpu_mend.ALONE names.
CONCURRENT = {"quick": 16, "mend": 8, "sanitize": 4}


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
    alone = [part for part in parts if part[0] in gpu_mend.ALONE]
    failures += sum(not run_part(run, *part) for part in alone)
    together = min(CONCURRENT.get(run.mode, 1), os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(together) as pool:
        rest = [part for part in parts if part not in alone]
        failures += sum(not ok for ok in pool.map(lambda part: run_part(run, *part), rest))
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
