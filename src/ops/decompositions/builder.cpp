#include "base/error.h"
#include "ir/ivalue.h"
#include "ir/text/op_names.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/metadata/metadata.h"
#include "tandem/expr.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

namespace tandem {

/// What a builder remembers between calls: operators by name, types by call.
struct Builder::Names {
  std::map<std::string, c10::OperatorHandle, std::less<>> ops;
  ops::MetadataPropagator metadata;

  const c10::OperatorHandle& find(std::string_view name) {
    if (auto known = ops.find(name); known != ops.end()) return known->second;
    std::string text(name);
    if (const size_t colons = text.find("::"); colons != std::string::npos) {
      text.replace(colons, 2, ".");
    } else {
      text = "aten." + text;
    }
    std::optional<c10::OperatorHandle> op = ir::find_op(text);
    if (!op) {
      const std::string near = ir::near_ops(text);
      TANDEM_REQUIRE(false, "builder", "no op is called \"", name, "\"",
                     near.empty() ? "" : "\n  near:   " + near,
                     "\n  remedy: write the name with its overload: \"mul.Tensor\"");
    }
    return ops.emplace(std::string(name), *op).first->second;
  }
};

namespace {

ops::TensorMeta meta_of_hollow(ops::MetadataPropagator& metadata, const at::Tensor& tensor) {
  return metadata.meta_of(tensor);
}

/// Operands of a call in the order of the schema, defaults filled in.
std::vector<ir::Operand> complete(ir::Graph& graph, const c10::OperatorHandle& op,
                                  Builder::Operands given, const Builder::Named& named) {
  const auto& arguments = op.schema().arguments();
  TANDEM_REQUIRE(given.size() <= arguments.size(), "builder", ir::op_text(op), " takes ",
                 arguments.size(), " arguments, got ", given.size(), "\n  schema: ", op.schema(),
                 "\n  remedy: leave out what is too much");
  std::vector<ir::Operand> operands = std::move(given);
  operands.reserve(arguments.size());
  size_t used = 0;
  const auto no_tensor = [](const at::Tensor&) { return ir::kNoValue; };
  for (size_t i = operands.size(); i < arguments.size(); ++i) {
    const c10::Argument& argument = arguments[i];
    const auto found = std::ranges::find_if(
        named, [&](const auto& pair) { return pair.first == argument.name(); });
    if (found != named.end()) {
      operands.push_back(found->second);
      ++used;
      continue;
    }
    TANDEM_REQUIRE(argument.default_value().has_value(), "builder", ir::op_text(op),
                   " needs its argument \"", argument.name(), "\"\n  schema: ", op.schema(),
                   "\n  remedy: give it by position, or by name");
    operands.push_back(
        ir::to_operand(graph, *argument.default_value(), argument.real_type(), no_tensor));
  }
  TANDEM_REQUIRE(used == named.size(), "builder", ir::op_text(op), " has no argument \"",
                 named.empty() ? "" : named.back().first,
                 "\", or it was given by position\n  schema: ", op.schema(),
                 "\n  remedy: use the names of the schema");
  return operands;
}

Expr unary(std::string_view name, const Expr& x) { return x.builder().op(name, {x}); }
Expr binary(std::string_view name, const Expr& a, ir::Operand b) {
  return a.builder().op(name, {a, std::move(b)});
}

ir::Operand::Sizes to_sizes(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

Expr reduced(std::string_view name, const Expr& x, const std::vector<int64_t>& dims,
             KeepDims keep) {
  return x.builder().op(name, {x, to_sizes(dims), keep == KeepDims::yes});
}

/// A number beside `like` in a `where`.
Expr number(const Expr& like, double value) {
  return like.builder().full({}, value, like.dtype(), like);
}

}  // namespace

const ir::TensorType& Expr::type() const {
  TANDEM_CHECK(defined(), "builder", "an undefined tensor has no type");
  return *builder_->graph().value(id_).tensor_type();
}

int64_t Expr::size(int64_t dim) const {
  const int64_t at = dim < 0 ? dim + rank() : dim;
  TANDEM_REQUIRE(at >= 0 && at < rank(), "builder", "dimension ", dim, " of a tensor of rank ",
                 rank(), "\n  type:   ", ir::to_string(type()),
                 "\n  remedy: count from 0, or from -1 at the back");
  return type().sizes[static_cast<size_t>(at)].value();
}

Expr::operator ir::Operand() const { return defined() ? ir::Operand(id_) : ir::Operand(); }

Builder::Builder(ir::Graph& graph) : graph_(graph), names_(std::make_unique<Names>()) {}
Builder::~Builder() { graph_.set_insert_point(ir::kNoNode); }

void Builder::move_to(const ir::Node& node) {
  graph_.set_insert_point(node.id());
  phase_ = node.phase();
  location_ = node.location();
}

std::vector<Expr> Builder::ops(std::string_view name, Operands given, const Named& named) {
  const c10::OperatorHandle& op = names_->find(name);
  std::vector<ir::Operand> operands = complete(graph_, op, std::move(given), named);
  const auto& arguments = op.schema().arguments();
  const auto tensor_of = [&](ir::ValueId id) -> at::Tensor {
    return id == ir::kNoValue ? at::Tensor()
                              : ops::to_hollow_tensor({.type = graph_.value(id).tensor_type()});
  };
  std::vector<c10::IValue> values;
  values.reserve(operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    values.push_back(ir::to_ivalue(graph_, operands[i], arguments[i].real_type(), tensor_of));
  const std::vector<ops::MetaResult>& results =
      names_->metadata.propagate(op, values, meta_of_hollow);

  ir::OpSpec spec{.op = op, .operands = std::move(operands), .phase = phase_};
  spec.location = location_;
  bool has_list = false;
  for (const ops::MetaResult& result : results) {
    const bool is_list = result.kind == ops::MetaResult::Kind::TensorList;
    has_list = has_list || is_list;
    spec.shape.push_back(is_list ? static_cast<int64_t>(result.tensors.size()) : ir::kSingle);
    for (const ops::TensorMeta& meta : result.tensors)
      spec.results.push_back(meta.type ? ir::ResultType(ir::Type(meta.type)) : std::nullopt);
  }
  if (!has_list) spec.shape.clear();
  const ir::Node& node = graph_.add_op(std::move(spec));
  std::vector<Expr> exprs;
  for (ir::ValueId id : node.results()) exprs.emplace_back(*this, id);
  return exprs;
}

Expr Builder::op(std::string_view name, Operands operands, const Named& named) {
  const std::vector<Expr> results = ops(name, std::move(operands), named);
  TANDEM_REQUIRE(results.size() == 1, "builder", name, " has ", results.size(),
                 " results, not one\n  remedy: call Builder::ops");
  return results[0];
}

Expr Builder::full(const std::vector<int64_t>& sizes, double number, c10::ScalarType dtype,
                   const Expr& like) {
  ir::Operand filled = number;
  if (c10::isIntegralType(dtype, /*includeBool=*/true))
    filled = dtype == c10::ScalarType::Bool ? ir::Operand(number != 0)
                                            : ir::Operand(static_cast<int64_t>(number));
  return op("full", {to_sizes(sizes), filled}, {{"dtype", dtype}, {"device", like.type().device}});
}

Expr operator+(const Expr& a, const Expr& b) { return binary("add.Tensor", a, b); }
Expr operator-(const Expr& a, const Expr& b) { return binary("sub.Tensor", a, b); }
Expr operator*(const Expr& a, const Expr& b) { return binary("mul.Tensor", a, b); }
Expr operator/(const Expr& a, const Expr& b) { return binary("div.Tensor", a, b); }
Expr operator+(const Expr& a, double b) { return binary("add.Scalar", a, b); }
Expr operator-(const Expr& a, double b) { return binary("sub.Scalar", a, b); }
Expr operator*(const Expr& a, double b) { return binary("mul.Scalar", a, b); }
Expr operator/(const Expr& a, double b) { return binary("div.Scalar", a, b); }
Expr operator-(double a, const Expr& b) { return binary("rsub.Scalar", b, a); }
Expr operator/(double a, const Expr& b) {
  return a == 1 ? reciprocal(b) : binary("div.Tensor", number(b, a), b);
}
Expr operator-(const Expr& a) { return unary("neg", a); }
Expr operator&(const Expr& a, const Expr& b) { return binary("logical_and", a, b); }
Expr operator|(const Expr& a, const Expr& b) { return binary("logical_or", a, b); }
Expr operator!(const Expr& a) { return unary("logical_not", a); }
Expr operator<(const Expr& a, double b) { return binary("lt.Scalar", a, b); }
Expr operator<=(const Expr& a, double b) { return binary("le.Scalar", a, b); }
Expr operator>(const Expr& a, double b) { return binary("gt.Scalar", a, b); }
Expr operator>=(const Expr& a, double b) { return binary("ge.Scalar", a, b); }
Expr equal(const Expr& a, const Expr& b) { return binary("eq.Tensor", a, b); }
Expr equal(const Expr& a, double b) {
  const bool whole = c10::isIntegralType(a.dtype(), /*includeBool=*/true);
  return binary("eq.Scalar", a, whole ? ir::Operand(static_cast<int64_t>(b)) : ir::Operand(b));
}

Expr abs(const Expr& x) { return unary("abs", x); }
Expr erf(const Expr& x) { return unary("erf", x); }
Expr exp(const Expr& x) { return unary("exp", x); }
Expr log(const Expr& x) { return unary("log", x); }
Expr log1p(const Expr& x) { return unary("log1p", x); }
Expr reciprocal(const Expr& x) { return unary("reciprocal", x); }
Expr rsqrt(const Expr& x) { return unary("rsqrt", x); }
Expr sigmoid(const Expr& x) { return unary("sigmoid", x); }
Expr sqrt(const Expr& x) { return unary("sqrt", x); }
Expr tanh(const Expr& x) { return unary("tanh", x); }
Expr clamp_min(const Expr& x, double low) { return binary("clamp_min", x, low); }
Expr clamp_max(const Expr& x, double high) { return binary("clamp_max", x, high); }
Expr maximum(const Expr& a, const Expr& b) { return binary("maximum", a, b); }
Expr minimum(const Expr& a, const Expr& b) { return binary("minimum", a, b); }
Expr where(const Expr& condition, const Expr& yes, const Expr& no) {
  return condition.builder().op("where.self", {condition, yes, no});
}
Expr where(const Expr& condition, const Expr& yes, double no) {
  return where(condition, yes, number(yes, no));
}
Expr where(const Expr& condition, double yes, const Expr& no) {
  return where(condition, number(no, yes), no);
}

Expr sum(const Expr& x, const std::vector<int64_t>& dims, KeepDims keep) {
  return reduced("sum.dim_IntList", x, dims, keep);
}
Expr mean(const Expr& x, const std::vector<int64_t>& dims, KeepDims keep) {
  return reduced("mean.dim", x, dims, keep);
}
Expr amax(const Expr& x, const std::vector<int64_t>& dims, KeepDims keep) {
  return reduced("amax", x, dims, keep);
}

Expr to(const Expr& x, c10::ScalarType dtype) {
  if (!x.defined() || x.dtype() == dtype) return x;
  return x.builder().op("_to_copy", {x}, {{"dtype", dtype}});
}
c10::ScalarType wide_dtype(c10::ScalarType dtype) {
  const bool narrow = dtype == c10::ScalarType::BFloat16 || dtype == c10::ScalarType::Half;
  return narrow ? c10::ScalarType::Float : dtype;
}
Expr wide(const Expr& x) { return x.defined() ? to(x, wide_dtype(x.dtype())) : x; }
Expr expand(const Expr& x, const std::vector<int64_t>& sizes) {
  return x.sizes() == sizes ? x : binary("expand", x, to_sizes(sizes));
}
Expr view(const Expr& x, const std::vector<int64_t>& sizes) {
  return x.sizes() == sizes ? x : binary("view", x, to_sizes(sizes));
}
Expr unsqueeze(const Expr& x, int64_t dim) { return binary("unsqueeze", x, dim); }
Expr squeeze(const Expr& x, int64_t dim) { return binary("squeeze.dim", x, dim); }

}  // namespace tandem
