#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A small model served by the OpenAI API: log-probabilities of a prompt, a text, and the same text as a
# stream; then a batch of texts without a server. The log-probabilities are those of `orthant score`,
# to the last digit.
#   examples/08_serve.sh [ORTHANT] [FOLDER]
set -euo pipefail
orthant=$(realpath "${1:-build/orthant}")
here=$(cd "$(dirname "$0")" && pwd)
folder=${2:-}
own=
[ -n "$folder" ] || { folder=$(mktemp -d) && own=$folder; }
"$here/01_train.sh" "$orthant" "$folder" >/dev/null 2>&1
cd "$folder"

"$orthant" serve run --port 0 --max-length 128 >address &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server || true; rm -rf ${own:+"$own"}' EXIT
until [ -s address ] || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
[ -s address ] || wait $server || exit $?
port=$(sed 's/.*://' address)

# What curl does: request METHOD PATH [BODY]
request() {
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf '%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "$2" "${#3}" "$3" >&3
  sed '1,/^\r$/d' <&3
  exec 3>&-
}

echo "health: $(request GET /health '')"
request POST /v1/completions '{"prompt": "You may reproduce", "max_tokens": 0, "echo": true, "logprobs": 0}' >echo.json
request POST /v1/completions '{"prompt": "You may", "max_tokens": 12, "temperature": 0}' >text.json
request POST /v1/completions '{"prompt": "You may", "max_tokens": 12, "temperature": 0, "stream": true}' >stream.txt
grep -q '^data: \[DONE\]' stream.txt && echo "stream: $(grep -c '^data: {' stream.txt) events"

logprobs() { grep -o "\"$1\":\[[^]]*\]" "$2" | head -1 | sed 's/.*\[null,//; s/\]//'; }
echo '{"text": "You may reproduce"}' >line.jsonl
"$orthant" score run line.jsonl >score.json
scored=$(grep -o '"logprobs":\[[^]]*\]' score.json | sed 's/.*\[//; s/\]//')
[ "$(logprobs token_logprobs echo.json)" = "$scored" ] && echo "echo and score agree: $scored"

printf '{"prompt": "You may"}\n{"prompt": "The"}\n' >prompts.jsonl
"$orthant" sample run --prompts prompts.jsonl --n 2 --max-tokens 8 --top-p 0.9 --stop "." >texts.jsonl
echo "texts: $(wc -l <texts.jsonl)"
