# SPDX-License-Identifier: Apache-2.0
# Sourced by test scripts: a box (tools/cluster_box.sh) of two hosts with two ranks each, in whose
# shared folder the script goes on, next to tokens named `train`. Sets `root`, `orthant`, `box`, a temporary
# folder `work`, `family` and `launch` (mpi_launch.sh); `fail` shows $work/err.txt. Exits the script with
# 77 (skipped) without the right to make namespaces or without Open MPI.
#   . tests/support/two_hosts.sh ORTHANT DISK      DISK: size of each host's own disk, 32M
orthant=$(realpath "$1")
root=$PWD box=$PWD/tools/cluster_box.sh sources=$PWD/src/core/base
why=$("$box" check 2>&1) || { echo "$why"; exit 77; }
. tests/support/mpi_launch.sh "$orthant"
[ "$family" = openmpi ] || { echo "skipped: a box needs Open MPI"; exit 77; }
work=$(mktemp -d)
CLUSTER_BOX=$("$box" up --ranks-per-host 2 --disk "$2") || exit 1
export CLUSTER_BOX
# A launcher that hangs ends with its box.
trap '"$box" down; rm -rf "$work"' EXIT
cd "$CLUSTER_BOX/shared" || exit 1
fail() { echo "FAILED: $*" >&2; tail -n 30 "$work"/err.txt >&2; exit 1; }
"$orthant" tokenize --tokenizer bytes --out train "$sources"/*.h >/dev/null || exit 1
