#include "pipeline/verify/verify_entry.h"

#include "base/error.h"
#include "libtorch/tensor_hooks.h"
#include "pipeline/pipeline.h"
#include "pipeline/verify/call_difference.h"
#include "pipeline/verify/graph_difference.h"
#include "runtime/backward/generator_states.h"
#include "runtime/guards/constant_text.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace tandem::pipeline {
namespace {

constexpr size_t kLongestText = 240;

std::string cut_short(std::string text) {
  if (text.size() > kLongestText) text = text.substr(0, kLongestText) + " ...";
  return text.empty() ? "nothing" : text;
}

[[noreturn]] void report(const Difference& difference) {
  const bool both = !difference.compiled.empty() || !difference.now.empty();
  const auto text_line = [&](const char* label, const std::string& text) {
    return both ? base::detail_line(label, cut_short(text), 10) : std::string();
  };
  const std::string remedy = difference.remedy.empty()
                                 ? "pass what it depends on as an argument, or guard it "
                                   "(Options::guard_on); reset() compiles anew"
                                 : difference.remedy;
  throw UserError("call", base::str("the function is not what was compiled: ", difference.what,
                                    base::detail_line("at", ir::to_string(difference.line), 10),
                                    text_line("compiled", difference.compiled),
                                    text_line("now", difference.now),
                                    base::detail_line("cause", difference.cause, 10),
                                    base::detail_line("remedy", remedy, 10)));
}

void report_any(const std::optional<Difference>& difference) {
  if (difference) report(*difference);
}

/// What the host does to real things at a trace, of which a call knows nothing: it is taken back.
class KeptHost {
 public:
  explicit KeptHost(const runtime::EntryState& entry) : lifted_(entry.lifted()) {
    if (entry.moves_generators()) generators_.emplace(entry.split().forward);
    for (const at::Tensor& tensor : lifted_) hooks_.push_back(libtorch::hook_count(tensor));
  }
  ~KeptHost() {
    if (generators_) generators_->restore();
    for (size_t i = 0; i < lifted_.size(); ++i) libtorch::drop_later_hooks(lifted_[i], hooks_[i]);
  }
  KeptHost(const KeptHost&) = delete;
  KeptHost& operator=(const KeptHost&) = delete;

 private:
  const std::vector<at::Tensor>& lifted_;
  std::vector<size_t> hooks_;
  std::optional<runtime::GeneratorStates> generators_;
};

std::optional<Difference> result_difference(std::span<const detail::Constant> compiled,
                                            std::span<const detail::Constant> now) {
  for (size_t i = 0; i < std::max(compiled.size(), now.size()); ++i) {
    const std::string a = i < compiled.size() ? runtime::constant_text(compiled[i]) : "missing";
    const std::string b = i < now.size() ? runtime::constant_text(now[i]) : "missing";
    if (a == b) continue;
    return Difference{
        .what = base::str("number or text ", i, " of its results was ", a, ", now ", b),
        .cause = "host code returns something else than when it was compiled"};
  }
  return std::nullopt;
}

/// `parameter "fc.weight"`, by lifted tensor.
std::vector<std::string> names_of_lifted(const runtime::EntryState& entry) {
  std::vector<std::string> names(entry.lifted().size());
  for (size_t i = 0; i < names.size(); ++i) {
    const ir::Descriptor& role = entry.signature().inputs[i].role;
    if (role.role == ir::Role::Param) names[i] = "parameter \"" + role.name + "\"";
    if (role.role == ir::Role::Buffer) names[i] = "buffer \"" + role.name + "\"";
  }
  return names;
}

bool same_tensors(const std::vector<at::Tensor>& compiled, const std::vector<at::Tensor>& now) {
  return std::ranges::equal(compiled, now, are_one);
}

}  // namespace

void verify_entry(const runtime::EntryState& entry, const Program& program,
                  const detail::Flat& arguments, const Options& options) {
  const KeptHost kept(entry);
  StageLog log("verify", {});
  Captured now = capture(program, arguments, options, log);
  const bool same_inputs = same_tensors(entry.lifted(), now.joint.lifted);
  if (now.recorded != entry.artifact().recorded || !same_inputs) {
    // Recordings of one function may differ in what nobody reads: the passes leave it out.
    run_passes(now.joint.graph, chosen_decompositions(options), options.rounding, log);
    const std::optional<Difference> in_graph = graph_difference(entry.joint(), now.joint.graph);
    if (in_graph || !same_inputs) {
      report_any(call_difference({.compiled = entry.artifact().calls,
                                  .now = now.run.calls,
                                  .lifted = entry.lifted(),
                                  .lifted_now = now.joint.lifted,
                                  .lifted_names = names_of_lifted(entry)}));
      report_any(in_graph);
    }
  }
  report_any(signature_difference(entry.signature(), now.joint.signature));
  report_any(result_difference(entry.result_constants(), now.result_constants));
}

}  // namespace tandem::pipeline
