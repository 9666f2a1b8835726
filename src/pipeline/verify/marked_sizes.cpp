#include "pipeline/verify/marked_sizes.h"

#include "base/error.h"
#include "base/same_bits.h"
#include "tandem/ir/location.h"

#include <algorithm>

namespace tandem::pipeline {
namespace {

bool is_marked(const SizeMarks& marks, size_t argument, size_t dim) {
  const auto is_it = [&](const SizeMark& mark) {
    return mark.dynamic && mark.is_about(argument, static_cast<int64_t>(dim));
  };
  return std::ranges::any_of(marks, is_it);
}

}  // namespace

void refuse_if_marked(const runtime::Guards& call, const runtime::Guards& entry,
                      const SizeMarks& marks, const Difference& difference) {
  if (!std::ranges::equal(call.constants(), entry.constants(),
                          [](const auto& a, const auto& b) { return base::same_bits(a, b); }))
    return;
  std::string where;
  for (size_t i = 0; i < call.arguments().size(); ++i) {
    const runtime::TensorGuard &now = call.arguments()[i], &then = entry.arguments()[i];
    if (!now.defined()) continue;
    if (now.type().is_contiguous() != then.type().is_contiguous()) return;
    for (size_t dim = 0; dim < now.sizes().size(); ++dim) {
      const int64_t a = now.sizes()[dim], b = then.sizes()[dim];
      if (a == b) continue;
      if (a < 2 || b < 2 || !is_marked(marks, i, dim)) return;
      where += base::str(where.empty() ? "" : ", ", "dimension ", dim, " of ", call.names()[i],
                         " (", a, ", compiled for ", b, ")");
    }
  }
  if (where.empty()) return;
  throw UserError(
      "call",
      base::str("a size that mark_dynamic named makes the function do something else: ", where,
                base::detail_line("cause", "it " + difference.what, 10),
                base::detail_line("at", ir::to_string(difference.line), 10),
                base::detail_line("remedy",
                                  "call the same ops at every size, give mark_dynamic a range in "
                                  "which the function does, or leave the mark out",
                                  10)));
}

}  // namespace tandem::pipeline
