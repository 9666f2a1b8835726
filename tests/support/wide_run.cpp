#include "support/wide_run.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <vector>

namespace tandem::test {
namespace {

/// Below autograd and views, above the kernels of memory, and left to other projects by libtorch.
constexpr c10::DispatchKey kKey = c10::DispatchKey::CustomRNGKeyId;
/// By how much finer float64 is than float32.
constexpr double kFiner = 0x1p-29;
constexpr size_t kMemoriesBetweenSweeps = 512;

thread_local WideRun::Memory* current = nullptr;

bool is_number(at::ScalarType dtype) {
  return at::isFloatingType(dtype) || at::isComplexType(dtype);
}
bool is_followed(const at::Tensor& tensor) {
  return tensor.defined() && is_number(tensor.scalar_type()) && tensor.device().is_cpu() &&
         tensor.layout() == at::kStrided && tensor.has_storage() &&
         (tensor.storage().nbytes() == 0 || tensor.storage().data() != nullptr);  // no zero tensor
}

at::ScalarType real_type(at::ScalarType dtype) { return c10::toRealValueType(dtype); }

/// The largest finite distance from zero.
double largest_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const at::Tensor size = tensor.abs().to(at::kDouble);
  return size.masked_fill(size.isfinite().logical_not(), 0).max().item<double>();
}

/// Where no number stands in either, or the same infinity, there is no distance.
double distance_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  const bool is_complex = a.is_complex();
  const at::Tensor x = is_complex ? at::view_as_real(a.to(at::kComplexDouble)) : a.to(at::kDouble);
  const at::Tensor y = is_complex ? at::view_as_real(b.to(at::kComplexDouble)) : b.to(at::kDouble);
  const at::Tensor same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const at::Tensor distance = (x - y).abs().masked_fill(same, 0);
  return distance.nan_to_num(INFINITY).max().item<double>();
}

/// Draws over a float: the same numbers come again in any dtype. All others are taken as drawn.
bool may_draw_again(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::native_dropout", "aten::rrelu_with_noise",
                                              "aten::rrelu_with_noise_"};
  return names.contains(op.schema().name());
}

}  // namespace

/// What lies beside the memory of the run.
struct WideRun::Memory {
  struct Beside {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // its address is not given again
    at::ScalarType dtype;                               // of real numbers
    size_t bytes;
    std::array<at::Tensor, 2> values;  // float64, float32: one dimension
  };

  std::map<const c10::StorageImpl*, Beside> all{};
  size_t sweep_at = kMemoriesBetweenSweeps;
  double largest = 0, eps = 0;

  static constexpr std::array<at::ScalarType, 2> kTypes = {at::kDouble, at::kFloat};

  Beside* find(const at::Tensor& tensor) {
    const auto found = all.find(tensor.storage().unsafeGetStorageImpl());
    if (found == all.end()) return nullptr;
    Beside& beside = found->second;
    const bool fits = beside.dtype == real_type(tensor.scalar_type()) &&
                      beside.bytes == tensor.storage().nbytes();
    return fits ? &beside : nullptr;
  }

  void forget(const at::Tensor& tensor) { all.erase(tensor.storage().unsafeGetStorageImpl()); }

  /// What the memory holds now, exactly.
  Beside& follow(const at::Tensor& tensor) {
    if (Beside* known = find(tensor)) return *known;
    if (all.size() >= sweep_at) sweep();
    const at::ScalarType dtype = real_type(tensor.scalar_type());
    eps = std::max(eps, eps_of(dtype));
    const size_t bytes = tensor.storage().nbytes();
    const auto count = static_cast<int64_t>(bytes / c10::elementSize(dtype));
    const at::Tensor whole =
        at::empty({0}, at::TensorOptions(dtype)).set_(tensor.storage(), 0, {count}, {1});
    Beside beside{tensor.storage().getWeakStorageImpl(), dtype, bytes, {}};
    for (size_t i = 0; i < kTypes.size(); ++i) {
      beside.values[i] = whole.to(kTypes[i], /*non_blocking=*/false, /*copy=*/true);
    }
    return all.insert_or_assign(tensor.storage().unsafeGetStorageImpl(), std::move(beside))
        .first->second;
  }

  void sweep() {
    std::erase_if(all, [](const auto& item) { return item.second.storage.expired(); });
    sweep_at = all.size() + kMemoriesBetweenSweeps;
  }

  /// The tensor over the other memory.
  static at::Tensor over(const Beside& beside, size_t which, const at::Tensor& tensor) {
    const at::ScalarType dtype =
        tensor.is_complex() ? c10::toComplexType(kTypes[which]) : kTypes[which];
    at::Tensor other = at::empty({0}, at::TensorOptions(dtype))
                           .set_(beside.values[which].storage(), tensor.storage_offset(),
                                 tensor.sizes(), tensor.strides());
    if (tensor.is_conj()) other._set_conj(true);
    if (tensor.is_neg()) other._set_neg(true);
    return other;
  }

