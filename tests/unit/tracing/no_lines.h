#pragma once

#include "tandem/function.h"

#include <ATen/core/Tensor.h>

// Of a library without debug information.
at::Tensor sine_without_lines(const at::Tensor& x);
tandem::detail::Flat sines_without_lines(const tandem::detail::Flat& arguments);
