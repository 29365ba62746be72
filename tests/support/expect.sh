# SPDX-License-Identifier: Apache-2.0
# For tests of verbs, to be read by them: what a command must end with and say. Leaves out.txt and
# err.txt in the current folder.

fail() { echo "FAILED: $*" >&2; exit 1; }

expect() {  # expect CODE WORDS COMMAND...: the exit code, and words that stderr must hold
  local code=$1 words=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt || got=$?
  [ "$got" = "$code" ] || { cat out.txt err.txt; fail "$* gave $got, expected $code"; }
  grep -qF -- "$words" err.txt || { cat err.txt; fail "$* did not say \"$words\""; }
}
