#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a compiler with -Xptxas=-v and keeps what ptxas tells of each kernel in OBJECT.log; warnings and
# errors are printed.   tools/nvcc_log.sh COMPILER ... -o OBJECT ...
log=/dev/null
for ((i = 1; i < $#; i++)); do [ "${!i}" = -o ] && i=$((i + 1)) && log=${!i}.log; done
"$@" 2>"$log"
status=$?
grep -vE '^(ptxas info|    [0-9]+ bytes stack frame)' "$log" >&2
exit $status
