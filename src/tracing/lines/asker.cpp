#include "tracing/lines/asker.h"

#include "tracing/lines/loaded_objects.h"

#include <dlfcn.h>
#include <unwind.h>

#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace tandem::tracing {
namespace {

/// Functions through which everybody asks, as their names are mangled. A program that inlines none
/// of them may run libtorch's copy.
constexpr std::string_view kWays[] = {
    "_ZNK2at10TensorBase", "_ZNK2at6Tensor",        "_ZN2at8indexing", "_ZNK3c1010TensorImpl",
    "_ZN3c1010TensorImpl", "_ZN2at4_ops4item4call", "_ZN3c104impl",    "_ZNK3c1010Dispatcher"};

bool is_core(const LoadedObject& object) {
  const std::string_view path(object.path);
  return path.substr(path.rfind('/') + 1).starts_with("libc10");
}

/// Where the functions begin to which a functional tensor answers. Many of them are no symbols.
std::unordered_set<uintptr_t> answers_of_tensors(const LoadedObjects& objects) {
  std::unordered_set<uintptr_t> starts;
  const auto* table =
      static_cast<const uintptr_t*>(dlsym(RTLD_DEFAULT, "_ZTVN2at23FunctionalTensorWrapperE"));
  if (table == nullptr) return starts;
  // In front of the functions lie an offset and the type.
  for (const uintptr_t* at = table + 2; objects.find(*at) != nullptr; ++at) starts.insert(*at);
  return starts;
}

/// By return address: the dynamic linker is slow.
bool is_way(uintptr_t address, uintptr_t begin, const LoadedObjects& objects) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<uintptr_t, bool>;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.try_emplace(address, false);
  if (is_new) {
    static const auto& answers = *new auto(answers_of_tensors(objects));
    it->second = answers.contains(begin);
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(address - 1), &info) != 0 && info.dli_sname) {
      const std::string_view name(info.dli_sname);
      for (std::string_view way : kWays) it->second = it->second || name.starts_with(way);
    }
  }
  return it->second;
}

struct AskerSearch {
  uintptr_t inner;  // frames inside this one are Tandem's
  const LoadedObjects& objects;
  bool by_user = false;
};

_Unwind_Reason_Code look_for_asker(_Unwind_Context* context, void* data) {
  AskerSearch& search = *static_cast<AskerSearch*>(data);
  if (_Unwind_GetCFA(context) <= search.inner) return _URC_NO_REASON;
  const uintptr_t address = _Unwind_GetIP(context);
  const LoadedObject* const object = search.objects.find(address - 1);
  if (object != nullptr && object->platform &&
      (is_core(*object) || is_way(address, _Unwind_GetRegionStart(context), search.objects))) {
    return _URC_NO_REASON;
  }
  search.by_user = object == nullptr || !object->platform;
  return _URC_END_OF_STACK;
}

}  // namespace

bool asked_by_user(const EntryFrame& entry) {
  const std::shared_ptr<const LoadedObjects> objects = LoadedObjects::now();
  AskerSearch search{reinterpret_cast<uintptr_t>(entry.frame), *objects};
  _Unwind_Backtrace(&look_for_asker, &search);
  return search.by_user;
}

}  // namespace tandem::tracing
