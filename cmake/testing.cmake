# hilbert_ring_test(NAME x_test SOURCES a.cc ... LIBRARIES l ... [LABEL fast|slow] [TIMEOUT seconds]
#   [FILTER as gtest takes it] [ENVIRONMENT name=value] [ALONE: beside no other test])
# One entry of ctest runs all cases of the program. `./dev test fast` runs the label fast, `./dev test` all but slow.
# Programs of the label slow are built by the target slow_tests alone. Without LABEL a test has that of its folder.
add_custom_target(slow_tests)
add_custom_target(fast_tests)
function(hilbert_ring_test)
  cmake_parse_arguments(ARG "ALONE" "NAME;TIMEOUT;FILTER;ENVIRONMENT;LABEL" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL ${HILBERT_RING_TEST_LABEL})
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LIBRARIES} GTest::gmock hilbert_ring_test_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    HILBERT_RING_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden/cases")
  set(arguments --gtest_brief=1)
  if(ARG_FILTER)
    list(APPEND arguments --gtest_filter=${ARG_FILTER})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} ${arguments})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE}
    ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(ARG_LABEL)
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS ${ARG_LABEL})
    add_dependencies(${ARG_LABEL}_tests ${ARG_NAME})
  endif()
  if(ARG_LABEL STREQUAL slow)
    set_target_properties(${ARG_NAME} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
endfunction()

# From here on in this folder and those below: tests that compute little are compiled with -O1, which takes two
# thirds to four fifths of the time.
macro(hilbert_ring_light_optimization)
  add_compile_options("$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
endmacro()
