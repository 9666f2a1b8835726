#pragma once

#include "ir/text/attachments.h"
#include "libtorch/thread_state.h"
#include "partition/direct_reads.h"
#include "partition/tangents/asked.h"
#include "runtime/guards/guard_rows.h"
#include "tandem/backend.h"
#include "tandem/stages.h"

#include <ATen/core/Generator.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::runtime {

/// What the caller lets a backend do otherwise than eager.
struct AllowedDifferences {
  Rounding rounding = Rounding::eager;
  Random random = Random::eager;
};

/// A graph as its backend has lowered it. In another process there is no executable, and at most
/// the bytes of one: bind() makes it of those, or of the graph.
struct Kernels {
  std::shared_ptr<Executable> ready{};
  ir::Bytes stored{};  // what Executable::save() said
};

/// One backward of an entry: for some tangents and gradients, in one state of autocast.
struct Backward {
  partition::Asked asked;
  libtorch::AutocastState autocast{};  // that it was recorded again for, if that is on
  std::optional<ir::Graph> graph{};    // what was lowered; none: the whole backward as it is
  std::vector<bool> reads{};           // which saved values
  std::vector<bool> checks{};          // of which eager looks whether they were written
  std::vector<bool> uses_up{};  // by formula of the signature: it runs, and eager runs it once
  Kernels kernels{};
};

/// An op that the function called, and what it was told beside tensors: `dropout`, `p=0.5`.
struct CallRow {
  std::string op;
  std::vector<std::string> settings{};
};

/// An entry as data: all that runs it, except the tensors, modules and generators of the process.
/// The plan and the versions to check follow from the signature and the graphs. lower makes it,
/// bind() makes an entry of it, and it is what is stored.
struct Artifact {
  std::string tandem{}, libtorch{};  // versions, of one that was stored
  std::string backend{};             // by name
  AllowedDifferences allowed{};
  bool sizes_vary = false;  // the kernels are to serve other sizes, too
  ir::Graph joint{};
  Split split{};
  GuardRows guards{};
  std::vector<detail::Constant> result_constants{};
  /// Which ops the run of the function called: gradients of gradients trace it again, and must meet
  /// the same ones.
  uint64_t fingerprint = 0;
  /// How the backward reads each input to which set_data() has given other data. None: nobody has
  /// looked at the graph as it was recorded.
  std::vector<partition::ReadAs> after_exchange{};
  /// What a check compares the function with: a hash of the joint graph as it was recorded, before
  /// any pass, and for words about a difference the calls in their order.
  uint64_t recorded = 0;
  std::vector<CallRow> calls{};
  Kernels forward{};
  std::vector<Backward> backwards{};  // that of all tangents first; none in an inference entry
};

/// What a backend may assume about the graphs of an artifact.
CompileContext forward_context(const Artifact& artifact);
CompileContext backward_context(const Artifact& artifact);

/// The generators that the graphs and guards of an artifact name, in a fixed order, each once: what
/// another process has to bring along.
std::vector<at::Generator> generators_of(const Artifact& artifact);
/// `by` are in that order.
void replace_generators(Artifact& artifact, const std::vector<at::Generator>& by);

/// An artifact as bytes, and back. A UserError says what is wrong with the bytes.
std::string write_artifact(Artifact artifact);
Artifact read_artifact(std::string_view bytes);

}  // namespace tandem::runtime
