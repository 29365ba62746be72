# SPDX-License-Identifier: Apache-2.0
# A thin layer over CMake presets: `make help` lists the targets. Each target first installs its
# dependencies (tools/dependencies.sh). Variables:
#   CC=clang  BLAS=/path/libcblas.so  BLAS_INCLUDE=/path  ARCH=x86-64-v3  PREFIX=/where  JOBS=2
#   MPI=/path/mpicc (with a new build/) or MPI=none
#   FUZZ_SECONDS=600, for make fuzz and its part of make check-full
#   CUDA=ON (installs nvcc 13 into build/cuda if there is none) or CUDA=OFF; default: ON where nvcc 13 is
#   JUDGE_SAMPLE=1, for make check-full: the whole field trial of orthant judge, half an hour;
#   default: every 25th of its faults
FUZZ_SECONDS ?= 600
JUDGE_SAMPLE ?= 25
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
export BLAS MPI

options := $(if $(filter command environment,$(origin CC)),-DCMAKE_C_COMPILER=$(CC)) \
  $(if $(BLAS),-DOT_BLAS_LIBRARY=$(BLAS)) \
  $(if $(BLAS_INCLUDE),-DOT_CBLAS_INCLUDE=$(BLAS_INCLUDE)) \
  $(if $(filter undefined,$(origin ARCH)),,-DOT_ARCH=$(ARCH))

# Presets with sanitizers build without MPI, whose libraries leak memory, and that of machines with a
# GPU, which lack it.
with_mpi = -DOT_MPI=$(if $(filter none,$(MPI)),OFF,AUTO $(if $(MPI),-DMPI_C_COMPILER=$(MPI)))
with_cuda = $(if $(CUDA),-DOT_CUDA=$(CUDA))
configure = cmake --preset $(1) $(options) $(if $(filter asan tsan fuzz gpu,$(1)),,$(with_mpi)) \
  $(if $(filter cpu,$(1)),$(with_cuda)) $(2) >build/configure-$(1).log 2>&1 \
  || { cat build/configure-$(1).log; exit 3; }
build = mkdir -p build && { $(call configure,$(1),$(2)); } && cmake --build --preset $(1) -j $(JOBS)
test = ctest --preset $(1) -j $$((2 * $(JOBS) + 2))  # slots, of which most tests take two
needs = @tools/dependencies.sh build optional:mpi optional:serve $(if $(filter ON,$(CUDA)),cuda)

.PHONY: all help demo check check-full fuzz torture bench page gpu-pack lint format install clean

all:  ## build/orthant and the benchmark programs build/bench/*
	$(needs)
	@$(call build,cpu)

help:  ## this list
	@awk -F ':  ## ' '/^[a-z-]+:  ## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo:  ## trains a small model on the C headers of this machine, in minutes
	$(needs) demo
	@$(call build,cpu) --target orthant
	@tools/demo.sh

check:  ## builds, then all tests and the lint
	$(needs) test
	@$(call build,cpu)
	@if command -v node && command -v clang-14 && command -v wasm-ld-14 && command -v wasm-opt; then \
	  cmake --build build -j $(JOBS) --target page; fi >build/page.log || { cat build/page.log; exit 1; }
	@$(call test,cpu)

check-full:  ## all cases of all tests, the formatter, the judge's field trial, another compiler, sanitizers; an hour
	$(needs) test format clang page optional:fuzz optional:browser
	@clang-format-14 --dry-run --Werror $$(git ls-files '*.c' '*.h')
	@$(call build,cpu)
	@cmake --build build -j $(JOBS) --target page
	@$(call test,full)
	@OMP_NUM_THREADS=1 tools/judge_field.sh --optional --sample $(JUDGE_SAMPLE)
	@$(call build,clang)
	@$(call test,clang)
	@$(call build,asan)
	@$(call test,asan)
	@$(call build,tsan)
	@$(call test,tsan)
	@if ls "$$(clang -print-runtime-dir)"/libclang_rt.fuzzer*.a >/dev/null 2>&1; then \
	  $(MAKE) --no-print-directory fuzz; \
	else echo 'check-full: clang has no libFuzzer here: fuzz targets were only replayed'; fi

fuzz:  ## searches for files that break a reader, FUZZ_SECONDS in all (docs/untrusted-input.md)
	@tools/dependencies.sh build clang fuzz
	@$(call build,fuzz)
	@tests/fuzz/run.sh $(FUZZ_SECONDS)

torture:  ## kills, full disks, failing calls, damaged files: what a run survives, in an hour (docs/failures.md)
	$(needs) test
	@$(call build,cpu)
	@tools/torture.py --build build

bench:  ## runs every benchmark program
	$(needs)
	@$(call build,cpu)
	@for program in build/bench/*; do echo "== $$program"; $$program || exit $$?; done

page:  ## build/page/orthant.html: the planner in one page, for browsers, offline (docs/page.md)
	@tools/dependencies.sh build page
	@mkdir -p build && { $(call configure,cpu); } && cmake --build build -j $(JOBS) --target page

gpu-pack:  ## build/gpu/: what tools/gpu_check.sh runs on a machine with a GPU
	@tools/dependencies.sh build test cuda
	@$(call build,gpu) --target gpu_programs
	@mkdir -p build/gpu && tools/gpu_pack.sh build/for-gpu build/gpu/pack.tar.xz
	@test $$(stat -c %s build/gpu/pack.tar.xz) -le 60000000 \
	  || { echo 'error: build/gpu/pack.tar.xz has more than 60 MB' >&2; exit 3; }

lint:  ## folder dependencies, sizes, banned calls and the purity of the planning half
	$(needs)
	@mkdir -p build && { $(call configure,cpu); } && cmake --build --preset plan -j $(JOBS)
	@tools/lint

format:  ## formats the sources with clang-format
	@tools/dependencies.sh format
	@clang-format-14 -i $$(git ls-files '*.c' '*.h')

install:  ## into PREFIX (default /usr/local)
	$(needs)
	@$(call build,cpu,-DCMAKE_INSTALL_PREFIX=$(abspath $(or $(PREFIX),/usr/local))) --target orthant
	@cmake --install build

clean:  ## removes build/
	@rm -rf build
