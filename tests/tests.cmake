# SPDX-License-Identifier: Apache-2.0
# Tests: programs tests/**/test_*.c, scripts tests/**/test_*.sh, fuzz targets, the commands of documents.
enable_testing()
# Two hundred programs are linked: by a linker that is quicker than the usual one, if there is any.
include(CheckLinkerFlag)
foreach(linker mold lld gold)
  check_linker_flag(C -fuse-ld=${linker} OT_LINKER_${linker})
  if(OT_LINKER_${linker})
    add_link_options($<$<NOT:$<LINK_LANGUAGE:CUDA>>:-fuse-ld=${linker}>)
    break()
  endif()
endforeach()
# Tests run concurrently, so waiting threads must not spin; the heap keeps its pages between cases.
set(test_environment OMP_WAIT_POLICY=passive MALLOC_TRIM_THRESHOLD_=1073741824
  MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=16777216)
set(test_timeout 300)
if(OT_SANITIZE)  # which makes tests slow
  set(test_timeout 1800)
endif()
# The emulated GPU computes for up to a minute, on a loaded machine for many times as long, and ends
# what cannot go on itself.
set(device_timeout 1800)
set(full_timeout 3600)  # of tests that only check-full runs

# `make` gives ctest two slots for each core and two more. A test takes two of them.
function(add_case name timeout environment)  # and the command
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77 PROCESSORS 2
    ENVIRONMENT "${environment}")
  if(timeout EQUAL full_timeout)
    set_tests_properties(${name} PROPERTIES LABELS full)
  endif()
endfunction()

function(add_variant name environment words)  # and the command
  separate_arguments(words)
  list(POP_FRONT words variant)
  string(REPLACE "variant=" "${name}_" variant ${variant})
  set(timeout ${device_timeout})
  if(full IN_LIST words)
    set(timeout ${full_timeout})
  endif()
  if(NOT emulated IN_LIST words OR NOT OT_GPU_TESTS)
    list(FILTER words INCLUDE REGEX =)
    add_case(${variant} ${timeout} "${environment};OT_TEST_DEVICE=cuda;${words}" ${ARGN})
  endif()
endfunction()

# A test that reads OT_TESTS=full runs a sample of its cases in check, and all in check-full. Lines
# "ctest: WORDS" at its top:
#   first      one of the longest: it starts first, so that it does not run alone at the end
#   waits      for processes that stop or for a launcher, most of its time: it takes one slot
#   threads    its ranks and lanes are threads: also for the thread sanitizer
#   device     also on a GPU, emulated unless OT_GPU_TESTS; device full: in check-full
#   variant=NAME [full] [emulated] VARIABLE=VALUE...
#              the same with these variables; emulated: not with OT_GPU_TESTS
function(add_cases name source environment)  # and the command
  add_case(${name} ${test_timeout} "${environment}" ${ARGN})
  file(STRINGS ${source} samples REGEX "(//|^#).*OT_TESTS=full" LIMIT_COUNT 1)
  if(samples)
    add_case(${name}_full ${full_timeout} "${environment};OT_TESTS=full" ${ARGN})
  endif()
  file(STRINGS ${source} lines REGEX "^(//|#) ctest: ")
  list(TRANSFORM lines REPLACE "^(//|#) ctest: " "")
  foreach(line ${lines})
    if(line MATCHES "^variant=")
      add_variant(${name} "${environment}" "${line}" ${ARGN})
    elseif(line MATCHES "^device(.*)")
      add_variant(${name} "${environment}"
        "variant=cuda${CMAKE_MATCH_1} OT_SHIM_ORDER=backward" ${ARGN})
      add_variant(${name} "${environment}" "variant=cuda_random full OT_SHIM_ORDER=random" ${ARGN})
      set_property(GLOBAL APPEND PROPERTY device_tests ${name})
    elseif(line STREQUAL threads)
      set_tests_properties(${name} PROPERTIES LABELS threads)
      add_dependencies(thread_tests ${name})
    elseif(line STREQUAL waits)
      set_tests_properties(${name} PROPERTIES COST 100 PROCESSORS 1)
    elseif(line STREQUAL first)
      set_tests_properties(${name} PROPERTIES COST 100)
    else()
      message(FATAL_ERROR "${source}: ctest: ${line}: allowed: first, waits, threads, device, variant=")
    endif()
  endforeach()
endfunction()

