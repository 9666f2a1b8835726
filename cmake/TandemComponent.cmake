# tandem_component(passes SOURCES a.cpp b.cpp DEPENDS base ir ops)
#
# One object library, tandem_<name>, for a folder of src/. DEPENDS names the folders that it includes;
# they must have been declared before, so the order in src/CMakeLists.txt is the order of the layers.
# A folder without sources makes no target.
function(tandem_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  get_property(declared GLOBAL PROPERTY TANDEM_DECLARED)
  foreach(dependency IN LISTS arg_DEPENDS)
    if(NOT dependency IN_LIST declared)
      message(FATAL_ERROR "component ${name} depends on ${dependency}, which does not come before it")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TANDEM_DECLARED ${name})
  if(NOT arg_SOURCES)
    return()
  endif()

  add_library(tandem_${name} OBJECT ${arg_SOURCES})
  if(TANDEM_UNITY)
    # One compilation per sub-folder: what lies together shares most of its headers.
    foreach(source IN LISTS arg_SOURCES)
      get_filename_component(group "${source}" DIRECTORY)
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "part_${group}")
    endforeach()
    set_target_properties(tandem_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  if(name STREQUAL "base")
    target_link_libraries(tandem_${name} PRIVATE tandem_flags)
  else()
    target_link_libraries(tandem_${name} PRIVATE tandem_component_flags)
    target_precompile_headers(tandem_${name} REUSE_FROM tandem_pch)
  endif()
  set_property(GLOBAL APPEND PROPERTY TANDEM_COMPONENTS ${name})
endfunction()

# tandem_test(golden SOURCES a_test.cpp b_test.cpp [SHARDS 2] [LABELS threads] [ON_EAGER])
# tandem_test(unit/ir SOURCES graph_test.cpp)
#
# One program, tandem_test_<folder>, of all GoogleTest cases of a test folder; CTest label = first part
# of the folder. It links the objects, so internals are tested without being exported. The program of
# unit/<component> links that component and those before it, any other program all of them.
# CTest starts it once per shard, never once per case: loading libtorch takes longer than most cases.
# ON_EAGER: it compares bits, so it runs on the backend eager unless TANDEM_BACKEND says otherwise.
function(tandem_test folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ON_EAGER" "SHARDS" "SOURCES;LABELS")
  if(NOT arg_SOURCES)
    return()
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  string(REPLACE "/" "_" program "tandem_test_${folder}")
  string(REGEX REPLACE "/.*" "" label "${folder}")
  get_filename_component(component "${folder}" NAME)

  add_executable(${program} ${arg_SOURCES})
  target_link_libraries(${program} PRIVATE tandem_test_flags tandem_test_strict GTest::gtest_main)
  target_precompile_headers(${program} REUSE_FROM tandem_test_pch)
  tandem_link_objects(${program} UP_TO "${component}")
  if(TARGET tandem_test_support)
    target_link_libraries(${program} PRIVATE tandem_test_support)
  endif()
  if(arg_ON_EAGER)
    target_link_libraries(${program} PRIVATE tandem_test_on_eager)
  endif()

  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    string(REPLACE "/" "." test "${folder}")
    if(arg_SHARDS GREATER 1)
      string(APPEND test ".${shard}")
    endif()
    add_test(NAME ${test} COMMAND ${program})
    set_tests_properties(
      ${test} PROPERTIES LABELS "${label};${arg_LABELS}" TIMEOUT 900
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# tandem_test_run(differential llvm [SHARDS 2] [WITHOUT Cases.OfEager*])
#
# Another run of a program made by tandem_test, on this backend; the test is called differential.llvm.
function(tandem_test_run folder backend)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SHARDS" "WITHOUT")
  string(REPLACE "/" "_" program "tandem_test_${folder}")
  if(NOT TARGET ${program})
    return()
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  string(REGEX REPLACE "/.*" "" label "${folder}")
  string(REPLACE ";" ":" without "${arg_WITHOUT}")
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    string(REPLACE "/" "." test "${folder}.${backend}")
    if(arg_SHARDS GREATER 1)
      string(APPEND test ".${shard}")
    endif()
    add_test(NAME ${test} COMMAND ${program} "--gtest_filter=-${without}")
    set_tests_properties(
      ${test}
      PROPERTIES LABELS ${label} TIMEOUT 900
                 ENVIRONMENT "TANDEM_BACKEND=${backend};GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# tandem_test_support(SOURCES a.cpp): what test folders share, tests/support. An archive, so that a
# program takes only the files that it uses.
function(tandem_test_support)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SOURCES")
  if(NOT arg_SOURCES)
    return()
  endif()
  add_library(tandem_test_support STATIC ${arg_SOURCES})
  target_link_libraries(tandem_test_support PRIVATE tandem_test_flags)
  target_precompile_headers(tandem_test_support REUSE_FROM tandem_test_pch)
endfunction()

# tandem_program(name SOURCES a.cpp [LIBRARIES CLI11::CLI11] [LABEL examples] [TEST args...])
#
# A program outside the border (tool, example): it sees include/tandem and links libtandem. With TEST it
# is also run by CTest, with these arguments.
function(tandem_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;LIBRARIES;TEST")
  if(NOT TARGET tandem)
    message(STATUS "tandem: no library yet, ${name} is left out")
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tandem::tandem tandem_program_flags ${arg_LIBRARIES})
  if("TEST" IN_LIST ARGN AND TANDEM_BUILD_TESTS)
    if(NOT arg_LABEL)
      set(arg_LABEL examples)
    endif()
    add_test(NAME ${arg_LABEL}.${name} COMMAND ${name} ${arg_TEST})
    set_tests_properties(${arg_LABEL}.${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT 900)
  endif()
endfunction()

# tandem_benchmark(name SOURCES a.cpp)
#
# A Google Benchmark program. The target bench runs all of them; results are <build>/bench/<name>.json.
function(tandem_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  find_package(benchmark REQUIRED)
  tandem_program(${name} SOURCES ${arg_SOURCES} LIBRARIES benchmark::benchmark benchmark::benchmark_main)
  set_property(GLOBAL APPEND PROPERTY TANDEM_BENCHMARKS ${name})
endfunction()

# Links the objects of all components, or of those up to one.
function(tandem_link_objects target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "UP_TO" "")
  get_property(declared GLOBAL PROPERTY TANDEM_DECLARED)
  get_property(components GLOBAL PROPERTY TANDEM_COMPONENTS)
  foreach(name IN LISTS declared)
    if(name IN_LIST components)
      target_link_libraries(${target} PRIVATE tandem_${name})
    endif()
    if("${name}" STREQUAL "${arg_UP_TO}")
      break()
    endif()
  endforeach()
endfunction()

function(tandem_add_pch name flags)
  # A target needs a source for its precompiled header to be built.
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/${name}.cpp" CONTENT "")
  add_library(${name} OBJECT "${PROJECT_BINARY_DIR}/generated/${name}.cpp")
  target_link_libraries(${name} PRIVATE ${flags})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# Shared by every component but base. Sources must still include what they use: the preset ci-clang
# builds without it.
tandem_add_pch(
  tandem_pch
  tandem_component_flags
  <algorithm>
  <array>
  <atomic>
  <cstdint>
  <functional>
  <map>
  <memory>
  <mutex>
  <optional>
  <ostream>
  <span>
  <sstream>
  <string>
  <string_view>
  <tuple>
  <unordered_map>
  <unordered_set>
  <utility>
  <variant>
  <vector>
  <ATen/core/dispatch/Dispatcher.h>
  <torch/csrc/autograd/function.h>
  <torch/csrc/autograd/saved_variable.h>)
