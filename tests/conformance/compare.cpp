#include "conformance/compare.h"

#include "support/same_bits.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tandem::conformance {
namespace {

constexpr size_t kDifferencesShown = 8;
/// Long enough to tell errors apart, short enough to leave out what names nodes and addresses.
constexpr size_t kErrorPrefix = 60;
/// libtorch's words for a saved tensor that was written, and for one of several views.
constexpr const char* kModified = "has been modified by an inplace operation";
constexpr const char* kViewModified = "another view of its base has been modified";

/// `more` is by how much more than the settings say.
bool is_close(const at::Tensor& a, const at::Tensor& b, const Settings& settings, double more = 1) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!at::isFloatingType(a.scalar_type()) && !at::isComplexType(a.scalar_type())) return false;
  const bool is_double =
      a.scalar_type() == torch::kDouble || a.scalar_type() == torch::kComplexDouble;
  const double eps =
      std::max(settings.least_eps, is_double ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon());
  if (a.numel() == 0) return true;
  // A NaN has a sign, which says which of several came first. Infinities are equal or not.
  if (!at::equal(a.isnan(), b.isnan())) return false;
  const at::Tensor same = a.isnan().logical_or(a == b);
  const at::Tensor distance = (a - b).abs().masked_fill(same, 0);
  const double largest = a.abs().masked_fill(a.isfinite().logical_not(), 0).max().item<double>();
  return distance.max().item<double>() <=
         more * settings.rounding_eps * eps * std::max(largest, settings.rounding_floor);
}

bool is_zero(const at::Tensor& tensor) {
  return tensor.defined() && tensor.count_nonzero().item<int64_t>() == 0;
}
bool is_nearly_zero(const at::Tensor& tensor, const Settings& settings) {
  return tensor.defined() && is_close(tensor, at::zeros_like(tensor), settings);
}

/// Where formulas differ, one may multiply the infinite slope of a logarithm or root by zero, and
/// the other leave it out: a NaN of one of them proves nothing.
bool is_close_where_numbers(const at::Tensor& a, const at::Tensor& b, const Settings& settings) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return false;
  const at::Tensor no_number = a.isnan().logical_or(b.isnan());
  return is_close(a.masked_fill(no_number, 0), b.masked_fill(no_number, 0), settings);
}

/// By the judge of rounding, if it knows eager's tensor. `more`: times as far from eager as it
/// allows.
bool is_within_bounds(const at::Tensor& eager, const at::Tensor& compiled, double more) {
  if (test::rounding_judge == nullptr || !eager.defined() || !compiled.defined()) return false;
  if (eager.sizes() != compiled.sizes() || eager.scalar_type() != compiled.scalar_type() ||
      !(at::isFloatingType(eager.scalar_type()) || at::isComplexType(eager.scalar_type())))
    return false;
  const at::Tensor nearer = eager + (compiled - eager) / more;
  const std::optional<std::string> beyond = test::rounding_judge->beyond(eager, nearer);
  return beyond && beyond->empty();
}

bool is_of_second_order(const Record& record) { return record.what.starts_with("second gradient"); }

