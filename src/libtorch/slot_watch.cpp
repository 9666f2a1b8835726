#include "libtorch/slot_watch.h"

#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <unordered_map>
#include <utility>

namespace tandem::libtorch {
namespace {

namespace autograd = torch::autograd;
using Metadata = c10::AutogradMetaInterface;

std::atomic<SlotWatch::OnAccess> access_handler{nullptr};

/// The table of virtual functions, the first word of an object.
typedef const void* Table __attribute__((may_alias));  // g++ takes the attribute in this form only
const void* table_of(const Metadata& metadata) {
  return __atomic_load_n(reinterpret_cast<const Table*>(&metadata), __ATOMIC_RELAXED);
}
void set_table(Metadata& metadata, const void* table) {
  __atomic_store_n(reinterpret_cast<Table*>(&metadata), table, __ATOMIC_RELAXED);
}

struct Watchers {
  size_t count = 0;
  const void* own_table = nullptr;  // of the metadata, to give back
};

/// Who watches what. Leaked: a trace may still run in another thread at exit.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const Metadata*, Watchers> watched;

  static Registry& of_process() {
    static auto& registry = *new Registry;
    return registry;
  }
};

void note_access(const Metadata& metadata, const void* frame, const void* return_address) {
  if (const SlotWatch::OnAccess handler = access_handler.load(std::memory_order_acquire))
    handler(metadata, frame, return_address);
}

/// Has no field of its own: an object of the class below it may take its table.
template <class Base>
class Reporting final : public Base {
 public:
  using Base::Base;
  ~Reporting() override {
    // The tensor dies while it is watched; another one may get this place.
    Registry& registry = Registry::of_process();
    const std::lock_guard lock(registry.mutex);
    registry.watched.erase(this);
  }
  at::Tensor& mutable_grad() override {
    note_access(*this, __builtin_frame_address(0), __builtin_return_address(0));
    return Base::mutable_grad();
  }
  const at::Tensor& grad() const override {
    note_access(*this, __builtin_frame_address(0), __builtin_return_address(0));
    return Base::grad();
  }
};
static_assert(sizeof(Reporting<autograd::AutogradMeta>) == sizeof(autograd::AutogradMeta));
static_assert(sizeof(Reporting<autograd::DifferentiableViewMeta>) ==
              sizeof(autograd::DifferentiableViewMeta));

/// The table of the class that reports for the class of this metadata; null: there is none.
const void* reporting_table(const Metadata& metadata) {
  // Their tables are all that is wanted of them.
  static const auto* const plain = new Reporting<autograd::AutogradMeta>;
  static const auto* const view = new Reporting<autograd::DifferentiableViewMeta>(
      static_cast<at::TensorImpl*>(c10::UndefinedTensorImpl::singleton()), std::nullopt,
      std::nullopt, false);
  if (typeid(metadata) == typeid(autograd::AutogradMeta)) return table_of(*plain);
  if (typeid(metadata) == typeid(autograd::DifferentiableViewMeta)) return table_of(*view);
  return nullptr;
}

}  // namespace

void SlotWatch::set_on_access(OnAccess on_access) {
  access_handler.store(on_access, std::memory_order_release);
}

SlotWatch::SlotWatch(const at::Tensor& tensor) : tensor_(tensor.getIntrusivePtr()) {
  Metadata* const metadata = tensor.unsafeGetTensorImpl()->autograd_meta();
  if (metadata == nullptr) return;
  Registry& registry = Registry::of_process();
  const std::lock_guard lock(registry.mutex);
  const auto known = registry.watched.find(metadata);
  if (known != registry.watched.end()) {
    ++known->second.count;
  } else {
    const void* const reporting = reporting_table(*metadata);
    if (reporting == nullptr) return;
    registry.watched.emplace(metadata, Watchers{1, table_of(*metadata)});
    set_table(*metadata, reporting);
  }
  metadata_ = metadata;
}

SlotWatch::SlotWatch(SlotWatch&& other) noexcept
    : tensor_(std::move(other.tensor_)), metadata_(std::exchange(other.metadata_, nullptr)) {}

SlotWatch::~SlotWatch() {
  if (metadata_ == nullptr) return;
  const auto tensor = tensor_.lock();
  if (!tensor || tensor->autograd_meta() != metadata_) return;  // it is gone, and forgotten
  Registry& registry = Registry::of_process();
  const std::lock_guard lock(registry.mutex);
  const auto known = registry.watched.find(metadata_);
  if (known == registry.watched.end() || --known->second.count > 0) return;
  set_table(*metadata_, known->second.own_table);
  registry.watched.erase(known);
}

const at::Tensor& noted_gradient(const at::Tensor& tensor) {
  static const auto& undefined = *new at::Tensor;
  const auto* metadata = autograd::impl::get_autograd_meta(tensor);
  return metadata == nullptr ? undefined : metadata->grad_;
}

void set_gradient(const at::Tensor& tensor, const at::Tensor& gradient) {
  if (auto* metadata = autograd::impl::get_autograd_meta(tensor)) metadata->grad_ = gradient;
}

}  // namespace tandem::libtorch
