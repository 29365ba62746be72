#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: builds with nvcc, with OT_TESTS=full in the environment (minutes). All kernels compile without
# warnings, spills and stack frames for GPUs before and after Hopper.
set -euo pipefail
[ "${OT_TESTS:-}" = full ] || { echo 'skipped: OT_TESTS is not full'; exit 77; }
build=$(dirname "$(realpath "${1:-build/orthant}")")
grep -q '^OT_NVCC_FOUND:[A-Z]*=/' "$build/CMakeCache.txt" || { echo 'skipped: built without nvcc'; exit 77; }
cmake -S . -B "$build/architectures" -G Ninja -DOT_CUDA=ON -DOT_MPI=OFF \
  '-DOT_CUDA_ARCHITECTURES=80-real;100-real' >/dev/null
cmake --build "$build/architectures" --target orthant_cuda >"$build/architectures/log" 2>&1 ||
  { tail -20 "$build/architectures/log"; exit 1; }
tests/cuda/registers.sh "$build/architectures" >/dev/null
