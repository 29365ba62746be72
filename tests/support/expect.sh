# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of verbs: expected exit code and output of a command. Leaves out.txt and err.txt
# in the current folder.

# found GREP-ARGUMENTS: at the end of a pipe, as grep -q; but it reads all of its input, since a writer
# that is cut off would fail the pipe.
found() {
  grep "$@" | cat >/dev/null
  return "${PIPESTATUS[0]}"
}

fail() { echo "FAILED: $*" >&2; exit 1; }

expect() {  # expect CODE WORDS COMMAND...: exit code, and words that stderr must contain
  local code=$1 words=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt || got=$?
  [ "$got" = "$code" ] || { cat out.txt err.txt; fail "$* gave $got, expected $code"; }
  grep -qF -- "$words" err.txt || { cat err.txt; fail "$* did not say \"$words\""; }
}
