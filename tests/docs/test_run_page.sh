#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: first
# run: any machine. run_page.sh finds every kind of error on a page and accepts correct pages.
set -euo pipefail
orthant=$(realpath "${1:?usage: test_run_page.sh ORTHANT}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
page=$work/page.md
failures=0

# holds CODE TEXT: a page (stdin) ends the runner with CODE, which prints TEXT.
holds() {
  local code=0
  cat >"$page"
  bash tests/docs/run_page.sh "$orthant" "$page" >"$work/said" 2>&1 || code=$?
  if [ "$code" != "$1" ] || ! grep -qF -- "$2" "$work/said"; then
    echo "FAILED: not exit code $1 and: $2"
    cat "$page" "$work/said"
    failures=$((failures + 1))
  fi
}

# shows CODE SHOWN PRINTED [WORDS]: whether a page may show SHOWN for the output PRINTED.
shows() {
  local code=0
  awk -v words="${4:-}" -f tests/docs/compare_output.awk <(printf "$2\n") <(printf "$3\n") >"$work/said" || code=$?
  [ "$code" = "$1" ] && { [ "$code" = 0 ] || [ -s "$work/said" ]; } && return
  echo "FAILED: not exit code $1: $2, printed: $3, words: ${4:-}"
  failures=$((failures + 1))
}

# ---- commands ----
holds 0 'page.md: 3 commands run, 1 outputs compared, 1 for check-full, 1 not run' <<'END'
<!-- test:
export word=kept && mkdir folder && cd folder
-->
```sh
cat >text <<'WORDS'
$word
WORDS
echo "$word" \
  "$(cat text)"        # a comment
```
prints
```text
kept $word
```
<!-- test: slow -->
```sh
false
```
<!-- test: not run: it would fail -->
```sh
false
```
END
holds 1 'exit code 1 in place of 0 of: false' <<<$'```sh\nfalse\n```'
holds 1 'exit code 0 in place of 2 of: true' <<<$'<!-- test: exit 2 -->\n```sh\ntrue\n```'
holds 1 ':2: a command in a block that is not marked sh' <<<$'```\northant presets\n```'
holds 1 'shows the output of no command' <<<$'```text\nwords\n```'
[ "$(OT_TESTS=full bash tests/docs/run_page.sh "$orthant" "$page" | tail -n 1 | grep -c '0 commands')" = 1 ]
printf '<!-- test: slow -->\n```sh\nfalse\n```\n' >"$page"
! OT_TESTS=full bash tests/docs/run_page.sh "$orthant" "$page" >/dev/null || { echo 'slow ones do not run'; exit 1; }

# ---- prose ----
holds 1 'there is no orthant plam' <<<'Say `orthant plam --gpus 8`.'
holds 1 'orthant plan has no option --gpu' <<<$'Say `orthant plan\n--gpu 8`.'
holds 1 'orthant train has no option --resum' <<<$'```usage\northant train [--resum DIR]\n```'
holds 1 'orthant presets has no option --gpus' <<<$'```sh\northant presets --gpus 8\n```'
holds 1 'there is no build/bench/stop' <<<'Run `build/bench/stop`.'
holds 1 'build/bench/step has no option --bench' <<<'Run `build/bench/step --bench 2`.'
holds 1 'there is no make cheque' <<<'Run `make cheque`.'
holds 1 'there is no file nowhere.md' <<<'See [there](nowhere.md).'
holds 1 'no heading is called #there' <<<$'# Here\n\nSee [there](#there).'
holds 1 'there is no file tests/no_test.c' <<<'See `tests/no_test.c`.'
holds 0 'page.md: 0 commands' <<<$'# To here\n\n`orthant train RUN.yaml --ranks N`, [there](#to-here), `advise/limits.h`'

# ---- output ----
shows 0 'loss 5.4321 of 30' 'loss  5.4319 of   30'
shows 1 'loss 5.4321' 'loss 5.4421'
shows 0 'loss 5.4321' 'loss 5.4421' 'within 0.01'
shows 1 'loss 5.4321' 'loss 5.4322' 'exact'
shows 1 '30 steps' '31 steps'
shows 1 '30 steps' '30 stops'
shows 0 '0.67 left' '0.68 left'
shows 1 '0.67 left' '0.69 left'
shows 0 'error 2.1e-08' 'error 7.0e-09'
shows 1 'error 2.1e-03' 'error 7.0e-04'
shows 0 '41.3k tok/s 26.2 MiB 9 ms' '988 tok/s 7 MiB 0.1 ms'
shows 1 '12.5 %%' '13.5 %%'
shows 0 '12.5 %%' '13.5 %%' 'free %'
shows 0 '3 of 4 at +7%%' '5 of 6 at -1%%' 'numbers free'
shows 0 'one\n...\nfour' 'one\ntwo\nthree\nfour'
shows 0 '...\nthree\n...' 'one\ntwo\nthree\nfour'
shows 1 'one\n...\nthree' 'one\ntwo\nthree\nfour'
shows 1 'two\n...' 'one\ntwo'
shows 1 'one\nfour' 'one\ntwo\nthree\nfour'
shows 1 'one\ntwo' 'one'
shows 1 'one' 'one\ntwo'

# ---- a renewed page shows the printed output and keeps omitted lines ----
cat >"$page" <<'END'
```sh
printf 'loss 5.1\nstep 1 fast\nstep 2 fast\nstep 3 fast\nmean 7 s\n  forward 3\n  backward 4\ndone\n'
```
```text
loss 4.2
...
step 3 fast
mean 8 s
  backward 5
```
And
```text
done
```
END
bash tests/docs/run_page.sh "$orthant" "$page" "$work/new.md" >/dev/null && { echo 'nothing differs'; exit 1; }
sed -n '/text/,$p' "$work/new.md" | diff - <(printf '%s\n' '```text' 'loss 5.1' '...' 'step 3 fast' 'mean 7 s' '  forward 3' \
  '  backward 4' '```' And '```text' 'done' '```')
bash tests/docs/run_page.sh "$orthant" "$work/new.md" >/dev/null

# ---- one spelling of the program: the README puts build/ on PATH ----
! grep -n '^build/orthant ' README.md docs/*.md docs/*/*.md || { echo "FAILED: a page writes build/orthant"; failures=1; }
[ "$failures" = 0 ] && echo "all passed"
