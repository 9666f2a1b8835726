#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>

namespace tandem::joint {

/// A place of the autograd graph where the engine can be made to stop.
///
/// Results must depend on arguments as the call leaves them, and what rewrote an argument is a node
/// of its own. So the gradient of a rewritten argument is taken where its history ends, and while
/// the cut is closed nothing flows on from there: the engine captures the gradient of an edge
/// before the pre-hooks of its node run, and the hook takes it away.
class Cut {
 public:
  explicit Cut(const torch::autograd::Edge& edge);
  ~Cut() { open(); }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;
  void close() const { *closed_ = true; }
  void open() const { *closed_ = false; }
  bool is_closed() const { return *closed_; }

 private:
  std::shared_ptr<bool> closed_ = std::make_shared<bool>(false);
};

}  // namespace tandem::joint