/// A tensor that must not be written in place. Of several, eager names the one that is written
/// first, a compiled call the first argument.
bool refuses_write(const std::string& text) {
  for (const char* words :
       {"a view of a leaf Variable that requires grad is being used in an in-pl",
        "a leaf Variable that requires grad is being used in an in-pl",
        " is a view and is being modified inplace"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

/// libtorch's two ways to say so.
bool lacks_derivative(const std::string& text) {
  return text.find("derivative for ") != std::string::npos &&
         text.find(" is not implemented") != std::string::npos;
}

/// A kernel that does not know the dtype.
bool lacks_kernel(const std::string& text) {
  return text.find("\" not implemented for '") != std::string::npos;
}

/// A gradient that does not fit what it is the gradient of.
bool is_misfit(const std::string& text) {
  return text.find(" returned an invalid gradient at index ") != std::string::npos ||
         text.find("Expected isFloatingType(grad.scalar_type())") != std::string::npos;
}

/// Some errors begin with the name of the node that made a view: a custom function's in eager, ours
/// here. expand() prints the kind of its operand, which has no memory while a call is recorded.
std::string without_node(std::string text) {
  constexpr std::string_view kRecorded = "expand(Meta";
  if (text.starts_with(kRecorded)) text.replace(0, kRecorded.size(), "expand(CPU");
  for (const char* words : {" is a view and is being modified inplace",
                            " is a view and its base or another view of its base"}) {
    const size_t end = text.find(words);
    if (text.starts_with("Output ") && end != std::string::npos) return text.substr(end);
  }
  return text;
}

}  // namespace

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
      // Both find the write; a view of several says so in its own words.
      if (eager.text.find(kViewModified) != std::string::npos &&
          compiled.text.find(kModified) != std::string::npos) {
        return "";
      }
      if (eager.what == "error of the call" && refuses_write(eager.text) &&
          refuses_write(compiled.text)) {
        return "";
      }
      // Of two formulas without derivative, the other one.
      if (lacks_derivative(eager.text) && lacks_derivative(compiled.text)) return "";
      // Of two reasons to raise, the other one: a formula that does not exist, beside a write.
      const auto modified = [](const Record& one) {
        return one.text.find(kModified) != std::string::npos;
      };
      if ((lacks_derivative(eager.text) && modified(compiled)) ||
          (lacks_derivative(compiled.text) && modified(eager))) {
        return "";
      }
      // An op takes other sizes than its formula: one branch of it raises, of the other the engine.
      if (eager.text.find("doesn't match the broadcast shape") != std::string::npos &&
          eager.what != "error of the call" &&
          compiled.text.find(" returned an invalid gradient at index ") != std::string::npos) {
        return "";
      }
      // Or a formula whose gradient does not fit.
      if ((eager.text.find(kModified) != std::string::npos || lacks_kernel(eager.text)) &&
          is_misfit(compiled.text)) {
        return "";
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
        // reshape() of memory with gaps.
        return text == "view ReshapeAliasBackward" ? std::string("view ViewBackward") : text;
      };
      if (op(eager.text) == op(compiled.text)) return "";
      // Of a view whose base was written inside, eager makes the node anew, as a strided one; here
      // it is the node of the view's own op.
      const bool ours = compiled.text.find("Tandem") != std::string::npos;
      const bool custom = eager.text.find("CppNode") != std::string::npos;
      // A view of a leaf that is itself a view was taken before the write here: made anew, too.
      const bool renewed = compiled.text == "view AsStridedBackward0";
      if ((ours && custom) || ((ours || renewed) && settings.own_view_nodes)) return "";
      return eager.text == "view AsStridedBackward0" && !ours ? ""
                                                              : both(eager.text, compiled.text);
    }
    case RecordKind::Value:
    case RecordKind::Gradient:
    case RecordKind::GradientSum:
    case RecordKind::HigherGradient: {
      if (settings.zeros_may_be_undefined &&
          (eager.text == "undefined" ? is_zero(compiled.value)
                                     : compiled.text == "undefined" && is_zero(eager.value))) {
        return "";
      }
      if (settings.second_zeros_may_be_undefined && is_of_second_order(eager)) {
        if (compiled.text == "undefined" && is_nearly_zero(eager.value, settings)) return "";
        if (eager.text == "undefined" && is_zero(compiled.value)) return "";
      }
      // What depends on nothing but with derivative zero.
      const bool flat =
          settings.second_zeros_may_be_undefined &&
          ((eager.text == "requires grad" && compiled.text == "defined") ||
           (eager.text == "defined" && compiled.text == "requires grad" && is_zero(eager.value)));
      if (eager.text != compiled.text && !flat) return both(eager.text, compiled.text);
      const auto same = test::same_bits(eager.value, compiled.value);
      if (same) return "";
      const bool higher = eager.kind == RecordKind::HigherGradient;
      const bool may_round = higher || eager.kind == RecordKind::GradientSum ||
                             settings.values_may_round ||
                             (eager.kind == RecordKind::Gradient && settings.sums_may_round);
      if (may_round && eager.value.defined() && compiled.value.defined() &&
          is_close(eager.value, compiled.value, settings, higher ? 8 : 1)) {
        return "";
      }
      // A gradient that is a small difference of large numbers: how far rounding carries shows the
      // same run in float64, if there is one. A gradient of a gradient rounds on from there.
      if (may_round && !higher &&
          is_within_bounds(eager.value, compiled.value, is_of_second_order(eager) ? 8 : 1)) {
        return "";
      }
      if (settings.formulas_differ && is_of_second_order(eager) &&
          is_close_where_numbers(eager.value, compiled.value, settings)) {
        return "";
      }
      return eager.what + ": " + same.message();
    }
  }
  return "";
}

using Found = std::map<std::string, const Record*>;

