#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the two commands of the README on a Debian system where nothing is installed but git and make:
#   tools/fresh_machine.sh [bookworm|trixie] [COMMAND...]     commands: demo check [demo check]
# The system is made by debootstrap in a temporary folder and removed at the end. The clone is of HEAD,
# without a compiler cache, below a folder called src. Prints the time and the result of each command;
# the exit status is that of the first that fails. Needs root and the packages of Debian.
#   FRESH_DIR=FOLDER     where the system is made [/var/tmp]; with FRESH_KEEP=1 it is left there
#   FRESH_MIRROR=URI     of Debian's packages [the one that apt uses]
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:-bookworm}
shift $(($# > 0 ? 1 : 0))
commands=("${@:-demo}")
[ $# -gt 0 ] || commands=(demo check)

case $release in
  bookworm | trixie) ;;
  *) echo "error: release $release; allowed: bookworm and trixie" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo 'error: tools/fresh_machine.sh needs root, for chroot' >&2; exit 3; }
tools/dependencies.sh fresh

mirror=${FRESH_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
  grep '/debian/\?$' | head -1)}
root=$(mktemp -d "${FRESH_DIR:-/var/tmp}/fresh-$release.XXXXXX")
chmod 755 "$root"
mounts=(proc sys dev dev/pts dev/shm)

# Nothing is removed while a folder of this machine is mounted below.
leave() {
  local place
  for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do umount -l "$root/${mounts[i]}" 2>/dev/null || true; done
  if [ -n "${FRESH_KEEP:-}" ]; then echo "fresh: $root is kept"; return; fi
  for place in "${mounts[@]}"; do ! mountpoint -q "$root/$place" || return; done
  rm -rf --one-file-system "$root"
}
trap leave EXIT

# Runs a command in the system: with no variable of this machine, but those that reach the network.
inside() {
  local kept=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || kept+=("$name=${!name}")
  done
  env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "${kept[@]}" chroot "$root" "$@"
}

echo "fresh: $release in $root"
debootstrap --variant=minbase --include=git,make,ca-certificates "$release" "$root" ${mirror:+"$mirror"} \
  >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 3; }
rm -f "$root.log"
cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
for place in "${mounts[@]}"; do mkdir -p "$root/$place"; mount --bind "/$place" "$root/$place"; done
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts"  # as the installer writes it
git bundle create -q "$root/root/orthant.bundle" HEAD
inside git -c advice.detachedHead=false -c init.defaultBranch=main clone -q /root/orthant.bundle /root/src/orthant
status=0
for command in "${commands[@]}"; do
  begin=$SECONDS
  code=0
  inside make -C /root/src/orthant "$command" >"$root/root/$command.log" 2>&1 </dev/null || code=$?
  printf 'fresh: %s, make %s: exit %d in %d min %02d s\n' "$release" "$command" "$code" \
    $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60))
  grep -E '^[0-9]+% tests passed|\*\*\*(Failed|Timeout|Skipped|Exception)' "$root/root/$command.log" || true
  [ "$code" = 0 ] || tail -40 "$root/root/$command.log"
  [ "$status" != 0 ] || status=$code
done
exit "$status"
