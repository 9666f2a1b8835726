#pragma once

#include "ir/text/field.h"
#include "libtorch/thread_state.h"
#include "tandem/function.h"
#include "tandem/ir/type.h"
#include "tandem/options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Guards as data: what they compare with, without the objects of a process that they watch.
namespace tandem::runtime {

/// Of one tensor.
struct TensorRow {
  bool defined = false;
  ir::TypePtr type{};
  uint64_t keys = 0;  // dispatch keys: backend, layout, conjugate and negative bits
  bool requires_grad = false;
  bool is_leaf = true;
  bool wrapped_number = false;
  bool without_history = false;  // a view made without grad of a tensor that requires it
};

/// Of one named module or sub-module.
struct ModuleRow {
  std::string path;
  bool training = false;
  int64_t parameters = 0, buffers = 0, children = 0;
};

/// Of one group of inputs on written memory.
struct GroupRow {
  struct Member {
    int64_t input = 0;
    int64_t offset = 0;
    int64_t creation = 0;  // how the view was made: eager judges writes to it by that
  };
  std::vector<Member> members;
  std::optional<TensorRow> base{};  // where the base is the tensor that all members are views of
};

struct GuardRows {
  libtorch::ThreadState thread{};
  std::vector<std::string> effectful_ops{};  // those that were marked
  std::vector<detail::Constant> constants{};
  std::vector<TensorRow> arguments{};
  std::vector<std::string> names{};   // of the arguments
  std::vector<int64_t> first_same{};  // per argument: the first that is the same tensor object
  std::vector<ModuleRow> modules{};
  std::vector<std::string> closes_over{};  // one text per named variable
  std::optional<GuardFn::Value> guard_on{};

  std::vector<TensorRow> lifted{};
  std::vector<std::vector<int64_t>> shared_storage{};  // lifted tensors on one storage
  std::vector<int64_t> closed_over{};                  // arguments that are closed over, too
  std::vector<int64_t> lifted_offsets{}, argument_offsets{};
  std::vector<GroupRow> groups{};
  std::vector<int64_t>
      views{};  // inputs that came as views, of those whose history may depend on it
};

// ---- their text ----

constexpr auto fields(const TensorRow*) {
  using F = TensorRow;
  using ir::Field;
  return std::tuple(Field{"defined", &F::defined}, Field{"type", &F::type}, Field{"keys", &F::keys},
                    Field{"requires_grad", &F::requires_grad}, Field{"is_leaf", &F::is_leaf},
                    Field{"wrapped_number", &F::wrapped_number},
                    Field{"without_history", &F::without_history});
}
constexpr auto fields(const ModuleRow*) {
  using F = ModuleRow;
  using ir::Field;
  return std::tuple(Field{"path", &F::path}, Field{"training", &F::training},
                    Field{"parameters", &F::parameters}, Field{"buffers", &F::buffers},
                    Field{"children", &F::children});
}
constexpr auto fields(const GroupRow::Member*) {
  using F = GroupRow::Member;
  using ir::Field;
  return std::tuple(Field{"input", &F::input}, Field{"offset", &F::offset},
                    Field{"creation", &F::creation});
}
constexpr auto fields(const GroupRow*) {
  using ir::Field;
  return std::tuple(Field{"members", &GroupRow::members}, Field{"base", &GroupRow::base});
}
constexpr auto fields(const GuardRows*) {
  using F = GuardRows;
  using ir::Field;
  return std::tuple(
      Field{"thread", &F::thread}, Field{"effectful_ops", &F::effectful_ops},
      Field{"constants", &F::constants}, Field{"arguments", &F::arguments},
      Field{"names", &F::names}, Field{"first_same", &F::first_same}, Field{"modules", &F::modules},
      Field{"closes_over", &F::closes_over}, Field{"guard_on", &F::guard_on},
      Field{"lifted", &F::lifted}, Field{"shared_storage", &F::shared_storage},
      Field{"closed_over", &F::closed_over}, Field{"lifted_offsets", &F::lifted_offsets},
      Field{"argument_offsets", &F::argument_offsets}, Field{"groups", &F::groups},
      Field{"views", &F::views});
}

}  // namespace tandem::runtime
