# The headers of libdw (elfutils), for source lines: target LibdwHeaders::LibdwHeaders. The library itself
# is loaded at run time, when a line is first asked for.
find_path(LibdwHeaders_INCLUDE_DIR elfutils/libdwfl.h)
mark_as_advanced(LibdwHeaders_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibdwHeaders REQUIRED_VARS LibdwHeaders_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "install libdw-dev (elfutils), or run scripts/setup.sh")

if(LibdwHeaders_FOUND AND NOT TARGET LibdwHeaders::LibdwHeaders)
  add_library(LibdwHeaders::LibdwHeaders INTERFACE IMPORTED)
  target_include_directories(LibdwHeaders::LibdwHeaders SYSTEM INTERFACE "${LibdwHeaders_INCLUDE_DIR}")
endif()
