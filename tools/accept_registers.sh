#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Replaces the table of the registers of CUDA kernels by that of a build with nvcc. Review the diff
# before you commit it.  tools/accept_registers.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
tests/cuda/registers.sh "${1:-build}" >tests/cuda/registers.new
mv tests/cuda/registers.new tests/cuda/registers.txt
git --no-pager diff --stat -- tests/cuda/registers.txt || true
