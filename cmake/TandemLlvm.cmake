# LLVM 19, static: the code generator of backends/llvm_cpu. Defines tandem_llvm, which carries the
# libraries to link; the sources that include LLVM's headers are named with tandem_llvm_sources.

find_package(LLVM 19.1 CONFIG QUIET HINTS /usr/lib/llvm-19/lib/cmake/llvm)
if(NOT LLVM_FOUND)
  message(
    FATAL_ERROR
      "tandem: LLVM 19.1 with its static libraries was not found (or its libzstd and zlib are missing).\n"
      "On Debian and Ubuntu run scripts/setup.sh, or install llvm-19-dev, libzstd-dev and zlib1g-dev;\n"
      "elsewhere name the folder that holds LLVMConfig.cmake: -DLLVM_DIR=<folder>.")
endif()
llvm_map_components_to_libnames(tandem_llvm_libraries x86codegen x86desc x86info scalaropts instcombine)
foreach(library IN LISTS tandem_llvm_libraries)
  if(NOT TARGET ${library})
    message(FATAL_ERROR "tandem: LLVM in ${LLVM_DIR} has no static library ${library}; install llvm-19-dev")
  endif()
endforeach()

add_library(tandem_llvm INTERFACE)
target_link_libraries(tandem_llvm INTERFACE ${tandem_llvm_libraries})
# What LLVM's libraries ask for without using it here (z3 among others) stays out.
target_link_options(tandem_llvm INTERFACE LINKER:--as-needed LINKER:--gc-sections)

# tandem_llvm_sources(a.cpp b.cpp): these include LLVM's headers. The shared precompiled header is not
# theirs: LLVM's and libtorch's macros are kept apart, and few files pay for LLVM's.
function(tandem_llvm_sources)
  set_source_files_properties(
    ${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "-isystem;${LLVM_INCLUDE_DIRS}")
endfunction()
