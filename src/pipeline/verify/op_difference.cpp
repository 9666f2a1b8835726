#include "pipeline/verify/op_difference.h"

#include "base/error.h"
#include "tandem/ir/location.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace tandem::pipeline {
namespace {

using UserCalls = std::vector<tracing::UserCall>;

/// `eps=1e-05`, `size=[4, 8]`: one that may follow from a size.
bool is_number(std::string_view setting) {
  const std::string_view value = setting.substr(setting.find('=') + 1);
  return !value.empty() &&
         value.find_first_not_of("0123456789+-.e[], infa") == std::string_view::npos;
}

bool same_but_numbers(const std::string& a, const std::string& b) {
  const auto name = [](const std::string& setting) { return setting.substr(0, setting.find('=')); };
  return a == b || (name(a) == name(b) && is_number(a) && is_number(b));
}

std::optional<Difference> other_op_called(const std::vector<runtime::CallRow>& then,
                                          const std::string& entry, const UserCalls& now) {
  for (size_t i = 0; i < std::max(then.size(), now.size()); ++i) {
    if (i == now.size()) {
      return Difference{.what = base::str("ends where ", entry, " calls ", then[i].op),
                        .line = i > 0 ? now[i - 1].line : ir::Location()};
    }
    const std::string op = now[i].op_name();
    if (i == then.size() || then[i].op != op) {
      const std::string there = i == then.size() ? " ends" : " calls " + then[i].op;
      return Difference{.what = base::str("calls ", op, " where ", entry, there),
                        .line = now[i].line};
    }
    const std::vector<std::string> settings = now[i].setting_texts();
    const auto [mine, theirs] = std::ranges::mismatch(settings, then[i].settings, same_but_numbers);
    if (mine == settings.end() && theirs == then[i].settings.end()) continue;
    const auto text = [](const auto& at, const auto& list) {
      return at == list.end() ? std::string("less") : *at;
    };
    return Difference{.what = base::str("calls ", op, " with ", text(mine, settings), " where ",
                                        entry, " has ", text(theirs, then[i].settings)),
                      .line = now[i].line};
  }
  return std::nullopt;
}

std::string op_name_of(const ir::Node& node) {
  switch (node.kind()) {
    case ir::NodeKind::Op:
      return node.op().operator_name().name;
    case ir::NodeKind::Constant:
      return "a constant";
    case ir::NodeKind::Region:
      return "a region";
  }
  return "";
}

std::vector<const ir::Node*> nodes_of(const ir::Graph& graph) {
  std::vector<const ir::Node*> nodes;
  graph.for_each_node([&](const ir::Node& node) { nodes.push_back(&node); });
  return nodes;
}

std::optional<Difference> other_node(const ir::Graph& then, const std::string& entry,
                                     const ir::Graph& now) {
  const auto a = nodes_of(then), b = nodes_of(now);
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string x = i < a.size() ? op_name_of(*a[i]) : "nothing";
    const std::string y = i < b.size() ? op_name_of(*b[i]) : "nothing";
    if (x == y) continue;
    return Difference{.what = base::str("records ", y, " where ", entry, " has ", x),
                      .line = i < b.size()   ? b[i]->location()
                              : i < a.size() ? a[i]->location()
                                             : ir::Location()};
  }
  return std::nullopt;
}

}  // namespace

Difference op_difference(const runtime::EntryState& entry, const std::string& name_of_entry,
                         const Captured& now) {
  if (auto found = other_op_called(entry.artifact().calls, name_of_entry, now.run.calls))
    return *std::move(found);
  if (auto found = other_node(entry.joint(), name_of_entry, now.joint.graph))
    return *std::move(found);
  return {.what = "does something else to arguments and results than " + name_of_entry};
}

std::string to_string(const Difference& difference) {
  const std::string line = ir::to_string(difference.line);
  return "it " + difference.what + (line.empty() ? "" : " (" + line + ")");
}

}  // namespace tandem::pipeline
