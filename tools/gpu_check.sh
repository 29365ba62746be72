#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures Orthant on a machine with a GPU; writes report.md, report.json, log.txt to OUT.
#   tools/gpu_check.sh PACK OUT quick|bench|tune|sanitize [SECONDS]
# PACK: of tools/gpu_pack.sh, or a folder with the same contents; run in the source tree.
#   quick     every kernel against its tests and twice for equal bits, whole steps, meshes, training
#   bench     steps of models next to PyTorch, operators, attention, memory, expected times
#   tune      variants of kernels and algorithms of products, and which of them win
#   sanitize  compute-sanitizer over small steps of every family
# A report.json that is in OUT already keeps what other modes found; parts that passed are not run
# again. Each mode stops after SECONDS (570): what it did not reach is named. Exit code 1: a part
# failed.
set -uo pipefail
usage='usage: tools/gpu_check.sh PACK OUT quick|bench|tune|sanitize [SECONDS]'
pack=$(realpath "${1:?$usage}") out=${2:?$usage} mode=${3:?$usage} seconds=${4:-570}
begin=$(date +%s)
tools=$(dirname "$(realpath "$0")")
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
