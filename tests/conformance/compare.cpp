#include "conformance/compare.h"

#include "support/same_bits.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <utility>

namespace tandem::conformance {
namespace {

constexpr size_t kDifferencesShown = 8;
/// Long enough to tell errors apart, short enough to leave out what names nodes and addresses.
constexpr size_t kErrorPrefix = 60;

bool is_close(const at::Tensor& a, const at::Tensor& b, const Settings& settings) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!at::isFloatingType(a.scalar_type()) && !at::isComplexType(a.scalar_type())) return false;
  const bool is_double =
      a.scalar_type() == torch::kDouble || a.scalar_type() == torch::kComplexDouble;
  const double eps =
      is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double largest = a.numel() ? a.abs().max().item<double>() : 0.0;
  return a.numel() == 0 ||
         (a - b).abs().max().item<double>() <=
             settings.rounding_eps * eps * std::max(largest, settings.rounding_floor);
}

/// Some errors begin with the name of the node that made a view: a custom function's in eager, ours
/// here.
std::string without_node(const std::string& text) {
  const size_t end = text.find(" is a view and is being modified inplace");
  return text.starts_with("Output ") && end != std::string::npos ? text.substr(end) : text;
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
    case RecordKind::GradientSum: {
      if (eager.text != compiled.text) return both(eager.text, compiled.text);
      const auto same = testing::same_bits(eager.value, compiled.value);
      if (same) return "";
      const bool may_round = eager.kind == RecordKind::GradientSum || settings.values_may_round ||
                             (eager.kind == RecordKind::Gradient && settings.sums_may_round);
      if (may_round && eager.value.defined() && compiled.value.defined() &&
          is_close(eager.value, compiled.value, settings)) {
        return "";
      }
      return eager.what + ": " + same.message();
    }
  }
  return "";
}

std::vector<std::string> differences(const Observation& eager, const Observation& compiled,
                                     const Settings& settings) {
  std::vector<std::string> all;
  if (compiled.touched) {
    all.push_back("the call raised, but it has changed the " + compiled.touched_what);
  }
  std::map<std::string, const Record*> found;
  for (const Record& record : compiled.records) found[record.what] = &record;
  for (const Record& record : eager.records) {
    std::string text;
    if (const auto other = found.find(record.what); other != found.end()) {
      text = difference(record, *other->second, settings);
      found.erase(other);
    } else if (compiled.error.empty()) {  // a call that raised shows nothing else
      text = "only eager shows " + record.what + ": " + record.text;
    }
    if (!text.empty() && all.size() < kDifferencesShown) all.push_back(std::move(text));
  }
  size_t shown = 0;
  for (const auto& [what, record] : found) {
    if (eager.error.empty() && ++shown <= kDifferencesShown) {
      all.push_back("only compiled shows " + what + ": " + record->text);
    }
  }
  return all;
}

}  // namespace tandem::conformance
