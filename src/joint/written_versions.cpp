#include "joint/written_versions.h"

namespace tandem::joint {

WrittenVersions::WrittenVersions(const tracing::Trace& trace) {
  for (const tracing::StandIn& stand_in : trace.stand_ins()) {
    const c10::VariableVersion& counter = stand_in.real.unsafeGetTensorImpl()->version_counter();
    if (stand_in.duplicate_of >= 0 || stand_in.counter_of >= 0 || !counter.enabled() ||
        tracing::Inputs::has_borrowed(stand_in))
      continue;
    const uint32_t by = tracing::version_of(stand_in.tensor) - stand_in.version;
    if (by == 0) continue;
    raised_.push_back({counter, by});
    raised_.back().counter.set_version(counter.current_version() + by);
  }
}

WrittenVersions::~WrittenVersions() {
  for (Raised& one : raised_) one.counter.set_version(one.counter.current_version() - one.by);
}

}  // namespace tandem::joint
