# Targets for people at work on tandem: format, lint, bench.

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
add_custom_target(
  format
  COMMAND "${PROJECT_SOURCE_DIR}/scripts/lint.sh" --format
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  USES_TERMINAL)
add_custom_target(
  lint
  COMMAND "${PROJECT_SOURCE_DIR}/scripts/lint.sh" --build-dir "${PROJECT_BINARY_DIR}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  USES_TERMINAL)

get_property(benchmarks GLOBAL PROPERTY TANDEM_BENCHMARKS)
get_property(comparisons GLOBAL PROPERTY TANDEM_COMPARISONS)
if(TARGET capture_bench)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  foreach(target IN ITEMS bench bench-quick)
    add_custom_target(
      ${target}
      COMMAND
        "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/benchmarks/run_all.py" --bin
        "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" --out "${PROJECT_BINARY_DIR}/${target}" --peer
        "${PROJECT_SOURCE_DIR}/.venv/bin/python" --google ${benchmarks}
        "$<$<STREQUAL:${target},bench-quick>:--quick>"
      COMMAND_EXPAND_LISTS
      DEPENDS ${benchmarks} ${comparisons}
      USES_TERMINAL VERBATIM)
  endforeach()
endif()
