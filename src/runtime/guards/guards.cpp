#include "runtime/guards/guards.h"

#include "base/error.h"
#include "base/same_bits.h"
#include "ops/effect_marks.h"
#include "runtime/guards/constant_text.h"
#include "runtime/guards/sizes_key.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <tuple>
#include <unordered_map>

namespace tandem::runtime {
namespace {

std::string text_of(const GuardFn::Value& value) {
  return std::visit([](const auto& v) { return constant_text(detail::Constant(v)); }, value);
}

int64_t first_same(const detail::Flat& arguments, size_t index) {
  for (size_t i = 0; i < index; ++i) {
    if (arguments.tensors[i].defined() && arguments.tensors[i].is_same(arguments.tensors[index])) {
      return static_cast<int64_t>(i);
    }
  }
  return static_cast<int64_t>(index);
}

/// How many switches differ.
size_t distance_of(const libtorch::ThreadState& a, const libtorch::ThreadState& b) {
  size_t count = 0;
  const auto compare = [&](const auto& one) { count += a.*one.member == b.*one.member ? 0 : 1; };
  std::apply([&](const auto&... each) { (compare(each), ...); },
             libtorch::fields(static_cast<const libtorch::ThreadState*>(nullptr)));
  // Autocast is in one word with inference mode.
  return count + (a.autocast() == b.autocast() ? 0 : 1);
}

std::string constant_difference(size_t index, const detail::Constant& now,
                                const detail::Constant& then) {
  return base::str("constant ", index, " of the arguments is ", constant_text(now),
                   ", compiled for ", constant_text(then));
}

/// `f32[4, 4]` or `undefined`.
std::string tensor_text(const at::Tensor& tensor) { return TensorGuard(tensor).to_string(); }

/// Whether somebody holds the tensor beside the two handles of each of so many variants (its
/// guards' and its own) and the gradient accumulator, which an entry keeps alive from call to call.
bool has_other_owner(const at::Tensor& tensor, size_t variants) {
  const size_t of_the_entry = 2 * variants;
  const size_t owners = tensor.use_count();
  if (owners > of_the_entry + 1) return true;
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(
      tensor.unsafeGetTensorImpl()->autograd_meta());
  const bool accumulator = meta && !meta->grad_accumulator_.expired();
  return owners > of_the_entry + (accumulator ? 1 : 0);
}

}  // namespace

Guards::Guards(const libtorch::ThreadState& thread, const detail::Flat& arguments,
               std::vector<std::string> names, const Options& options)
    : thread_(thread),
      effect_marks_(ops::effect_marks()),
      constants_(arguments.constants.begin(), arguments.constants.end()),
      names_(std::move(names)),
      modules_(options.modules),
      guard_on_(options.guard_on) {
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    arguments_.emplace_back(arguments.tensors[i]);
    first_same_.push_back(first_same(arguments, i));
  }
  for (const at::Tensor* variable : options.closes_over)
    watch_variable(variable, tensor_text(*variable));
  if (guard_on_) guard_value_ = guard_on_();
}

void Guards::watch_lifted(std::vector<at::Tensor> lifted) {
  lifted_ = std::move(lifted);
  for (const at::Tensor& tensor : lifted_) {
    sorted_lifted_.push_back(tensor.unsafeGetTensorImpl());
    owned_outside_.push_back(has_other_owner(tensor, 1));
  }
  std::ranges::sort(sorted_lifted_);
}

void Guards::add_trace(const Joint& joint, const ir::Signature& signature,
                       const detail::Flat& arguments) {
  watch_lifted(joint.lifted);
  std::unordered_map<const c10::StorageImpl*, std::vector<size_t>> by_storage;
  for (size_t i = 0; i < lifted_.size(); ++i) {
    lifted_guards_.emplace_back(lifted_[i]);
    by_storage[lifted_[i].storage().unsafeGetStorageImpl()].push_back(i);
  }
  for (auto& [storage, group] : by_storage) {
    if (group.size() > 1) shared_storage_.push_back(std::move(group));
  }
  for (const ir::InputFacts& facts : signature.inputs) {
    if (!facts.closed_over) continue;
    const auto argument = static_cast<size_t>(facts.role.index);
    closed_over_.push_back({argument, c10::weak_intrusive_ptr<c10::TensorImpl>(
                                          arguments.tensors[argument].getIntrusivePtr())});
  }
  std::vector<std::string> names = add_signature(signature);
  const Inputs inputs = inputs_of(arguments);
  groups_ = AliasGuard::rows_of(signature, inputs);
  views_ = AliasGuard::views_of(signature, inputs);
  aliases_ = AliasGuard(signature, {groups_, views_}, inputs, std::move(names));
}

