#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: serial. No program searches the current folder for shared libraries: not as built, and not as
# installed. An empty or relative entry of its run path would run code from a downloaded folder.
set -euo pipefail
program=$(realpath "$1")
build=$(dirname "$program")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/installed" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
failures=0
checked=0
for file in "$program" "$work/installed/bin/orthant" "$build"/bench/* "$build"/tests/test_*; do
  [ -x "$file" ] || continue
  checked=$((checked + 1))
  path=$(readelf -d "$file" | sed -n 's/.*R\(UN\)\{0,1\}PATH.*\[\(.*\)\]$/\2/p')
  [ -n "$path" ] || continue
  while IFS= read -r entry; do
    case $entry in
      /*) ;;
      *) echo "$file: run path $path has the entry '$entry'"; failures=$((failures + 1)) ;;
    esac
  done <<<"${path//:/$'\n'}"
done

# Seen from a folder that has a library of the program's own list.
library=$(readelf -d "$program" | sed -n 's/.*NEEDED.*\[\(libutf8proc.*\)\]$/\1/p')
echo 'int planted(void); int planted(void) { return 1; }' >"$work/planted.c"
cc -shared -fPIC -o "$work/$library" "$work/planted.c" -Wl,-soname,"$library"
(cd "$work" && "$program" --version >/dev/null) || { echo "$program loads $library from its folder"; exit 1; }
[ "$checked" -gt 2 ] && [ "$failures" = 0 ] || { echo "$checked programs, $failures entries"; exit 1; }
echo "$checked programs search no folder by chance"
