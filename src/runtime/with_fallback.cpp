#include "runtime/with_fallback.h"

#include "base/error.h"
#include "base/log.h"

#include <cstdlib>
#include <string_view>
#include <utility>

namespace tandem::runtime {
namespace {

/// TANDEM_STRICT=1. The pipeline has refused other values.
bool is_strict() {
  const char* value = std::getenv("TANDEM_STRICT");
  return value != nullptr && std::string_view(value) == "1";
}

class WithFallback final : public Backend {
 public:
  WithFallback(std::shared_ptr<Backend> backend, std::shared_ptr<std::atomic<int64_t>> count)
      : backend_(std::move(backend)), count_(std::move(count)) {}

  std::string_view name() const override { return backend_->name(); }

  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    try {
      return backend_->compile(graph, context);
    } catch (const InternalError& defect) {
      if (is_strict()) throw;
      std::unique_ptr<Executable> instead = backend("eager")->compile(graph, context);
      if (count_->fetch_add(1) == 0) {
        base::warn(base::str("graph ", graph.name(), " runs on the backend eager, because the ",
                             "backend ", name(),
                             " has a defect; please report it: ", defect.what()));
      }
      return instead;
    }
  }

  std::unique_ptr<Executable> load(std::string_view stored, const ir::Graph& graph,
                                   const CompileContext& context) override {
    return backend_->load(stored, graph, context);
  }
  Decompositions decompositions(Rounding rounding, Random random) const override {
    return backend_->decompositions(rounding, random);
  }
  bool can_fuse(const ir::Graph& graph, const ir::Node& node) const override {
    return backend_->can_fuse(graph, node);
  }

 private:
  const std::shared_ptr<Backend> backend_;
  const std::shared_ptr<std::atomic<int64_t>> count_;
};

}  // namespace

std::shared_ptr<Backend> with_fallback(std::shared_ptr<Backend> backend,
                                       std::shared_ptr<std::atomic<int64_t>> count) {
  if (backend->name() == "eager") return backend;
  return std::make_shared<WithFallback>(std::move(backend), std::move(count));
}

}  // namespace tandem::runtime
