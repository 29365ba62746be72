#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints what ptxas told of each kernel when the build compiled it for sm_90a (OBJECT.log of
# tools/nvcc_log.sh): registers of a thread, bytes of static shared memory, source and name, below a
# line with the compiler's version. On stderr, what no kernel may have on any architecture: warnings,
# advice (as that products of warpgroups wait for each other), spills and stack frames.
#   tests/cuda/registers.sh [BUILD]        exit 77: this build has no nvcc; 1: a kernel has such
set -euo pipefail
objects=${1:-build}/CMakeFiles/orthant_cuda.dir/src/machine/kernels/cuda
compgen -G "$objects/*.cu.o.log" >/dev/null || { echo "skipped: built without nvcc" >&2; exit 77; }
nvcc=$(sed -n 's/^OT_NVCC_FOUND:[A-Z]*=//p' "${1:-build}/CMakeCache.txt")
echo "# registers, bytes of static shared memory, source and kernel: $("$nvcc" --version | grep -o 'V[0-9][0-9.]*')"
for source in src/machine/kernels/cuda/*.cu; do
  name=${source##*/}
  c++filt <"$objects/$name.o.log" | sed "s/^/${name%.cu} /"
done | awk '
  # template<...>::kernel<...>(parameters): without namespaces, result and parameters.
  function name_of(text,   i, depth, letter) {
    gsub(/\(anonymous namespace\)::/, "", text)
    sub(/^void /, "", text)
    for (i = 1; i <= length(text); i++) {
      letter = substr(text, i, 1)
      depth += (letter == "<") - (letter == ">")
      if (letter == "(" && depth == 0) return substr(text, 1, i - 1)
    }
    return text
  }
  function refuse(what) { print $1 ".cu: " where ": " what | "cat >&2"; bad = 1 }
  { file = $1; text = substr($0, length($1) + 2) }
  text ~ /^ptxas info *: Compiling entry function/ {
    match(text, /\047.*\047 for/)
    kernel = where = name_of(substr(text, RSTART + 1, RLENGTH - 6))
    architecture = substr(text, RSTART + RLENGTH)
    next
  }
  text ~ /^ptxas info *: Function properties for / {
    where = name_of(substr(text, index(text, " for ") + 5))
    next
  }
  text ~ /bytes stack frame/ {
    if (text !~ /^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/)
      refuse(text architecture)
    next
  }
  text ~ /^ptxas info *: Used / {
    registers = text; sub(/.*: Used /, "", registers); sub(/ .*/, "", registers)
    shared = 0
    if (match(text, /[0-9]+ bytes smem/)) shared = substr(text, RSTART) + 0
    if (architecture ~ /\047sm_90a\047$/) printf "%3d %6d  %s %s\n", registers, shared, file, kernel
    next
  }
  text !~ /^ptxas info/ || text ~ /\(C[0-9]+\)/ { where = "nvcc"; refuse(text) }
  END { exit bad }' | LC_ALL=C sort -k3
