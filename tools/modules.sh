#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads src/modules.txt.
#   tools/modules.sh WHAT [TREE]
#   includes   flags of a compiler for the folders that hold modules
#   folders    the folder of each module; pure: of those of the plan library
#   may        a line for each module: NAME:LIBRARY:MODULES, those it may include, by commas
#   table      the table of docs/architecture.md; accept: writes it there
set -euo pipefail
cd "${2:-$(dirname "$0")/..}"
rows() { awk -F ' *[|] *' '/^[a-z]/ { print $1, $2, $3 }' src/modules.txt; }
page=docs/architecture.md begin='<!-- modules -->' end='<!-- end of modules -->'

table() {
  awk -F ' *[|] *' '
    BEGIN { print "| module | contents |\n|---|---|" }
    /^[a-z]/ { printf "| `src/%s/%s` | %s |\n", $2, $3, $5 }' src/modules.txt
}

case "${1:-}" in
  includes) rows | awk '!seen[$2]++ { printf "-Isrc/%s ", $2 }' ;;
  folders) rows | awk '{ print "src/" $2 "/" $3 }' ;;
  pure) rows | awk '$1 == "plan" { printf "src/%s/%s ", $2, $3 }' ;;
  table) table ;;
  may)
    awk -F ' *[|] *' '/^[a-z]/ {
      list = "base," $3
      count = split($4, word, " ")
      for (i = 1; i <= count; i++) {
        if (word[i] == "all") list = list above
        else if (sub(/[+]$/, "", word[i])) list = list "," may[word[i]]
        else list = list "," word[i]
      }
      count = split(list, word, ",")
      list = ""
      delete seen
      for (i = 1; i <= count; i++) if (!seen[word[i]]++) list = list (i > 1 ? "," : "") word[i]
      may[$3] = list
      above = above "," $3
      print $3 ":" $1 ":" list
    }' src/modules.txt ;;
  accept)
    table >"$page.table"
    sed -i -e "/^$begin/,/^$end/{/^$begin/{p;r $page.table" -e "};/^$end/p;d}" "$page"
    rm "$page.table" ;;
  *) sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
