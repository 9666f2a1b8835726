#include "ops/metadata/kernel_answers.h"
#include "ops/rules/rules.h"

namespace tandem::ops::rules {

// The workspace of an RNN layer has a length that only oneDNN knows, the strides of an FFT are
// those of the library that libtorch was built with: no formula can tell. One run on zeros of the
// true sizes can, and neither op looks at values to choose a size.
Results only_the_kernel_knows(const MetaCall& call) { return run_on_zeros(call); }

// Gradients of the inputs in schema order, computed and returned in float32 whatever their dtype.
Results mkldnn_rnn_layer_backward(const MetaCall& call) {
  Args args(call);
  const auto gradient_of = [&](const char* name) {
    const TensorType* type = args.tensor(name);
    return contiguous(*type, type->sizes, ScalarType::Float);
  };
  return answer(gradient_of("input"), gradient_of("weight1"), gradient_of("weight2"),
                gradient_of("weight3"), gradient_of("weight4"), gradient_of("hx_"),
                gradient_of("cx_tmp"));
}

}  // namespace tandem::ops::rules
