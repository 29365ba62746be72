#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same run on one rank; on four ranks (two pipeline stages x two data-parallel ranks); on four
# processes if mpirun is installed; and resumed from the middle on two tensor-parallel ranks. Losses
# agree to rounding.
#   examples/04_ranks.sh [ORTHANT]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$(dirname "$0")/01_train.sh" "$orthant" "$folder" >/dev/null
cd "$folder"
common=(--set batch.micro_batch_size=1 --set steps=20 --set checkpoint.every=10 --set log.every=5 --set threads=1)
stages=(--set parallel.pp=2 --set parallel.dp=2)

"$orthant" train run.yaml "${common[@]}" --set output=one
"$orthant" train run.yaml "${common[@]}" "${stages[@]}" --set output=four --ranks 4
runs=(one four)

# Without --ranks, the processes of the launcher are the ranks. Containers may run this as root.
if mpirun --version 2>/dev/null | grep -q "Open MPI" && ldd "$orthant" | grep -q "libmpi\.so"; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mpirun --oversubscribe -n 4 "$orthant" train run.yaml "${common[@]}" "${stages[@]}" --set output=mpi
  cmp {four,mpi}/checkpoints/step-00000020/model.safetensors
  echo "four processes: the same bits as four threads"
  runs+=(mpi)
else
  echo "no mpirun of Open MPI, or built without it: processes skipped"
fi

# A run can start from any checkpoint on any mesh.
"$orthant" train run.yaml "${common[@]}" --set output=two --ranks 2 --set parallel.tp=2 \
  --resume four/checkpoints/step-00000010
runs+=(two)

losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
echo "step  loss: ${runs[*]}"
table=$(losses one)
for name in "${runs[@]:1}"; do table=$(join -a 1 <(sort <<<"$table") <(losses "$name" | sort)); done
sort -n <<<"$table" | awk '
  NR % 5 == 0 { print }
  { for (i = 3; i <= NF; i++) if ((d = $i / $2 - 1) > worst || (d = -d) > worst) worst = d }
  END {
    printf "largest relative difference of a loss: %.1e\n", worst
    if (worst < 1e-5) print "losses agree"
    exit worst >= 1e-5
  }'
