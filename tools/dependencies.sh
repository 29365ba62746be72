#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the dependencies of a target:  tools/dependencies.sh GROUP...
# One table lists the dependencies, how to detect them, and their names in three package managers. If
# all are present, nothing is printed and nothing needs root. Missing ones are installed on Debian and
# its derivatives (as root, or through sudo); elsewhere the packages are named. Missing dependencies of
# a group written as optional:GROUP are not an error. nvcc is installed by pip, into build/cuda.
#   BLAS=/path/to/library.so   uses that CBLAS library instead of searching OpenBLAS
#   MPI=/path/to/mpicc         uses that MPI; MPI=none: no MPI
set -euo pipefail
cuda=$(realpath -m "$(dirname "$0")/../build/cuda")

# group | purpose | detection | apt | dnf | brew
table='
build  | C compiler            | command:cc            | gcc libc6-dev     | gcc                | gcc
build  | CMake 3.21 or later   | cmake:3.21            | cmake             | cmake              | cmake
build  | Ninja                 | command:ninja         | ninja-build       | ninja-build        | ninja
build  | pkg-config            | command:pkg-config    | pkg-config        | pkgconf-pkg-config | pkgconf
build  | CBLAS                 | blas:cc cblas.h       | libopenblas-dev   | openblas-devel     | openblas
build  | JSON files            | pkg:jansson           | libjansson-dev    | jansson-devel      | jansson
build  | YAML files            | pkg:libfyaml          | libfyaml-dev      | libfyaml-devel     | libfyaml
build  | tokenizer patterns    | pkg:libpcre2-8        | libpcre2-dev      | pcre2-devel        | pcre2
build  | Unicode normal forms  | pkg:libutf8proc       | libutf8proc-dev   | utf8proc-devel     | utf8proc
build  | checksums             | pkg:libxxhash         | libxxhash-dev     | xxhash-devel       | xxhash
build  | .zst files            | pkg:libzstd           | libzstd-dev       | libzstd-devel      | zstd
build  | .gz files             | pkg:zlib              | zlib1g-dev        | zlib-devel         | zlib
build  | cores and caches      | pkg:hwloc             | libhwloc-dev      | hwloc-devel        | hwloc
serve  | HTTP server           | pkg:libmicrohttpd     | libmicrohttpd-dev | libmicrohttpd-devel | libmicrohttpd
serve  | HTTP client           | pkg:libcurl           | libcurl4-openssl-dev | libcurl-devel    | curl
mpi    | MPI                   | mpi:                  | libopenmpi-dev openmpi-bin | openmpi-devel  | open-mpi
test   | unit tests            | pkg:cmocka            | libcmocka-dev     | libcmocka-devel    | cmocka
test   | Python, for scripts of tests | command:python3 | python3      | python3            | python3
test   | the list of processes | command:ps           | procps            | procps-ng          | -
test   | C++, for an emulated GPU | command:c++        | g++               | gcc-c++            | gcc
demo   | xz to compare with    | command:xz            | xz-utils          | xz                 | xz
fresh  | bare Debian systems   | command:debootstrap   | debootstrap       | debootstrap        | -
format | the code formatter    | command:clang-format-14 | clang-format-14 | clang-tools-extra  | clang-format@14
page   | clang with WebAssembly | command:clang-14   | clang-14          | clang              | llvm
page   | the linker of WebAssembly | command:wasm-ld-14 | lld-14         | lld                | lld
page   | the optimizer of WebAssembly | command:wasm-opt | binaryen      | binaryen           | binaryen
browser | node and npm          | command:npm         | nodejs npm        | nodejs npm         | node
browser | a browser             | command:chromium    | chromium          | chromium           | chromium
cuda   | pip, for nvcc         | pip:                | python3-pip       | python3-pip        | python
cuda   | C++, which nvcc needs | command:c++          | g++               | gcc-c++            | gcc
clang  | a second compiler     | command:clang         | clang             | clang              | llvm
fuzz   | libFuzzer of clang    | fuzzer:clang          | libclang-rt-dev   | compiler-rt        | llvm
clang  | OpenMP for clang      | header:clang omp.h    | libomp-dev        | libomp-devel       | libomp
'

cmake_at_least() {
  local version
  version=$(cmake --version 2>/dev/null | awk 'NR == 1 { print $3 }')
  [ -n "$version" ] && printf '%s\n%s\n' "$1" "$version" | sort -VC
}

has_header() {  # COMPILER HEADER
  echo "#include <$2>" | "$1" -fopenmp -E -I/usr/include/openblas - >/dev/null 2>&1
}

has_blas() { [ -n "${BLAS:-}" ] || pkg-config --exists openblas 2>/dev/null || has_header $1; }

