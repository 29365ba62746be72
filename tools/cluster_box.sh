#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A cluster in a box: hosts as namespaces of this machine (network, host name, mounts, shared memory)
# on links of a given rate. `cluster_box.sh help` prints the usage, docs/cluster-box.md explains it.
# A box has its own process namespace: when its first process ends, for whatever reason, the kernel
# ends all others and removes their networks and mounts.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: cluster_box.sh [OPTIONS] -- COMMAND...   a box while COMMAND runs on host 0; its exit code
       cluster_box.sh up [OPTIONS]              a box until `down`; prints its folder
       cluster_box.sh check                     exit code 0, or 77 and the missing right
inside COMMAND, or elsewhere with CLUSTER_BOX=FOLDER in the environment:
       cluster_box.sh on HOST COMMAND...        runs it on that host
       cluster_box.sh cut HOST                  its link carries nothing
       cluster_box.sh heal HOST                 its link carries again
       cluster_box.sh slow HOST RATE            its link has another rate
       cluster_box.sh kill HOST                 kills all its processes: the host is gone
       cluster_box.sh boot HOST                 starts a killed host again, with an empty disk
       cluster_box.sh fill HOST                 fills its disk; `empty HOST` makes room again
       cluster_box.sh down                      ends the box
HOST is a number from 0. Options:
  --hosts N            hosts host0, host1, ... [2]
  --ranks-per-host N   processes that mpirun starts on each [1]
  --bandwidth RATE     of each host's link, per direction, as tc writes it: 1gbit, 200mbit [1gbit]
  --latency TIME       added per direction, as tc writes it: 50us; needs netem in the kernel
  --disk SIZE          of each host's own disk [64M]
On a host, /tmp is its own, /tmp/box/local its disk, /tmp/box/shared a folder of all hosts; other
folders are those of the machine. mpirun (Open MPI) needs no options to use all hosts.
TEXT
}

say() { echo "cluster_box: $*" >&2; }
refuse() { say "$*"; exit 2; }
skip() { say "skipped: $*"; exit 77; }
self=$(realpath "${BASH_SOURCE[0]}")
box=${CLUSTER_BOX:-}
bridge=links
grace_s=20  # from the first signal to the end of the box

# ---- settings ----

hosts=2 slots=1 rate=1gbit latency='' disk=64M
outer=''  # the folder of the box as the box itself sees it: on hosts it is /tmp/box

# shellcheck source=/dev/null
load_settings() { . "$box/settings"; }

read_options() {
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || refuse "$1 needs a value"
    case $1 in
      --hosts) hosts=$2 ;;
      --ranks-per-host) slots=$2 ;;
      --bandwidth) rate=$2 ;;
      --latency) latency=$2 ;;
      --disk) disk=$2 ;;
      *) refuse "unknown option $1 (cluster_box.sh help)" ;;
    esac
    shift 2
  done
  [[ $hosts =~ ^[1-9][0-9]?$ ]] || refuse "--hosts $hosts; allowed: 1 to 99"
  [[ $slots =~ ^[1-9][0-9]{0,2}$ ]] || refuse "--ranks-per-host $slots; allowed: 1 to 999"
  check_rate "$rate" --bandwidth
  [[ $latency =~ ^([0-9.]+[um]?s)?$ ]] || refuse "--latency $latency; try 50us or 1ms"
  [[ $disk =~ ^[1-9][0-9]*[kmgKMG]?$ ]] || refuse "--disk $disk; try 64M"
}

check_rate() { [[ $1 =~ ^[0-9]+([.][0-9]+)?[kmgt]?bit$ ]] || refuse "$2 $1; try 1gbit or 200mbit"; }

# ---- rights ----

space=(unshare --net --mount --uts --pid --ipc --fork --kill-child --propagation private)

# Finds how this user may make namespaces: as root, or as root of a user namespace.
find_right() {
  local tool why
  for tool in unshare nsenter ip tc setsid hostname; do
    command -v $tool >/dev/null || skip "no program $tool (packages util-linux, iproute2, hostname)"
  done
  why=$("${space[@]}" bash "$self" _try 2>&1) && return
  space+=(--user --map-root-user)
  why=$("${space[@]}" bash "$self" _try 2>&1) && return
  skip "this user may not make namespaces (root may, and users where the kernel allows it): ${why##*$'\n'}"
}

