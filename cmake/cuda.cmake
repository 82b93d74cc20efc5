# Finds nvcc, and sets HILBERT_RING_HAS_CUDA. All code for nvcc is in engine/device/cuda.
set(HILBERT_RING_CUDA_ARCHITECTURES "80;90" CACHE STRING
  "Compute capabilities to build kernels for; PTX of the last serves newer GPUs. Or: all")

set(HILBERT_RING_HAS_CUDA FALSE)
if(NOT HILBERT_RING_CUDA STREQUAL "OFF")
  find_program(HILBERT_RING_NVCC nvcc
    PATHS ENV CUDACXX /usr/local/cuda/bin PATH_SUFFIXES bin)
  find_package(CUDAToolkit QUIET)
  if(HILBERT_RING_NVCC AND CUDAToolkit_FOUND)
    set(CMAKE_CUDA_COMPILER ${HILBERT_RING_NVCC})
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # -gencode below selects them
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(HILBERT_RING_HAS_CUDA TRUE)
  elseif(HILBERT_RING_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HILBERT_RING_CUDA is ON, but nvcc and its toolkit were not found")
  endif()
endif()

if(HILBERT_RING_HAS_CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # missing in CMake 3.25
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()

  set(architectures ${HILBERT_RING_CUDA_ARCHITECTURES})
  if(architectures STREQUAL "all")
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code
      OUTPUT_VARIABLE codes OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "sm_[0-9]+" codes "${codes}")
    list(REMOVE_DUPLICATES codes)
    list(TRANSFORM codes REPLACE "sm_" "" OUTPUT_VARIABLE architectures)
  endif()
  list(SORT architectures COMPARE NATURAL)

  # Hopper's own products run on no earlier or later GPU.
  set(HILBERT_RING_CUDA_WARPGROUPS FALSE)
  if("90" IN_LIST architectures)
    set(HILBERT_RING_CUDA_WARPGROUPS TRUE)
  endif()
  # These kernels get tensor maps from the driver by a call of the runtime since CUDA 12.5.
  set(HILBERT_RING_CUDA_PIPELINES FALSE)
  if(HILBERT_RING_CUDA_WARPGROUPS AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.5)
    set(HILBERT_RING_CUDA_PIPELINES TRUE)
  endif()

  # Sets `result` to nvcc's options for kernels of compute capability `least` and above.
  function(hilbert_ring_gencode least result)
    set(options "")
    foreach(architecture ${architectures})
      if(architecture GREATER_EQUAL ${least})
        list(APPEND options "-gencode=arch=compute_${architecture},code=sm_${architecture}")
        set(newest ${architecture})
      endif()
    endforeach()
    if(NOT newest)
      message(FATAL_ERROR
        "HILBERT_RING_CUDA_ARCHITECTURES is ${HILBERT_RING_CUDA_ARCHITECTURES}, must have ${least} or more")
    endif()
    list(APPEND options "-gencode=arch=compute_${newest},code=compute_${newest}")
    set(${result} "${options}" PARENT_SCOPE)
  endfunction()
endif()

# cuDNN's attention needs the headers of cudnn-frontend (PyPI: nvidia-cudnn-frontend) and of cuDNN. The program loads
# cuDNN at run time.
option(HILBERT_RING_CUDNN "Build cuDNN's attention if its headers are found" ON)
set(HILBERT_RING_CUDNN_FRONTEND "")
if(HILBERT_RING_HAS_CUDA AND HILBERT_RING_CUDNN)
  find_path(HILBERT_RING_CUDNN_FRONTEND_DIR cudnn_frontend.h
    DOC "Folder of cudnn-frontend's headers")
  find_path(HILBERT_RING_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(HILBERT_RING_CUDNN_FRONTEND_DIR AND HILBERT_RING_CUDNN_INCLUDE)
    set(HILBERT_RING_CUDNN_FRONTEND ${HILBERT_RING_CUDNN_FRONTEND_DIR})
  endif()
endif()

# Encoders on a GPU need cuBLASLt's header. The library is loaded at run time.
option(HILBERT_RING_CUBLASLT "Build encoders on a GPU if cuBLASLt's header is found" ON)
set(HILBERT_RING_CUBLASLT_INCLUDE "")
if(HILBERT_RING_HAS_CUDA AND HILBERT_RING_CUBLASLT)
  find_path(HILBERT_RING_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(HILBERT_RING_CUBLASLT_INCLUDE_DIR)
    set(HILBERT_RING_CUBLASLT_INCLUDE ${HILBERT_RING_CUBLASLT_INCLUDE_DIR})
  endif()
endif()
