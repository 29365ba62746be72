#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts, for each module, what style forbids and old code still has; each count may only fall. Prints
# a line for each count that is not that of tools/ratchet.txt.
#   tools/ratchet.sh [accept]     accept: writes the counts, none of which may be larger, to the file
#   comments   comments that begin with a fragment: "Of", "What", "That of", "Those of"
#   verbs      functions named take, tell, look, say, ask, give, meet, mind, alone or before "_"
#   unused     functions of headers that no program calls: only tests do, or nobody
set -euo pipefail
cd "$(dirname "$0")/.."
kept=tools/ratchet.txt
sources() { find "$@" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort; }

# Each function declared in a header, and how often code names it.
unused() {
  sources src bench examples web | xargs awk '
    { gsub(/\/\/.*/, "") }
    FILENAME ~ /\.h$/ && /^[a-z]/ && !/^(static|typedef|struct|enum|extern)/ && match($0, /ot_[a-z0-9_]+\(/) {
      name = substr($0, RSTART, RLENGTH - 1)
      if (!(name in module)) { split(FILENAME, part, "/"); module[name] = part[1] == "src" ? part[3] : "" }
    }
    { line = $0; while (match(line, /ot_[a-z0-9_]+/)) { uses[substr(line, RSTART, RLENGTH)]++; line = substr(line, RSTART + RLENGTH) } }
    # Names that the compute type completes (kernels/real.h).
    END { for (name in module) if (module[name] != "" && name !~ /_f(32|64)$/ && uses[name] <= 2) print module[name], "unused" }'
}

counts() {
  {
    sources src | xargs awk '{ split(FILENAME, part, "/") }
      /^ *\/\/ (Of|What|That of|Those of)([^a-zA-Z]|$)/ { print part[3], "comments" }
      /^[a-z].*[ *](ot_)?(take|tell|look|say|ask|give|meet|mind)(_[a-z0-9_]*)?\(/ { print part[3], "verbs" }'
    unused
  } | sort | uniq -c | awk '{ print $2, $3, $1 }'
}

found=$(mktemp)
trap 'rm -f "$found"' EXIT
counts >"$found"
awk -v accept="${1:-}" '
  FILENAME == "tools/ratchet.txt" { kept[$1 " " $2] = $3; next }
  { found[$1 " " $2] = $3 }
  END {
    for (key in found) {
      if (found[key] > kept[key]) print key ": " found[key] ", at most " kept[key] + 0 " (tools/ratchet.sh)"
    }
    for (key in kept) {
      if (found[key] < kept[key] && !accept) print key ": " found[key] + 0 ", fewer than " kept[key] ": run tools/ratchet.sh accept"
    }
  }' "$kept" "$found" | tee "$found.new"
status=0
[ ! -s "$found.new" ] || status=1
rm -f "$found.new"
[ "${1:-}" != accept ] || [ $status = 1 ] || cp "$found" "$kept"
exit $status