try_right() {
  mount -t proc proc /proc && mount -t tmpfs tmpfs /tmp && ip link add name $bridge type bridge &&
    ip link add name a type veth peer name b && tc qdisc add dev a root tbf rate 1gbit burst 16kb limit 4mb
}

# ---- links ----

# Bytes that pass at once after a pause: what the link carries in a millisecond, or a late timer of
# this machine would lower the rate; at least two packets.
burst_of() {  # RATE
  awk -v text="$1" 'BEGIN {
    rate = text + 0
    if (text ~ /kbit/) rate *= 1e3; else if (text ~ /mbit/) rate *= 1e6; else if (text ~ /gbit/) rate *= 1e9
    else if (text ~ /tbit/) rate *= 1e12
    bytes = rate / 8e3
    printf "%.0f", (bytes > 32768 ? bytes : 32768)
  }'
}

# The rate of what DEVICE sends. Large packets are split, or the bucket would let them pass at once.
shape() {  # DEVICE RATE
  local parent=(root)
  ip link set "$1" gso_max_size 16000 2>/dev/null
  if [ -n "$latency" ] && tc qdisc replace dev "$1" root handle 1: netem delay "$latency" limit 100000 2>/dev/null; then
    parent=(parent 1:1)
  fi
  tc qdisc replace dev "$1" "${parent[@]}" tbf rate "$2" burst "$(burst_of "$2")" limit 4mb
}

# ---- a host ----

# The process that holds a host's namespaces.
holder() {  # HOST
  local pid
  read -r pid 2>/dev/null <"$box/host$1" && [ -n "$pid" ] && echo "$pid"
}

# The process of a host. The machine's /tmp disappears, except for the box and FOLDER.
host_main() {  # HOST FOLDER
  local stage=$box/stage$1
  hostname "host$1" && mkdir -p "$stage" && mount -t tmpfs tmpfs "$stage" && chmod 1777 "$stage" &&
    mkdir "$stage/box" && mount --bind "$box" "$stage/box" &&
    mount -t tmpfs -o "size=$disk" tmpfs "$stage/box/local" || exit 3
  case $2/ in
    /tmp/?*) mkdir -p "$stage${2#/tmp}" && mount --bind "$2" "$stage${2#/tmp}" || exit 3 ;;
  esac
  mount --rbind "$stage" /tmp && mount -t tmpfs tmpfs /dev/shm && mount --bind /tmp/box/etc_hosts /etc/hosts || exit 3
  box=/tmp/box
  cd / || exit 3
  echo $BASHPID >"$box/host$1"
  until [ -e "$box/wired$1" ]; do sleep 0.02; done
  ip link set lo up && ip addr add "10.88.0.$(($1 + 1))/24" dev eth0 && ip link set eth0 up && shape eth0 "$rate" || exit 3
  rm "$box/wired$1"
  exec sleep infinity
}

boot() {  # HOST FOLDER
  local pid starter
  rm -f "$box/host$1" "$box/wired$1"
  unshare --net --mount --uts --ipc --propagation private bash "$self" _host "$1" "$2" </dev/null >/dev/null 2>>"$box/log" &
  starter=$!
  disown $starter
  until pid=$(holder "$1"); do
    kill -0 $starter 2>/dev/null || return 3
    sleep 0.02
  done
  ip link add name "port$1" type veth peer name eth0 netns "$pid" && ip link set "port$1" master $bridge up &&
    shape "port$1" "$rate" || return 3
  : >"$box/wired$1"
  while [ -e "$box/wired$1" ]; do
    kill -0 "$pid" 2>/dev/null || return 3
    sleep 0.02
  done
}

# Runs a command on a host, in FOLDER or, where that does not exist, in /tmp.
on_host() {  # HOST FOLDER COMMAND...
  local pid settings=()
  pid=$(holder "$1") || { say "host$1 is not up"; exit 255; }
  settings=(CLUSTER_BOX=/tmp/box TMPDIR=/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_plm_rsh_agent=/tmp/box/agent OMPI_MCA_orte_default_hostfile=/tmp/box/hostfile
    'OMPI_MCA_btl=tcp,self,vader' OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
    OMPI_MCA_hwloc_base_binding_policy=none)
  [ $((hosts * slots)) -le "$(nproc)" ] || settings+=(OMPI_MCA_mpi_yield_when_idle=1)
  # shellcheck disable=SC2016  # expanded on the host
  exec env "${settings[@]}" nsenter -t "$pid" --net --mount --uts --ipc -- \
    bash -c 'cd "$1" 2>/dev/null || cd /tmp; shift; exec "$@"' on_host "$2" "${@:3}"
}