void Guards::watch_offsets(const detail::Flat& arguments) {
  for (const at::Tensor& tensor : lifted_) lifted_offsets_.push_back(tensor.storage_offset());
  for (const at::Tensor& tensor : arguments.tensors) {
    argument_offsets_.push_back(tensor.defined() ? tensor.storage_offset() : 0);
  }
}

std::vector<std::string> Guards::add_signature(const ir::Signature& signature) {
  for (size_t i = 0; i < lifted_.size(); ++i)
    lifted_names_.push_back(ir::to_string(signature.inputs[i].role));
  for (const ir::EqualityFacts& facts : signature.equalities) {
    const auto side = [&](int64_t input) -> ValueGuard::Side {
      const auto i = static_cast<size_t>(input);
      if (i < lifted_.size()) return {.lifted = true, .index = i, .name = lifted_names_[i]};
      const auto argument = static_cast<size_t>(signature.inputs[i].role.index);
      return {.lifted = false, .index = argument, .name = names_[argument]};
    };
    values_.emplace_back(side(facts.a), side(facts.b), facts.equal);
  }
  std::vector<std::string> names = lifted_names_;
  for (size_t i = lifted_.size(); i < signature.inputs.size(); ++i) {
    input_arguments_.push_back(static_cast<size_t>(signature.inputs[i].role.index));
    names.push_back(names_[input_arguments_.back()]);
  }
  return names;
}

Guards::Guards(const GuardRows& rows, const ir::Signature& signature,
               std::vector<at::Tensor> lifted, Watched watched)
    : thread_(rows.thread),
      effect_marks_(ops::effect_marks()),
      constants_(rows.constants),
      names_(rows.names),
      first_same_(rows.first_same),
      modules_(watched.modules, rows.modules),
      guard_on_(std::move(watched.guard_on)),
      guard_value_(rows.guard_on),
      groups_(rows.groups),
      views_(rows.views),
      lifted_offsets_(rows.lifted_offsets),
      argument_offsets_(rows.argument_offsets),
      were_loaded_(true) {
  // Ops that were marked as effectful at the compile are effects in the graph. Calls of an op that
  // was marked since may have been left out.
  for (const std::string& op : ops::marked_effectful()) {
    TANDEM_REQUIRE(std::ranges::count(rows.effectful_ops, op) > 0, "bind", "mark_effectful(\"", op,
                   "\") was called in this process and not in the one that compiled the entry",
                   "\n  remedy: compile the function in this process");
  }
  for (const TensorRow& row : rows.arguments) arguments_.emplace_back(row);
  if (guard_value_ && !guard_on_) {
    TANDEM_UNSUPPORTED("bind",
                       "the entry is guarded by guard_on, a function of the program that "
                       "compiled it (it returned ",
                       text_of(*guard_value_), ")", "\n  remedy: pass the same guard_on");
  }
  if (watched.closes_over.size() != rows.closes_over.size()) {
    TANDEM_UNSUPPORTED("bind", "the entry watches ", rows.closes_over.size(),
                       " variables of the program that compiled it (closes_over), got ",
                       watched.closes_over.size(), "\n  remedy: pass as many, in the same order");
  }
  for (size_t i = 0; i < rows.closes_over.size(); ++i)
    watch_variable(watched.closes_over[i], rows.closes_over[i]);
  if (watched.closed_over.size() != rows.closed_over.size()) {
    TANDEM_UNSUPPORTED("bind", rows.closed_over.size(),
                       " arguments of the entry are tensors that "
                       "the function closes over, got ",
                       watched.closed_over.size(),
                       "\n  remedy: pass them as closed_over, in the order of the arguments");
  }
  for (size_t i = 0; i < rows.closed_over.size(); ++i) {
    closed_over_.push_back(
        {static_cast<size_t>(rows.closed_over[i]),
         c10::weak_intrusive_ptr<c10::TensorImpl>(watched.closed_over[i].getIntrusivePtr())});
  }
  watch_lifted(std::move(lifted));
  for (const TensorRow& row : rows.lifted) lifted_guards_.emplace_back(row);
  for (const std::vector<int64_t>& group : rows.shared_storage)
    shared_storage_.emplace_back(group.begin(), group.end());
  std::vector<std::string> names = add_signature(signature);
  for (size_t i = 0; i < lifted_.size(); ++i) {
    TANDEM_REQUIRE(lifted_guards_[i].matches(lifted_[i]), "bind", lifted_names_[i], ": ",
                   lifted_guards_[i].difference(lifted_[i]),
                   "\n  remedy: pass a tensor like the one that the function closed over");
  }
  Inputs inputs;
  for (const at::Tensor& tensor : lifted_) inputs.push_back(&tensor);
  aliases_ = AliasGuard(signature, {groups_, views_}, inputs, std::move(names));
}

