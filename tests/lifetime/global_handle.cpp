/// A compiled function, its module and a graph in globals: the program must end without a word,
/// whichever of them, of Tandem's and of libtorch's own globals dies first.
#include <tandem/tandem.h>

#include <torch/torch.h>

namespace {

tandem::Compiled<at::Tensor(at::Tensor)> early;
at::Tensor result;
torch::nn::Linear net{nullptr};

struct CallsAtExit {
  ~CallsAtExit() { early(torch::ones({1, 2})); }
};

}  // namespace

int main() {
  net = torch::nn::Linear(2, 2);
  static tandem::Compiled<at::Tensor(at::Tensor)> late;  // dies before the globals above
  static CallsAtExit calls;
  early = tandem::compile(net);
  late = tandem::compile([](const at::Tensor& x) { return net(x).exp(); });
  result = early(torch::ones({1, 2})) + late(torch::ones({1, 2}));
  result.sum().backward();
  result = late(torch::ones({3, 2}));
  return early.stats().entries == 1 ? 0 : 1;
}
