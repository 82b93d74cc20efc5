# Warnings, launcher and sanitizers for every target of the project. Dropping a [[nodiscard]] result, such as an
# absl::Status, is an error.
set(HILBERT_RING_WARNINGS -Wall -Wextra -Werror=unused-result -Wno-unused-parameter
  -Wno-missing-field-initializers)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${HILBERT_RING_WARNINGS}>")

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's default collects garbage as if memory were scarce, which takes a tenth of its time with gRPC's headers. With
  # this setting the largest files take up to 1.3 GB.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=2000000>")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # ccache stores objects with precompiled headers only if it may ignore macros and dates in them.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# The GPU's image and bundle contain programs of the build folder. CMake ends a build's own RUNPATH with an empty
# element, which means the current folder to the loader.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(HILBERT_RING_SANITIZER)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HILBERT_RING_SANITIZER}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${HILBERT_RING_SANITIZER})
endif()
if(HILBERT_RING_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Compiles up to eight files of a target as one, in this folder and below, because headers take most of a file's time,
# gRPC's above all.
macro(hilbert_ring_compile_together)
  set(CMAKE_UNITY_BUILD ${HILBERT_RING_UNITY})
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
endmacro()

# Makes all programs and static libraries of this folder and below use the service's precompiled headers, which are
# compiled for programs and with threads.
function(hilbert_ring_precompile_below folder)
  if(NOT HILBERT_RING_UNITY)
    return()
  endif()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(relocatable ${target} POSITION_INDEPENDENT_CODE)
    if(type MATCHES "STATIC_LIBRARY|EXECUTABLE" AND NOT relocatable)
      target_compile_options(${target} PRIVATE -pthread)
      target_include_directories(${target} SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/proto)
      target_precompile_headers(${target} REUSE_FROM hilbert_ring_service_headers)
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below ${folders})
    hilbert_ring_precompile_below(${below})
  endforeach()
endfunction()
