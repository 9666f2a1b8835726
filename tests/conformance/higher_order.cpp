#include "conformance/higher_order.h"

#include <string>
#include <vector>

namespace tandem::conformance {
namespace {

constexpr const char* kNoCopy = "as it was before the call, which writes it";

std::string text_of(const std::exception& error) {
  const auto* libtorch = dynamic_cast<const c10::Error*>(&error);
  return libtorch ? libtorch->what_without_backtrace() : error.what();
}

class Observer {
 public:
  Observer(const Inputs& inputs, Observation& observation) : observation_(observation) {
    const auto add = [&](const char* kind, const Tensors& tensors) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i].defined() || !tensors[i].requires_grad()) continue;
        wanted_.push_back(tensors[i]);
        names_.push_back(kind + (" " + std::to_string(i)));
      }
    };
    add("argument", inputs.arguments);
    add("leaf", inputs.leaves);
    add("watched", inputs.watched);
  }

  /// Of one result, in everything that it may depend on, to the last order.
  void differentiate(const std::string& name, const at::Tensor& result, int orders) {
    at::Tensor tangent = random_like(result).requires_grad_();
    Tensors roots{result}, tangents{tangent}, wanted = wanted_;
    std::vector<std::string> names = names_;
    for (int order = 1; order <= orders && !roots.empty() && !wanted.empty(); ++order) {
      const std::string what = "order " + std::to_string(order) + " of " + name;
      Tensors gradients;
      try {
        gradients = torch::autograd::grad(roots, wanted, tangents, /*retain_graph=*/true,
                                          /*create_graph=*/true, /*allow_unused=*/true);
      } catch (const std::exception& error) {
        observation_.records.push_back({what, RecordKind::Error, text_of(error), {}});
        return;
      }
      roots.clear();
      tangents.clear();
      for (size_t i = 0; i < gradients.size(); ++i) {
        const at::Tensor& gradient = gradients[i];
        const std::string in = what + " in " + names[i];
        observation_.records.push_back(
            {in, order == 1 ? RecordKind::Gradient : RecordKind::HigherGradient,
             gradient.defined() ? "defined" : "undefined",
             gradient.defined() ? gradient.detach().clone() : at::Tensor()});
        if (!gradient.defined() || !gradient.requires_grad()) continue;
        roots.push_back(gradient);
        tangents.push_back(random_like(gradient));
      }
      // The first tangent is an argument of the backward like any other.
      if (order == 1) {
        wanted.push_back(tangent);
        names.push_back("the tangent");
      }
    }
  }

 private:
  static at::Tensor random_like(const at::Tensor& tensor) {
    return torch::randn(tensor.sizes(), tensor.options().requires_grad(false));
  }

  Observation& observation_;
  Tensors wanted_;
  std::vector<std::string> names_;
};

bool lacks_a_copy(const Observation& observation) {
  for (const Record& record : observation.records) {
    if (record.kind == RecordKind::Error && record.text.find(kNoCopy) != std::string::npos)
      return true;
  }
  return false;
}

}  // namespace

Observation observe_higher_order(const Program& program, const Call& call, int number,
                                 const Settings& settings, int& calls) {
  const int wanted_calls = calls;
  for (calls = 1;; ++calls) {
    Observation observation;
    torch::manual_seed(static_cast<uint64_t>(100 + number));
    const Inputs inputs = program.inputs();
    torch::manual_seed(static_cast<uint64_t>(200 + number));
    Tensors results;
    try {
      Tensors arguments = inputs.arguments;
      const auto body = [&] { results = call(arguments); };
      settings.around ? settings.around(body) : body();
    } catch (const std::exception& error) {
      observation.error = text_of(error);
      observation.records.push_back({"error of the call", RecordKind::Error, text_of(error), {}});
      return observation;
    }
    torch::manual_seed(9);
    Observer observer(inputs, observation);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].defined() && results[i].requires_grad() && !results[i].is_leaf())
        observer.differentiate("result " + std::to_string(i), results[i], settings.orders);
    }
    observation.records.push_back({"random stream after the orders",
                                   RecordKind::Value,
                                   {},
                                   at::detail::getDefaultCPUGenerator().get_state()});
    if (wanted_calls > 0 ? calls >= wanted_calls : !lacks_a_copy(observation) || calls > 1)
      return observation;
  }
}

}  // namespace tandem::conformance
