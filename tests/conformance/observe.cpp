#include "conformance/observe.h"

#include "support/allocated_bytes.h"
#include "support/same_bits.h"

#include <c10/util/intrusive_ptr.h>

#include <cctype>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace tandem::conformance {
namespace {

/// Long enough to tell errors apart, short enough to leave out what names nodes and addresses.
constexpr size_t kErrorPrefix = 60;

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

/// What the call is held against afterwards.
struct Before {
  uint32_t version = 0;
  const void* storage = nullptr;
  const torch::autograd::Node* history = nullptr;
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

const torch::autograd::Node* history_of(const at::Tensor& tensor) { return tensor.grad_fn().get(); }

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

/// The first thing about an input that is not as before the call; empty if none.
std::string what_changed(const Inputs& inputs, const BeforeMap& before) {
  for (const Named& item : named(inputs, {})) {
    if (!item.tensor.defined()) continue;
    const Before& was = before.at(item.tensor.unsafeGetTensorImpl());
    if (version_of(item.tensor) != was.version) return "version of " + item.name;
    if (storage_of(item.tensor) != was.storage) return "storage of " + item.name;
    if (history_of(item.tensor) != was.history) return "grad_fn of " + item.name;
    if (item.tensor.requires_grad() != was.requires_grad) return "requires_grad of " + item.name;
    if (!testing::same_bits(data_of(item.tensor), was.data)) return "data of " + item.name;
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

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

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
  /// leaf.
  void differentiate(const std::string& when) {
    torch::manual_seed(7);
    const std::vector<Named> roots = differentiable(), wanted = gradients_wanted();
    if (wanted.empty()) return;
    Tensors root_tensors, tangents, wanted_tensors;
    for (const Named& item : wanted) wanted_tensors.push_back(item.tensor);
    const auto record = [&](const std::string& of, RecordKind kind, const Tensors& from,
                            const Tensors& with) {
      try {
        const Tensors gradients =
            torch::autograd::grad(from, wanted_tensors, with, true, false, true);
        for (size_t i = 0; i < gradients.size(); ++i) {
          add({"gradient of " + of + " in " + wanted[i].name + when, kind,
               gradients[i].defined() ? "defined" : "undefined", data_of(gradients[i])});
        }
      } catch (const std::exception& error) {
        add({"gradient of " + of + when, RecordKind::Error, text_of(error), {}});
      }
    };
    size_t results = 0;
    for (const Named& root : roots) {
      root_tensors.push_back(root.tensor);
      tangents.push_back(
          torch::randn(root.tensor.sizes(), root.tensor.options().requires_grad(false)));
      record(root.name, RecordKind::Gradient, {root_tensors.back()}, {tangents.back()});
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
           grad.defined() ? text_of(grad.strides()) : "undefined", data_of(grad)});
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

  void remember_versions() {
    for (const Named& item : all_) {
      if (item.tensor.defined()) {
        after_call_[item.tensor.unsafeGetTensorImpl()] = version_of(item.tensor);
      }
    }
  }

 private:
  void add(Record record) { observation_.records.push_back(std::move(record)); }
  void text(std::string what, std::string text) {
    add({std::move(what), RecordKind::Text, std::move(text), {}});
  }

  void look_at(const std::string& name, const at::Tensor& tensor) {
    text(name, tensor.defined() ? "defined" : "undefined");
    if (!tensor.defined()) return;
    text("dtype of " + name, c10::toString(tensor.scalar_type()));
    if (tensor.layout() == torch::kStrided) {
      text("sizes of " + name, text_of(tensor.sizes()));
      text("strides of " + name, text_of(tensor.strides()));
      text("offset of " + name, std::to_string(tensor.storage_offset()));
      text("conj of " + name, std::to_string(tensor.is_conj()));
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

bool is_close(const at::Tensor& a, const at::Tensor& b, double units) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!at::isFloatingType(a.scalar_type()) && !at::isComplexType(a.scalar_type())) return false;
  const bool is_double =
      a.scalar_type() == torch::kDouble || a.scalar_type() == torch::kComplexDouble;
  const double eps =
      is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double largest = a.numel() ? a.abs().max().item<double>() : 0.0;
  return a.numel() == 0 || (a - b).abs().max().item<double>() <= units * eps * largest;
}

/// Some errors begin with the name of the node that made a view: a custom function's in eager, ours
/// here.
std::string without_node(const std::string& text) {
  const size_t end = text.find(" is a view and is being modified inplace");
  return text.starts_with("Output ") && end != std::string::npos ? text.substr(end) : text;
}

}  // namespace

Observation observe(const Program& program, const Call& call, int number,
                    const Settings& settings) {
  Observation observation;
  const Inputs inputs = make_inputs(program, number);
  const BeforeMap before = look_before(inputs);
  const at::Tensor random = generator_state();
  Tensors results;
  try {
    Tensors arguments = inputs.arguments;
    within(settings, [&] { results = call(arguments); });
  } catch (const std::exception& error) {
    observation.error = text_of(error);
    observation.refused = dynamic_cast<const UnsupportedError*>(&error) != nullptr;
    observation.touched_what = what_changed(inputs, before);
    if (observation.touched_what.empty() && !testing::same_bits(random, generator_state())) {
      observation.touched_what = "the random stream";
    }
    observation.touched = !observation.touched_what.empty();
  }
  observation.records.push_back({"error of the call",
                                 RecordKind::Error,
                                 observation.error.empty() ? "none" : observation.error,
                                 {}});
  if (!observation.error.empty()) return observation;
  observation.records.push_back({"random stream", RecordKind::Value, {}, generator_state()});
  Observer observer(inputs, results, before, observation);
  observer.look_at_sharing();
  observer.look_at_results();
  observer.look_at_inputs();
  observer.differentiate("");
  observer.accumulate();
  observer.remember_versions();
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
  const testing::AllocatedBytes bytes;
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

std::string difference(const Record& eager, const Record& compiled, const Settings& settings) {
  const auto both = [&](const std::string& a, const std::string& b) {
    return eager.what + ": eager " + a + ", compiled " + b;
  };
  switch (eager.kind) {
    case RecordKind::Text:
      return eager.text == compiled.text ? "" : both(eager.text, compiled.text);
    case RecordKind::Error: {
      if ((eager.text == "none") != (compiled.text == "none")) {
        return both(eager.text, compiled.text);
      }
      const std::string beginning = without_node(eager.text).substr(0, kErrorPrefix);
      return without_node(compiled.text).find(beginning) != std::string::npos
                 ? ""
                 : both(eager.text, compiled.text);
    }
    case RecordKind::ResultHistory: {
      if (eager.text == compiled.text) return "";
      const auto is_view = [](const std::string& text) { return text.starts_with("view "); };
      const auto is_none = [](const std::string& text) { return text.ends_with("none"); };
      if (is_view(eager.text) != is_view(compiled.text) ||
          is_none(eager.text) != is_none(compiled.text)) {
        return both(eager.text, compiled.text);
      }
      if (!is_view(eager.text)) return "";
      // The in-place form of a view op has a node of its own, of the same name but for its number.
      const auto op = [](std::string text) {
        while (!text.empty() && std::isdigit(static_cast<unsigned char>(text.back()))) {
          text.pop_back();
        }
        return text;
      };
      if (op(eager.text) == op(compiled.text)) return "";
      // Of a view whose base was written inside, eager makes the node anew, as a strided one; here
      // it is the node of the view's own op.
      const bool ours = compiled.text.find("Tandem") != std::string::npos;
      const bool custom = eager.text.find("CppNode") != std::string::npos;
      if (ours && (custom || settings.own_view_nodes)) return "";
      return eager.text == "view AsStridedBackward0" && !ours ? ""
                                                              : both(eager.text, compiled.text);
    }
    case RecordKind::Value:
    case RecordKind::Gradient:
    case RecordKind::GradientSum:
    case RecordKind::HigherGradient: {
      if (eager.text != compiled.text) return both(eager.text, compiled.text);
      const auto same = testing::same_bits(eager.value, compiled.value);
      if (same) return "";
      const bool higher = eager.kind == RecordKind::HigherGradient;
      const bool may_round = higher || eager.kind == RecordKind::GradientSum ||
                             (eager.kind == RecordKind::Gradient && settings.sums_may_round);
      if (may_round && eager.value.defined() && compiled.value.defined() &&
          is_close(eager.value, compiled.value, higher ? 64 : 8)) {
        return "";
      }
      return eager.what + ": " + same.message();
    }
  }
  return "";
}

}  // namespace tandem::conformance
