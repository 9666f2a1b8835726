#include "pipeline/data_sizes.h"

#include "base/error.h"
#include "ir/generalise.h"
#include "ir/text/op_names.h"
#include "ops/data_sizes.h"
#include "runtime/guards/constant_text.h"
#include "shapes/evaluate.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

namespace tandem::pipeline {
namespace {

/// Runs at the ends of ranges, then as many as there are symbols, and these. Every fourth of the
/// latter may draw 0 and 1, too.
constexpr size_t kFixedRuns = 5, kSpareRuns = 8;
/// Each symbol takes a run or two.
constexpr size_t kMostSymbols = 256;

constexpr const char* kRemedy =
    "\n  remedy: ask for x.sym_size(i) or x.item().toSymInt(), compute with that and hand it to "
    "ops, or keep the "
    "computation on tensors; or call it outside the compiled function";

std::string symbol_name(size_t index) { return base::str("u", index); }

/// `aten.nonzero (moe.cpp:12)`, of the ops that make such sizes.
std::string makers_of(const ir::Graph& graph) {
  std::string text;
  size_t count = 0;
  graph.for_each_node([&](const ir::Node& node) {
    if (!ops::makes_size(node) || ++count > 3) return;
    const std::string line = ir::to_string(node.location());
    text += base::str(text.empty() ? "" : ", ", ir::op_text(node.op()),
                      line.empty() ? "" : " (" + line + ")");
  });
  return text + (count > 3 ? base::str(" and ", count - 3, " more") : "");
}

class Generaliser {
 public:
  Generaliser(Captured& first, const DrawnSizes& sizes) : first_(first), sizes_(sizes) {
    if (sizes.drawn.size() > kMostSymbols) {
      refuse(base::str("the function makes ", sizes.drawn.size(),
                       " sizes that depend on data, at most ", kMostSymbols, " are followed"),
             {}, "\n  remedy: route in fewer steps (sort by expert instead of one mask for each)");
    }
  }

  void run(const std::function<FurtherRun(size_t)>& further) {
    const size_t count = kFixedRuns + (sizes_.drawn.size() + kSpareRuns) * 4 / 3;
    for (size_t n = 1; n < count; ++n) add(further(n));
    refuse_reads(sizes_.reads);
    for (const FurtherRun& run : runs_) refuse_reads(run.sizes.reads);
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (!is_alike(runs_[i]) && !runs_[i].sizes.at_an_end) refuse_other(runs_[i]);
    }
    const auto others =
        std::ranges::stable_partition(runs_, [&](const FurtherRun& one) { return is_alike(one); });
    const std::vector<FurtherRun> at_ends(std::make_move_iterator(others.begin()),
                                          std::make_move_iterator(others.end()));
    runs_.erase(others.begin(), others.end());
    put_expressions();
    for (const FurtherRun& run : at_ends) {
      if (run.error.empty()) require_same_results(run);
    }
  }

 private:
  void add(FurtherRun run) {
    // The runs before have said where sizes are read: that is why this one could raise.
    runs_.push_back(std::move(run));
  }

  [[noreturn]] void refuse(const std::string& what, const ir::Location& line,
                           const std::string& remedy) const {
    TANDEM_UNSUPPORTED("trace", what, base::detail_line("at", ir::to_string(line)),
                       base::detail_line("sizes", makers_of(first_.joint.graph)), remedy);
  }

  /// Whether the sizes of a value are the same in all runs that have it.
  bool varies(ir::ValueId id) const {
    const auto type_of = [&](const Captured& captured) -> const ir::TypePtr* {
      const ir::Graph& graph = captured.joint.graph;
      if (static_cast<size_t>(id) >= graph.value_limit()) return nullptr;
      const ir::TypePtr& type = graph.value(id).tensor_type();
      return type == nullptr ? nullptr : &type;
    };
    const ir::TypePtr* mine = type_of(first_);
    return mine != nullptr && std::ranges::any_of(runs_, [&](const FurtherRun& run) {
             const ir::TypePtr* other = type_of(run.captured);
             return other != nullptr && !(**other == **mine);
           });
  }

  void refuse_reads(const std::vector<tracing::DataSizes::Read>& reads) const {
    for (const tracing::DataSizes::Read& read : reads) {
      if (varies(read.value)) {
        refuse("the function reads a size that depends on data as a number", read.line, kRemedy);
      }
    }
  }

