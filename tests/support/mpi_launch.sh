# SPDX-License-Identifier: Apache-2.0
# Sourced by test scripts: sets `launch` to a command that starts processes of the MPI family with
# which PROGRAM is linked ("${launch[@]}" -n 4 PROGRAM ...), oversubscribing cores and running as
# root if necessary; mpi_run.sh describes how it ends. Exits the script with 77 (skipped) if that is
# impossible.
#   . tests/support/mpi_launch.sh PROGRAM
mpi_family() {
  case $(ldd "$1" 2>/dev/null) in
    *libmpich*) echo mpich ;;
    *libmpi.so*) echo openmpi ;;
  esac
}

mpi_launcher() {  # FAMILY
  local name version
  for name in "mpirun.$1" "mpiexec.$1" mpirun mpiexec; do
    version=$("$name" --version 2>/dev/null) || continue
    case $1:$version in
      openmpi:*'Open MPI'* | openmpi:*OpenRTE* | mpich:*HYDRA*) echo "$name"; return ;;
    esac
  done
}

family=$(mpi_family "$1")
[ -n "$family" ] || { echo "skipped: $1 is built without MPI"; exit 77; }
launcher=$(mpi_launcher "$family")
[ -n "$launcher" ] || { echo "skipped: no mpirun of $family"; exit 77; }
launch=("$PWD/tests/support/mpi_run.sh" "$launcher")
launcher_hung=99

# Runs a function or command that sets `got` to an exit code; retries if the launcher hung.
unless_hung() {
  for _ in {1..6}; do
    "$@"
    [ "$got" = $launcher_hung ] || return 0
  done
}
[ "$family" = mpich ] || launch+=(--oversubscribe)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
