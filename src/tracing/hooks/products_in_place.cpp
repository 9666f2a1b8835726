#include "tracing/hooks/products_in_place.h"

#include "tracing/recording/recording.h"

#include <ATen/ops/mul.h>

#include <vector>

namespace tandem::tracing {
namespace {

/// Whether this is what an in-place product has become.
bool was_in_place(const BoxedCall& call) {
  if (call.recording == nullptr || !call.recording->multiplies_in_place()) return false;
  call.recording->set_multiplies_in_place(false);
  return true;
}

/// What eager's kernel makes of a number on the left of a tensor of 16-bit floats.
template <class Narrow>
at::Scalar rounded_to(const at::Scalar& number) {
  const auto narrow = number.isFloatingPoint() ? c10::convert<Narrow>(number.toDouble())
                                               : c10::convert<Narrow>(number.toLong());
  return static_cast<double>(narrow);
}

at::Scalar rounded(const at::Scalar& number, at::ScalarType dtype) {
  if (number.isComplex()) return number;
  if (dtype == at::kHalf) return rounded_to<at::Half>(number);
  if (dtype == at::kBFloat16) return rounded_to<at::BFloat16>(number);
  return number;
}

}  // namespace

void note_product(BoxedCall& call, std::any&) {
  if (call.recording != nullptr) call.recording->set_multiplies_in_place(true);
}

std::any round_number(BoxedCall& call) {
  if (!was_in_place(call)) return {};
  c10::IValue& number = call.operand(1);
  number = rounded(number.toScalar(), call.operand(0).toTensor().scalar_type());
  return {};
}

bool multiply_one_by_one(BoxedCall& call) {
  if (!was_in_place(call)) return false;
  const std::vector<at::Tensor> tensors = call.operand(0).toTensorVector();
  const c10::IValue numbers = call.operand(1);
  c10::List<at::Tensor> products;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Scalar number =
        numbers.isList() ? numbers.toListRef()[i].toScalar() : numbers.toScalar();
    products.push_back(at::mul(tensors[i], rounded(number, tensors[i].scalar_type())));
  }
  call.answer(std::move(products));
  return true;
}

}  // namespace tandem::tracing
