#pragma once

#include "tandem/ir/graph.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>

namespace tandem::ops {

/// One of Tandem's own operators. A file of this folder defines it, with its schema, its metadata
/// and its kernel; everybody else names it by this constant.
class OwnOp {
 public:
  /// With its namespace: `tandem::arrives`.
  explicit constexpr OwnOp(const char* name) : name_(name) {}

  constexpr const char* name() const { return name_; }
  const c10::OperatorHandle& handle() const;
  /// Whether the node calls it.
  bool is(const ir::Node& node) const {
    return node.kind() == ir::NodeKind::Op && node.op() == handle();
  }

 private:
  const char* name_;
  mutable std::atomic<const c10::OperatorHandle*> handle_{nullptr};
};

}  // namespace tandem::ops
