#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what a machine with a GPU needs to test and measure Orthant: programs built with nvcc for a
# common processor, the libraries that they load, without the C library and CUDA, and presets.
#   tools/gpu_pack.sh BUILD OUT.tar.xz     BUILD: a build folder configured with -DOT_CUDA=ON
set -euo pipefail
build=$(realpath "$1") out=$(realpath -m "$2")
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
mkdir -p "$pack/bin" "$pack/lib"
# Of the test programs, those that use the GPU.
tests=$({
  ctest --test-dir "$build" -N -R '_cuda$' | sed -n 's/.*Test *#[0-9]*: \(test_[a-z0-9_]*\)_cuda$/\1/p'
  basename -s .c "$(dirname "$0")"/../tests/cuda/test_*.c
} | sort -u)
for program in "$build/orthant" $(sed "s|^|$build/tests/|" <<<"$tests") "$build"/bench/gpu_*; do
  [ -f "$program" ] && [ -x "$program" ] && strip -o "$pack/bin/${program##*/}" "$program"
done
# Libraries of the C library's package belong to the machine that loads them.
system='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread)[.-]'
for program in "$pack"/bin/*; do ldd "$program"; done | awk '$2 == "=>" { print $3 }' | sort -u |
  while read -r library; do
    [[ ${library##*/} =~ $system ]] || cp -L "$library" "$pack/lib/"
  done
strip "$pack"/lib/* 2>/dev/null || true
cp -r "$(dirname "$0")/../presets" "$pack/presets"
# Headers that the packages of PyTorch lack, for the check of declarations.
headers=$(sed -n 's/^set(CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES "\([^";]*\).*/\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake)
mkdir "$pack/include"
cp -r "$headers/crt" "$pack/include/" || exit 3
git -C "$(dirname "$0")" describe --always --abbrev=40 --dirty >"$pack/commit" 2>/dev/null || true
# The programs have most of their code in common: the dictionary holds several of them.
XZ_OPT=--lzma2=preset=1,dict=128MiB tar -C "$pack" -cJf "$out" bin lib presets include commit
ls -l "$out" | awk '{ printf "%s: %.1f MB\n", $NF, $5 / 1e6 }'
