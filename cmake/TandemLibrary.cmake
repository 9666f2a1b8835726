# libtandem: all components behind one list of exported symbols; install rules and the CMake package.

get_property(components GLOBAL PROPERTY TANDEM_COMPONENTS)
if(NOT components)
  message(STATUS "tandem: no component has sources, the library is left out")
  return()
endif()

file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/tandem.cpp" CONTENT "")
add_library(tandem SHARED "${PROJECT_BINARY_DIR}/generated/tandem.cpp")
add_library(tandem::tandem ALIAS tandem)
tandem_link_objects(tandem)
add_subdirectory(include)

set(map "${PROJECT_SOURCE_DIR}/cmake/tandem.map")
target_link_libraries(
  tandem
  PUBLIC Torch::Torch
  PRIVATE $<BUILD_INTERFACE:tandem_flags>)
target_compile_features(tandem PUBLIC cxx_std_20)
target_link_options(tandem PRIVATE "LINKER:--version-script=${map}" LINKER:--exclude-libs,ALL)
if(NOT TANDEM_SANITIZE)
  # The sanitizers' functions are in the program, not in the library.
  target_link_options(tandem PRIVATE LINKER:-z,defs)
endif()
set_target_properties(
  tandem
  PROPERTIES VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}
             LINK_DEPENDS "${map}"
             INSTALL_RPATH "${Torch_LIBRARY_DIR}"
             VERIFY_INTERFACE_HEADER_SETS ON)

# --- package ------------------------------------------------------------------------------------

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tandem")
configure_package_config_file(cmake/tandemConfig.cmake.in "${PROJECT_BINARY_DIR}/tandemConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a new minor version may change anything.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
configure_file(cmake/FindTorch.cmake "${PROJECT_BINARY_DIR}/FindTorch.cmake" COPYONLY)

install(TARGETS tandem EXPORT tandemTargets FILE_SET HEADERS)
install(EXPORT tandemTargets NAMESPACE tandem:: DESTINATION "${package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/tandemConfig.cmake" "${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake"
              cmake/FindTorch.cmake DESTINATION "${package_dir}")
foreach(file IN ITEMS LICENSE README.md CHANGELOG.md)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${file}")
    install(FILES ${file} DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  endif()
endforeach()
install(DIRECTORY docs examples DESTINATION "${CMAKE_INSTALL_DOCDIR}")
# The build tree is a package too: -Dtandem_DIR=<build folder>.
export(EXPORT tandemTargets NAMESPACE tandem:: FILE "${PROJECT_BINARY_DIR}/tandemTargets.cmake")
