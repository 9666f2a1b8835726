#pragma once

#include "tandem/export.h"
#include "tandem/ir/type.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

/// Bounds of a size, both included; no `max` means none.
struct DynamicRange {
  int64_t min = 0;
  std::optional<int64_t> max{};
};

/// Says that calls will bring other sizes where `tensor`, an argument, has its size `dim`: the
/// first compile already makes kernels for any of them. Sizes outside of the range get entries of
/// their own. If another size from 2 on, within the range, makes the function record other ops,
/// that call is a UserError. Read by calls that find no entry for their sizes.
TANDEM_API void mark_dynamic(const at::Tensor& tensor, int64_t dim, DynamicRange range = {});
/// Says that this size stays as it is: another one there gets an entry of its own.
TANDEM_API void mark_static(const at::Tensor& tensor, int64_t dim);

/// Keeps every call of the op `name` (`mylib::log`; all overloads, or `mylib::log.text`), in order
/// and number, whether or not its results are read: prints, callbacks, asserts. For the whole
/// process; what was compiled before is compiled again. A UserError if there is no such op, if it
/// returns a view, if it is an op of libtorch that is recorded as other ops, or inside a trace.
TANDEM_API void mark_effectful(const std::string& name);

/// From the types of an op's tensor operands to those of its tensor results.
using MetadataRule = std::function<std::vector<ir::TensorType>(std::span<const ir::TensorType>)>;
/// Tells how the op `name` computes sizes and dtypes. Not built yet: an UnsupportedError.
TANDEM_API void set_metadata_rule(const std::string& name, MetadataRule rule);

}  // namespace tandem
