#pragma once

#include "pipeline/pipeline.h"
#include "tracing/recording/data_sizes.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <vector>

namespace tandem::pipeline {

/// What a run of the function has drawn for sizes that depend on data, and what of it the user's
/// code has read.
struct DrawnSizes {
  std::vector<tracing::DataSizes::Drawn> drawn{};
  std::vector<tracing::DataSizes::Read> reads{};
  bool at_an_end = false;

  static DrawnSizes of(const tracing::Recording& recording);
};

/// One more run, which draws other numbers.
struct FurtherRun {
  Captured captured{};
  DrawnSizes sizes{};
  std::string error{};  // what was raised; empty: it is complete
};

/// Puts expressions in place of what differs between the runs: the joint graph and the signature of
/// `first` serve every size that data can give. Throws an UnsupportedError where that is not so.
/// `run(n)` is the n-th run of the function; `first` is run 0.
void generalise(Captured& first, const DrawnSizes& sizes,
                const std::function<FurtherRun(size_t)>& run);

/// The same for an error that libtorch has raised in the first run, where sizes were drawn before.
[[noreturn]] void refuse_sizes(const std::string& error, const std::string& line);

}  // namespace tandem::pipeline
