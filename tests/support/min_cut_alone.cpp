/// For programs of single folders, which end above the backends: the default of
/// Options::partitioner, as for a backend that fuses nothing. Programs with the whole library have
/// the real one and do not take this file out of the archive.
#include "partition/min_cut/min_cut.h"
#include "tandem/options.h"

namespace tandem {

Split min_cut(const Joint& joint, const Options&) {
  return partition::cut_at_minimum(joint, partition::fuses_nothing);
}

}  // namespace tandem
