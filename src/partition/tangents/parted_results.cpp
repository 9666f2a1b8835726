#include "partition/tangents/parted_results.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace tandem::partition {
namespace {

using ir::CallTensor;

/// What gradients have in common: histories of one tensor, or of tensors on one memory.
using Place = std::pair<CallTensor::Kind, int64_t>;

class Parting {
 public:
  explicit Parting(const ir::Signature& signature) : signature_(signature) {}

  PartedResults run() && {
    PartedResults found{.tangents = {{}}, .node_of_gradient = {}};
    found.node_of_gradient.resize(signature_.gradients.size());
    for (size_t i = 0; i < signature_.tangents.size(); ++i) {
      if (signature_.tangents[i].part == 0) found.tangents[0].push_back(i);
    }
    const std::vector<size_t> all = found.tangents[0];
    if (all.size() < 2 || !signature_.effects.empty()) return found;
    std::vector<size_t> component(all.size());
    std::map<Place, size_t> first_at;
    for (size_t i = 0; i < all.size(); ++i) {
      component[i] = i;
      const std::optional<std::vector<int64_t>> gradients = reached_from(all[i]);
      if (!gradients) return found;
      bool outside = false;
      for (int64_t gradient : *gradients) {
        outside = outside || leads_outside(gradient);
        join(component, first_at.try_emplace(place_of(gradient), i).first->second, i);
      }
      // Accumulators of leaves do nothing with an undefined gradient.
      if (!outside) join(component, first_at.try_emplace(kNowhere, i).first->second, i);
    }
    std::map<size_t, size_t> node_of;  // by component
    found.tangents.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const auto [node, is_new] = node_of.try_emplace(component[i], found.tangents.size());
      if (is_new) found.tangents.emplace_back();
      found.tangents[node->second].push_back(all[i]);
    }
    for (size_t i = 0; i < signature_.gradients.size(); ++i) {
      const auto at = first_at.find(place_of(static_cast<int64_t>(i)));
      if (signature_.gradients[i].part == 0 && at != first_at.end())
        found.node_of_gradient[i] = node_of.at(component[at->second]);
    }
    return found;
  }

 private:
  static constexpr Place kNowhere{CallTensor::Kind::Output, -1};

  static void join(std::vector<size_t>& component, size_t a, size_t b) {
    const size_t from = component[b], to = component[a];
    std::ranges::replace(component, from, to);
  }

  /// The gradients to which the engine gets from a tangent; nothing if that is not known.
  std::optional<std::vector<int64_t>> reached_from(size_t tangent) const {
    const auto& formulas = signature_.formulas;
    std::vector<bool> seen(formulas.size());
    std::vector<size_t> open;
    for (size_t i = 0; i < formulas.size(); ++i) {
      seen[i] = formulas[i].part == 0 &&
                std::ranges::count(formulas[i].tangents, static_cast<int64_t>(tangent)) > 0;
      if (seen[i]) open.push_back(i);
    }
    if (open.empty()) return std::nullopt;
    std::vector<int64_t> gradients;
    while (!open.empty()) {
      const ir::FormulaFacts& formula = formulas[open.back()];
      open.pop_back();
      gradients.insert(gradients.end(), formula.gradients.begin(), formula.gradients.end());
      for (int64_t next : formula.next) {
        if (seen[static_cast<size_t>(next)]) continue;
        seen[static_cast<size_t>(next)] = true;
        open.push_back(static_cast<size_t>(next));
      }
    }
    return gradients;
  }

  const CallTensor& tensor_of(int64_t gradient) const {
    return signature_.gradients[static_cast<size_t>(gradient)].of.tensor;
  }

  Place place_of(int64_t gradient) const {
    const CallTensor& tensor = tensor_of(gradient);
    if (!tensor.is_input()) return {tensor.kind, tensor.index};
    const int64_t group = signature_.inputs[static_cast<size_t>(tensor.index)].group;
    return group < 0 ? Place{tensor.kind, tensor.index} : Place{CallTensor::Kind::Group, group};
  }

  /// Whether what it is the gradient of was computed outside.
  bool leads_outside(int64_t gradient) const {
    const CallTensor& tensor = tensor_of(gradient);
    const auto index = static_cast<size_t>(tensor.index);
    if (tensor.is_input()) return !signature_.inputs[index].is_leaf;
    return tensor.is_group() && !signature_.groups[index].is_leaf;
  }

  const ir::Signature& signature_;
};

}  // namespace

PartedResults parted_results(const ir::Signature& signature) { return Parting(signature).run(); }

}  // namespace tandem::partition
