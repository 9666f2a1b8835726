# Compiler and linker flags, in one place. A precompiled header can be shared only between targets
# with the same flags and definitions, so no folder adds its own.

# Everything we compile, programs outside the border included.
add_library(tandem_program_flags INTERFACE)
target_compile_features(tandem_program_flags INTERFACE cxx_std_20)
target_compile_options(tandem_program_flags INTERFACE -Wall -Wextra $<$<BOOL:${TANDEM_WERROR}>:-Werror>)
if(TANDEM_WERROR AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 believe that libtorch's reference counts, inlined into ours, are read beyond their end, that lists
  # of one element are copied beyond theirs, and that an empty optional is read.
  target_compile_options(
    tandem_program_flags INTERFACE -Wno-error=stringop-overflow -Wno-error=array-bounds -Wno-error=maybe-uninitialized)
endif()

# The library and its tests.
add_library(tandem_flags INTERFACE)
target_include_directories(
  tandem_flags INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src"
                         "${PROJECT_BINARY_DIR}/generated")
target_compile_options(
  tandem_flags
  INTERFACE # Written out, not left to CMake's property: that gives programs -fPIE, and they would refuse
            # a precompiled header made with -fPIC.
            -fPIC
            -fvisibility=hidden
            -fvisibility-inlines-hidden
            # Without it a time stamp ends up in the header and ccache never hits.
            "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
# fmt without its shared library: the shipped library should need nothing but libtorch.
target_link_libraries(tandem_flags INTERFACE tandem_program_flags fmt::fmt-header-only Threads::Threads)

if(TANDEM_SANITIZE)
  set(sanitize -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer)
  if(TANDEM_SANITIZE MATCHES "undefined")
    # vptr and function compare type information with libtorch's, which hides part of it.
    list(APPEND sanitize -fno-sanitize=vptr,function -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(tandem_program_flags INTERFACE ${sanitize})
  target_link_options(tandem_program_flags INTERFACE ${sanitize})
endif()

# lld links a test program in half a second, ld in several. g++ does not find a versioned lld by
# itself: -B names the folder that holds the plain name.
find_program(TANDEM_LLD NAMES ld.lld PATHS /usr/lib/llvm-19/bin)
mark_as_advanced(TANDEM_LLD)
if(TANDEM_LLD)
  get_filename_component(lld_dir "${TANDEM_LLD}" DIRECTORY)
  target_link_options(tandem_program_flags INTERFACE -B${lld_dir} -fuse-ld=lld)
else()
  message(STATUS "tandem: lld not found, using the default linker")
endif()

# What every folder but base uses.
add_library(tandem_torch_flags INTERFACE)
target_link_libraries(tandem_torch_flags INTERFACE tandem_flags Torch::Torch)

# Library sources include the operators that they call, one header each; tests include torch/torch.h.
add_library(tandem_component_flags INTERFACE)
target_link_libraries(tandem_component_flags INTERFACE tandem_torch_flags LibdwHeaders::LibdwHeaders)
target_compile_definitions(tandem_component_flags INTERFACE AT_PER_OPERATOR_HEADERS)

configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.h.in" "${PROJECT_BINARY_DIR}/generated/base/build_info.h"
               @ONLY)