GuardRows Guards::rows() const {
  GuardRows rows{.thread = thread_,
                 .effectful_ops = ops::marked_effectful(),
                 .constants = constants_,
                 .names = names_,
                 .first_same = first_same_,
                 .modules = modules_.rows(),
                 .guard_on = guard_value_,
                 .lifted_offsets = lifted_offsets_,
                 .argument_offsets = argument_offsets_,
                 .groups = groups_,
                 .views = views_};
  for (const TensorGuard& guard : arguments_) rows.arguments.push_back(guard.row());
  for (const Handle& handle : handles_) rows.closes_over.push_back(handle.text);
  for (const TensorGuard& guard : lifted_guards_) rows.lifted.push_back(guard.row());
  for (const std::vector<size_t>& group : shared_storage_)
    rows.shared_storage.emplace_back(group.begin(), group.end());
  for (const ClosedOver& closed : closed_over_)
    rows.closed_over.push_back(static_cast<int64_t>(closed.argument));
  return rows;
}

void Guards::watch_variable(const at::Tensor* variable, std::string text) {
  handles_.push_back({variable,
                      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
                          variable->getIntrusivePtr()),
                      std::move(text)});
}

Guards::Inputs Guards::inputs_of(const detail::Flat& arguments) const {
  Inputs inputs;
  for (const at::Tensor& tensor : lifted_) inputs.push_back(&tensor);
  for (size_t argument : input_arguments_) inputs.push_back(&arguments.tensors[argument]);
  return inputs;
}

bool Guards::is_stale() const {
  if (effect_marks_ != ops::effect_marks() || modules_.is_stale()) return true;
  for (size_t i = 0; i < lifted_.size(); ++i) {
    if (owned_outside_[i] && !has_other_owner(lifted_[i], holders())) return true;
  }
  return false;
}

bool Guards::hold(const libtorch::ThreadState& thread, const detail::Flat& arguments) const {
  return check(thread, arguments, [](auto&&) { return false; });
}

std::optional<std::string> Guards::mismatch(const libtorch::ThreadState& thread,
                                            const detail::Flat& arguments) const {
  std::optional<std::string> text;
  check(thread, arguments, [&](auto&& make_text) {
    text = make_text();
    return false;
  });
  return text;
}

bool Guards::has_structure_of(const detail::Flat& arguments) const {
  return arguments.constants.size() == constants_.size() &&
         arguments.tensors.size() == arguments_.size();
}

size_t Guards::distance(const libtorch::ThreadState& thread, const detail::Flat& arguments) const {
  if (!has_structure_of(arguments)) return SIZE_MAX - 1;
  constexpr size_t kOne = 2;  // as much as one size of a tensor
  size_t distance = distance_of(thread_, thread) + (modules_.holds() ? 0 : kOne);
  for (size_t i = 0; i < constants_.size(); ++i)
    distance += base::same_bits(constants_[i], arguments.constants[i]) ? 0 : kOne;
  for (size_t i = 0; i < arguments_.size(); ++i)
    distance += arguments_[i].distance(arguments.tensors[i]);
  return distance;
}

std::string Guards::difference(const libtorch::ThreadState& thread,
                               const detail::Flat& arguments) const {
  std::vector<std::string> texts;
  if (thread_ != thread) texts.push_back(*thread_.difference(thread));
  if (has_structure_of(arguments)) {
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (!base::same_bits(constants_[i], arguments.constants[i]))
        texts.push_back(constant_difference(i, arguments.constants[i], constants_[i]));
    }
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!arguments_[i].matches(arguments.tensors[i]))
        texts.push_back(base::str(names_[i], ": ", arguments_[i].difference(arguments.tensors[i])));
    }
    if (auto text = modules_.difference()) texts.push_back(*std::move(text));
  }
  if (texts.empty()) return mismatch(thread, arguments).value_or("");
  constexpr size_t kMost = 3;
  std::string line;
  for (size_t i = 0; i < std::min(texts.size(), kMost); ++i) line += (i ? "; " : "") + texts[i];
  if (texts.size() > kMost) line += base::str("; and ", texts.size() - kMost, " more");
  return line;
}