  at::Tensor shown(const at::Tensor& tensor, size_t which) {
    if (!tensor.defined()) return {};
    const c10::InferenceMode normal(false);
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
    const Beside* beside = find(tensor);
    return beside ? over(*beside, which, tensor).clone() : at::Tensor();
  }
};

namespace {

using Memory = WideRun::Memory;
using ToTensor = std::function<at::Tensor(const at::Tensor&, bool is_written)>;

bool is_dtype(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return is_dtype(optional->getElementType());
  }
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

/// Calls `look` with every tensor in the values.
template <class Look>
void each_tensor(at::ArrayRef<c10::IValue> values, const Look& look) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      look(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) look(item.toTensor());
      }
    }
  }
}

/// One op of the run, with its arguments in the other dtypes.
class WideOp {
 public:
  WideOp(const c10::OperatorHandle& op, Memory& memory) : op_(op), memory_(memory) {}

  void run(c10::DispatchKeySet keys, torch::jit::Stack& stack) {
    const size_t count = op_.schema().arguments().size();
    const auto first = stack.end() - static_cast<int64_t>(count);
    const torch::jit::Stack arguments(first, stack.end());
    bool reads_numbers = false;
    {
      const Aside aside;
      each_tensor(arguments, [&](const at::Tensor& tensor) {
        if (!is_followed(tensor)) return;
        memory_.follow(tensor);
        reads_numbers = true;
      });
    }
    std::array<torch::jit::Stack, 2> others;
    if (reads_numbers) {
      const Aside aside;
      for (size_t which = 0; which < others.size(); ++which)
        others[which] = other(arguments, which);
    }
    const bool draws = op_.hasTag(at::Tag::nondeterministic_seeded);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    for (const c10::IValue& value : arguments) {
      if (value.isGenerator() && value.toGenerator().defined()) generator = value.toGenerator();
    }
    const at::Tensor drawn_from = draws ? generator.get_state() : at::Tensor();
    {
      const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
      op_.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                          &stack);
    }
    // New memory holds nothing yet, least of all a largest value.
    if (!reads_numbers || op_.schema().name().find("empty") != std::string::npos) return;
    const Aside aside;
    const size_t results = op_.schema().returns().size();
    const torch::jit::Stack given(stack.end() - static_cast<int64_t>(results), stack.end());
    if (draws && !may_draw_again(op_)) {
      take_as_it_is(arguments, given);
      return;
    }
    if (!op_.schema().is_mutable() && shows_known_memory(given)) return;
    const at::Tensor drawn_to = draws ? generator.get_state() : at::Tensor();
    for (size_t which = 0; which < others.size(); ++which) {
      if (draws) generator.set_state(drawn_from);
      try {
        op_.callBoxed(&others[which]);
      } catch (const std::exception&) {  // no kernel for the dtype
        if (draws) generator.set_state(drawn_to);
        take_as_it_is(arguments, given);
        return;
      }
    }
    if (draws) generator.set_state(drawn_to);
    keep(given, others);
  }

 private:
  /// The other memory is nobody's business.
  struct Aside {
    const c10::InferenceMode normal{false};
    const at::AutoDispatchBelowADInplaceOrView below{};
    const c10::impl::ExcludeDispatchKeyGuard exclude{kKey};
  };

  torch::jit::Stack other(const torch::jit::Stack& arguments, size_t which) {
    torch::jit::Stack list = arguments;
    for (size_t i = 0; i < list.size(); ++i) {
      const c10::Argument& argument = op_.schema().arguments()[i];
      const bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
      list[i] = other(arguments[i], argument, is_written, which);
    }
    return list;
  }

  c10::IValue other(const c10::IValue& value, const c10::Argument& argument, bool is_written,
                    size_t which) {
    const auto of_tensor = [&](const at::Tensor& tensor) -> at::Tensor {
      if (is_followed(tensor)) return Memory::over(memory_.follow(tensor), which, tensor);
      return is_written && tensor.defined() ? tensor.clone() : tensor;  // written once only
    };
    if (value.isTensor()) return of_tensor(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(of_tensor(tensor));
      return tensors;
    }
    if (value.isList() && value.toListRef().size() > 0) {
      c10::impl::GenericList list(value.toList().elementType());
      for (const c10::IValue& item : value.toListRef()) {
        list.push_back(item.isTensor() ? c10::IValue(of_tensor(item.toTensor())) : item);
      }
      return list;
    }
    if (value.isInt() && is_dtype(argument.real_type())) {
      const auto dtype = static_cast<at::ScalarType>(value.toInt());
      if (at::isFloatingType(dtype)) return static_cast<int64_t>(Memory::kTypes[which]);
      if (at::isComplexType(dtype)) {
        return static_cast<int64_t>(c10::toComplexType(Memory::kTypes[which]));
      }
    }
    return value;
  }

  /// Views of memory that is followed.
  bool shows_known_memory(const torch::jit::Stack& results) {
    bool known = true;
    each_tensor(results, [&](const at::Tensor& tensor) {
      known = known && (!is_followed(tensor) || memory_.find(tensor) != nullptr);
    });
    return known;
  }

  /// From here on the run itself is the truth.
  void take_as_it_is(const torch::jit::Stack& arguments, const torch::jit::Stack& results) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = op_.schema().arguments()[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      each_tensor({arguments[i]}, [&](const at::Tensor& tensor) {
        if (is_followed(tensor)) refresh(tensor);
      });
    }
    each_tensor(results, [&](const at::Tensor& tensor) {
      if (is_followed(tensor)) memory_.follow(tensor);
    });
  }

  void refresh(const at::Tensor& tensor) {
    const Memory::Beside& beside = memory_.follow(tensor);
    for (size_t which = 0; which < Memory::kTypes.size(); ++which) {
      Memory::over(beside, which, tensor).copy_(tensor);
    }
  }

  void keep(const torch::jit::Stack& results, const std::array<torch::jit::Stack, 2>& others) {
    std::vector<at::Tensor> own;
    each_tensor(results, [&](const at::Tensor& tensor) { own.push_back(tensor); });
    for (size_t which = 0; which < others.size(); ++which) {
      size_t index = 0;
      each_tensor(others[which], [&](const at::Tensor& other) {
        const at::Tensor& tensor = own.at(index++);
        if (!is_followed(tensor)) return;
        // The kernel of another dtype has left it out, or laid it out otherwise.
        if (!other.defined() || other.sizes() != tensor.sizes()) return refresh(tensor);
        if (which == 0) memory_.largest = std::max(memory_.largest, largest_of(other));
        const bool is_new = which == 0 && memory_.find(tensor) == nullptr;
        if (is_new) new_.insert(tensor.storage().unsafeGetStorageImpl());
        Memory::Beside& beside = memory_.follow(tensor);
        if (!new_.contains(tensor.storage().unsafeGetStorageImpl())) return;  // written in place
        Memory::over(beside, which, tensor).copy_(other);
      });
    }
  }

  const c10::OperatorHandle& op_;
  Memory& memory_;
  std::set<const c10::StorageImpl*> new_{};
};

