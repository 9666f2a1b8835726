#pragma once

#include "runtime/guards/tensor_guard.h"
#include "tandem/ir/signature.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::runtime {

/// Which inputs of a call share memory, as far as the call writes any: an entry serves the pattern
/// that it was traced for. Costs nothing where nothing is written.
class AliasGuard {
 public:
  AliasGuard() = default;
  /// What is to be known of the inputs of the trace.
  struct Rows {
    const std::vector<GroupRow>& groups;
    const std::vector<int64_t>& views;
  };
  /// `inputs` need only begin with the lifted tensors; they are in the order of the signature, as
  /// are `names`.
  AliasGuard(const ir::Signature& signature, const Rows& rows,
             std::span<const at::Tensor* const> inputs, std::vector<std::string> names);
  /// How the groups of a signature lie in the inputs of the trace.
  static std::vector<GroupRow> rows_of(const ir::Signature& signature,
                                       std::span<const at::Tensor* const> inputs);
  /// Which inputs are views, of those that need a gradient and whose version the call moves.
  static std::vector<int64_t> views_of(const ir::Signature& signature,
                                       std::span<const at::Tensor* const> inputs);

  bool watches() const { return !written_.empty() || !moved_.empty(); }
  /// Nothing, or what is different now. `inputs` as in the constructor.
  std::optional<std::string> mismatch(std::span<const at::Tensor* const> inputs) const;
  std::vector<std::string> texts() const;

 private:
  struct Group {
    std::vector<GroupRow::Member> members;
    bool is_root = false;
    int64_t offset = 0;  // of the base
    std::optional<TensorGuard> base{};
  };

  bool lifted_moved(std::span<const at::Tensor* const> inputs) const;
  std::optional<std::string> overlap(std::span<const at::Tensor* const> inputs) const;
  std::optional<std::string> group_mismatch(const Group& group,
                                            std::span<const at::Tensor* const> inputs) const;
  std::optional<std::string> counter_mismatch(std::span<const at::Tensor* const> inputs) const;
  std::optional<std::string> view_mismatch(std::span<const at::Tensor* const> inputs) const;

  bool training_ = false;
  size_t lifted_count_ = 0;
  std::vector<std::string> names_;
  std::vector<size_t> written_;  // inputs whose data the call writes
  std::vector<size_t> moved_;    // inputs whose version counter it moves
  /// Those of them that need a gradient: a view has another history after any write, and what the
  /// function takes of it is a view of its base.
  struct KnownView {
    size_t input = 0;
    bool is_view = false;
  };
  std::vector<KnownView> known_views_;
  std::vector<int64_t> group_of_input_;   // or -1
  std::vector<size_t> counter_of_input_;  // the first input with the same version counter
  std::vector<Group> groups_;
  /// Where the lifted tensors lay at the trace: while they stay there, so does their pattern.
  struct Memory {
    const c10::StorageImpl* storage;
    int64_t offset;
  };
  std::vector<Memory> lifted_memory_;
};

}  // namespace tandem::runtime
