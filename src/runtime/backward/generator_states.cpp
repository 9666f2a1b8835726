#include "runtime/backward/generator_states.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>
#include <set>

namespace tandem::runtime {

GeneratorStates::GeneratorStates(const ir::Graph& graph) {
  std::vector<at::Generator> generators(graph.generators().begin(), graph.generators().end());
  std::set<std::pair<int, int>> devices;
  const auto add_device = [&](c10::Device device) {
    if (devices.emplace(static_cast<int>(device.type()), device.index()).second) {
      generators.push_back(at::globalContext().defaultGenerator(device));
    }
  };
  add_device(at::kCPU);
  for (ir::ValueId input : graph.inputs()) {
    const ir::TypePtr& type = graph.value(input).tensor_type();
    if (type && !type->device.is_cpu()) add_device(type->device);
  }
  for (at::Generator& generator : generators) {
    if (!generator.defined()) continue;
    std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor state = generator.get_state();
    states_.emplace_back(std::move(generator), std::move(state));
  }
}

bool GeneratorStates::have_moved() const {
  return std::ranges::any_of(states_, [](const auto& one) {
    at::Generator generator = one.first;
    std::lock_guard<std::mutex> lock(generator.mutex());
    return !generator.get_state().equal(one.second);
  });
}

void GeneratorStates::restore() const {
  for (const auto& [generator, state] : states_) {
    at::Generator handle = generator;
    std::lock_guard<std::mutex> lock(handle.mutex());
    handle.set_state(state);
  }
}

}  // namespace tandem::runtime
