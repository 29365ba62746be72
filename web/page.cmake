# SPDX-License-Identifier: Apache-2.0
# `make page`: the planning half as WebAssembly, and the page that holds it. Needs clang with the
# target wasm32 and wasm-ld; without them the target says so. Nothing of it is part of `all`.
#   build/page/orthant.wasm   no imports      build/page/orthant.html   everything, in one file
find_program(OT_WASM_CLANG NAMES clang-14 clang)
find_program(OT_WASM_LINKER NAMES wasm-ld-14 wasm-ld)
set(PAGE ${CMAKE_BINARY_DIR}/page)
if(NOT OT_WASM_CLANG OR NOT OT_WASM_LINKER)
  add_custom_target(page COMMAND ${CMAKE_COMMAND} -E echo
    "error: clang and wasm-ld are needed: apt-get install clang-14 lld-14"
    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

# Doubles as on the host: no contraction. The module has one thread.
set(WASM_FLAGS --target=wasm32 -Oz -flto -std=c17 -mbulk-memory -msign-ext -mnontrapping-fptoint
  -fno-math-errno -fno-trapping-math -ffp-contract=off -fvisibility=hidden -D_Thread_local=
  -nostdlibinc -I${CMAKE_SOURCE_DIR}/web/include -I${CMAKE_SOURCE_DIR}/src)
# Where a search spends its time: for speed, the rest for size.
set(WASM_HOT arena bound candidate chain_partition estimate lookup math parallel_check pipeline_flow
  price price_kernel search sort space step_outline step_replay)
set(WASM_OBJECTS)
foreach(source ${PURE} ${CMAKE_SOURCE_DIR}/web/host.c)
  get_filename_component(name ${source} NAME_WE)
  set(object ${PAGE}/objects/${name}.o)
  set(speed)
  if(name IN_LIST WASM_HOT)
    set(speed -O2)
  endif()
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${OT_WASM_CLANG} ${WASM_FLAGS} ${speed} -MD -MF ${object}.d
      -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d)
  list(APPEND WASM_OBJECTS ${object})
endforeach()
file(MAKE_DIRECTORY ${PAGE}/objects)
add_custom_command(OUTPUT ${PAGE}/orthant.wasm
  COMMAND ${OT_WASM_LINKER} --no-entry --strip-all --lto-O3 -O2 --stack-first -z stack-size=1048576
    -o ${PAGE}/orthant.wasm ${WASM_OBJECTS}
  DEPENDS ${WASM_OBJECTS})

file(GLOB PAGE_PARTS CONFIGURE_DEPENDS web/*.js web/*.css web/*.html presets/*/*)
add_custom_command(OUTPUT ${PAGE}/orthant.html
  COMMAND ${CMAKE_SOURCE_DIR}/web/bundle.sh ${PAGE}/orthant.wasm ${PAGE}/orthant.html
  DEPENDS ${PAGE}/orthant.wasm ${PAGE_PARTS} web/bundle.sh WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
add_custom_target(page DEPENDS ${PAGE}/orthant.html)
