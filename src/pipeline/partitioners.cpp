/// The partitioner that asks the backend.
#include "partition/min_cut/min_cut.h"
#include "tandem/options.h"
#include "tandem/stages.h"

namespace tandem {

Split min_cut(const Joint& joint, const Options& options) {
  using partition::Recompute;
  return partition::cut_at_minimum(
      joint, options.backend.resolve()->fuses() ? Recompute::Cheap : Recompute::Views);
}

}  // namespace tandem
