#pragma once

#include "tandem/export.h"
#include "tandem/expr.h"
#include "tandem/ir/graph.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Rounding { eager, fast };  // eager: exact ops keep eager's bits

/// A call that is about to be replaced: its operands by the names of the op's schema.
class TANDEM_API OpCall {
 public:
  OpCall(Builder& builder, const ir::Node& node) : builder_(builder), node_(node) {}

  Builder& builder() const { return builder_; }
  const ir::Node& node() const { return node_; }

  /// Undefined if absent.
  Expr tensor(std::string_view name) const;
  /// The same in the dtype that kernels compute in.
  Expr wide(std::string_view name) const;
  bool has(std::string_view name) const;  // not `none`
  double number(std::string_view name) const;
  double number(std::string_view name, double absent) const;
  int64_t integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<bool> flags(std::string_view name) const;
  std::string text(std::string_view name) const;
  /// As it stands in the node.
  const ir::Operand& operand(std::string_view name) const;
  /// What the op returns in this place; null for an undefined result.
  const ir::TensorType* result(size_t index) const;

 private:
  Builder& builder_;
  const ir::Node& node_;
};

/// Computes the results of a call from other ops. One Expr per result, undefined where nobody may
/// read it; they are cast and laid out as the op's own by the caller. Empty: the call stays as it
/// is.
using DecompositionBody = std::function<std::vector<Expr>(const OpCall&)>;

/// One op in terms of others.
struct Decomposition {
  std::string op;  // `aten::gelu`, `aten::sum.dim_IntList`
  DecompositionBody body;
  bool exact = true;    // within the bounds that docs/reference/differences.md promises
  std::string formula;  // one line
};

/// Which ops are rewritten before the graph is cut, and how. A backend names those that it wants
/// decomposed; Options::decompositions overrides it op by op.
class TANDEM_API Decompositions {
 public:
  /// Tandem's own table. Rows that are not exact are in it with Rounding::fast only.
  static Decompositions standard(Rounding rounding = Rounding::eager);

  /// Adds or replaces. A UserError if there is no such op, or no body.
  Decompositions& set(std::string op, DecompositionBody body);
  /// The op stays as it is, whoever wants it decomposed.
  Decompositions& keep(const std::string& op);
  /// The rows of `other` win.
  Decompositions& merge(const Decompositions& other);

  /// Null if the op stays.
  const Decomposition* find(const c10::OperatorHandle& op) const;
  /// Sorted by name; a kept op has no body.
  const std::map<std::string, Decomposition, std::less<>>& rows() const { return rows_; }
  bool empty() const { return rows_.empty(); }

 private:
  std::map<std::string, Decomposition, std::less<>> rows_;
};

}  // namespace tandem
