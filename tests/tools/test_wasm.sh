#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run: machines with clang and the headers of wasi-libc. The planning library compiles for
# WebAssembly without warnings and needs only memory and the compiler's runtime from its host. Where the
# page is built, its module has been compiled and linked from the same files, without imports: then
# only those that it lacks (all with OT_TESTS=full).
set -euo pipefail
clang=$(command -v clang || ls /usr/bin/clang-[0-9]* 2>/dev/null | grep -x '.*clang-[0-9]*' | head -1 || true)
[ -n "$clang" ] || { echo "skipped: no clang"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo '#include <string.h>' >"$work/probe.c"
flags=(--target=wasm32-wasi -std=c17 -O1 -ffp-contract=off -Wall -Wextra -Werror)
flags+=($(tools/modules.sh includes))
"$clang" "${flags[@]}" -c "$work/probe.c" -o "$work/probe.o" 2>/dev/null ||
  { echo "skipped: clang without wasi-libc"; exit 77; }

list() { find $(tools/modules.sh pure) -name '*.c'; }
page=$(dirname "${1:-build/orthant}")/page
lacks() {  # whether the page has no object of this file that is at least as new
  local object
  object=$page/objects/$(basename "$1" .c).o
  [ "${OT_TESTS:-}" = full ] || [ ! -f "$page/orthant.wasm" ] || [ ! "$object" -nt "$1" ]
}
export clang work
printf '%s\n' "${flags[@]}" >"$work/flags"
list | while read -r file; do if lacks "$file"; then echo "$file"; fi; done >"$work/files"
xargs -P 2 -I{} sh -c '"$clang" $(cat "$work/flags") -c "$1" -o "$work/$(basename "$1").o"' _ {} <"$work/files"

# File names are unique in the tree, so no object replaced another.
rm "$work/probe.o"
[ "$(ls "$work"/*.o | wc -l)" = "$(wc -l <"$work/files")" ]
[ -s "$work/files" ] || { echo "the page has an object of every file"; exit 1; }
nm=$(command -v llvm-nm || ls /usr/bin/llvm-nm-* 2>/dev/null | head -1 || true)
[ -n "$nm" ] || { echo "skipped: no llvm-nm"; exit 77; }
allowed='^(memcpy|memset|memmove|memcmp|sqrt|__multi3|__stack_pointer)$'
"$nm" --undefined-only "$work"/*.o | awk 'NF == 2 { print $2 }' | grep -v '^ot_' | sort -u >"$work/needs"
if grep -Ev "$allowed" "$work/needs"; then
  echo "the planning half needs these of its host"
  exit 1
fi
echo "$(ls "$work"/*.o | wc -l) files, which need: $(tr '\n' ' ' <"$work/needs")"
