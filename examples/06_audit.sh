#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Finds failures before a run: attention across documents, bf16 gradient reductions over a thousand
# ranks, frozen moments, lost updates; a healthy run on four ranks is clean.
#   examples/06_audit.sh [ORTHANT]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$(dirname "$0")/01_train.sh" "$orthant" "$folder" >/dev/null 2>&1
cd "$folder"

# An audit with a finding has exit code 1 and names the mechanism.
finds() {  # finds MECHANISM AUDIT SETTINGS...
  local mechanism=$1 code=0
  shift
  "$orthant" audit "$1" run.yaml "${@:2}" >report.txt || code=$?
  [ "$code" = 1 ] || { cat report.txt; echo "exit code $code in place of 1"; exit 1; }
  grep -m1 "^finding 1: $mechanism" report.txt
}

finds document_mask causality --set data.document_mask=false
finds biased_reduction precision --planned-ranks 1024 \
  --set precision.reduce=bf16 --set precision.accumulate=wire
finds second_moment_frozen precision --set precision.moments=bf16 --set 'optimizer.betas=[0.9, 0.999]'
finds updates_lost precision --set precision.compute=bf16 --set precision.master=bf16 \
  --set optimizer.lr=1e-5 --set learning_rate.min=0

# Clean audits have exit code 0.
"$orthant" audit causality run.yaml | head -1
"$orthant" audit precision run.yaml --planned-ranks 64 | head -1
"$orthant" audit drift run.yaml | head -1
"$orthant" audit ranks run.yaml --ranks 4 --set batch.micro_batch_size=1 --set parallel.tp=2
