#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every command of a page, in order, in one fresh folder that looks like a clone after make, and
# compares what they print with what the page shows. A page needs no edit here:
#   ```sh     commands, each run as it is written; all must end with exit code 0
#   ```text   output of the last command before it (stdout and stderr); "..." stands for left out lines
#   ```usage  how a command is written: verb and options must exist, as in `orthant ...` in the prose
# A comment holds for the block after it. It may have commands of its own, which readers do not see:
#   <!-- test: WORDS
#   COMMANDS
#   -->
# WORDS, separated by commas: `slow` (only with OT_TESTS=full), `not run: REASON`, `exit N` (what each of
# the commands ends with), and those about numbers that compare_output.awk explains.
# Links must have an existing target, and files that the prose names must exist.
#   tests/docs/run_page.sh ORTHANT PAGE [NEW]     NEW: where to write the page with the output of this run
set -uo pipefail
shopt -s nullglob
orthant=$(realpath "${1:?usage: run_page.sh ORTHANT PAGE [NEW]}")
page=$(realpath "${2:?usage: run_page.sh ORTHANT PAGE [NEW]}")
new=$(realpath -m "${3:-/dev/null}")
source=$PWD
tools=$source/tests/docs
name=${page#"$source"/}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=$work/steps
clone=$work/orthant
failures=0 ran=0 compared=0 slow=0 skipped=0
fail() { echo "FAILED: $name:$*"; failures=$((failures + 1)); }

mkdir "$steps" "$clone"
ln -s "$source"/{docs,examples,src,presets,tests,tools,bench,LICENSE,README.md,Makefile} "$clone"
ln -s "$(dirname "$orthant")" "$clone/build"
awk -v to="$steps" -f "$tools/read_page.awk" "$page"
touch "$steps"/{inline,links,paths,wrong}

# ---- checked without running ----
cd "$(dirname "$page")" || exit 3
anchors() { sed -n 's/^##* //p' "$1" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'; }
while read -r line; do fail "$line"; done <"$steps/wrong"
while IFS=$'\t' read -r line target; do
  file=${target%%#*}
  [ -e "${file:-$page}" ] || fail "$line: there is no file $file"
  [[ $target != *#* ]] || anchors "${file:-$page}" | grep -qx -- "${target#*#}" ||
    fail "$line: no heading is called $target"
done <"$steps/links"
cd "$source" || exit 3
while IFS=$'\t' read -r line path; do
  [ -e "$path" ] || compgen -G "src/*/$path" >"$work/found" || fail "$line: there is no file $path"
done <"$steps/paths"

# Everything that exists; and the examples of all help texts, to which the README refers.
options_of() { sed -n "s|^  \(--[a-z-]*\) .*|$1 \1|p" "$2"; }
for verb in $("$orthant" | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p') ; do
  echo "orthant $verb"
  [ "$verb" != help ] || continue
  "$orthant" help "$verb" >"$work/help"
  options_of "orthant $verb" "$work/help"
  sed -n '/^examples:/,$s/^  \(.*\)/help '"$verb"'\t\1/p' "$work/help" >>"$steps/inline"
done >"$steps/known"
for program in "$(dirname "$orthant")"/bench/*; do
  echo "build/bench/${program##*/}"
  "$program" --help >"$work/help" && options_of "build/bench/${program##*/}" "$work/help"
done >>"$steps/known"
sed -n 's/^\([a-z-]*\):.*##.*/make \1/p' Makefile >>"$steps/known"
while read -r line; do fail "$line"; done < <(awk -f "$tools/check_commands.awk" "$steps/known" "$steps/inline")

# ---- commands that run ----
export PATH=$clone/build:$PATH HOME=$work XDG_CONFIG_HOME=$work/config
export OMP_WAIT_POLICY=passive  # tests run concurrently
cd "$clone" || exit 3
for command in "$steps"/*.run; do
  step=${command%.run}
  words=$(cat "$step.words")
  expected=$(sed -n 's/.*exit \([0-9]*\).*/\1/p' <<<"$words")
  case $words in
    *"not run:"*) skipped=$((skipped + 1)); continue ;;
    *slow*) [ "${OT_TESTS:-}" = full ] || { slow=$((slow + 1)); continue; } ;;
  esac
  eval "$(cat "$command")" >"$step.raw" 2>&1 </dev/null
  status=$?
  ran=$((ran + 1))
  # Progress of long searches depends on the machine.
  sed "s|$clone|/home/you/orthant|g; /^searching for [0-9]* s: /d" "$step.raw" >"$step.output"
  if [ "$status" != "${expected:-0}" ]; then
    fail " exit code $status in place of ${expected:-0} of: $(cat "$command")"
    tail -n 20 "$step.output"
  fi
  [ -e "$step.shown" ] || continue
  compared=$((compared + 1))
  awk -v words="$words" -f "$tools/compare_output.awk" "$step.shown" "$step.output" && continue
  fail "$(head -n 1 "$step.place" | cut -d' ' -f1): not what is printed by: $(cat "$command")"
done

# ---- the updated page ----
if [ -n "${3:-}" ]; then
  for output in "$steps"/*.output; do
    step=${output%.output}
    [ ! -e "$step.shown" ] || awk -v renew=1 -f "$tools/compare_output.awk" "$step.shown" "$output" >"$step.renewed"
  done
  awk '
    FILENAME ~ /\.place$/ {
      file = FILENAME
      sub(/place$/, "renewed", file)
      while ((getline line <file) > 0 && line != "\f") text[$1] = text[$1] line "\n"
      last[$1] = $2
      next
    }
    FNR in last && FNR > until { printf "%s", text[FNR]; until = last[FNR] }
    FNR > until { print }' $(for file in "$steps"/*.renewed; do echo "${file%renewed}place"; done) "$page" >"$new"
fi
echo "$name: $ran commands run, $compared outputs compared, $slow for check-full, $skipped not run," \
  "$(wc -l <"$steps/inline") parsed, $(wc -l <"$steps/links") links, $(wc -l <"$steps/paths") files"
[ "$failures" = 0 ]
