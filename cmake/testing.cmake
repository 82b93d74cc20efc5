# hilbert_ring_test(NAME x_test SOURCES a.cc ... LIBRARIES l ... [TIMEOUT seconds] [FILTER of gtest]
#   [ENVIRONMENT name=value] [ALONE: runs beside no other test])
# One test of ctest runs all cases of the program. `./dev test fast` runs the label fast, `./dev test` all except slow.
# HILBERT_RING_FAST_TESTS gives a folder's programs the label fast.
add_custom_target(fast_tests)
function(hilbert_ring_test)
  cmake_parse_arguments(ARG "ALONE" "NAME;TIMEOUT;FILTER;ENVIRONMENT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LIBRARIES} GTest::gmock hilbert_ring_test_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    HILBERT_RING_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden/cases")
  if(CMAKE_UNITY_BUILD)
    target_link_libraries(${ARG_NAME} PRIVATE hilbert_ring_proto)  # the precompiled headers include its headers
    target_precompile_headers(${ARG_NAME} REUSE_FROM hilbert_ring_test_headers)
  endif()
  set(arguments --gtest_brief=1)
  if(ARG_FILTER)
    list(APPEND arguments --gtest_filter=${ARG_FILTER})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${arguments})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE}
    ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(HILBERT_RING_FAST_TESTS)
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS fast)
    add_dependencies(fast_tests ${ARG_NAME})
  endif()
endfunction()

# Compiles tests that compute little with -Og, in this folder and below, which takes half to four fifths of the time.
macro(hilbert_ring_light_optimization)
  add_compile_options("$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>")
endmacro()
