#include "conformance/observe.h"

#include "support/allocated_bytes.h"
#include "support/same_bits.h"

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <map>
#include <sstream>
#include <type_traits>
#include <utility>

namespace tandem::conformance {
namespace {

struct Named {
  std::string name;
  at::Tensor tensor;
};

std::vector<Named> named(const Inputs& inputs, const Tensors& results) {
  std::vector<Named> all;
  const auto add = [&](const char* kind, const Tensors& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i)
      all.push_back({kind + (" " + std::to_string(i)), tensors[i]});
  };
  add("argument", inputs.arguments);
  add("leaf", inputs.leaves);
  add("watched", inputs.watched);
  add("result", results);
  return all;
}

using Node = std::decay_t<decltype(std::declval<at::Tensor>().grad_fn())>;

/// What the call is held against afterwards.
struct Before {
  uint32_t version = 0;
  const void* storage = nullptr;
  Node history{};  // held: a node that is freed may give its address to the next
  bool requires_grad = false;
  at::Tensor data{};
};

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

/// Undefined if the storage holds less than the tensor needs, as after a resize to nothing.
at::Tensor data_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const torch::NoGradGuard no_grad;
  if (tensor.has_storage() && tensor.numel() > 0) {
    const size_t needed =
        at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                         static_cast<size_t>(tensor.storage_offset()));
    if (tensor.storage().nbytes() < needed) return {};
  }
  return tensor.detach().resolve_conj().resolve_neg().clone();
}

Node history_of(const at::Tensor& tensor) { return tensor.grad_fn(); }

using BeforeMap = std::map<const c10::TensorImpl*, Before>;

BeforeMap look_before(const Inputs& inputs) {
  BeforeMap before;
  for (const Named& item : named(inputs, {})) {
    if (!item.tensor.defined()) continue;
    before[item.tensor.unsafeGetTensorImpl()] = {version_of(item.tensor), storage_of(item.tensor),
                                                 history_of(item.tensor),
                                                 item.tensor.requires_grad(), data_of(item.tensor)};
  }
  return before;
}

/// Whether a view has the history that libtorch gives it after a write, and its base the one that
/// it had.
bool is_renewed(const at::Tensor& tensor, const BeforeMap& before) {
  if (!tensor.is_view() || tensor.grad_fn() == nullptr) return false;
  const at::Tensor base(tensor._base());
  const auto was = before.find(base.unsafeGetTensorImpl());
  if (was == before.end() || history_of(base) != was->second.history) return false;
  // A view that as_strided() cannot take is taken again by its own ops.
  if (tensor.scalar_type() != base.scalar_type() || tensor.is_conj() != base.is_conj() ||
      tensor.is_neg() != base.is_neg()) {
    return true;
  }
  return tensor.grad_fn()->name() == "AsStridedBackward0" &&
         tensor.grad_fn()->next_edge(0) == torch::autograd::impl::gradient_edge(base);
}

/// The first thing about an input that is not as before the call; empty if none.
std::string what_changed(const Inputs& inputs, const BeforeMap& before, const Settings& settings) {
  for (const Named& item : named(inputs, {})) {
    if (!item.tensor.defined()) continue;
    const Before& was = before.at(item.tensor.unsafeGetTensorImpl());
    if (version_of(item.tensor) != was.version) return "version of " + item.name;
    if (storage_of(item.tensor) != was.storage) return "storage of " + item.name;
    if (history_of(item.tensor) != was.history &&
        !(settings.views_may_renew && is_renewed(item.tensor, before))) {
      return "grad_fn of " + item.name;
    }
    if (item.tensor.requires_grad() != was.requires_grad) return "requires_grad of " + item.name;
    if (!test::same_bits(data_of(item.tensor), was.data)) return "data of " + item.name;
  }
  return {};
}

std::string text_of(const std::exception& error) {
  const auto* libtorch = dynamic_cast<const c10::Error*>(&error);
  return libtorch ? libtorch->what_without_backtrace() : error.what();
}

template <class T>
std::string text_of(at::ArrayRef<T> list) {
  std::ostringstream out;
  out << list;
  return out.str();
}

