#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"

#include <c10/core/ScalarType.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

class Builder;

/// A tensor of a graph under construction, to compute with: `x / (1 + exp(-x))` adds three nodes.
/// Undefined by default.
class TANDEM_API Expr {
 public:
  Expr() = default;
  Expr(Builder& builder, ir::ValueId id) : builder_(&builder), id_(id) {}

  bool defined() const { return id_ != ir::kNoValue; }
  ir::ValueId id() const { return id_; }
  Builder& builder() const { return *builder_; }

  const ir::TensorType& type() const;
  c10::ScalarType dtype() const { return type().dtype; }
  int64_t rank() const { return type().rank(); }
  std::vector<int64_t> sizes() const { return type().static_sizes(); }
  /// Negative dimensions count from the back.
  int64_t size(int64_t dim) const;
  int64_t numel() const { return type().numel().value(); }

  operator ir::Operand() const;  // NOLINT: an operand of the next op

 private:
  Builder* builder_ = nullptr;
  ir::ValueId id_ = ir::kNoValue;
};

/// Adds calls of libtorch operators to a graph. Types of results come from Tandem's own rules, as
/// in a trace.
class TANDEM_API Builder {
 public:
  using Operands = std::vector<ir::Operand>;
  using Named = std::vector<std::pair<std::string_view, ir::Operand>>;

  explicit Builder(ir::Graph& graph);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  ir::Graph& graph() const { return graph_; }
  /// From now on nodes go before `node`, and have its phase and line.
  void move_to(const ir::Node& node);

  Expr value(ir::ValueId id) { return {*this, id}; }
  /// `op("sum.dim_IntList", {x, dims, true})`: `aten::` may be left out, what is not given takes
  /// the schema's default. A UserError names an op or argument that does not exist.
  Expr op(std::string_view name, Operands operands, const Named& named = {});
  /// For ops with several results: all of them, flat.
  std::vector<Expr> ops(std::string_view name, Operands operands, const Named& named = {});
  /// A tensor filled with a number, on the device of `like`.
  Expr full(const std::vector<int64_t>& sizes, double number, c10::ScalarType dtype,
            const Expr& like);

 private:
  struct Names;
  ir::Graph& graph_;
  std::unique_ptr<Names> names_;
  ir::Phase phase_ = ir::Phase::Forward;
  ir::Location location_{};
};

// ---- arithmetic; a number becomes a Scalar, as in `x * 2` on tensors ----
TANDEM_API Expr operator+(const Expr& a, const Expr& b);
TANDEM_API Expr operator-(const Expr& a, const Expr& b);
TANDEM_API Expr operator*(const Expr& a, const Expr& b);
TANDEM_API Expr operator/(const Expr& a, const Expr& b);
TANDEM_API Expr operator+(const Expr& a, double b);
TANDEM_API Expr operator-(const Expr& a, double b);
TANDEM_API Expr operator*(const Expr& a, double b);
TANDEM_API Expr operator/(const Expr& a, double b);
inline Expr operator+(double a, const Expr& b) { return b + a; }
inline Expr operator*(double a, const Expr& b) { return b * a; }
TANDEM_API Expr operator-(double a, const Expr& b);
TANDEM_API Expr operator/(double a, const Expr& b);
TANDEM_API Expr operator-(const Expr& a);
TANDEM_API Expr operator&(const Expr& a, const Expr& b);  // of bools
TANDEM_API Expr operator|(const Expr& a, const Expr& b);
TANDEM_API Expr operator!(const Expr& a);
TANDEM_API Expr operator<(const Expr& a, double b);
TANDEM_API Expr operator<=(const Expr& a, double b);
TANDEM_API Expr operator>(const Expr& a, double b);
TANDEM_API Expr operator>=(const Expr& a, double b);
TANDEM_API Expr equal(const Expr& a, const Expr& b);
TANDEM_API Expr equal(const Expr& a, double b);

// ---- functions ----
TANDEM_API Expr abs(const Expr& x);
TANDEM_API Expr erf(const Expr& x);
TANDEM_API Expr exp(const Expr& x);
TANDEM_API Expr log(const Expr& x);
TANDEM_API Expr log1p(const Expr& x);
TANDEM_API Expr reciprocal(const Expr& x);
TANDEM_API Expr rsqrt(const Expr& x);
TANDEM_API Expr sigmoid(const Expr& x);
TANDEM_API Expr sqrt(const Expr& x);
TANDEM_API Expr tanh(const Expr& x);
TANDEM_API Expr clamp_min(const Expr& x, double low);
TANDEM_API Expr clamp_max(const Expr& x, double high);
TANDEM_API Expr maximum(const Expr& a, const Expr& b);
TANDEM_API Expr minimum(const Expr& a, const Expr& b);
TANDEM_API Expr where(const Expr& condition, const Expr& yes, const Expr& no);
TANDEM_API Expr where(const Expr& condition, const Expr& yes, double no);
TANDEM_API Expr where(const Expr& condition, double yes, const Expr& no);

// ---- reductions over some dimensions; without any: over all ----
enum class KeepDims : uint8_t { no, yes };  // the reduced dimensions, with size 1
TANDEM_API Expr sum(const Expr& x, const std::vector<int64_t>& dims, KeepDims keep);
TANDEM_API Expr mean(const Expr& x, const std::vector<int64_t>& dims, KeepDims keep);
TANDEM_API Expr amax(const Expr& x, const std::vector<int64_t>& dims, KeepDims keep);

// ---- layout and dtype ----
/// `x` itself if it has the dtype.
TANDEM_API Expr to(const Expr& x, c10::ScalarType dtype);
/// In the dtype that kernels compute in: float32 for bfloat16 and float16, else its own.
TANDEM_API Expr wide(const Expr& x);
TANDEM_API c10::ScalarType wide_dtype(c10::ScalarType dtype);
TANDEM_API Expr expand(const Expr& x, const std::vector<int64_t>& sizes);
TANDEM_API Expr view(const Expr& x, const std::vector<int64_t>& sizes);
TANDEM_API Expr unsqueeze(const Expr& x, int64_t dim);
TANDEM_API Expr squeeze(const Expr& x, int64_t dim);

}  // namespace tandem
