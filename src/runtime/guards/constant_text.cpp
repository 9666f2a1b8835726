#include "runtime/guards/constant_text.h"

#include "base/error.h"
#include "ir/tensor_data.h"

namespace tandem::runtime {
namespace {

std::string number_text(double number) {
  std::string text;
  ir::append_float(text, number);
  return text;
}

}  // namespace

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
        } else if constexpr (std::is_same_v<T, double>) {
          return number_text(value);
        } else if constexpr (std::is_same_v<T, std::complex<double>>) {
          return "(" + number_text(value.real()) + ", " + number_text(value.imag()) + ")";
        } else {
          return base::str(value);
        }
      },
      constant);
}

}  // namespace tandem::runtime