/// Of a dimension with one element the stride means nothing.
std::string strides_that_matter(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return "none";
  std::vector<int64_t> strides = tensor.strides().vec();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) == 1) strides[static_cast<size_t>(dim)] = 0;
  }
  return text_of(at::IntArrayRef(strides));
}

/// The default generator first.
Tensors generator_states(const Inputs& inputs) {
  Tensors states = {at::detail::getDefaultCPUGenerator().get_state()};
  for (const at::Generator& generator : inputs.generators) states.push_back(generator.get_state());
  return states;
}
bool same_states(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!test::same_bits(a[i], b[i])) return false;
  }
  return true;
}

class Observer {
 public:
  Observer(const Inputs& inputs, const Tensors& results, const BeforeMap& before,
           Observation& observation)
      : results_(results),
        before_(before),
        all_(named(inputs, results)),
        observation_(observation) {}

  void look_at_results() {
    text("number of results", std::to_string(results_.size()));
    for (size_t i = 0; i < results_.size(); ++i) {
      const std::string name = "result " + std::to_string(i);
      look_at(name, results_[i]);
      if (!results_[i].defined()) continue;
      const auto history = results_[i].grad_fn();
      const std::string node = history ? history->name() : "none";
      // Only of a view is the node eager's own; a fresh result has ours.
      const bool view = results_[i].is_view();
      add({"grad_fn of " + name, RecordKind::ResultHistory, (view ? "view " : "") + node, {}});
      if (shares_with_input(results_[i])) version(name, results_[i]);
    }
  }

  void look_at_inputs() {
    for (const Named& item : all_) {
      if (item.name.starts_with("result")) continue;
      look_at(item.name, item.tensor);
      if (!item.tensor.defined()) continue;
      version(item.name, item.tensor);
      text("grad_fn of " + item.name, item.tensor.grad_fn() ? "some" : "none");
      const Before& was = before_.at(item.tensor.unsafeGetTensorImpl());
      text("history of " + item.name + " changed",
           std::to_string(history_of(item.tensor) != was.history));
      text("storage of " + item.name + " replaced",
           std::to_string(storage_of(item.tensor) != was.storage));
    }
  }

  /// Which of all tensors are one object, which share memory and how far apart, which base a view
  /// has. Bases that nobody holds are numbered as they come.
  void look_at_sharing() {
    std::ostringstream same, shares;
    for (size_t i = 0; i < all_.size(); ++i) {
      const at::Tensor& a = all_[i].tensor;
      if (!a.defined() || !a.has_storage()) continue;
      for (size_t j = 0; j < i; ++j) {
        const at::Tensor& b = all_[j].tensor;
        if (!b.defined() || !b.has_storage()) continue;
        if (a.is_same(b)) {
          same << all_[i].name << " is " << all_[j].name << "; ";
        } else if (a.storage().is_alias_of(b.storage())) {
          shares << all_[i].name << " shares with " << all_[j].name << " at "
                 << address(a) - address(b) << "; ";
        }
      }
      text("base of " + all_[i].name, a.is_view() ? base_name(a) : "none");
    }
    text("objects", same.str());
    text("memory", shares.str());
  }

