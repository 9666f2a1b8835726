#pragma once

#include "loops/rules/body_builder.h"
#include "loops/rules/call.h"
#include "loops/target/target.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::loops {

/// How one dim of an operand in memory is indexed by the dims of the result.
struct DimIndex {
  int32_t result_dim = -1;  // its index; -1: always the first element
  int64_t shift = 0;        // added to it, in elements of this dim
  bool reversed = false;    // counts from the end
};

/// What a rule may ask for while it writes the lines of one op.
class Emitter {
 public:
  Emitter(const Call& op, BodyBuilder& lines, const EagerRounding& rounding)
      : call(op), body(lines), eager(rounding) {}
  virtual ~Emitter() = default;

  const Call& call;
  BodyBuilder& body;
  const EagerRounding& eager;

  /// A tensor operand at the index of the result, broadcast as libtorch does.
  virtual Val operand(size_t i) = 0;
  /// The same, of a dim list: dim j of the operand has the index of dim `dims[j]` of the result.
  virtual Val operand_at(size_t i, std::span<const int32_t> dims) = 0;
  /// The index along a dim of the result (of a reduction: of its operand), as i64.
  virtual Val dim_index(size_t dim) = 0;
  /// An element of an operand in memory. `indirect` counts elements along dim `indirect_dim`.
  struct Read {
    ir::ValueId value;
    std::vector<DimIndex> dims;
    Val mask{};
    Val indirect{};
    int64_t indirect_dim = -1;
    int64_t indirect_stride = 0;  // instead of a dim: elements
  };
  virtual Val read(const Read& read) = 0;

  // ---- what most rules do ----
  /// Operand i, tensor or number, in the dtype that `dtype` computes in; converted to `dtype`
  /// before, as libtorch does.
  Val as(size_t i, c10::ScalarType dtype);
  /// The same for the second operand of * and /, whose kernels take a single number unrounded.
  Val as_term(size_t i, c10::ScalarType dtype);
  Val number(const Number& number, c10::ScalarType dtype) { return body.constant(dtype, number); }
  Val number(double number, c10::ScalarType dtype) {
    return body.constant(dtype, Number::of(number));
  }
};

enum class RuleKind : uint8_t {
  Pointwise,
  Move,    // data comes from other places of its operands, or from nowhere
  Source,  // made of nothing: made again wherever it is read
  Reduction,
};

/// What computing it once more costs beside keeping it.
enum class Weight : uint8_t {
  Light,  // next to nothing: every reader computes it
  Heavy,  // a function such as `exp`: a kernel that needs it twice keeps a row of it
  Pass,   // its operands come from memory: once more would be one more pass over them
};

/// All that is said about fusing an op. An op with a row is never decomposed on a backend that asks
/// the rows; what is not Weight::Pass the backward may compute again.
struct Rule {
  std::string_view op;  // `add.Tensor`: without `aten::`, but `tandem::class_index`
  RuleKind kind = RuleKind::Pointwise;
  Weight weight = Weight::Light;
  bool pays_alone = true;   // if not: in no kernel with other ops it is left to libtorch
  bool any_number = false;  // of floats: libtorch's kernel takes numbers beyond their dtype, too
  /// The element of the result; of a reduction see below.
  Val (*emit)(Emitter&) = nullptr;
  /// Whether this call can be fused at all; null: always.
  bool (*applies)(const Call&) = nullptr;
  /// Operands that are read at other places than the result's index: they must lie in memory.
  uint32_t memory_operands = 0;
  bool list_in_memory = false;  // operand 0 is a list of tensors that are read like that

  // ---- reductions: operand 0 over these dims of it ----
  std::vector<int64_t> (*dims)(const Call&) = nullptr;
  /// Per result: reduces one element.
  Val (*reduce)(Emitter&, Val element, size_t result) = nullptr;
  /// Per result: from what was reduced to the result.
  Val (*finish)(Emitter&, Val reduced, size_t result) = nullptr;
};

/// The rule for a call that can be fused, or null. All tensors must lie on one device, where
/// kernels of the target can read them, be of a dtype that kernels know, and not empty. Numbers
/// must fit their dtypes, if the row does not say otherwise.
const Rule* find_rule(const Call& call, const Target& target);

/// The name of its op with namespace and overload.
std::string full_name(const Rule& rule);
/// Every row there is.
std::span<const Rule* const> all_rules();

// The tables, by kind.
std::span<const Rule> pointwise_rules();
std::span<const Rule> move_rules();
std::span<const Rule> reduction_rules();

}  // namespace tandem::loops