kill_host() {  # HOST
  local pid name found=1
  pid=$(holder "$1") || refuse "host$1 is not up"
  name=$(readlink "/proc/$pid/ns/uts")
  rm "$box/host$1"
  # Until there is none: a process may start another one during the search.
  while [ $found = 1 ]; do
    found=0
    for pid in /proc/[0-9]*; do
      [ "$(readlink "$pid/ns/uts" 2>/dev/null)" = "$name" ] || continue
      ! grep -qs '^State:.Z' "$pid/status" || continue
      found=1
      kill -KILL "${pid#/proc/}" 2>/dev/null
    done
  done
  while ip link show "port$1" >/dev/null 2>&1; do sleep 0.02; done
}

slow_host() {  # HOST RATE
  check_rate "$2" slow
  shape "port$1" "$2" && nsenter -t "$(holder "$1")" --net bash "$box/script" _shape "$2"
}

# The disk of a host as seen from elsewhere.
disk_of() { echo "/proc/$(holder "$1")/root/tmp/box/local"; }  # HOST

# What sub-commands do, in the namespaces of the box itself.
inject() {  # FOLDER NAME HOST [VALUE]
  [ $# -ge 3 ] || refuse "$2 needs a host"
  [ -e "$box/host$3" ] || [ "$2" = boot ] || refuse "host$3 is not up"
  case $2 in
    cut) ip link set "port$3" down ;;
    heal) ip link set "port$3" up ;;
    slow) slow_host "$3" "${4:-}" ;;
    kill) kill_host "$3" ;;
    boot)
      if ! [[ $3 =~ ^[0-9]+$ ]] || [ "$3" -ge "$hosts" ]; then refuse "boot $3; allowed: 0 to $((hosts - 1))"; fi
      [ ! -e "$box/host$3" ] || refuse "host$3 is up"
      boot "$3" "$1" || refuse "host$3 does not start: $(tail -1 "$box/log")" ;;
    fill) dd if=/dev/zero of="$(disk_of "$3")/filler" bs=64k status=none 2>/dev/null || true ;;
    empty) rm -f "$(disk_of "$3")/filler" ;;
    on) on_host "$3" "$1" "${@:4}" ;;
  esac
}

# ---- a box ----

# First process of a box: starts the hosts, runs COMMAND on host 0 or waits for its own end.
box_main() {  # FOLDER [COMMAND...]
  local folder=$1 own rest host command
  shift
  # /proc is still that of the outer process namespace: the number of this process there.
  read -r own rest </proc/self/stat
  mount -t proc proc /proc && ip link set lo up && ip link add name $bridge type bridge && ip link set $bridge up || exit 3
  for ((host = 0; host < hosts; host++)); do
    boot $host "$folder" || { say "host$host does not start: $(tail -1 "$box/log")"; exit 3; }
  done
  [ -z "$latency" ] || tc qdisc show dev port0 | grep -q netem ||
    say "this kernel has no netem: links have their rate, but no added latency"
  trap 'exit 137' USR1
  [ ! -p "$box/life" ] || { read -r rest <"$box/life"; rm -rf "$box"; kill -USR1 1; } &
  echo "$own" >"$box/first"
  if [ $# = 0 ]; then
    while :; do sleep 1000 & wait $!; done
  fi
  set -m  # a process group of its own, which signals reach as a whole
  bash "$box/script" _inside "$folder" on 0 "$@" <&0 &
  command=$!
  set +m
  trap 'pass INT $command' INT
  trap 'pass TERM $command' TERM
  wait_for $command
}

# The first signal goes to the command, which then has some time to end; the second ends the box.
pass() {  # SIGNAL PROCESS
  trap 'exit 130' INT
  trap 'exit 143' TERM
  interrupted=1
  kill "-$1" -- "-$2" 2>/dev/null
  { sleep $grace_s; kill -USR1 1; } &
}

# Exits with the exit code of a child. A signal that is passed on interrupts the wait.
wait_for() {  # PROCESS
  local code
  while :; do
    interrupted=0
    wait "$1"
    code=$?
    [ $interrupted = 1 ] || exit $code
  done
}

make_box() {
  local host
  box=$(mktemp -d "${TMPDIR:-/tmp}/cluster-box.XXXXXX") || exit 3
  chmod 755 "$box"
  mkdir "$box/local" "$box/shared"
  chmod 1777 "$box/shared"
  cp "$self" "$box/script"
  # shellcheck disable=SC2016  # expanded by the agent
  printf '#!/bin/bash\nhost=${1#host}\nshift\nexec bash /tmp/box/script on "$host" bash -c "$*"\n' >"$box/agent"
  chmod +x "$box/agent"
  printf '127.0.0.1 localhost\n' >"$box/etc_hosts"
  for ((host = 0; host < hosts; host++)); do
    printf '10.88.0.%d host%d\n' $((host + 1)) $host >>"$box/etc_hosts"
    printf 'host%d slots=%d\n' $host "$slots" >>"$box/hostfile"
  done
  printf '%s=%q\n' hosts "$hosts" slots "$slots" rate "$rate" latency "$latency" disk "$disk" outer "$box" >"$box/settings"
  case " ${space[*]} " in *' --user '*) : >"$box/user" ;; esac
}

