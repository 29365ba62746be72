#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: first
# run: any machine with Python. tools/gpu_check.sh from end to end on the emulated GPU, with tiny
# models: every mode writes its part of the report; parts that fail, hang or lack something are named
# and take no other with them.
set -euo pipefail
command -v python3 >/dev/null || exit 77
. tests/cuda/emulated.sh "${1:-build/orthant}"
programs=$(dirname "$emulated")
export PYTHONDONTWRITEBYTECODE=1
unset OT_CUDA_LIBRARIES

# A pack of emulated programs, one that fails, a compute-sanitizer that finds nothing, no PyTorch.
mkdir -p pack/bin tools/torch
ln -s "$programs/test_rope" "$programs/test_muon" "$programs/test_head_weights" pack/bin
for name in gpu_limits gpu_ops gpu_step orthant; do ln -s "$programs/${name}_emulated" "pack/bin/$name"; done
printf '#!/bin/sh\necho "[  FAILED  ] a kernel"\nexit 3\n' >pack/bin/test_broken
printf '#!/bin/sh\nexit 77\n' >pack/bin/test_cuda_nccl
echo 'raise ImportError' >tools/torch/__init__.py
cat >tools/compute-sanitizer <<'SCRIPT'
#!/bin/sh
[ "$1" != --version ] || exec echo 'Version 2025.3.1.0'
while [ "$1" != --print-limit ]; do
  case $1 in --tool) tool=$2 ;; --kernel-name-exclude) excluded=$2 ;; esac
  shift
done
[ "$tool" != racecheck ] || [ "$excluded" = kernel_substring=hopper_key_gradient_kernel ] || exit 1
shift 2
"$@" || exit 1
[ "$tool" = racecheck ] || { echo "========= ERROR SUMMARY: 0 errors"; exit 0; }
echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
exit 9
SCRIPT
cat >tools/nvidia-smi <<'SCRIPT'
#!/bin/sh
case "$*" in
  *-lms*) while echo '1980, 2619, 650.5, 61' && echo '345, 2619, 70.1, 40' && echo '[N/A], 1, 2, 3'; do sleep 0.1; done ;;
  *) echo 'a GPU, 580.1, 81559 MiB, 345 MHz, 2619 MHz, 1980 MHz, 2619 MHz, 700.00 W, 70.11 W, 30' ;;
esac
SCRIPT
chmod +x pack/bin/test_broken pack/bin/test_cuda_nccl tools/compute-sanitizer tools/nvidia-smi
export PYTHONPATH=$folder/tools

# run MODE STATUS: the exit code of the mode.
run() {
  local status=0
  PATH=$folder/tools:$PATH OT_GPU_PACK=pack "$here/tools/gpu_check.sh" "$1" out 5000 >"$1.txt" 2>&1 || status=$?
  [ "$status" = "$2" ] || fail "$1: exit code $status: $(cat "$1.txt")"
}
run quick 1
python3 - <<'PYTHON'
import json
report = json.load(open("out/report.json"))
assert report["modes"]["bench"] == report["modes"]["tune"] == "not run yet", report["modes"]
assert "## Attention\n\nnot run yet" in open("out/report.md").read()
PYTHON
run mend 1
run bench 0
run tune 0
run sanitize 1
python3 - <<'PYTHON'
import json
report = json.load(open("out/report.json"))
parts = report["parts"]

def is_state(name, state, text=""):
    part = parts[name]
    if part["state"] != state or text not in part.get("error", ""):
        raise SystemExit(f"FAILED: {name}: {part['state']}, {part.get('error')} in place of {state}, {text}")

model = "qwen2.5-1.5b T1024"
for name in ("machine (quick)", "limits (bench)", "kernels rope", "kernels muon", "bits tiny-64 bf16", "training fp32",
             "training bf16", "cluster of this GPU", f"step {model}", f"step again {model}", f"operators {model}", "attention",
             f"products {model}", f"step before {model}", f"step with winners {model}", "memcheck tiny-64 bf16"):
    is_state(name, "passed")
is_state("kernels broken", "failed", "a kernel")
for name in ("G1 memory of micro-batches", "G2 a quick bench", "G5 head_weights", "G8 initial weights", "G9 rate of a run",
             "G7 initcheck of llama"):
    is_state(name, "passed")
for name in ("kernels cuda_nccl", "G6 cuda_nccl"):
    is_state(name, "skipped", "exit code 77")
is_state("G3 products", "skipped", "the pack has no test_products")
assert parts["G6 declarations of cuBLASLt"]["state"] in ("passed", "skipped"), parts["G6 declarations of cuBLASLt"]
is_state("G7 racecheck of llama", "failed", "1 hazard")
is_state("racecheck tiny-64 bf16", "failed", "1 hazard")
is_state(f"pytorch {model}", "skipped", "no PyTorch")
is_state("attention of PyTorch", "skipped", "no PyTorch")