const char* Guards::advice(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                           bool sizes_may_vary) const {
  constexpr const char* kSameOps = "let the function call the same ops at every size";
  if (thread_ != thread) return "make the calls in one mode of the thread";
  if (!has_structure_of(arguments)) return "make the calls alike";
  for (size_t i = 0; i < constants_.size(); ++i) {
    const detail::Constant& constant = constants_[i];
    if (base::same_bits(constant, arguments.constants[i])) continue;
    if (sizes_may_vary && varies(constant)) continue;
    const bool number = varies(constant) || std::holds_alternative<std::complex<double>>(constant);
    return number ? "pass the number that changes as a tensor" : "make the calls alike";
  }
  bool other_sizes = false;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].matches(arguments.tensors[i])) continue;
    if (!arguments_[i].differs_in_size(arguments.tensors[i])) return "make the calls alike";
    other_sizes = true;
  }
  if (sizes_may_vary) return kSameOps;
  return other_sizes ? "leave Options::dynamic at automatic, so that an entry serves other sizes"
                     : "make the calls alike";
}

template <class Fail>
bool Guards::check(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                   Fail&& fail) const {
  if (thread_ != thread) return fail([&] { return *thread_.difference(thread); });
  if (const uint64_t marks = ops::effect_marks(); marks != effect_marks_) {
    return fail([&] {
      return base::str("ops were marked as effectful since: ", marks, ", compiled with ",
                       effect_marks_);
    });
  }
  if (!has_structure_of(arguments)) {
    return fail([&] {
      return base::str("the arguments hold ", arguments.tensors.size(), " tensors and ",
                       arguments.constants.size(), " constants, compiled for ", arguments_.size(),
                       " and ", constants_.size());
    });
  }
  for (size_t i = 0; i < constants_.size(); ++i) {
    if (!base::same_bits(constants_[i], arguments.constants[i])) {
      return fail([&] { return constant_difference(i, arguments.constants[i], constants_[i]); });
    }
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].matches(arguments.tensors[i])) {
      return fail([&] {
        return base::str(names_[i], ": ", arguments_[i].difference(arguments.tensors[i]));
      });
    }
  }
  if (!modules_.holds()) return fail([&] { return *modules_.difference(); });
  for (size_t i = 0; i < handles_.size(); ++i) {
    const Handle& handle = handles_[i];
    if (handle.variable->unsafeGetTensorImpl() != handle.target._unsafe_get_target()) {
      return fail([&] {
        return base::str("closes_over[", i, "] refers to another tensor (",
                         tensor_text(*handle.variable), ") than at the trace (", handle.text, ")");
      });
    }
  }
  if (guard_on_) {
    if (const GuardFn::Value now = guard_on_(); !base::same_bits(now, *guard_value_)) {
      return fail([&] {
        return base::str("guard_on returns ", text_of(now), ", compiled for ",
                         text_of(*guard_value_));
      });
    }
  }
  return check_lifted(fail) && check_lifted_memory(fail) && check_aliases(arguments, fail) &&
         check_offsets(arguments, fail) && check_values(arguments, fail);
}

/// Last: it is the only one that reads data.
template <class Fail>
bool Guards::check_values(const detail::Flat& arguments, Fail&& fail) const {
  for (const ValueGuard& guard : values_) {
    if (auto text = guard.mismatch(lifted_, {arguments.tensors.data(), arguments.tensors.size()})) {
      return fail([&] { return *text; });
    }
  }
  return true;
}

template <class Fail>
bool Guards::check_lifted(Fail&& fail) const {
  const size_t holders = this->holders();
  for (size_t i = 0; i < lifted_.size(); ++i) {
    if (!lifted_guards_[i].matches(lifted_[i])) {
      return fail([&] {
        return base::str(lifted_names_[i], ": ", lifted_guards_[i].difference(lifted_[i]));
      });
    }
    if (owned_outside_[i] && !has_other_owner(lifted_[i], holders)) {
      return fail([&] {
        return base::str(lifted_names_[i], " (", lifted_guards_[i].to_string(),
                         ") is no longer held by the program, so the function must use another");
      });
    }
  }
  return true;
}