run_box() {  # COMMAND...
  local starter
  mkfifo "$box/life"
  trap 'rm -rf "$box"' EXIT
  trap 'forward INT $starter' INT
  trap 'forward TERM $starter' TERM HUP
  # Its own session: a terminal's Ctrl-C would otherwise reach the command twice.
  exec {life}<>"$box/life"
  setsid env --default-signal=INT,QUIT "${space[@]}" bash "$self" _box "$PWD" "$@" <&0 {life}>&- &
  starter=$!
  wait_for $starter
}

forward() {  # SIGNAL STARTER
  local first
  interrupted=1
  if read -r first 2>/dev/null <"$box/first"; then kill "-$1" "$first"; else kill -KILL "$2"; fi
}

up_box() {
  local starter
  setsid "${space[@]}" bash "$self" _box "$PWD" </dev/null >/dev/null 2>"$box/said" &
  starter=$!
  until [ -s "$box/first" ]; do
    kill -0 $starter 2>/dev/null || { cat "$box/said" >&2; rm -rf "$box"; exit 3; }
    sleep 0.02
  done
  cat "$box/said" >&2
  echo "$box"
}

# Continues in the namespaces of the box: from a host, where its first process is 1, or from outside.
enter() {  # NAME ARGUMENTS...
  local first=1 how=(--net --mount --uts --ipc)
  [ -n "$box" ] || refuse "$1: no box (CLUSTER_BOX=FOLDER, where \`up\` printed FOLDER)"
  [ -e "$box/settings" ] || refuse "$1: $box is not the folder of a box"
  load_settings
  if [ "$box" != /tmp/box ]; then
    read -r first <"$box/first"
    [ -e "/proc/$first" ] || refuse "$1: the box $box has ended"
    how+=(--pid)
    [ ! -e "$box/user" ] || how+=(--user --preserve-credentials)
  fi
  if [ "$1" = down ]; then
    [ "$first" != 1 ] || { kill -USR1 1; exit; }
    kill -KILL "$first"
    while [ -e "/proc/$first" ]; do sleep 0.02; done
    rm -rf "$box"
    exit
  fi
  exec nsenter -t "$first" "${how[@]}" -- env CLUSTER_BOX="$outer" bash "$outer/script" _inside "$PWD" "$@"
}

# ---- commands ----

name=${1:-help}
case $name in
  help | -h | --help) usage ;;
  check) find_right ;;
  up)
    shift
    read_options "$@"
    find_right
    make_box
    export CLUSTER_BOX=$box
    up_box ;;
  on | cut | heal | slow | kill | boot | fill | empty | down) enter "$@" ;;
  _try) try_right ;;
  _shape) load_settings; shape eth0 "$2" ;;
  _host | _inside | _box)
    shift
    load_settings
    case $name in
      _host) host_main "$@" ;;
      _inside) inject "$@" ;;
      _box) box_main "$@" ;;
    esac ;;
  *)
    options=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
      options+=("$1")
      shift
    done
    [ $# -gt 1 ] || refuse "no command after -- (cluster_box.sh help)"
    shift
    read_options "${options[@]}"
    find_right
    make_box
    export CLUSTER_BOX=$box
    run_box "$@" ;;
esac
