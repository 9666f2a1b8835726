# Configures, builds and runs consumer/ against TREE: build, install, or wrong_torch, where the package
# must refuse a torch of another version.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " text "${ARGN}")
    message(FATAL_ERROR "failed (${status}): ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
# The package remembers its torch, and programs find libraries by their own run path.
unset(ENV{TORCH_DIR})
unset(ENV{LD_LIBRARY_PATH})

set(configure "${CMAKE_COMMAND}" -G ${GENERATOR} -S "${PROJECT_DIR}" -B "${WORK_DIR}/consumer"
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
if(TREE STREQUAL "install")
  run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --config "${CONFIG}" --prefix "${WORK_DIR}/prefix")
  run(${configure} "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix")
  foreach(file IN ITEMS include/tandem/tandem.h share/doc/tandem/LICENSE share/doc/tandem/README.md
                        share/doc/tandem/CHANGELOG.md share/doc/tandem/docs/architecture.md)
    if(NOT EXISTS "${WORK_DIR}/prefix/${file}")
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
  # The tool works from there, with the library beside it: wherever the prefix has been moved.
  if(EXISTS "${BUILD_DIR}/bin/tandem")
    file(RENAME "${WORK_DIR}/prefix" "${WORK_DIR}/moved")
    file(WRITE "${WORK_DIR}/graph.tdm" "graph g(%x: f32[2] user_input 0) {\n"
                                       "  %y: f32[2] = aten.exp(%x)\n  return %y: output 0\n}\n")
    run("${WORK_DIR}/moved/bin/tandem" verify "${WORK_DIR}/graph.tdm")
    file(RENAME "${WORK_DIR}/moved" "${WORK_DIR}/prefix")
  endif()
elseif(TREE STREQUAL "build")
  run(${configure} "-Dtandem_DIR=${BUILD_DIR}")
else()
  set(torch "${WORK_DIR}/torch")
  foreach(file IN ITEMS include/ATen/ATen.h lib/libtorch.so lib/libtorch_cpu.so lib/libc10.so)
    file(WRITE "${torch}/${file}" "")
  endforeach()
  file(WRITE "${torch}/include/torch/headeronly/version.h"
       "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n#define TORCH_VERSION_PATCH 1\n")
  execute_process(COMMAND ${configure} "-Dtandem_DIR=${BUILD_DIR}" "-DTORCH_DIR=${torch}" RESULT_VARIABLE status
                  OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if(status EQUAL 0 OR NOT text MATCHES "built with torch [0-9.]+ but [^ ]+ is torch 2.99.1: set TORCH_DIR")
    message(FATAL_ERROR "expected a sentence about the other torch, got (${status}): ${text}")
  endif()
  return()
endif()
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/consumer")
run("${WORK_DIR}/consumer/app")
