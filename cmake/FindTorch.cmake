# Finds libtorch without torch's own CMake files: for a CUDA build those demand a CUDA toolkit, which
# nobody needs just to link. Works for a torch Python package and for an unpacked libtorch archive.
#
# Reads    TORCH_DIR (cache or environment variable): a torch package or libtorch folder.
#          Otherwise .venv/lib/python3*/site-packages/torch of the project.
# Gives    Torch::Torch, Torch_VERSION, Torch_ROOT_DIR, Torch_INCLUDE_DIRS, Torch_LIBRARY_DIR and
#          Torch_HAS_CUDA.

include(FindPackageHandleStandardArgs)

if(NOT TORCH_DIR AND DEFINED ENV{TORCH_DIR} AND NOT "$ENV{TORCH_DIR}" STREQUAL "")
  get_filename_component(_torch_env "$ENV{TORCH_DIR}" ABSOLUTE)
  set(TORCH_DIR "${_torch_env}" CACHE PATH "A torch package folder or a libtorch folder" FORCE)
endif()
set(TORCH_DIR "" CACHE PATH "A torch package folder or a libtorch folder; empty: the project's .venv")

if(TORCH_DIR)
  # No silent fall-back: whoever names a folder wants that one.
  set(_torch_candidates "${TORCH_DIR}" "${TORCH_DIR}/torch" "${TORCH_DIR}/libtorch")
else()
  file(GLOB _torch_candidates "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  if(TORCH_DEFAULT_DIR)  # set by tandemConfig.cmake
    list(PREPEND _torch_candidates "${TORCH_DEFAULT_DIR}")
  endif()
endif()

set(Torch_ROOT_DIR "")
foreach(_torch_candidate IN LISTS _torch_candidates)
  if(EXISTS "${_torch_candidate}/include/ATen/ATen.h")
    set(Torch_ROOT_DIR "${_torch_candidate}")
    break()
  endif()
endforeach()

set(Torch_INCLUDE_DIRS "")
set(Torch_LIBRARY_DIR "")
set(Torch_VERSION "")
set(Torch_HAS_CUDA FALSE)
if(Torch_ROOT_DIR)
  set(Torch_INCLUDE_DIRS "${Torch_ROOT_DIR}/include" "${Torch_ROOT_DIR}/include/torch/csrc/api/include")
  foreach(_torch_name IN ITEMS torch torch_cpu c10)
    set(_torch_${_torch_name} "${Torch_ROOT_DIR}/lib/lib${_torch_name}.so")
    if(NOT EXISTS "${_torch_${_torch_name}}")
      set(_torch_${_torch_name} "_torch_${_torch_name}-NOTFOUND")
    endif()
  endforeach()
  if(_torch_torch_cpu)
    set(Torch_LIBRARY_DIR "${Torch_ROOT_DIR}/lib")
  endif()
  if(EXISTS "${Torch_ROOT_DIR}/lib/libtorch_cuda.so")
    set(Torch_HAS_CUDA TRUE)
  endif()

  # The header moved between releases.
  foreach(_torch_header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT Torch_VERSION AND EXISTS "${Torch_ROOT_DIR}/include/${_torch_header}")
      file(STRINGS "${Torch_ROOT_DIR}/include/${_torch_header}" _torch_lines
           REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      if("${_torch_lines}" MATCHES "MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+)")
        set(Torch_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
      endif()
    endif()
  endforeach()
endif()

find_package_handle_standard_args(
  Torch
  REQUIRED_VARS Torch_ROOT_DIR Torch_INCLUDE_DIRS Torch_LIBRARY_DIR _torch_torch _torch_torch_cpu _torch_c10
  VERSION_VAR Torch_VERSION
  REASON_FAILURE_MESSAGE
    "set TORCH_DIR to a torch package or libtorch folder, or run scripts/setup.sh to get one into .venv")

if(Torch_FOUND AND NOT TARGET Torch::Torch)
  foreach(_torch_name IN ITEMS torch_cpu c10)
    add_library(Torch::${_torch_name} SHARED IMPORTED)
    set_target_properties(Torch::${_torch_name} PROPERTIES IMPORTED_LOCATION "${_torch_${_torch_name}}")
  endforeach()
  add_library(Torch::Torch INTERFACE IMPORTED)
  target_include_directories(Torch::Torch SYSTEM INTERFACE ${Torch_INCLUDE_DIRS})
  target_compile_features(Torch::Torch INTERFACE cxx_std_17)
  # libtorch.so has no symbols of its own but pulls in the CUDA library where there is one, so a
  # linker that drops unneeded libraries (Ubuntu's default) must be told to keep it.
  target_link_libraries(
    Torch::Torch INTERFACE "-Wl,--push-state,--no-as-needed,${_torch_torch},--pop-state" Torch::torch_cpu
                           Torch::c10)

  # Every release that we support uses the new string ABI; an own build of libtorch may not.
  find_program(_torch_nm NAMES nm llvm-nm llvm-nm-19)
  mark_as_advanced(_torch_nm)
  if(NOT DEFINED CACHE{Torch_CXX11_ABI_${_torch_c10}} AND _torch_nm)
    execute_process(COMMAND "${_torch_nm}" -D --defined-only "${_torch_c10}"
                    OUTPUT_VARIABLE _torch_symbols ERROR_QUIET)
    string(FIND "${_torch_symbols}" "__cxx1112basic_string" _torch_found)
    if(_torch_found EQUAL -1 AND NOT _torch_symbols STREQUAL "")
      set(Torch_CXX11_ABI_${_torch_c10} 0 CACHE INTERNAL "")
    else()
      set(Torch_CXX11_ABI_${_torch_c10} 1 CACHE INTERNAL "")
    endif()
    unset(_torch_symbols)
  endif()
  if("${Torch_CXX11_ABI_${_torch_c10}}" STREQUAL "0")
    target_compile_definitions(Torch::Torch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
  endif()
endif()
