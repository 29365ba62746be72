#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The log of a run of 100 steps on 8 ranks that failed once, for docs/report.md.
#   tests/docs/example_run.sh DIRECTORY
set -euo pipefail
mkdir -p "$1"
cat >"$1/events.jsonl" <<'JSON'
{"event":"start","time":1700000030,"step":0,"ranks":8,"attempt":1,"from":"nothing","last_step":0,"load_seconds":30}
{"event":"first_step","time":1700000034,"step":1}
{"event":"save","time":1700000117,"step":40,"seconds":5,"blocked_seconds":5,"bytes":64000000000}
{"event":"failure","time":1700000160,"attempt":1,"kind":"rank","rank":5,"host":"n1","exit":137,"detail":"killed"}
{"event":"restart","time":1700000170,"attempt":2,"ranks":8,"waited_seconds":10}
{"event":"start","time":1700000210,"step":40,"ranks":8,"attempt":2,"from":"checkpoint","last_step":55,"lost_seconds":30,"load_seconds":35}
{"event":"first_step","time":1700000213,"step":41}
{"event":"save","time":1700000256,"step":60,"seconds":5,"blocked_seconds":5,"bytes":64000000000}
{"event":"save","time":1700000341,"step":100,"seconds":5,"blocked_seconds":5,"bytes":64000000000}
{"event":"stop","time":1700000341,"step":100,"reason":"end"}
JSON
for i in $(seq 100); do
  printf '{"step":%d,"loss":%d.%02d,"tokens":%d,"step_seconds":2,"tokens_per_second":262144,"mfu":0.4,' \
    "$i" $((9 - i / 20)) $((95 - i % 20 * 5)) $((i * 524288))
  printf '"predicted_step_seconds":1.9,"exposed_seconds":{"tp":0.1,"cp":0,"ep":0,"pp":0,"dp":0.06},'
  printf '"memory_peak_bytes":61000000000,"memory_planned_bytes":62000000000}\n'
done >"$1/metrics.jsonl"
