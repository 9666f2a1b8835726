#include "pipeline/settings/size_marks.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "tandem/ir/type.h"
#include "tracing/trace.h"

#include <c10/core/UndefinedTensorImpl.h>

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace tandem::pipeline {
namespace {

using Watched = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// By dimension; none: static.
using Marks = std::map<int64_t, std::optional<DynamicRange>>;

/// Weak: a mark keeps no tensor, and an address that is watched is not used again.
struct Table {
  struct Row {
    Watched tensor;
    Marks marks;
  };
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Row> rows;
  size_t forget_at = 64;  // so many rows: those of tensors that are gone are dropped
};

/// Marks are made before any compiled function sees the tensor, so they belong to the process.
Table& table() {
  static Table* const table = new Table;
  return *table;
}

std::string text_of(const at::Tensor& tensor) {
  return tensor.layout() == c10::Layout::Strided ? ir::to_string(ir::type_of(tensor))
                                                 : "a tensor without strides";
}

std::string text_of(const DynamicRange& range) {
  return base::str("{", range.min, ", ", range.max ? std::to_string(*range.max) : "none", "}");
}

int64_t checked_dim(const char* what, const at::Tensor& tensor, int64_t dim) {
  TANDEM_REQUIRE(!tracing::is_tracing(), "options", what,
                 " is called inside a function that is being traced",
                 "\n  remedy: mark the tensor before the call");
  TANDEM_REQUIRE(tensor.defined(), "options", what, " of an undefined tensor",
                 "\n  remedy: mark the tensor that is passed to the compiled function");
  const int64_t rank = tensor.dim();
  TANDEM_REQUIRE(dim >= -rank && dim < rank, "options", what, " of dimension ", dim,
                 ": the tensor is ", text_of(tensor), " and has ", rank,
                 rank == 1 ? " dimension" : " dimensions",
                 rank == 0 ? "" : base::str("\n  remedy: give one of ", -rank, " to ", rank - 1));
  return dim < 0 ? dim + rank : dim;
}

void mark(const at::Tensor& tensor, int64_t dim, std::optional<DynamicRange> how) {
  Table& all = table();
  std::vector<Table::Row> forgotten;  // may free what a tensor has left behind
  const std::lock_guard lock(all.mutex);
  if (all.rows.size() >= all.forget_at) {
    for (auto row = all.rows.begin(); row != all.rows.end();) {
      if (row->second.tensor.expired()) {
        forgotten.push_back(std::move(row->second));
        row = all.rows.erase(row);
      } else {
        ++row;
      }
    }
    all.forget_at = 2 * all.rows.size() + 64;
  }
  const auto row = all.rows
                       .try_emplace(tensor.unsafeGetTensorImpl(),
                                    Table::Row{Watched(tensor.getIntrusivePtr()), {}})
                       .first;
  row->second.marks[dim] = how;
}

}  // namespace

SizeMarks marks_of(const detail::Flat& arguments) {
  SizeMarks marks;
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (all.rows.empty()) return marks;
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    const auto row = all.rows.find(arguments.tensors[i].unsafeGetTensorImpl());
    if (row == all.rows.end()) continue;
    for (const auto& [dim, how] : row->second.marks) {
      // It may have lost dimensions since.
      if (dim < arguments.tensors[i].dim()) marks.push_back({i, dim, how});
    }
  }
  return marks;
}

}  // namespace tandem::pipeline

namespace tandem {

void mark_dynamic(const at::Tensor& tensor, int64_t dim, DynamicRange range) {
  dim = pipeline::checked_dim("mark_dynamic", tensor, dim);
  TANDEM_REQUIRE(range.min >= 0 && range.max.value_or(range.min) >= range.min, "options",
                 "mark_dynamic of dimension ", dim, " has the range ", pipeline::text_of(range),
                 ": expected 0 <= min <= max",
                 "\n  remedy: leave the range out, or give the smallest and the largest size");
  const int64_t size = tensor.size(dim);
  TANDEM_REQUIRE(size >= range.min && size <= range.max.value_or(size), "options",
                 "mark_dynamic of dimension ", dim, ": its size ", size,
                 " is outside of the range ", pipeline::text_of(range),
                 "\n  remedy: give a range that contains it");
  pipeline::mark(tensor, dim, range);
}

void mark_static(const at::Tensor& tensor, int64_t dim) {
  pipeline::mark(tensor, pipeline::checked_dim("mark_static", tensor, dim), std::nullopt);
}

}  // namespace tandem