  /// One tangent at a time, then those of all results at once, then of all results and arguments;
  /// with respect to every leaf, every argument as the call leaves it, and every result that is a
  /// leaf. Of each tangent also with respect to one of them by itself.
  void differentiate(const std::string& when) {
    torch::manual_seed(7);
    const std::vector<Named> roots = differentiable(), wanted = gradients_wanted();
    if (wanted.empty()) return;
    Tensors root_tensors, tangents;
    const auto record_in = [&](const std::vector<Named>& in, const std::string& of, RecordKind kind,
                               const Tensors& from, const Tensors& with) {
      Tensors in_tensors;
      for (const Named& item : in) in_tensors.push_back(item.tensor);
      try {
        const Tensors gradients = torch::autograd::grad(from, in_tensors, with, true, false, true);
        for (size_t i = 0; i < gradients.size(); ++i) {
          add({"gradient of " + of + " in " + in[i].name + when, kind,
               gradients[i].defined() ? "defined" : "undefined", data_of(gradients[i])});
        }
      } catch (const std::exception& error) {
        add({"gradient of " + of + when, RecordKind::Error, text_of(error), {}});
      }
    };
    const auto record = [&](const std::string& of, RecordKind kind, const Tensors& from,
                            const Tensors& with) { record_in(wanted, of, kind, from, with); };
    size_t results = 0;
    for (const Named& root : roots) {
      root_tensors.push_back(root.tensor);
      tangents.push_back(
          torch::randn(root.tensor.sizes(), root.tensor.options().requires_grad(false)));
      record(root.name, RecordKind::Gradient, {root_tensors.back()}, {tangents.back()});
      if (wanted.size() > 1) {
        record_in({wanted[root_tensors.size() % wanted.size()]}, root.name + " alone",
                  RecordKind::Gradient, {root_tensors.back()}, {tangents.back()});
      }
      results += root.name.starts_with("result");
    }
    if (results > 1) {
      record("all results", RecordKind::Gradient,
             Tensors(root_tensors.begin(), root_tensors.begin() + static_cast<int64_t>(results)),
             Tensors(tangents.begin(), tangents.begin() + static_cast<int64_t>(results)));
    }
    // What a call adds to its argument is summed before it meets what comes from outside.
    if (roots.size() > results && roots.size() > 1) {
      record("all", RecordKind::GradientSum, root_tensors, tangents);
    }
  }

  /// `backward()` of all results: `.grad()` of the leaves, strides included.
  void accumulate() {
    torch::manual_seed(8);
    Tensors roots, tangents;
    for (const Named& root : differentiable()) {
      if (!root.name.starts_with("result")) continue;
      roots.push_back(root.tensor);
      tangents.push_back(
          torch::randn(root.tensor.sizes(), root.tensor.options().requires_grad(false)));
    }
    if (roots.empty()) return;
    try {
      torch::autograd::backward(roots, tangents, true);
    } catch (const std::exception& error) {
      add({"backward of all results", RecordKind::Error, text_of(error), {}});
    }
    for (const Named& item : all_) {
      if (!item.tensor.defined() || !item.tensor.is_leaf()) continue;
      at::Tensor grad = item.tensor.grad();
      add({"grad() of " + item.name, RecordKind::Gradient,
           grad.defined() ? strides_that_matter(grad) : "undefined", data_of(grad)});
      item.tensor.mutable_grad().reset();
    }
  }

