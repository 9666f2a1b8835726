// What a training step keeps between forward and backward: eager, default_partition, min_cut.
// Writes the joint graphs as text, for the peer, and a line of JSON per model; run_partition.py
// makes the table. Usage: partition_bytes FOLDER [MODEL ...]
#include "memory_meter.h"
#include "models.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

namespace {

/// Answers as `llvm` what is decomposed and fused, without making kernels.
class FusingBackend final : public tandem::Backend {
 public:
  std::string_view name() const override { return "fusing"; }
  tandem::Decompositions decompositions(tandem::Rounding rounding,
                                        tandem::Random random) const override {
    return llvm_->decompositions(rounding, random);
  }
  bool can_fuse(const tandem::ir::Graph& graph, const tandem::ir::Node& node) const override {
    return llvm_->can_fuse(graph, node);
  }
  std::unique_ptr<tandem::Executable> compile(const tandem::ir::Graph&,
                                              const tandem::CompileContext&) override {
    throw std::runtime_error("the backend of this benchmark runs nothing");
  }

 private:
  std::shared_ptr<tandem::Backend> llvm_ = tandem::backend("llvm");
};

/// Tensors that live after the forward and did not before: autograd's, and the loss.
int64_t bytes_of_eager(bench::MemoryMeter& meter, const bench::Workload& work) {
  work.loss(work.input, work.target).backward();  // gradients and workspaces exist from now on
  meter.set_active(bench::Side::Eager);
  const int64_t before = meter.restart(bench::Side::Eager);
  const at::Tensor loss = work.loss(work.input, work.target);
  const int64_t after = meter.restart(bench::Side::Eager);
  meter.set_active(bench::Side::Neither);
  return after - before;
}

struct Kept {
  int64_t memory = 0;    // that the call holds: an argument kept by reference costs nothing
  int64_t elements = 0;  // as the peer counts: the elements of whatever is no parameter or buffer
};

Kept bytes_of(const tandem::Joint& joint, const tandem::Options& options) {
  const tandem::Split parts = tandem::split(joint, options);
  Kept kept;
  for (const tandem::Saved& saved : parts.saved) kept.memory += saved.bytes;
  for (const tandem::ir::Output& output : parts.forward.outputs()) {
    if (output.role.role != tandem::ir::Role::Saved) continue;
    const tandem::ir::Value& value = parts.forward.value(output.value);
    const bool is_given = value.is_input() && parts.forward.input_role(output.value).role !=
                                                  tandem::ir::Role::UserInput;
    if (!is_given) kept.elements += value.tensor_type()->bytes();
  }
  return kept;
}

void report(bench::MemoryMeter& meter, const std::filesystem::path& folder,
            const bench::Workload& work) {
  const int64_t eager = bytes_of_eager(meter, work);
  tandem::Options options;
  options.backend = std::make_shared<FusingBackend>();
  options.modules = {work.net};
  const tandem::Joint joint =
      tandem::export_joint(work.loss, std::tuple{work.input, work.target}, options);
  const std::filesystem::path file = folder / (work.name + ".tdm");
  std::ofstream(file) << tandem::ir::print(joint.graph);
  options.partitioner = tandem::default_partition;
  const Kept plain = bytes_of(joint, options);
  options.partitioner = tandem::min_cut;
  const Kept cut = bytes_of(joint, options);
  fmt::print(
      R"({{"model": "{}", "file": "{}", "nodes": {}, "eager": {}, "default": {}, "min_cut": {}, )"
      R"("default_elements": {}, "min_cut_elements": {}}})"
      "\n",
      work.name, file.string(), joint.graph.node_count(), eager, plain.memory, cut.memory,
      plain.elements, cut.elements);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("usage: partition_bytes FOLDER [MODEL ...]");
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  std::vector<std::string> models(argv + 2, argv + argc);
  if (models.empty()) models = {"pointwise", "mlp", "resnet", "gpt", "gpt_bf16"};
  auto* meter = new bench::MemoryMeter;
  for (const std::string& model : models) report(*meter, folder, bench::workload(model));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "partition_bytes: {}\n", error.what());
  return 1;
}
