#include <cstdlib>

namespace {

// Before main: every program of the tests, started by hand or by CTest. What is set already stays.
[[maybe_unused]] const int strict = setenv("TANDEM_STRICT", "1", 0);

}  // namespace