# Any MPI implementation is accepted; Fedora keeps its compilers out of PATH.
has_mpi() {
  [ -n "${MPI:-}" ] || command -v mpicc || command -v mpicc.mpich || command -v mpicc.openmpi ||
    compgen -G '/usr/lib64/*/bin/mpicc'
} >/dev/null

# The places where tools/find_nvcc.cmake looks.
has_nvcc() {
  local nvcc
  for nvcc in nvcc /usr/local/cuda/bin/nvcc "$cuda/nvidia/cu13/bin/nvcc"; do
    "$nvcc" --version 2>/dev/null | grep -q 'release 13\.' && return
  done
  return 1
}

has_fuzzer() { compgen -G "$("$1" -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer*.a" >/dev/null; }

is_there() {
  case $1 in
    pip:*) has_nvcc || python3 -m pip --version >/dev/null 2>&1 ;;
    command:*) command -v "${1#*:}" >/dev/null ;;
    pkg:*) pkg-config --exists "${1#*:}" 2>/dev/null ;;
    cmake:*) cmake_at_least "${1#*:}" ;;
    header:*) has_header ${1#*:} ;;
    fuzzer:*) has_fuzzer "${1#*:}" ;;
    blas:*) has_blas "${1#*:}" ;;
    mpi:*) has_mpi ;;
  esac
}

# nvcc 13.0 with its headers and its static run time, 300 MB.
install_nvcc() {
  echo "dependencies: installing nvcc with pip into $cuda" >&2
  rm -rf "$cuda"
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$cuda" \
    'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' \
    'nvidia-nvvm==13.0.*' 'nvidia-cuda-cccl==13.0.*' &&
    ln -s lib "$cuda/nvidia/cu13/lib64" && has_nvcc && return  # where nvcc looks
  echo "error: nvcc 13 is needed and could not be installed" >&2
  echo "help: install CUDA 13, so that nvcc is on PATH or in /usr/local/cuda, or build with CUDA=OFF" >&2
  exit 3
}

trim() { sed 's/^ *//; s/ *$//'; }

# Sets `missing` (for messages) and the package names of each manager.
look() {
  missing='' apt='' dnf='' brew=''
  local group what probe a d b
  while IFS='|' read -r group what probe a d b; do
    group=$(trim <<<"$group")
    [[ -n $group && " $wanted " == *" $group "* ]] || continue
    is_there "$(trim <<<"$probe")" && continue
    missing+="${missing:+, }$(trim <<<"$what")"
    apt+=" $(trim <<<"$a")" dnf+=" $(trim <<<"$d")" brew+=" $(trim <<<"$b")"
  done <<<"$table"
}

# Prints the prefix of commands that install: nothing as root, sudo without a password, or sudo that
# asks for it on a terminal. Fails if there is none.
as_root() {
  if [ "$(id -u)" = 0 ]; then return 0; fi
  command -v sudo >/dev/null || return 1
  if sudo -n true 2>/dev/null; then
    echo 'sudo -n'
  elif [ -t 0 ] && [ -t 2 ]; then
    echo sudo
  else
    return 1
  fi
}

# Runs quietly; prints the output on failure.
apt_get() {
  local log
  log=$(mktemp)
  # $root and the package lists are split into words on purpose.
  $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; return 1; }
  rm -f "$log"
}

install_with_apt() {
  echo "dependencies: installing with apt-get:$apt" >&2
  if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then apt_get update; fi
  # Outdated package lists name packages that no longer exist: update the lists and retry.
  apt_get install -y --no-install-recommends $apt && return
  apt_get update && apt_get install -y --no-install-recommends $apt
}

# Installs the groups in `wanted`. Fails, with `missing` set, if something is still missing.
provide() {
  look
  [ -n "$missing" ] || return 0
  echo "dependencies: missing: $missing" >&2
  if command -v apt-get >/dev/null && root=$(as_root); then
    install_with_apt || echo "dependencies: apt-get did not install everything" >&2
    look
  fi
  [ -z "$missing" ]
}

required='' optional=''
for group; do
  case $group in
    optional:*) optional+=" ${group#*:}" ;;
    *) required+=" $group" ;;
  esac
done
wanted=$required
if ! provide; then
  cat >&2 <<END
error: these are needed and not there: $missing
help: install them and run the same command again
  Debian, Ubuntu:  apt-get install$apt
  Fedora, RHEL:    dnf install$dnf
  macOS:           brew install$brew
END
  exit 3
fi
wanted=$optional
provide || echo "dependencies: continuing without $missing (apt-get install$apt)" >&2
if [[ " $required " == *' cuda '* ]]; then has_nvcc || install_nvcc; fi
