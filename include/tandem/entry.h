#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tandem/stages.h"

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

namespace runtime {
class EntryState;
}

enum class EntryKind { training, inference };

/// A condition under which an entry may serve a call, as text.
struct Guard {
  std::string text;
};

/// Why a call made an entry: names the guard and both values, and the first op that differs if only
/// sizes do not explain it.
struct Miss {
  std::string reason;
};
TANDEM_API std::ostream& operator<<(std::ostream& out, const Miss& miss);

struct Stats {
  int64_t calls = 0;
  int64_t traces = 0;          // how often the user's function ran to be recorded
  int64_t checks = 0;          // how often it ran to see whether an entry still does what it does
  int64_t compiles = 0;        // entries that were made
  int64_t hits = 0;            // calls that found their entry, and there their sizes
  int64_t entries = 0;         // that there are now
  int64_t variants = 0;        // sets of sizes that they have now, all together
  int64_t evictions = 0;       // entries dropped because no call can use them any more
  int64_t eager_calls = 0;     // calls that ran the function itself
  int64_t zero_fallbacks = 0;  // metadata learnt by running a kernel on zeros
  int64_t backend_fallbacks = 0;  // graphs that run on eager because their backend has a defect
  std::vector<Miss> misses{};
  std::map<std::string, double> seconds{};  // per stage (`trace`), per pass (`passes/merge-views`)
};
TANDEM_API std::ostream& operator<<(std::ostream& out, const Stats& stats);

/// What a compiled function keeps for one kind of call, at any sizes for which it records the same
/// ops. A cheap handle; stays valid after `reset()`. Graphs, guards and saved values are those of
/// the sizes that were used last when the handle was made.
class TANDEM_API Entry {
 public:
  explicit Entry(std::shared_ptr<const runtime::EntryState> state) : state_(std::move(state)) {}

  EntryKind kind() const;
  const ir::Signature& signature() const;
  /// Of a training entry only; a UserError otherwise.
  const ir::Graph& joint() const;
  const ir::Graph& forward() const;
  /// Of a training entry only; a UserError otherwise.
  const ir::Graph& backward() const;
  /// In checking order.
  std::vector<Guard> guards() const;
  std::vector<Saved> saved() const;

 private:
  std::shared_ptr<const runtime::EntryState> state_;
};
TANDEM_API std::ostream& operator<<(std::ostream& out, const Entry& entry);

}  // namespace tandem