  bool is_alike(const FurtherRun& run) const {
    if (!run.error.empty() || run.captured.shape_free != first_.shape_free) return false;
    if (run.sizes.drawn.size() != sizes_.drawn.size()) return false;
    for (size_t i = 0; i < sizes_.drawn.size(); ++i) {
      if (!(run.sizes.drawn[i].decider == sizes_.drawn[i].decider)) return false;
    }
    const auto& mine = first_.result_constants;
    const auto& theirs = run.captured.result_constants;
    return std::ranges::equal(mine, theirs, {}, runtime::constant_text, runtime::constant_text) &&
           std::ranges::equal(
               first_.joint.lifted, run.captured.joint.lifted,
               [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  }

  [[noreturn]] void refuse_other(const FurtherRun& run) const {
    if (!run.error.empty()) refuse_sizes(run.error, {});
    std::vector<const ir::Node*> mine;
    first_.joint.graph.for_each_node([&](const ir::Node& node) { mine.push_back(&node); });
    size_t at = 0;
    bool same = true;
    run.captured.joint.graph.for_each_node([&](const ir::Node& node) {
      if (!same || at >= mine.size()) return;
      same = mine[at]->kind() == node.kind() &&
             (node.kind() != ir::NodeKind::Op ||
              mine[at]->op().operator_name() == node.op().operator_name());
      at += same;
    });
    const bool inside = at < mine.size();
    refuse(inside && mine[at]->kind() == ir::NodeKind::Op
               ? base::str("which ops are called depends on a size that depends on data: ",
                           ir::op_text(mine[at]->op()), " is not always called")
               : std::string("which ops are called depends on a size that depends on data"),
           inside ? mine[at]->location() : ir::Location(), kRemedy);
  }

  /// Libtorch may take another way to the same, but no result may have other dimensions (`squeeze`
  /// where a size is 1), nor may what the general recording goes by.
  void require_same_results(const FurtherRun& run) const {
    const ir::Graph& graph = run.captured.joint.graph;
    ir::NodeId theirs = graph.first_node();
    for (ir::NodeId mine = first_.joint.graph.first_node();
         mine != ir::kNoNode && theirs != ir::kNoNode;
         mine = first_.joint.graph.next(mine), theirs = graph.next(theirs)) {
      const ir::Node &a = first_.joint.graph.node(mine), &b = graph.node(theirs);
      if (a.kind() != ir::NodeKind::Op || b.kind() != ir::NodeKind::Op) {
        if (a.kind() != b.kind()) break;
        continue;
      }
      if (a.op().operator_name() != b.op().operator_name()) break;
      if (ranks_of(first_.joint.graph, a) != ranks_of(graph, b)) refuse_ranks(a);
    }
    const auto& results = first_.joint.signature.outputs;
    const auto& there = run.captured.joint.signature.outputs;
    bool same = results.size() == there.size();
    for (size_t i = 0; same && i < results.size(); ++i) {
      same = (results[i].type == nullptr) == (there[i].type == nullptr);
      if (same && results[i].type) same = sizes_at(run, *results[i].type) == there[i].type->sizes;
    }
    if (!same) {
      refuse(
          "a result has other dimensions where a size that depends on data is at the end of its "
          "range",
          {}, kRemedy);
    }
  }

  static std::vector<int64_t> ranks_of(const ir::Graph& graph, const ir::Node& node) {
    std::vector<int64_t> ranks;
    for (ir::ValueId id : node.results()) {
      const bool is_tensor = id != ir::kNoValue && graph.value(id).tensor_type();
      ranks.push_back(is_tensor ? graph.value(id).tensor_type()->rank() : -1);
    }
    return ranks;
  }

  [[noreturn]] void refuse_ranks(const ir::Node& node) const {
    refuse(base::str(ir::op_text(node.op()),
                     " gives another number of dimensions where a size that depends on data is at "
                     "the end of its range"),
           node.location(), "\n  remedy: name the dimension, squeeze(1)");
  }

  std::vector<ir::Size> sizes_at(const FurtherRun& run, const ir::TensorType& type) const {
    std::vector<ir::Size> sizes;
    for (const ir::Size& size : type.sizes) {
      sizes.emplace_back(shapes::evaluate(size, [&](const std::string& name) {
        size_t symbol = 0;
        while (symbol_name(symbol) != name) ++symbol;
        return run.sizes.drawn.at(symbol).value;
      }));
    }
    return sizes;
  }

  void put_expressions() {
    std::vector<shapes::SampledSymbol> symbols;
    ir::Recordings recordings{.samples = samples_, .larger = larger_};
    for (size_t i = 0; i < sizes_.drawn.size(); ++i) {
      const tracing::DataSizes::Drawn& one = sizes_.drawn[i];
      std::optional<int64_t> max = one.max;
      // A bound may depend on data, too.
      for (const FurtherRun& run : runs_) {
        if (run.sizes.drawn[i].max && max) max = std::max(*max, *run.sizes.drawn[i].max);
      }
      symbols.push_back({.name = symbol_name(i), .min = min_of(i), .max = max});
      recordings.symbols.push_back(
          {.name = symbol_name(i), .min = min_of(i), .max = max, .hint = one.value});
    }
    std::vector<std::vector<int64_t>> rows, rows_larger;
    const auto add_row = [&](const DrawnSizes& sizes) {
      std::vector<int64_t>& row = rows.emplace_back();
      for (const tracing::DataSizes::Drawn& one : sizes.drawn) row.push_back(one.value);
      recordings.is_small.push_back(std::ranges::min(row) < 2);
      if (!recordings.is_small.back()) rows_larger.push_back(row);
    };
    add_row(sizes_);
    for (const FurtherRun& run : runs_) add_row(run.sizes);
    samples_ = shapes::SizeSamples(symbols, std::move(rows));
    if (!samples_.tell_apart()) {
      refuse(
          "sizes that depend on data cannot be told apart: the function does other things at "
          "most of them",
          {}, kRemedy);
    }
    for (shapes::SampledSymbol& symbol : symbols) symbol.min = std::max<int64_t>(symbol.min, 2);
    larger_ = shapes::SizeSamples(symbols, std::move(rows_larger));

    std::vector<const ir::Graph*> graphs;
    std::vector<const ir::Signature*> signatures;
    for (const FurtherRun& run : runs_) {
      graphs.push_back(&run.captured.joint.graph);
      signatures.push_back(&run.captured.joint.signature);
    }
    require(ir::generalise(first_.joint.graph, graphs, recordings));
    require(ir::generalise(first_.joint.signature, signatures, recordings));
  }

  int64_t min_of(size_t symbol) const {
    int64_t min = sizes_.drawn[symbol].min;
    for (const FurtherRun& run : runs_) min = std::min(min, run.sizes.drawn[symbol].min);
    return min;
  }

  void require(const std::optional<ir::Unexplained>& error) const {
    if (!error) return;
    std::string seen;
    for (size_t i = 0; i < std::min<size_t>(error->seen.size(), 6); ++i)
      seen += base::str(i == 0 ? "" : ", ", error->seen[i]);
    std::string drawn;
    for (size_t i = 0; i < std::min<size_t>(runs_.size() + 1, 6); ++i) {
      const DrawnSizes& sizes = i == 0 ? sizes_ : runs_[i - 1].sizes;
      drawn += base::str(i == 0 ? "" : ", ", sizes.drawn.size() == 1 ? "" : "(");
      for (size_t k = 0; k < sizes.drawn.size(); ++k)
        drawn += base::str(k == 0 ? "" : ", ", sizes.drawn[k].value);
      drawn += sizes.drawn.size() == 1 ? "" : ")";
    }
    TANDEM_UNSUPPORTED(
        "trace", "how ", error->what, " follows from sizes that depend on data is not known",
        base::detail_line("at", ir::to_string(error->line)),
        base::detail_line("sizes", makers_of(first_.joint.graph)),
        base::detail_line("seen", seen.empty() ? "" : seen + " at " + drawn),
        "\n  remedy: keep the computation on tensors, or call it outside the compiled function");
  }

  Captured& first_;
  const DrawnSizes& sizes_;
  std::vector<FurtherRun> runs_;
  shapes::SizeSamples samples_{{}, {}}, larger_{{}, {}};
};

}  // namespace

DrawnSizes DrawnSizes::of(const tracing::Recording& recording) {
  const auto& sizes = recording.data_sizes();
  if (!sizes) return {};
  return {.drawn = sizes->drawn(), .reads = sizes->reads(), .at_an_end = sizes->at_an_end()};
}

void generalise(Captured& first, const DrawnSizes& sizes,
                const std::function<FurtherRun(size_t)>& run) {
  Generaliser(first, sizes).run(run);
}

void refuse_sizes(const std::string& error, const std::string& line) {
  TANDEM_UNSUPPORTED(
      "trace",
      "the function raises an error at some sizes that depend on data and may be "
      "right at others",
      base::detail_line("at", line, 10), base::detail_line("libtorch", error, 10),
      "\n  remedy:   make sizes that have to fit from one mask or one index, or call "
      "it outside the compiled function");
}

}  // namespace tandem::pipeline