constexpr std::string_view kWhen = " after the writes";
constexpr const char* kBackward = "backward of all results";

bool is_modified(const Record& record) {
  return record.kind == RecordKind::Error && (record.text.find(kModified) != std::string::npos ||
                                              record.text.find(kViewModified) != std::string::npos);
}

/// What was seen of one call, by name: programs with many results have a thousand records.
class Seen {
 public:
  explicit Seen(const Observation& observation) : records(observation.records) {
    for (const Record& record : records) by_name_.try_emplace(record.what, &record);
  }

  const std::vector<Record>& records;

  const Record* find(std::string_view what) const {
    const auto found = by_name_.find(what);
    return found == by_name_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<std::string_view, const Record*> by_name_{};
};

const Record* find(const Seen& seen, std::string_view what) { return seen.find(what); }

/// Eager raises since a tensor that it saved was written. A compiled call that did not have to save
/// it may answer instead, if the answer is that from before the write.
bool answers_unharmed(const Record& error, const Found& compiled, const Settings& settings) {
  if (!is_modified(error)) return false;
  // So may what leads, through a closed-over tensor, into an earlier call whose results were
  // written since.
  const bool later = error.what.find("what came next") != std::string::npos ||
                     (settings.histories_grow && error.what.starts_with("gradient") &&
                      !error.what.ends_with(kWhen));
  if (!later && !error.what.ends_with(kWhen)) return false;
  const std::string of =
      (later ? error.what : error.what.substr(0, error.what.size() - kWhen.size())) + " in ";
  bool answered = false;
  for (const auto& [what, record] : compiled) {
    if (!what.starts_with(of) || what.ends_with(kWhen) == later) continue;
    answered = true;
    // What the caller did in between, and writes to arguments, may change the gradient itself.
    if (later || settings.further || what.find(" in leaf ") == std::string::npos) continue;
    const auto before = compiled.find(what.substr(0, what.size() - kWhen.size()));
    if (before == compiled.end() || before->second->text != record->text) return false;
    if (!test::same_bits(before->second->value, record->value) &&
        !is_close(before->second->value, record->value, settings)) {
      return false;
    }
  }
  return answered;
}

/// Where a backward computes values again from what the caller has written since the call: it
/// answered before.
bool finds_write_of_source(const Record& error, const Seen& compiled, const Settings& settings) {
  if (settings.undefined_gradients && is_modified(error)) return true;
  if (!settings.recomputes || !is_modified(error) || !error.what.ends_with(kWhen)) return false;
  return find(compiled, error.what.substr(0, error.what.size() - kWhen.size())) == nullptr;
}

/// Results that are views in eager only, of memory that nobody holds, and that no gradient
/// concerns.
std::vector<std::string> gradients_that_are_views(const Seen& eager, const Seen& compiled,
                                                  const Settings& settings) {
  std::vector<std::string> names;
  if (!settings.inner_gradients) return names;
  for (const Record& record : eager.records) {
    if (!record.what.starts_with("base of result ") || !record.text.starts_with("hidden base")) {
      continue;
    }
    const std::string name = record.what.substr(std::string_view("base of ").size());
    const Record* base = find(compiled, record.what);
    const Record* flag = find(eager, "requires_grad of " + name);
    if (base && base->text == "none" && flag && flag->text == "0") names.push_back(name);
  }
  return names;
}

/// backward() runs formulas, too, that lead to no tensor which the caller can reach: to a leaf that
/// the function made and dropped. In a compiled call they do not exist, and cannot raise.
bool raises_unseen(const Seen& eager, const std::vector<std::string>& unharmed) {
  const Record* error = find(eager, kBackward);
  if (error == nullptr || error->text == "none") return false;
  return std::ranges::none_of(eager.records, [&](const Record& record) {
    return record.kind == RecordKind::Error && record.what.starts_with("gradient of ") &&
           record.what.find("result") != std::string::npos && !record.what.ends_with(kWhen) &&
           std::ranges::find(unharmed, record.what) == unharmed.end();
  });
}

/// A backward that raises has reached some leaves before, in no promised order.
void forget_what_it_reached(const Seen& eager, const Seen& compiled, Found& found) {
  if (find(eager, kBackward) == nullptr && find(compiled, kBackward) == nullptr) return;
  for (const Record& record : eager.records) {
    if (!record.what.starts_with("grad() of ")) continue;
    const auto other = found.find(record.what);
    if (other == found.end()) continue;
    const bool lacks_ours = other->second->text == "undefined" && find(compiled, kBackward);
    const bool lacks_eagers = record.text == "undefined" && find(eager, kBackward);
    if (lacks_ours || lacks_eagers) other->second = &record;
  }
}

/// Eager meets the writes first, or an op without derivative; a compiled call raises what it would
/// have raised before the writes.
bool raises_as_before(const Record& error, const Record& compiled, const Seen& eager,
                      const Settings& settings) {
  if (!is_modified(error) || !error.what.ends_with(kWhen)) return false;
  const Record* before = find(eager, error.what.substr(0, error.what.size() - kWhen.size()));
  return before != nullptr && before->kind == RecordKind::Error &&
         difference(*before, compiled, settings).empty();
}

/// For the engine, what the caller computes from a result of a call lies between it and every input
/// of the call. Where the result does not lead to the input that is asked for, it runs in vain, and
/// raises as it does in eager if all inputs are asked for.
bool raises_on_a_way_of_ours(const Record& error, const Seen& eager) {
  constexpr std::string_view kAlone = " alone";
  const size_t alone = error.what.find(kAlone);
  if (!is_modified(error) || alone == std::string::npos) return false;
  const std::string of = error.what.substr(0, alone + kAlone.size()) + " in ";
  const bool later = error.what.ends_with(kWhen);
  const Record* in_all =
      find(eager, error.what.substr(0, alone) + std::string(later ? kWhen : std::string_view()));
  if (in_all != nullptr && is_modified(*in_all)) return true;
  return std::ranges::any_of(eager.records, [&](const Record& record) {
    return record.what.starts_with(of) && record.what.ends_with(kWhen) == later &&
           record.text == "undefined";
  });
}

/// Nor does it matter to the engine that a result does not lead to an input: what lies behind the
/// input runs, too, in vain. Where something was written that it has saved, eager raises for what
/// does lead to it.
bool raises_behind_an_input(const Record& error, const Seen& eager) {
  if (!is_modified(error) || !error.what.starts_with("gradient of ")) return false;
  const bool later = error.what.ends_with(kWhen);
  const std::string of = error.what.substr(0, error.what.size() - (later ? kWhen.size() : 0));
  const auto at_that_time = [&](const Record& record) {
    return record.what.ends_with(kWhen) == later;
  };
  const bool leads_past = std::ranges::any_of(eager.records, [&](const Record& record) {
    return record.what.starts_with(of + " in ") && at_that_time(record) &&
           record.text == "undefined";
  });
  return leads_past && std::ranges::any_of(eager.records, [&](const Record& record) {
           return is_modified(record) && record.what.starts_with("gradient of ") &&
                  at_that_time(record);
         });
}

/// A view of a view that was renewed shows nothing of that but in its gradients: in eager none in
/// the argument, which is itself a view and was rewritten.
bool leads_past_argument(const Record& gradient, const Seen& eager, const Seen& compiled) {
  constexpr std::string_view kOf = "gradient of result ", kIn = " in argument ";
  const size_t in = gradient.what.find(kIn);
  if (!gradient.what.starts_with(kOf) || in == std::string::npos || gradient.text != "undefined")
    return false;
  const Record* ours = find(compiled, gradient.what);
  const std::string result = "result " + gradient.what.substr(kOf.size(), in - kOf.size());
  const std::string argument = gradient.what.substr(in + std::string_view(" in ").size());
  const Record* node = find(eager, "grad_fn of " + result);
  const Record* is_view = find(eager, "is_view of " + argument);
  const Record* changed = find(eager, "history of " + argument + " changed");
  return ours && ours->text == "defined" && node && node->text.starts_with("view ") && is_view &&
         is_view->text == "1" && changed && changed->text == "1";
}

/// A view that was renewed, as its base was written: in eager it no longer leads to an argument
/// that is itself a view of that base. Here it does: the gradient in the argument is defined.
bool has_renewed_views(const Seen& eager, const Seen& compiled) {
  if (std::ranges::any_of(eager.records, [&](const Record& record) {
        return leads_past_argument(record, eager, compiled);
      })) {
    return true;
  }
  for (const Record& record : eager.records) {
    if (record.kind != RecordKind::ResultHistory || record.text != "view AsStridedBackward0") {
      continue;
    }
    for (const Record& other : compiled.records) {
      if (other.what == record.what && other.text != record.text) return true;
    }
  }
  return false;
}

std::vector<std::string> differences(const Observation& of_eager, const Observation& of_compiled,
                                     const Settings& settings) {
  const Seen eager(of_eager), compiled(of_compiled);
  std::vector<std::string> all;
  const bool as_eager = settings.kernels_raise && !of_compiled.refused && of_eager.touched;
  if (of_compiled.touched && !as_eager) {
    all.push_back("the call raised, but it has changed the " + of_compiled.touched_what);
  }
  Found found;
  for (const Record& record : compiled.records) found[record.what] = &record;
  std::vector<std::string> unharmed;
  for (const Record& record : eager.records) {
    if (!found.contains(record.what) && answers_unharmed(record, found, settings)) {
      unharmed.push_back(record.what);
    }
  }
  for (const std::string& what : unharmed) {
    const size_t when = what.find(" after the writes");
    const std::string of = what.substr(0, when) + " in ";
    std::erase_if(found, [&](const auto& item) {
      return item.first.starts_with(of) &&
             (when == std::string::npos || item.first.ends_with(" after the writes"));
    });
  }
  if (!found.contains(kBackward) && raises_unseen(eager, unharmed)) unharmed.push_back(kBackward);
  forget_what_it_reached(eager, compiled, found);
  std::vector<std::string> in_vain, on_a_way_of_ours;
  for (const Record& record : compiled.records) {
    if (find(eager, record.what) != nullptr) continue;  // both raise
    const bool of_all = !in_vain.empty() && record.what.starts_with("gradient of all") &&
                        record.text.find(kModified) != std::string::npos;
    if (of_all || finds_write_of_source(record, compiled, settings)) {
      in_vain.push_back(record.what);
    } else if (raises_on_a_way_of_ours(record, eager) || raises_behind_an_input(record, eager)) {
      on_a_way_of_ours.push_back(record.what);
    }
  }
  in_vain.insert(in_vain.end(), on_a_way_of_ours.begin(), on_a_way_of_ours.end());
  for (const std::string& what : in_vain) found.erase(what);
  const bool renewed = has_renewed_views(eager, compiled);
  const std::vector<std::string> views = gradients_that_are_views(eager, compiled, settings);
  for (const Record& record : eager.records) {
    std::string text;
    const bool to_argument = record.what.find(" in argument ") != std::string::npos ||
                             record.what.find(" in watched ") != std::string::npos;
    // Nor is there, then, what the gradient in the argument passes on to the tangent.
    const bool to_tangent = record.what.starts_with("second gradient") &&
                            record.what.find(" in tangent ") != std::string::npos;
    if (renewed && ((to_argument && record.what.starts_with("gradient")) || to_tangent)) {
      found.erase(record.what);
      continue;
    }
    const bool is_vain = std::ranges::any_of(in_vain, [&](const std::string& what) {
      const size_t when = what.find(" after the writes");
      return record.what.starts_with(what.substr(0, when) + " in ") &&
             record.what.ends_with(" after the writes") == (when != std::string::npos);
    });
    if (is_vain) continue;
    const bool is_views = std::ranges::any_of(views, [&](const std::string& name) {
      return record.what == "base of " + name || record.what == "is_view of " + name ||
             record.what == "grad_fn of " + name;
    });
    if (is_views) {
      found.erase(record.what);
      continue;
    }
    if (const auto other = found.find(record.what); other != found.end()) {
      if (!raises_as_before(record, *other->second, eager, settings)) {
        text = difference(record, *other->second, settings);
      }
      found.erase(other);
    } else if (std::ranges::find(unharmed, record.what) != unharmed.end()) {
      continue;
    } else if (settings.second_zeros_may_be_undefined && is_of_second_order(record) &&
               (record.text == "undefined" || is_nearly_zero(record.value, settings))) {
      continue;                              // no first gradient depends on anything
    } else if (of_compiled.error.empty()) {  // a call that raised shows nothing else
      text = "only eager shows " + record.what + ": " + record.text;
    }
    if (!text.empty() && all.size() < kDifferencesShown) all.push_back(std::move(text));
  }
  size_t shown = 0;
  for (const auto& [what, record] : found) {
    if (settings.second_zeros_may_be_undefined && is_of_second_order(*record) &&
        (record->text == "undefined" || is_zero(record->value))) {
      continue;
    }
    if (of_eager.error.empty() && ++shown <= kDifferencesShown) {
      all.push_back("only compiled shows " + what + ": " + record->text);
    }
  }
  return all;
}

}  // namespace tandem::conformance