void run_wide(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (current == nullptr) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    return;
  }
  WideOp(op, *current).run(keys, *stack);
}

/// Whether libtorch has one kernel for all memory: it would come before a fallback.
bool has_common_kernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

/// Kept until the process ends, as libtorch's own.
void register_once() {
  static torch::Library* all = nullptr;
  static torch::Library* aten = nullptr;
  static const bool done = [] {
    const auto wide = [] { return torch::CppFunction::makeFromBoxedFunction<&run_wide>(); };
    all = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all->fallback(wide());
    aten = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || !name.name.starts_with("aten::") || !has_common_kernel(*op)) continue;
      const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
      aten->impl((name.name + overload).c_str(), wide());
    }
    return true;
  }();
  (void)done;
}

}  // namespace

WideRun::WideRun() : memory_(std::make_unique<Memory>()), before_(rounding_judge) {
  rounding_judge = this;
}
WideRun::~WideRun() { rounding_judge = before_; }

WideRun::Scope::Scope(WideRun& run, bool always) {
  if (!backend_rounds() && !always) return;
  register_once();
  current = run.memory_.get();
  include_.emplace(kKey);
}
WideRun::Scope::~Scope() {
  if (include_) current = nullptr;
}

at::Tensor WideRun::wide(const at::Tensor& tensor) const { return memory_->shown(tensor, 0); }
at::Tensor WideRun::narrow(const at::Tensor& tensor) const { return memory_->shown(tensor, 1); }
double WideRun::largest() const { return memory_->largest; }
double WideRun::eps() const { return memory_->eps; }

std::optional<std::string> WideRun::beyond(const at::Tensor& eager,
                                           const at::Tensor& compiled) const {
  if (!is_followed(eager)) return std::nullopt;
  const at::Tensor truth = wide(eager);
  if (!truth.defined()) return std::nullopt;
  const at::NoGradGuard no_grad;
  const double own = distance_of(eager, truth), found = distance_of(compiled, truth);
  const double finer = kFiner * distance_of(narrow(eager), truth);
  const double largest = std::max(largest_of(truth), memory_->largest);
  const double bound = 2 * (own + finer) + 16 * memory_->eps * largest;
  if (found <= bound) return std::string();
  std::ostringstream out;
  out << "data differs: distance to float64 " << found << ", eager's " << own << ", by float32 "
      << finer << ", bound " << bound << " with largest value " << largest << " and eps "
      << memory_->eps;
  return out.str();
}

}  // namespace tandem::test
