#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures Orthant on a machine with a GPU; writes report.md, report.json, log.txt to OUT.
#   tools/gpu_check.sh quick|mend|bench|tune|sanitize OUT [SECONDS]
#   quick     every kernel against its tests and twice for equal bits, whole steps, meshes, training
#   mend      what failed in the first report of a GPU, fault by fault (docs/gpu.md)
#   bench     steps of models next to PyTorch, operators, attention, memory, expected times
#   tune      variants of kernels and algorithms of products, and which of them win
#   sanitize  compute-sanitizer over small steps of every family
# It runs what `make gpu-pack` left in build/gpu of this source tree; OT_GPU_PACK names another pack, or
# a folder with the same contents.
# A report.json that is in OUT already keeps what other modes found; parts that passed are not run
# again. Each part has its own time; a mode stops after SECONDS (quick 120, mend 60, bench 240, tune
# 200, sanitize 570): what it did not reach is named. Exit code 0: all parts passed, 1: a part failed,
# 2: wrong usage, 3: no GPU or no pack.
set -uo pipefail
usage='usage: tools/gpu_check.sh quick|mend|bench|tune|sanitize OUT [SECONDS]'
mode=${1:-} out=${2:-}
case $mode in
  quick) seconds=120 ;;
  mend) seconds=60 ;;
  bench) seconds=240 ;;
  tune) seconds=200 ;;
  sanitize) seconds=570 ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
[ -n "$out" ] || { echo "$usage" >&2; exit 2; }
seconds=${3:-$seconds}
begin=$(date +%s)
tools=$(dirname "$(realpath "$0")")
pack=$(realpath -m "${OT_GPU_PACK:-$tools/../build/gpu/pack.tar.xz}")
[ -e "$pack" ] || { echo "error: no pack ($pack)" >&2
  echo 'help: run `make gpu-pack` where nvcc 13 is and bring its build/gpu here' >&2; exit 3; }
mkdir -p "$out" || exit 3
out=$(realpath "$out")
if [ -f "$pack" ]; then
  here=$(mktemp -d)
  trap 'rm -rf "$here"' EXIT
  tar -C "$here" -xJf "$pack" || exit 3
  pack=$here
fi
export OT_TEST_DEVICE=cuda
# CUDA's libraries, of the packages of PyTorch.
if [ -z "${OT_CUDA_LIBRARIES:-}" ]; then
  OT_CUDA_LIBRARIES=$(python3 -c 'import glob, os, nvidia
names = ["libcublasLt.so.13", "libnccl.so.2"]
found = [glob.glob(os.path.join(folder, "**", name), recursive=True)
         for name in names for folder in nvidia.__path__]
print(":".join(os.path.dirname(paths[0]) for paths in found if paths))' 2>/dev/null)
  export OT_CUDA_LIBRARIES
fi
cd "$tools/.." || exit 3
export OT_TEST_SOURCE=$PWD
python3 tools/gpu_parts.py "$pack" "$out" "$mode" $((seconds - ($(date +%s) - begin)))
