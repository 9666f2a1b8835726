/// For programs of single folders, which end above the backends: the partitioners that ask the
/// backend, as for one that fuses nothing. Programs with the whole library have
/// the real one and do not take this file out of the archive.
#include "partition/min_cut/cut_graph.h"
#include "partition/min_cut/min_cut.h"
#include "tandem/options.h"

namespace tandem {

Split min_cut(const Joint& joint, const Options&) {
  return partition::cut_at_minimum(joint, partition::fuses_nothing);
}

Split min_cut_recompute(const Joint& joint, const Options&) {
  return partition::cut_at_minimum(joint, partition::fuses_sweeps);
}

}  // namespace tandem