  /// Each result is written in place, as its caller may; what shows where?
  void write_results() {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].defined() || !results_[i].has_storage()) continue;
      const std::string when = " after result " + std::to_string(i) + " was written";
      std::string error = "none";
      try {
        const torch::AutoGradMode grad_mode(true);
        results_[i].add_(2);
      } catch (const std::exception& raised) {
        error = text_of(raised);
      }
      add({"error" + when, RecordKind::Error, error, {}});
      for (const Named& item : all_) {
        if (!item.tensor.defined()) continue;
        add({item.name + when, RecordKind::Value, {}, data_of(item.tensor)});
        text("requires_grad of " + item.name + when, std::to_string(item.tensor.requires_grad()));
        text("version of " + item.name + when, version_since_call(item.tensor));
      }
    }
    differentiate(" after the writes");
  }

  /// Gradients of the first result and of all results with a graph of their own, and of those once
  /// more: in leaves, arguments and tangents.
  void differentiate_twice() {
    torch::manual_seed(9);
    Tensors roots, tangents;
    for (const Named& root : differentiable()) {
      if (!root.name.starts_with("result")) continue;
      roots.push_back(root.tensor);
      tangents.push_back(
          torch::randn(root.tensor.sizes(), root.tensor.options().requires_grad(true)));
    }
    if (roots.empty()) return;
    differentiate_twice("result 0", {roots[0]}, {tangents[0]});
    if (roots.size() > 1) differentiate_twice("all results", roots, tangents);
  }

  /// What the caller does next.
  void go_on(const Tensors& arguments,
             const std::function<Tensors(const Tensors&, const Tensors&)>& further) {
    torch::manual_seed(11);  // a gradient that was refused has drawn fewer tangents
    Tensors made;
    std::string error = "none";
    try {
      made = further(arguments, results_);
    } catch (const std::exception& raised) {
      error = text_of(raised);
    }
    add({"error of what comes next", RecordKind::Error, error, {}});
    for (const Named& item : all_) {
      if (!item.tensor.defined()) continue;
      add({item.name + " afterwards", RecordKind::Value, {}, data_of(item.tensor)});
      text("requires_grad of " + item.name + " afterwards",
           std::to_string(item.tensor.requires_grad()));
      text("version of " + item.name + " afterwards", version_since_call(item.tensor));
    }
    torch::manual_seed(10);
    const std::vector<Named> wanted = gradients_wanted();
    Tensors wanted_tensors;
    for (const Named& item : wanted) wanted_tensors.push_back(item.tensor);
    for (size_t i = 0; i < made.size(); ++i) {
      const std::string name = "what came next " + std::to_string(i);
      look_at(name, made[i]);
      if (!made[i].defined() || !made[i].requires_grad() || wanted.empty()) continue;
      const at::Tensor tangent =
          torch::randn(made[i].sizes(), made[i].options().requires_grad(false));
      try {
        const Tensors gradients =
            torch::autograd::grad({made[i]}, wanted_tensors, {tangent}, true, false, true);
        for (size_t j = 0; j < gradients.size(); ++j) {
          add({"gradient of " + name + " in " + wanted[j].name, RecordKind::GradientSum,
               gradients[j].defined() ? "defined" : "undefined", data_of(gradients[j])});
        }
      } catch (const std::exception& raised) {
        add({"gradient of " + name, RecordKind::Error, text_of(raised), {}});
      }
    }
  }

  void remember_versions() {
    for (const Named& item : all_) {
      if (item.tensor.defined()) {
        after_call_[item.tensor.unsafeGetTensorImpl()] = version_of(item.tensor);
      }
    }
  }

 private:
  void differentiate_twice(const std::string& of, const Tensors& roots, const Tensors& tangents) {
    const std::vector<Named> wanted = gradients_wanted();
    std::vector<std::string> names;
    Tensors inputs;
    for (const Named& item : wanted) {
      names.push_back(item.name);
      inputs.push_back(item.tensor);
    }
    if (inputs.empty()) return;
    try {
      const Tensors first = torch::autograd::grad(roots, inputs, tangents, true, true, true);
      Tensors again, second_tangents;
      for (size_t i = 0; i < first.size(); ++i) {
        add({"gradient with a graph of " + of + " in " + names[i], RecordKind::GradientSum,
             !first[i].defined()        ? "undefined"
             : first[i].requires_grad() ? "requires grad"
                                        : "defined",
             data_of(first[i])});
        if (!first[i].defined() || !first[i].requires_grad()) continue;
        torch::manual_seed(20 + i);  // the same, whichever of the others has none
        again.push_back(first[i]);
        second_tangents.push_back(
            torch::randn(first[i].sizes(), first[i].options().requires_grad(false)));
      }
      if (again.empty()) return;
      for (size_t i = 0; i < tangents.size(); ++i) {
        names.push_back("tangent " + std::to_string(i));
        inputs.push_back(tangents[i]);
      }
      const Tensors second =
          torch::autograd::grad(again, inputs, second_tangents, true, false, true);
      for (size_t i = 0; i < second.size(); ++i) {
        add({"second gradient of " + of + " in " + names[i], RecordKind::GradientSum,
             second[i].defined() ? "defined" : "undefined", data_of(second[i])});
      }
    } catch (const std::exception& error) {
      add({"second gradient of " + of, RecordKind::Error, text_of(error), {}});
    }
  }

  void add(Record record) { observation_.records.push_back(std::move(record)); }
  void text(std::string what, std::string text) {
    add({std::move(what), RecordKind::Text, std::move(text), {}});
  }

  void look_at(const std::string& name, const at::Tensor& tensor) {
    text(name, tensor.defined() ? "defined" : "undefined");
    if (!tensor.defined()) return;
    tensor.grad_fn();  // a view renews it when asked; is_leaf() and requires_grad() do not ask
    text("dtype of " + name, c10::toString(tensor.scalar_type()));
    text("number of " + name, std::to_string(tensor.unsafeGetTensorImpl()->is_wrapped_number()));
    if (tensor.layout() == torch::kStrided) {
      text("sizes of " + name, text_of(tensor.sizes()));
      text("strides of " + name, strides_that_matter(tensor));
      text("offset of " + name, std::to_string(tensor.storage_offset()));
      text("conj of " + name, std::to_string(tensor.is_conj()));
      text("neg of " + name, std::to_string(tensor.is_neg()));
    }
    text("requires_grad of " + name, std::to_string(tensor.requires_grad()));
    text("is_leaf of " + name, std::to_string(tensor.is_leaf()));
    text("is_view of " + name, std::to_string(tensor.is_view()));
    text("inference of " + name, std::to_string(tensor.is_inference()));
    const at::Tensor data = data_of(tensor);
    add({"data of " + name, RecordKind::Value, data.defined() ? "" : "no memory", data});
  }

  void version(const std::string& name, const at::Tensor& tensor) {
    const auto was = before_.find(tensor.unsafeGetTensorImpl());
    const uint32_t from = was == before_.end() ? 0 : was->second.version;
    text("version of " + name, "+" + std::to_string(version_of(tensor) - from));
  }
  std::string version_since_call(const at::Tensor& tensor) const {
    return "+" + std::to_string(version_of(tensor) - after_call_.at(tensor.unsafeGetTensorImpl()));
  }

  bool shares_with_input(const at::Tensor& tensor) const {
    if (!tensor.has_storage()) return false;
    for (const Named& item : all_) {
      if (item.name.starts_with("result")) break;
      if (item.tensor.defined() && item.tensor.has_storage() &&
          item.tensor.storage().is_alias_of(tensor.storage())) {
        return true;
      }
    }
    return false;
  }

  static intptr_t address(const at::Tensor& tensor) {
    return static_cast<intptr_t>(tensor.storage_offset()) *
           static_cast<intptr_t>(tensor.element_size());
  }

  std::string base_name(const at::Tensor& tensor) {
    const at::TensorBase base = tensor._base();
    for (const Named& item : all_) {
      if (item.tensor.defined() && item.tensor.is_same(at::Tensor(base))) return item.name;
    }
    const auto [found, added] =
        hidden_bases_.try_emplace(base.unsafeGetTensorImpl(), hidden_bases_.size());
    return "hidden base " + std::to_string(found->second);
  }

  std::vector<Named> differentiable() const {
    std::vector<Named> roots;
    std::set<const void*> seen;
    const auto add_from = [&](bool results) {
      for (const Named& item : all_) {
        const at::Tensor& tensor = item.tensor;
        if (item.name.starts_with("result") == results && tensor.defined() &&
            tensor.requires_grad() && !tensor.is_leaf() &&
            seen.insert(tensor.unsafeGetTensorImpl()).second) {
          roots.push_back(item);
        }
      }
    };
    add_from(true);
    add_from(false);
    return roots;
  }

  std::vector<Named> gradients_wanted() const {
    std::vector<Named> wanted;
    for (const Named& item : all_) {
      const at::Tensor& tensor = item.tensor;
      if (!tensor.defined() || !tensor.requires_grad()) continue;
      if (!item.name.starts_with("result") || tensor.is_leaf()) wanted.push_back(item);
    }
    return wanted;
  }

  const Tensors& results_;
  const BeforeMap& before_;
  std::vector<Named> all_;
  Observation& observation_;
  std::map<const void*, size_t> hidden_bases_{};
  std::map<const c10::TensorImpl*, uint32_t> after_call_{};
};

