#include <cstdlib>

namespace {

// Before main: programs that promise bits run on the backend that promises them, started by hand or
// by CTest. What is set already stays.
[[maybe_unused]] const int on_eager = setenv("TANDEM_BACKEND", "eager", 0);

}  // namespace
