# hilbert_ring_test(NAME x_test SOURCES a.cc ... LIBRARIES l ... [LABELS ...] [TIMEOUT seconds]
#   [FILTER as gtest takes it] [ENVIRONMENT name=value] [PREFIX of the tests' names] [ALONE: beside no other test])
# Tests of one folder need different names: properties go by them.
function(hilbert_ring_test)
  cmake_parse_arguments(ARG "ALONE" "NAME;TIMEOUT;FILTER;ENVIRONMENT;PREFIX" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LIBRARIES} GTest::gmock hilbert_ring_test_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    HILBERT_RING_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden/cases")
  set(filter "")
  if(ARG_FILTER)
    set(filter TEST_FILTER ${ARG_FILTER})
  endif()
  gtest_discover_tests(${ARG_NAME} ${filter} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    TEST_PREFIX "${ARG_PREFIX}" PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" RUN_SERIAL ${ARG_ALONE} ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# From here on in this folder and those below: tests that compute little are compiled with -O1, which takes two
# thirds to four fifths of the time.
macro(hilbert_ring_light_optimization)
  add_compile_options("$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
endmacro()
