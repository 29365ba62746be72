#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# run: Linux, with the right to make namespaces. Hosts of a box differ where they should, links and
# faults do what they say, words arrive unchanged, and nothing remains, however a box ends.
set -uo pipefail
box=$PWD/tools/cluster_box.sh
why=$("$box" check 2>&1) || { echo "$why"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: \"$2\" in place of \"$3\""; }
export TMPDIR=$work/"with spaces"
mkdir "$TMPDIR"
# Of /tmp, hosts see the current folder: the script may itself be in another folder there.
cp "$box" "$TMPDIR" && box=$TMPDIR/cluster_box.sh
cd "$TMPDIR" || exit 1

# Talks to itself on another host: prints the seconds of 500,000 bytes and of the answer, or "none".
cat >talk.py <<'PYTHON'
import socket, sys, time
size = 500000
if len(sys.argv) > 1:
    door = socket.create_server(("", 7777))
    open("/tmp/box/shared/listens", "w").close()
    while True:
        caller, _ = door.accept()
        while size > 0: size -= len(caller.recv(size))
        caller.sendall(b"x")
        size = 500000
try:
    start = time.monotonic()
    caller = socket.create_connection(("host1", 7777), 0.5)
    caller.settimeout(10)  # 500 kB at 10mbit take 0.4 s
    caller.sendall(b"a" * size)
    caller.recv(1)
    print("%.3f" % (time.monotonic() - start))
except OSError:
    print("none")
PYTHON

cat >inside.sh <<'SCRIPT'
box=$1 other=$2
fail() { echo "FAILED: $*" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: \"$2\" in place of \"$3\""; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
"$box" on 1 python3 "$PWD/talk.py" listen &
disown
same host "$(hostname) $("$box" on 1 hostname)" 'host0 host1'
same words "$("$box" on 1 printf '%s|' 'two words' "it's" '"' '$HOME' '' $'a\nb' '*')" \
  $'two words|it\'s|"|$HOME||a\nb|*|'
same folder "$("$box" on 1 pwd)" "$PWD"
"$box" on 1 bash -c 'exit 9'
same 'exit code' $? 9
echo own >/tmp/mine
"$box" on 1 test -e /tmp/mine && fail '/tmp is not of one host'
"$box" on 1 bash -c 'echo ours >/tmp/box/shared/ours'
same shared "$(cat /tmp/box/shared/ours)" ours
[ -e "/proc/$other" ] && fail 'processes outside are seen'

"$box" fill 1
"$box" on 1 bash -c 'echo no >/tmp/box/local/more' 2>/dev/null && fail 'a full disk takes a file'
echo yes >/tmp/box/local/more || fail 'the disk of another host is full'
"$box" empty 1
"$box" on 1 bash -c 'echo yes >/tmp/box/local/more' || fail 'an emptied disk takes no file'

until [ -e /tmp/box/shared/listens ]; do sleep 0.05; done
fast=$(python3 talk.py)
less "$fast" 0.3 || fail "500 kB at 1gbit took $fast s"
"$box" slow 1 10mbit
slow=$(python3 talk.py)
less 0.3 "$slow" || fail "500 kB at 10mbit took $slow s"
"$box" cut 1
same cut "$(python3 talk.py)" none
"$box" heal 1
same healed "$(python3 talk.py | tr -d 0-9)" .
"$box" kill 1
same killed "$(python3 talk.py)" none
"$box" on 1 true 2>/dev/null
same 'on a killed host' $? 2
"$box" boot 1
same booted "$("$box" on 1 hostname)" host1
exit 7
SCRIPT
timeout 30 "$box" --disk 1M -- bash inside.sh "$box" $$
same 'exit code' $? 7

# Mistakes.
"$box" --hosts 0 -- true 2>error.txt
same 'exit code' "$? $(grep -c 'hosts 0; allowed: 1 to 99' error.txt)" '2 1'
"$box" --bandwidth quick -- true 2>error.txt
same 'exit code' "$? $(grep -c 'try 1gbit' error.txt)" '2 1'
"$box" cut 1 2>error.txt
same 'exit code' "$? $(grep -c 'no box' error.txt)" '2 1'

# Two boxes; each ends with its starter, however that ends.
one=$("$box" up --hosts 1) two=$("$box" up --hosts 1)
[ "$one" != "$two" ] || fail "two boxes have one folder"
CLUSTER_BOX=$one "$box" on 0 bash -c 'echo >/tmp/box/shared/one'
[ -e "$one/shared/one" ] || fail 'the folder of a box is not seen'
[ ! -e "$two/shared/one" ] || fail 'boxes share a folder'
CLUSTER_BOX=$one "$box" down
same 'the other box' "$(CLUSTER_BOX=$two "$box" on 0 hostname)" host0
CLUSTER_BOX=$two "$box" down
for signal in INT TERM KILL; do
  rm -f began
  env --default-signal=INT "$box" --hosts 1 -- bash -c 'trap "exit 5" INT TERM; >began; while :; do sleep 0.1; done' 2>error.txt &
  starter=$!
  until [ -e began ]; do sleep 0.05; done
  kill -$signal $starter
  wait $starter 2>/dev/null
  code=$?
  [ $signal = KILL ] || same "exit code after $signal" $code 5
done
for _ in {1..40}; do
  left=$(find . -name 'cluster-box.*'; pgrep -f "$PWD/cluster-box|$TMPDIR")
  [ -n "$left" ] || exit 0
  sleep 0.05
done
fail "left: $left"