void within(const Settings& settings, const std::function<void()>& body) {
  if (settings.around) {
    settings.around(body);
  } else {
    body();
  }
}

Inputs make_inputs(const Program& program, int number) {
  torch::manual_seed(static_cast<uint64_t>(100 + number));
  Inputs inputs = program.inputs();
  torch::manual_seed(static_cast<uint64_t>(200 + number));
  return inputs;
}

}  // namespace

Observation observe(const Program& program, const Call& call, int number,
                    const Settings& settings) {
  Observation observation;
  const Inputs inputs = make_inputs(program, number);
  const BeforeMap before = look_before(inputs);
  const Tensors random = generator_states(inputs);
  const bool grad_mode = at::GradMode::is_enabled();
  bool mode_left = grad_mode;
  Tensors results;
  try {
    Tensors arguments = inputs.arguments;
    within(settings, [&] {
      results = call(arguments);
      mode_left = at::GradMode::is_enabled();
    });
  } catch (const std::exception& error) {
    observation.error = text_of(error);
    observation.refused = dynamic_cast<const UnsupportedError*>(&error) != nullptr;
    observation.touched_what = what_changed(inputs, before, settings);
    if (observation.touched_what.empty() && !same_states(random, generator_states(inputs))) {
      observation.touched_what = "the random stream";
    }
    observation.touched = !observation.touched_what.empty();
  }
  observation.records.push_back({"error of the call",
                                 RecordKind::Error,
                                 observation.error.empty() ? "none" : observation.error,
                                 {}});
  at::GradMode::set_enabled(grad_mode);  // whatever the function has left
  if (!observation.error.empty()) return observation;
  observation.records.push_back(
      {"grad mode after the call", RecordKind::Text, mode_left ? "on" : "off", {}});
  const Tensors drawn = generator_states(inputs);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const std::string which = i == 0 ? "" : " " + std::to_string(i);
    observation.records.push_back({"random stream" + which, RecordKind::Value, {}, drawn[i]});
  }
  Observer observer(inputs, results, before, observation);
  observer.look_at_sharing();
  observer.look_at_results();
  observer.look_at_inputs();
  if (settings.after_call) settings.after_call(inputs);
  observer.differentiate("");
  observer.accumulate();
  if (settings.second_order) observer.differentiate_twice();
  observer.remember_versions();
  if (settings.further) observer.go_on(inputs.arguments, settings.further);
  if (settings.write_results) observer.write_results();
  for (const Named& item : named(inputs, {})) {
    if (item.tensor.defined() && item.tensor.is_leaf()) item.tensor.mutable_grad().reset();
  }
  return observation;
}

