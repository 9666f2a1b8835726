#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>

namespace tandem::joint {

/// An edge of the autograd graph at which the engine can be made to stop.
///
/// Results must depend on arguments as the call leaves them, and what rewrote an argument is a node
/// of its own. So the gradient of a rewritten argument is taken at its last history, and while the
/// stop is closed nothing flows on from there: the engine captures the gradient of an edge before
/// the pre-hooks of its node run, and the hook takes it away.
class GradientStop {
 public:
  explicit GradientStop(const torch::autograd::Edge& edge);
  ~GradientStop() { open(); }
  GradientStop(const GradientStop&) = delete;
  GradientStop& operator=(const GradientStop&) = delete;
  void close() const { *closed_ = true; }
  void open() const { *closed_ = false; }
  bool is_closed() const { return *closed_; }

 private:
  std::shared_ptr<bool> closed_ = std::make_shared<bool>(false);
};

}  // namespace tandem::joint
