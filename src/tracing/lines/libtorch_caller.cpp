#include "tracing/lines/libtorch_caller.h"

#include "tracing/lines/loaded_objects.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace tandem::tracing {
namespace {

/// More frames than that lie between no op and an optimizer.
constexpr size_t kMostSearched = 24;
constexpr const char* kWrapOutputs = "torch::autograd::_wrap_outputs";

/// `torch::optim::SGD::step(std::function<at::Tensor ()>)` without what is in brackets; empty if
/// the symbol is none of those that are looked for.
std::string wanted_name(const char* symbol) {
  if (symbol == nullptr) return {};
  const std::string_view mangled(symbol);
  if (!mangled.starts_with("_ZN5torch5optim") &&
      !mangled.starts_with("_ZN5torch2nn6Module9zero_gradE") &&
      !mangled.starts_with("_ZN5torch8autograd13_wrap_outputsE")) {
    return {};
  }
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr), &std::free);
  if (!text) return {};
  const std::string_view name(text.get());
  return std::string(name.substr(0, name.find('(')));
}

/// By return address: the dynamic linker is slow.
const std::string& name_at(uintptr_t address) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<uintptr_t, std::string>;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.try_emplace(address);
  if (is_new) {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(address - 1), &info) != 0)
      it->second = wanted_name(info.dli_sname);
  }
  return it->second;
}

struct Search {
  uintptr_t inner;  // frames inside this one are Tandem's
  const LoadedObjects& objects;
  size_t frames = 0;
  std::string found{};
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (_Unwind_GetCFA(context) <= search.inner) return _URC_NO_REASON;
  const uintptr_t address = _Unwind_GetIP(context);
  const LoadedObject* const object = search.objects.find(address - 1);
  if (object == nullptr || !object->platform || ++search.frames > kMostSearched)
    return _URC_END_OF_STACK;
  // The outermost counts: Optimizer::zero_grad is called for each group.
  if (const std::string& name = name_at(address); !name.empty()) search.found = name;
  return _URC_NO_REASON;
}

}  // namespace

GradientUser gradient_user(const EntryFrame& entry) {
  const std::shared_ptr<const LoadedObjects> objects = LoadedObjects::now();
  Search search{reinterpret_cast<uintptr_t>(entry.frame), *objects};
  _Unwind_Backtrace(&visit, &search);
  if (search.found == kWrapOutputs) return {.marks_dirty = true};
  return {.optimizer = std::move(search.found)};
}

}  // namespace tandem::tracing
