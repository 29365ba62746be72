#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: any machine. `orthant bench` writes a cluster file that reads back, here and by default in the
# user's folder; figures are positive.
set -euo pipefail
orthant=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"$orthant" bench --ranks 2 --out two.yaml --json >two.json
grep -q '"ranks": 2' two.json
grep -q 'name: this-machine' two.yaml
for key in flops_fp32 flops_fp64 memory_bytes_per_s other_flops_per_s; do
  awk -v key="$key:" '$1 == key { found = $2 > 0 } END { exit !found }' two.yaml ||
    { echo "$key is missing or not positive"; cat two.yaml; exit 1; }
done
XDG_CONFIG_HOME=$work/user "$orthant" bench --ranks 1 >said.txt
test -f user/orthant/clusters/this-machine.yaml
grep -q 'this-machine.yaml' said.txt