find_library(CMOCKA cmocka)
file(GLOB_RECURSE TESTS CONFIGURE_DEPENDS tests/test_*.c)
file(GLOB_RECURSE TEST_SUPPORT CONFIGURE_DEPENDS tests/support/*.c)
set(TEST_FAULTS ${TEST_SUPPORT})
list(FILTER TEST_FAULTS INCLUDE REGEX "/(faults|crash_states)\\.c$")
list(REMOVE_ITEM TEST_SUPPORT ${TEST_FAULTS})
set(TEST_CUDA orthant_cuda)
add_custom_target(thread_tests)
if(CMOCKA AND NOT OT_GPU_TESTS)
  enable_language(CXX)
  add_subdirectory(tests/cuda)
  set(TEST_CUDA cuda_shim)
endif()
if(CMOCKA)
  add_library(test_support STATIC ${TEST_SUPPORT})
  target_include_directories(test_support PUBLIC tests)
  target_compile_definitions(test_support PUBLIC OT_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    OT_BUILD_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(test_support PUBLIC orthant_cli orthant_engine ${TEST_CUDA} ${CMOCKA})
  # System calls that fail on demand replace those of the C library, so only tests that ask for them have
  # them: in test_support, some linkers would take them for every test.
  add_library(test_faults OBJECT ${TEST_FAULTS})
  target_link_libraries(test_faults PUBLIC test_support)
  foreach(source ${TESTS})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    file(STRINGS ${source} faults REGEX "support/(faults|crash_states)\\.h" LIMIT_COUNT 1)
    target_link_libraries(${name} PRIVATE $<$<BOOL:${faults}>:test_faults> test_support)
    target_compile_options(${name} PRIVATE -O1)  # half of the time to compile
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_cases(${name} ${source} "${test_environment}" ${name})
  endforeach()
endif()

# Readers of files from outside: tests/fuzz/fuzz_NAME.c replays tests/fuzz/corpus/NAME. With OT_FUZZ the
# same program is libFuzzer's and searches for new inputs (tests/fuzz/run.sh).
file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
add_library(fuzz_harness OBJECT tests/fuzz/harness.c
  $<$<NOT:$<BOOL:${OT_FUZZ}>>:tests/fuzz/replay.c>)
target_include_directories(fuzz_harness PUBLIC tests)
target_compile_definitions(fuzz_harness PUBLIC OT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(fuzz_harness PUBLIC orthant_cli orthant_engine orthant_cuda
  $<$<BOOL:${OT_FUZZ}>:-fsanitize=fuzzer>)
add_custom_target(fuzz_programs)
foreach(source ${FUZZ_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE fuzz_ "" kind ${name})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE fuzz_harness)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(fuzz_programs ${name})
  if(NOT OT_FUZZ)
    add_case(${name} ${test_timeout} "" ${name} tests/fuzz/corpus/${kind})
  endif()
endforeach()
# Its reader needs no CUDA, but is part of kernels for GPUs.
target_sources(fuzz_gemm PRIVATE src/machine/kernels/cuda/gemm_table.c
  src/machine/kernels/cuda/gemm_plan.c)

# A library that breaks calls of a process (tools/torture.py).
if(CMOCKA AND NOT OT_SANITIZE)
  add_library(break_calls MODULE tests/torture/break_calls.c)
  set_target_properties(break_calls PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(break_calls PRIVATE _GNU_SOURCE)
  target_link_libraries(break_calls PRIVATE ${CMAKE_DL_LIBS})
endif()

file(GLOB_RECURSE TEST_SCRIPTS CONFIGURE_DEPENDS tests/test_*.sh)
foreach(source ${TEST_SCRIPTS})
  get_filename_component(name ${source} NAME_WE)
  add_cases(${name} ${source} OMP_WAIT_POLICY=passive bash ${source} $<TARGET_FILE:orthant>)
endforeach()

if(NOT OT_SANITIZE)
  file(GLOB PAGES CONFIGURE_DEPENDS README.md docs/*.md docs/internals/*.md)
  foreach(page ${PAGES})
    get_filename_component(name ${page} NAME_WE)
    set(command bash tests/docs/run_page.sh $<TARGET_FILE:orthant> ${page})
    add_case(document_${name} 300 "" ${command})
    file(STRINGS ${page} slow REGEX "^<!-- test:.*slow" LIMIT_COUNT 1)
    if(slow)
      add_case(document_${name}_full ${full_timeout} "OMP_WAIT_POLICY=passive;OT_TESTS=full" ${command})
    endif()
  endforeach()
  add_case(lint ${test_timeout} "" tools/lint . ${CMAKE_BINARY_DIR})
endif()
