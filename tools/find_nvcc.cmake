# SPDX-License-Identifier: Apache-2.0
# Sets OT_NVCC to the nvcc that compiles the CUDA half, empty for a build without it: by OT_CUDA, the
# nvcc 13 on PATH, of /usr/local/cuda or of build/cuda (tools/dependencies.sh cuda), in this order.
set(OT_NVCC)
if(OT_CUDA STREQUAL "AUTO" AND OT_SANITIZE)
  return()  # sanitizers see the emulated GPU
endif()
if(OT_CUDA)
  find_program(OT_NVCC_FOUND NAMES nvcc HINTS ${CMAKE_CUDA_COMPILER}
    PATHS /usr/local/cuda/bin ${CMAKE_SOURCE_DIR}/build/cuda/nvidia/cu13/bin NO_CMAKE_SYSTEM_PATH)
endif()
if(OT_NVCC_FOUND AND OT_CUDA)
  execute_process(COMMAND ${OT_NVCC_FOUND} --version OUTPUT_VARIABLE version ERROR_QUIET)
  find_program(OT_CXX NAMES $ENV{CXX} c++ g++)
  if("${version}" MATCHES "release 13\\." AND OT_CXX)
    set(OT_NVCC ${OT_NVCC_FOUND})
  endif()
endif()
if(NOT OT_NVCC AND OT_CUDA AND NOT OT_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "OT_CUDA=${OT_CUDA}: no nvcc 13 with a C++ compiler is on PATH, in /usr/local/cuda "
    "or in build/cuda. Try `make CUDA=ON`, which installs one there, or OT_CUDA=OFF.")
endif()
if(OT_GPU_TESTS AND NOT OT_NVCC)
  message(FATAL_ERROR "OT_GPU_TESTS needs OT_CUDA=ON")
endif()
