#pragma once

#include "tandem/export.h"

#include <functional>
#include <string>

namespace tandem {

/// Takes one line without its end: `tandem: warning: ...`.
using WarningSink = std::function<void(const std::string& line)>;

/// Sends what Tandem would write to stderr (warnings, and what TANDEM_LOG asks for) to `sink`
/// instead, and returns the sink before; an empty one stands for stderr. For the whole process.
///
/// Lines come from whichever thread has something to say, several at a time, with no lock held: the
/// sink may call Tandem, also this function. A line under way may still reach the sink before. What
/// a sink throws is dropped, and its line goes to stderr.
TANDEM_API WarningSink set_warning_sink(WarningSink sink);

}  // namespace tandem
