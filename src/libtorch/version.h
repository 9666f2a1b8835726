#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/version.h>

#include <memory>
#include <string>
#include <utility>

/// Everything that differs between the supported libtorch versions (2.11 to 2.13), and the dispatch
/// keys that libtorch leaves to other projects. No other file tests a version.

namespace torch::autograd {
struct Node;
void deleteNode(Node* node);
}  // namespace torch::autograd

namespace tandem::libtorch {

/// `2.13.0`: what Tandem was built for.
std::string built_version();
/// What the process runs; empty if it does not say.
std::string running_version();

/// Below autograd and functionalization, above the kernels: recording happens here.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;
/// Above autograd: closed-over tensors are swapped for their stand-ins here.
inline constexpr c10::DispatchKey kLiftKey = c10::DispatchKey::DeferredInit;

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 11
/// Whether the CPU kernel of `trace` knows half-precision floats and bool.
inline constexpr bool kTraceOfEveryDtype = false;

/// Autograd nodes are held by shared_ptr up to 2.11, by intrusive_ptr from 2.13 on. The deleter of
/// 2.11 empties the edges before the destructor runs: a `T` with before_delete() is told.
template <class T, class... Args>
std::shared_ptr<T> make_node(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* node) {
    if constexpr (requires { node->before_delete(); }) node->before_delete();
    torch::autograd::deleteNode(node);
  });
}

/// Whether a leaf's metadata, which holds its accumulator weakly, points to this node.
template <class Weak, class Strong>
bool is_same_node(const Weak& weak, const Strong& node) {
  return node && !weak.owner_before(node) && !node.owner_before(weak);
}
#else
inline constexpr bool kTraceOfEveryDtype = true;

template <class T, class... Args>
c10::intrusive_ptr<T> make_node(Args&&... args) {
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
}

template <class Weak, class Strong>
bool is_same_node(const Weak& weak, const Strong& node) {
  return node && weak._unsafe_get_target() == node.get();
}
#endif

}  // namespace tandem::libtorch