template <class Fail>
bool Guards::check_lifted_memory(Fail&& fail) const {
  // `.data()` of a parameter is another tensor on the same storage. set_data() would separate the
  // two.
  for (const std::vector<size_t>& group : shared_storage_) {
    for (size_t i = 1; i < group.size(); ++i) {
      if (!lifted_[group[i]].storage().is_alias_of(lifted_[group[0]].storage())) {
        return fail([&] {
          return base::str(lifted_names_[group[i]], " no longer shares memory with ",
                           lifted_names_[group[0]]);
        });
      }
    }
  }
  return true;
}

template <class Fail>
bool Guards::check_offsets(const detail::Flat& arguments, Fail&& fail) const {
  const auto same = [&](const std::string& name, int64_t now, int64_t then) {
    return now == then || fail([&] {
             return base::str(name, ": storage offset is ", now, ", compiled for ", then);
           });
  };
  for (size_t i = 0; i < lifted_offsets_.size(); ++i) {
    if (!same(lifted_names_[i], lifted_[i].storage_offset(), lifted_offsets_[i])) return false;
  }
  for (size_t i = 0; i < argument_offsets_.size(); ++i) {
    const at::Tensor& tensor = arguments.tensors[i];
    if (!tensor.defined()) continue;
    if (!same(names_[i], tensor.storage_offset(), argument_offsets_[i])) return false;
  }
  return true;
}

template <class Fail>
bool Guards::check_aliases(const detail::Flat& arguments, Fail&& fail) const {
  const auto& tensors = arguments.tensors;
  for (const ClosedOver& closed : closed_over_) {
    if (closed.tensor._unsafe_get_target() != tensors[closed.argument].unsafeGetTensorImpl()) {
      return fail([&] {
        return base::str(names_[closed.argument],
                         " is not the tensor that the function closes over");
      });
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    if (const int64_t first = first_same(arguments, i); first != first_same_[i]) {
      return fail([&] {
        const auto other = static_cast<size_t>(std::min<int64_t>(first, first_same_[i]));
        return base::str(names_[i], " is ", first == static_cast<int64_t>(i) ? "not " : "",
                         "the same tensor as ", names_[other]);
      });
    }
    const c10::TensorImpl* impl = tensors[i].unsafeGetTensorImpl();
    if (std::ranges::binary_search(sorted_lifted_, impl)) {
      return fail([&] {
        size_t k = 0;
        while (lifted_[k].unsafeGetTensorImpl() != impl) ++k;
        return base::str(names_[i], " is also closed over, as ", lifted_names_[k]);
      });
    }
  }
  if (!aliases_.watches()) return true;
  if (auto text = aliases_.mismatch(inputs_of(arguments))) return fail([&] { return *text; });
  return true;
}

std::vector<std::string> Guards::texts(const VaryingWords& varying) const {
  const auto other = [](const std::vector<std::string>& words, size_t i) {
    return i < words.size() ? words[i] : std::string();
  };
  std::vector<std::string> texts{thread_.to_string()};
  for (size_t i = 0; i < constants_.size(); ++i) {
    const std::string words = other(varying.constants, i);
    texts.push_back(base::str("constant ", i, " of the arguments is ",
                              words.empty() ? constant_text(constants_[i]) : words));
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    std::string text =
        base::str(names_[i], ": ", arguments_[i].to_string(other(varying.argument_types, i)));
    if (first_same_[i] != static_cast<int64_t>(i)) {
      text += ", the same tensor as " + names_[static_cast<size_t>(first_same_[i])];
    }
    texts.push_back(std::move(text));
  }
  for (std::string& text : modules_.texts()) texts.push_back(std::move(text));
  for (size_t i = 0; i < handles_.size(); ++i) {
    texts.push_back(
        base::str("closes_over[", i, "] refers to the same tensor (", handles_[i].text, ")"));
  }
  if (guard_on_) texts.push_back(base::str("guard_on returns ", text_of(*guard_value_)));
  for (size_t i = 0; i < lifted_.size(); ++i) {
    texts.push_back(base::str(lifted_names_[i], ": ", lifted_guards_[i].to_string()));
  }
  for (const ClosedOver& closed : closed_over_) {
    texts.push_back(names_[closed.argument] + " is the tensor that the function closes over");
  }
  if (!argument_offsets_.empty() || !lifted_offsets_.empty()) {
    texts.push_back("every input starts where it did in its storage: as_strided counts from there");
  }
  for (std::string& text : aliases_.texts()) texts.push_back(std::move(text));
  for (const ValueGuard& guard : values_) texts.push_back(guard.to_string());
  return texts;
}

}  // namespace tandem::runtime
