#include "ir/text/op_names.h"

#include "ir/functional_form.h"

#include <algorithm>
#include <vector>

namespace tandem::ir {
namespace {

constexpr size_t kMaxSuggestions = 3;

std::string name_text(const c10::OperatorName& name) {
  std::string text = name.name;
  if (size_t colons = text.find("::"); colons != std::string::npos) text.replace(colons, 2, 1, '.');
  if (!name.overload_name.empty()) {
    text += '.';
    text += name.overload_name;
  }
  return text;
}

/// The operator's name in libtorch's spelling; nullopt if `text` has not two or three parts.
std::optional<c10::OperatorName> split(std::string_view text) {
  size_t first = text.find('.');
  if (first == std::string_view::npos) return std::nullopt;
  size_t second = text.find('.', first + 1);
  std::string name(text.substr(0, first));
  name += "::";
  name += text.substr(first + 1, second == std::string_view::npos ? second : second - first - 1);
  std::string overload(second == std::string_view::npos ? "" : text.substr(second + 1));
  return c10::OperatorName(std::move(name), std::move(overload));
}

/// Insertions, deletions and replacements that turn a into b; anything above `limit` is `limit +
/// 1`.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return limit + 1;
  std::vector<size_t> row(a.size() + 1);
  for (size_t i = 0; i <= a.size(); ++i) row[i] = i;
  for (size_t j = 1; j <= b.size(); ++j) {
    size_t diagonal = row[0];
    row[0] = j;
    size_t best = row[0];
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[i];
      row[i] = std::min({replaced, row[i] + 1, row[i - 1] + 1});
      best = std::min(best, row[i]);
    }
    if (best > limit) return limit + 1;
  }
  return row[a.size()];
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace

std::string op_text(const c10::OperatorHandle& op) { return name_text(op.operator_name()); }

std::optional<c10::OperatorHandle> find_op(std::string_view text) {
  auto name = split(text);
  if (!name) return std::nullopt;
  if (auto op = c10::Dispatcher::singleton().findSchema(*name)) return op;
  return form_called(*name);
}

std::string near_ops(std::string_view text) {
  auto wanted = split(text);
  size_t limit = std::max<size_t>(1, text.size() / 4);
  // Other overloads of the same name come first: they differ by a part that is easily forgotten.
  std::vector<std::pair<size_t, std::string>> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    std::string candidate = name_text(name);
    size_t distance =
        wanted && wanted->name == name.name ? 0 : edit_distance(text, candidate, limit);
    if (distance > limit || !find_op(candidate)) continue;
    found.emplace_back(distance, std::move(candidate));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [distance, name] : found) {
    if (distance != found.front().first || names.size() == kMaxSuggestions) break;
    names.push_back(std::move(name));
  }
  return join(names);
}

}  // namespace tandem::ir
