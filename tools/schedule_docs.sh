#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes docs/schedule.md from the one-line comments of the enumerators in schedule.h and op.h.
#   tools/schedule_docs.sh           writes it
#   tools/schedule_docs.sh --check   fails when it is out of date
set -euo pipefail
cd "$(dirname "$0")/.."

# Rows "name | meaning" of enumeration $2 in file $1; $3 is the prefix to drop.
rows() {
  awk -v name="$2" -v prefix="$3" '
    function flush() {
      if (word == "") return
      gsub(/\|/, "\\|", text)
      print "| `" tolower(word) "` | " text " |"
      word = ""
    }
    $0 ~ "^typedef enum " name " " { inside = 1; next }
    inside && /^}/ { exit }
    !inside { next }
    /^        +\/\// { text = text " " substr($0, index($0, "//") + 3); next }
    { flush() }
    /^  OT_/ && index($0, "//") > 0 {
      word = $1; sub(",", "", word); sub(prefix, "", word)
      text = substr($0, index($0, "//") + 3)
    }
    END { flush() }' "$1"
}

table() {
  printf '\n## %s\n\n%s\n\n| | |\n|---|---|\n' "$1" "$2"
  rows "$3" "$4" "$5"
}

page() {
  cat <<'TEXT'
<!-- Written by tools/schedule_docs.sh from the comments of the enumerators; edit them there. -->
# The schedule

The schedule is the step program of one rank. A step is an *order*: a list of *entries*, the instructions of the
program. Each entry runs a *segment* for a block and a micro-batch, with a base address for each kind of buffer. A
segment is a list of tasks, and each operand of a task is a base and an offset. `orthant schedule RUN.yaml` prints
orders and segments; [internals/step.md](internals/step.md) explains how they are built.
TEXT
  table "Task kinds" "What a task does." src/step/schedule/schedule.h ot_task_kind OT_TASK_
  table "Phases" "The part of the step that an entry belongs to." src/step/schedule/schedule.h ot_phase OT_PHASE_
  table "Lanes" "Tasks of one lane run in order; lanes run concurrently." src/step/schedule/schedule.h ot_lane OT_LANE_
  table "Bases" "The buffer that an operand's offset is relative to." src/step/schedule/schedule.h ot_base OT_BASE_
  table "Operators" "Inputs -> outputs; \`?\` marks an optional operand, *acc* an output that is accumulated into, *effect* an output that only reports." src/step/ops/op.h ot_op_kind OT_OP_
}

case "${1:-}" in
  --check) diff <(page) docs/schedule.md >/dev/null || { echo "docs/schedule.md is out of date: run tools/schedule_docs.sh"; exit 1; } ;;
  "") page > docs/schedule.md ;;
  *) echo "usage: tools/schedule_docs.sh [--check]" >&2; exit 2 ;;
esac
