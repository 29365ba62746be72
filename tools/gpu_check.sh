#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures Orthant on a machine with a GPU.
#   tools/gpu_check.sh PACK.tar.xz OUT quick|bench     PACK: of tools/gpu_pack.sh; run in the source tree
#   quick   every kernel against its tests, whole steps against PyTorch's values
#   bench   steps of models: tokens/s, MFU, the time of each operator
set -uo pipefail
pack=$(realpath "$1") out=$2 what=${3:-quick}
mkdir -p "$out"
out=$(realpath "$out")
here=$(mktemp -d)
tar -C "$here" -xJf "$pack" || exit 3
export LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-} OT_TEST_DEVICE=cuda
if [ -z "${OT_CUDA_LIBRARIES:-}" ]; then
  OT_CUDA_LIBRARIES=$(python3 -c 'import glob, os, nvidia
for folder in nvidia.__path__:
    found = glob.glob(os.path.join(folder, "**", "libcublasLt.so.13"), recursive=True)
    if found: print(os.path.dirname(found[0])); break' 2>/dev/null)
  export OT_CUDA_LIBRARIES
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
echo "cuBLASLt: ${OT_CUDA_LIBRARIES:-as the system finds it}"

# The tests know their fixtures by the path of the tree that they were built in.
quick() {
  local failures=0 name
  for name in "$here"/bin/test_*; do
    if timeout 240 "$name" >"$out/${name##*/}.log" 2>&1; then
      echo "passed ${name##*/}"
    else
      echo "FAILED ${name##*/}"
      grep -E 'ERROR|FAILED' "$out/${name##*/}.log" | head -8
      failures=$((failures + 1))
    fi
  done
  echo "$failures programs failed"
}

bench() {
  local step=$here/bin/gpu_step
  "$step" --model gpt2 --micro-batch 16 --ops
  "$step" --model gpt2 --micro-batch 16 --micro-batches 4
  "$step" --model gpt2-xl --micro-batch 8 --ops
  "$step" --model qwen3-1.7b --micro-batch 8 --sequence 1024 --ops
}

"$what" 2>&1 | tee "$out/$what.txt"
