#pragma once

#include "runtime/guards/thread_state.h"
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
  ThreadState thread{};
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
};

}  // namespace tandem::runtime
