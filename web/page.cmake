# SPDX-License-Identifier: Apache-2.0
# `make page`: the planning half as WebAssembly, and the page that holds it. Needs clang with the
# target wasm32, wasm-ld and wasm-opt; without them the target says so. Nothing of it is part of
# `all`.
#   build/page/orthant.wasm   no imports      build/page/orthant.html   everything, in one file
find_program(OT_WASM_CLANG NAMES clang-14 clang)
find_program(OT_WASM_LINKER NAMES wasm-ld-14 wasm-ld)
find_program(OT_WASM_OPTIMIZER NAMES wasm-opt)
set(PAGE ${CMAKE_BINARY_DIR}/page)
if(NOT OT_WASM_CLANG OR NOT OT_WASM_LINKER OR NOT OT_WASM_OPTIMIZER)
  add_custom_target(page COMMAND ${CMAKE_COMMAND} -E echo
    "error: clang, wasm-ld and wasm-opt are needed: apt-get install clang-14 lld-14 binaryen"
    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

# Doubles as on the host: no contraction. A module has one thread.
set(WASM_FLAGS --target=wasm32 -flto -std=c17 -mbulk-memory -mnontrapping-fptoint
  -fno-math-errno -fno-trapping-math -ffp-contract=off -fvisibility=hidden -D_Thread_local=
  -nostdlibinc -I${CMAKE_SOURCE_DIR}/web/include)
foreach(folder ${INCLUDES})
  list(APPEND WASM_FLAGS -I${folder})
endforeach()
list(APPEND WASM_FLAGS -Wall -Wextra)
if(OT_WERROR)
  list(APPEND WASM_FLAGS -Werror)
endif()
set(WASM_LINK ${OT_WASM_LINKER} --no-entry --strip-all --lto-O3 -O2 --stack-first
  -z stack-size=1048576)
file(MAKE_DIRECTORY ${PAGE}/objects)

function(wasm_objects out flags)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(object ${PAGE}/objects/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${OT_WASM_CLANG} ${WASM_FLAGS} ${flags} -MD
        -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# ---- the planner: small, but for the files in which a search spends its time ----
set(FAST arena math text workspace candidate emit program catalog pipeline_flow pipeline_walk
  block_phases schedule segment step_events step_outline step_regions step_segments storage price
  price_kernel estimate flow_list framework_described framework_scheduled phase_price price_list
  step_replay bound_stage search)
set(FAST_SOURCES)
set(PLANNER)
foreach(source ${SOURCES_plan})
  get_filename_component(name ${source} NAME)
  get_filename_component(stem ${source} NAME_WE)
  if(stem IN_LIST FAST)
    list(APPEND FAST_SOURCES ${source})
  elseif(name MATCHES "_keys\\.c$")
    set(short ${PAGE}/objects/${name})
    add_custom_command(OUTPUT ${short} DEPENDS ${source} web/shorten.sh
      COMMAND ${CMAKE_SOURCE_DIR}/web/shorten.sh ${source} ${short})
    list(APPEND PLANNER ${short})
  elseif(NOT name MATCHES "^(status_trace|program_check)\\.c$")  # web/host.c has its own
    list(APPEND PLANNER ${source})
  endif()
endforeach()
wasm_objects(FAST_OBJECTS "-O2;-msign-ext" ${FAST_SOURCES})
wasm_objects(PLANNER_OBJECTS "-Oz;-msign-ext" ${PLANNER} ${CMAKE_SOURCE_DIR}/web/host.c)
add_custom_command(OUTPUT ${PAGE}/orthant.wasm
  COMMAND ${WASM_LINK} -o ${PAGE}/linked.wasm ${FAST_OBJECTS} ${PLANNER_OBJECTS}
  COMMAND ${OT_WASM_OPTIMIZER} --enable-bulk-memory --enable-nontrapping-float-to-int
    --enable-sign-ext --low-memory-unused -Oz ${PAGE}/linked.wasm -o ${PAGE}/orthant.wasm
  DEPENDS ${FAST_OBJECTS} ${PLANNER_OBJECTS})

file(GLOB PAGE_PARTS CONFIGURE_DEPENDS web/*.js web/*.css web/*.html presets/*/*)
add_custom_command(OUTPUT ${PAGE}/orthant.html
  COMMAND ${CMAKE_SOURCE_DIR}/web/bundle.sh ${PAGE} $<TARGET_FILE:orthant>
  DEPENDS ${PAGE}/orthant.wasm orthant ${PAGE_PARTS} web/bundle.sh web/text_of.awk
    src/tools/report/page_style.c
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
add_custom_target(page DEPENDS ${PAGE}/orthant.html)