std::string leftovers(const Program& program, const Call& call, int number,
                      const Settings& settings) {
  struct Weak {
    std::string name;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  std::vector<Weak> weak;
  const test::AllocatedBytes bytes;
  const auto remember = [&](const std::vector<Named>& all) {
    for (const Named& item : all) {
      if (!item.tensor.defined() || !item.tensor.has_storage()) continue;
      weak.push_back({item.name,
                      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
                          item.tensor.getIntrusivePtr()),
                      item.tensor.storage().getWeakStorageImpl()});
    }
  };
  {
    const Inputs inputs = make_inputs(program, number);
    Tensors results, arguments = inputs.arguments;
    try {
      within(settings, [&] { results = call(arguments); });
      remember(named(inputs, results));
      Tensors roots, tangents;
      for (const at::Tensor& result : results) {
        if (!result.defined() || !result.requires_grad() || result.is_leaf()) continue;
        roots.push_back(result);
        tangents.push_back(torch::ones_like(result));
      }
      if (!roots.empty()) torch::autograd::backward(roots, tangents);
    } catch (const std::exception&) {  // the observation has the text
      remember(named(inputs, {}));
    }
    for (const Named& item : named(inputs, {})) {
      if (item.tensor.defined() && item.tensor.is_leaf()) item.tensor.mutable_grad().reset();
    }
  }
  std::ostringstream out;
  for (const Weak& item : weak) {
    if (!item.tensor.expired()) out << item.name << " is alive; ";
    if (!item.storage.expired()) out << "storage of " << item.name << " is alive; ";
  }
  if (bytes.now() != 0) out << bytes.now() << " bytes are held";
  return out.str();
}

}  // namespace tandem::conformance
