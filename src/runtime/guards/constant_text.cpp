#include "runtime/guards/constant_text.h"

#include "base/error.h"

namespace tandem::runtime {

std::string constant_text(const detail::Constant& constant) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return "\"" + value + "\"";
        } else if constexpr (std::is_same_v<T, at::Generator>) {
          return "a generator";
        } else {
          return base::str(value);
        }
      },
      constant);
}

}  // namespace tandem::runtime
