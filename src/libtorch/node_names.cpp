#include "libtorch/node_names.h"

#include "libtorch/version.h"

#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>
#include <string_view>
#include <typeinfo>

namespace tandem::libtorch {
namespace {

namespace autograd = torch::autograd;

/// Only an explicit instantiation may name a private member; it defines the function that the tag
/// declares.
template <class Tag, typename Tag::Member kMember>
struct Expose {
  friend constexpr typename Tag::Member member_of(Tag) { return kMember; }
};

struct MaterializeOfContext {
  using Member = bool autograd::AutogradContext::*;
  friend constexpr Member member_of(MaterializeOfContext);
};
template struct Expose<MaterializeOfContext, &autograd::AutogradContext::materialize_grads_>;

struct SavedOfContext {
  using Member = std::vector<autograd::SavedVariable> autograd::AutogradContext::*;
  friend constexpr Member member_of(SavedOfContext);
};
template struct Expose<SavedOfContext, &autograd::AutogradContext::saved_variables_>;

struct AnyFunction : autograd::Function<AnyFunction> {
  static at::Tensor forward(autograd::AutogradContext*, const at::Tensor& x) { return x; }
  static autograd::variable_list backward(autograd::AutogradContext*,
                                          autograd::variable_list gradients) {
    return gradients;
  }
};

/// The node of a custom function is a template of the function that uses it in its member functions
/// only: the members lie at the same place in all of them.
size_t place_of_context() {
  static const size_t place = [] {
    const auto node = make_node<autograd::CppNode<AnyFunction>>();
    return static_cast<size_t>(
        reinterpret_cast<const std::byte*>(&node->ctx_) -
        reinterpret_cast<const std::byte*>(static_cast<const autograd::Node*>(node.get())));
  }();
  return place;
}

const autograd::AutogradContext& context_of(const autograd::Node& custom) {
  return *reinterpret_cast<const autograd::AutogradContext*>(
      reinterpret_cast<const std::byte*>(&custom) + place_of_context());
}

}  // namespace

bool materializes_gradients(const autograd::Node& custom) {
  return context_of(custom).*member_of(MaterializeOfContext{});
}

std::vector<at::Tensor> saved_tensors(const autograd::Node& custom) {
  std::vector<at::Tensor> tensors;
  for (const autograd::SavedVariable& saved : context_of(custom).*member_of(SavedOfContext{})) {
    const std::optional<at::Tensor> data = saved.get_raw_data();
    if (data && data->defined()) tensors.push_back(*data);
  }
  return tensors;
}

std::optional<size_t> gradient_of_hook(const autograd::FunctionPreHook& hook) {
  // The class is not exported, so it cannot be cast to dynamically.
  if (std::string_view(typeid(hook).name()).find("24CppFunctionTensorPreHook") ==
      std::string_view::npos) {
    return std::nullopt;
  }
  return static_cast<const autograd::CppFunctionTensorPreHook&>(hook).value_idx_;
}

}  // namespace tandem::libtorch