# What a real run needs to say.
fields = {
    "machine (bench)": "date commit cores pytorch",
    "limits (bench)": "device driver library memory_bytes copy_bytes_per_s product_flops_per_s launch_s round_trip_s",
    f"step {model}": "model precision sequence micro_batch micro_batches tokens steps_s step_s tokens_per_s model_flops"
                     " mfu loss gradient_norm memory predicted_s one_micro_batch",
    f"operators {model}": "model rows", f"products {model}": "model products table"}
for name, wanted in fields.items():
    missing = set(wanted.split()) - set(parts[name]["data"])
    if missing:
        raise SystemExit(f"FAILED: {name}: no {', '.join(sorted(missing))}")
for row in parts[f"step {model}"]["data"]["one_micro_batch"]["rows"]:
    assert {"op", "key", "kind", "count", "bytes", "matrix_flops", "step_s", "predicted_s"} <= set(row), row
raced = parts[f"products {model}"]["data"]["products"]
assert raced and all(len(p["seconds"]) >= 1 for p in raced), raced
assert any(len(p["seconds"]) > 1 for p in raced), "one proposal for every product"
assert parts["machine (bench)"]["data"]["nvidia_smi"]["clocks.max.sm"] == "1980 MHz"
assert parts[f"step {model}"]["data"]["clocks"]["clocks.sm"] == 1980, parts[f"step {model}"]["data"]["clocks"]
assert parts["attention"]["data"][0]["forward_s"] > 0
for key in ("mfu", "tokens_per_s", "step_s", "memory", "simulator.step", "simulator.operator", "gaps", "floors"):
    assert f"{key}.qwen2.5-1.5b-T1024" in report["figures"], key
assert report["figures"]["memory.worst"] == 0, report["figures"]["memory.worst"]
assert report["emulated"] is True and len(report["goals"]) == 15
text = open("out/report.md").read()
for words in ("**Emulated: no figure", "## Goals", "## Steps", "## Attention", "## Operators", "## Products",
              "(`quick`)", "(`bench`)", "(`tune`)", "(`sanitize`)", "not run yet"):
    assert words in text, words
PYTHON

# Parts that passed are not run again, others are; a device that cannot be used is told.
rm pack/bin/test_broken
run quick 0
grep -q 'kernels rope' quick.txt && fail "a part that passed ran again"
OT_SHIM_FAIL=cudaGetDeviceCount:1:100 run quick 3
grep -q 'no GPU can be used' quick.txt || fail "no GPU: $(cat quick.txt)"
[ "$(ls out)" = "$(printf 'cluster.yaml\nlog.txt\nreport.json\nreport.md')" ] || fail "files: $(ls out)"

run fast 2
OT_GPU_PACK=absent "$here/tools/gpu_check.sh" quick out >absent.txt 2>&1 && fail "no pack: exit code 0"
grep -q 'no pack (.*/absent)' absent.txt || fail "no pack: $(cat absent.txt)"

# Hangs, and what comes after the end of the time.
cd "$here/tools"
python3 - "$folder" <<'PYTHON'
import json, sys, time
import gpu_parts
folder = sys.argv[1]
def wait(run, limit): return run.command(["sleep", "600"], 0.2)
def two_waits(run, limit):
    for _ in range(2): run.command(["sleep", "0.4"], limit)
def no_json(run, limit): return run.json(["echo", "no", "JSON"], limit)
run = gpu_parts.Run(folder + "/pack", folder + "/out", "bench", 600)
assert not gpu_parts.run_part(run, "hangs", 0.2, wait)
assert not gpu_parts.run_part(run, "waits twice", 0.6, two_waits)
assert not gpu_parts.run_part(run, "talks", 60, no_json)
run.end = time.monotonic() + 60
assert gpu_parts.run_part(run, "too late", 600, wait)
run.end = time.monotonic()
assert gpu_parts.run_part(run, "later", 600, wait)
parts = json.load(open(folder + "/out/report.json"))["parts"]
states = [parts[name]["state"] for name in ("hangs", "waits twice", "talks", "too late", "later")]
assert states == ["timed out", "timed out", "failed", "not reached", "not reached"], states
assert "sleep 600" in parts["hangs"]["error"] and "no JSON" in parts["talks"]["error"]

# A real GPU: what the newest report lacks comes first, and PyTorch compiles two models.
known = [f"{what} {model[0]}" for model in gpu_parts.MODELS[:2] for what in ("step", "operators", "pytorch")]
gpu_parts.known_parts = lambda run: {name: {"state": "passed", "seconds": 1} for name in known}
names = [name for name, _, _ in gpu_parts.bench_parts(run)]
assert names[0] == "cluster of this GPU" and names.index(known[0]) > names.index("attention"), names
compiled = [name for name in names if name.startswith("pytorch ")]
assert compiled == [f"pytorch {model[0]}" for model in gpu_parts.MODELS[2:4]], compiled
PYTHON
