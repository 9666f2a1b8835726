#include "fuzz/patterns.h"

#include "fuzz/changing_sizes.h"
#include "fuzz/draft.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::fuzz::patterns {
namespace {

using Sizes = std::vector<int64_t>;

bool is_floating(const at::Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }
bool is_numeric(const at::Tensor& tensor) {
  return is_floating(tensor) || (tensor.scalar_type() != at::kBool && !tensor.is_complex());
}
bool is_integral(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}
bool is_short(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}
bool has_dims(const at::Tensor& tensor) { return tensor.dim() > 0 && tensor.numel() > 0; }

void constants(Chooser& chooser, Statement& statement) {
  statement.c = chooser.random.one_of({-1.5, -0.5, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0});
  statement.d = chooser.random.one_of({0.25, 0.5, 1.0, 1.5});
  statement.i = chooser.random.between(0, 2);
  statement.j = chooser.random.below(2);
  statement.k = chooser.random.below(3);
}

bool one(Chooser& chooser, Statement& statement, const Chooser::Wanted& wanted) {
  constants(chooser, statement);
  const auto x = chooser.pick(wanted);
  if (!x) return false;
  statement.operands.assign(1, *x);
  statement.dtype = chooser.value(*x).scalar_type();
  return true;
}

const at::Tensor& x_of(Chooser& chooser, const Statement& statement) {
  return chooser.value(statement.operands[0]);
}

bool broadcastable(at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t index = 0; index < std::min(a.size(), b.size()); ++index) {
    const int64_t left = a[a.size() - 1 - index], right = b[b.size() - 1 - index];
    if (left != right && left != 1 && right != 1) return false;
  }
  return true;
}
bool broadcastable_to(at::IntArrayRef a, at::IntArrayRef target) {
  if (a.size() > target.size()) return false;
  for (size_t index = 0; index < a.size(); ++index) {
    const int64_t size = a[a.size() - 1 - index];
    if (size != target[target.size() - 1 - index] && size != 1) return false;
  }
  return true;
}

/// One more operand that goes with x.
bool partner(Chooser& chooser, Statement& statement, const Chooser::Wanted& wanted, bool to_x) {
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  const auto y = chooser.pick([&](const at::Tensor& tensor) {
    return wanted(tensor) &&
           (to_x ? broadcastable_to(tensor.sizes(), sizes) : broadcastable(tensor.sizes(), sizes));
  });
  if (!y) return false;
  statement.operands.push_back(*y);
  return true;
}

bool complex_partner(Chooser& chooser, Statement& statement) {
  const auto wanted = [](const at::Tensor& tensor) { return tensor.is_complex(); };
  return partner(chooser, statement, wanted, true);
}

bool with_dim(Chooser& chooser, Statement& statement) {
  const at::Tensor& x = x_of(chooser, statement);
  const int64_t dim = chooser.random.below(x.dim());
  statement.k = chooser.random.below(x.size(dim));
  statement.i = chooser.random.percent(30) ? dim - x.dim() : dim;
  return true;
}

bool with_dims(Chooser& chooser, Statement& statement) {
  const at::Tensor& x = x_of(chooser, statement);
  statement.i = chooser.random.below(x.dim());
  statement.j = (statement.i + 1 + chooser.random.below(x.dim() - 1)) % x.dim();
  return true;
}

at::ScalarType float_dtype(Chooser& chooser) {
  const auto some = chooser.pick(is_floating);
  return some ? chooser.value(*some).scalar_type() : at::kDouble;
}

void fitted(Chooser& chooser, Statement& statement, std::initializer_list<Sizes> all) {
  constants(chooser, statement);
  const at::ScalarType dtype = float_dtype(chooser);
  statement.dtype = dtype;
  for (const Sizes& sizes : all) statement.operands.push_back(chooser.fit(sizes, dtype));
}

/// Writable as far as sizes tell; the rest is for libtorch to say.
bool is_writable(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) return false;
  }
  return true;
}

}  // namespace

bool floating(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, is_floating);
}
bool numeric(Chooser& chooser, Statement& statement) { return one(chooser, statement, is_numeric); }
bool anything(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor&) { return true; });
}
bool integral(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, is_integral);
}
bool boolean(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) { return tensor.scalar_type() == at::kBool; });
}
bool complex(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor& tensor) { return tensor.is_complex(); });
}
bool complex_pair(Chooser& chooser, Statement& statement) {
  return complex(chooser, statement) && complex_partner(chooser, statement);
}
bool differentiable(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor& tensor) {
    return is_floating(tensor) && tensor.requires_grad();
  });
}

bool floating_pair(Chooser& chooser, Statement& statement) {
  return floating(chooser, statement) && partner(chooser, statement, is_floating, false);
}
bool numeric_pair(Chooser& chooser, Statement& statement) {
  return numeric(chooser, statement) && partner(chooser, statement, is_numeric, false);
}
bool integral_pair(Chooser& chooser, Statement& statement) {
  return integral(chooser, statement) && partner(chooser, statement, is_integral, false);
}
bool same_sizes(Chooser& chooser, Statement& statement) {
  if (!floating(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  return true;
}
bool floating_triple(Chooser& chooser, Statement& statement) {
  if (!floating_pair(chooser, statement)) return false;
  const Sizes y = chooser.value(statement.operands[1]).sizes().vec();
  return partner(
      chooser, statement,
      [&](const at::Tensor& tensor) {
        return tensor.scalar_type() == statement.dtype && broadcastable(tensor.sizes(), y);
      },
      false);
}
bool choice(Chooser& chooser, Statement& statement) {
  if (!floating_pair(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  statement.operands.insert(statement.operands.begin(), chooser.mask(sizes));
  return true;
}
bool with_mask(Chooser& chooser, Statement& statement) {
  if (!floating(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  statement.operands.push_back(chooser.mask(sizes));
  return true;
}

bool floating_dim(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) { return is_floating(tensor) && has_dims(tensor); }) &&
         with_dim(chooser, statement);
}
bool anything_dim(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, has_dims) && with_dim(chooser, statement);
}
bool floating_dims(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) {
               return is_floating(tensor) && has_dims(tensor) && tensor.dim() > 1;
             }) &&
         with_dims(chooser, statement);
}
bool anything_dims(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) { return has_dims(tensor) && tensor.dim() > 1; }) &&
         with_dims(chooser, statement);
}

bool matrix(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor& tensor) {
    return is_floating(tensor) && tensor.dim() == 2 && tensor.numel() > 0;
  });
}
bool square(Chooser& chooser, Statement& statement) {
  fitted(chooser, statement, {{2, 2}});
  return true;
}
bool matrices(Chooser& chooser, Statement& statement) {
  Random& random = chooser.random;
  int64_t n = random.between(1, 3), k = random.between(1, 3);
  const int64_t m = random.between(1, 3);
  Statement found;
  if (random.percent(60) && matrix(chooser, found)) {
    n = x_of(chooser, found).size(0);
    k = x_of(chooser, found).size(1);
  }
  if (random.percent(30)) {
    fitted(chooser, statement, {{n, k}, {k, m}, {m}});
  } else {
    fitted(chooser, statement, {{n, k}, {k, m}, {n, m}});
  }
  return true;
}
bool batches(Chooser& chooser, Statement& statement) {
  const int64_t drawn = chooser.random.between(1, 2), k = chooser.random.between(1, 3);
  const int64_t batch = free_size(chooser, 2), n = free_size(chooser, drawn);
  fitted(chooser, statement, {{batch, n, k}, {batch, k, 2}, {batch, n, 2}});
  return true;
}
bool vectors(Chooser& chooser, Statement& statement) {
  const int64_t n = free_size(chooser, chooser.random.between(1, 5));
  fitted(chooser, statement, {{n}, {n}});
  return true;
}
bool matrix_vector(Chooser& chooser, Statement& statement) {
  int64_t n = chooser.random.between(1, 3), k = chooser.random.between(1, 4);
  n = free_size(chooser, n);
  k = free_size(chooser, k);
  fitted(chooser, statement, {{n, k}, {k}, {n}});
  return true;
}
bool outer(Chooser& chooser, Statement& statement) {
  int64_t n = chooser.random.between(1, 3), m = chooser.random.between(1, 3);
  n = free_size(chooser, n);
  m = free_size(chooser, m);
  fitted(chooser, statement, {{n}, {m}, {n, m}});
  return true;
}
bool linear(Chooser& chooser, Statement& statement) {
  const int64_t k = chooser.random.between(1, 3), m = chooser.random.between(1, 3);
  if (chooser.random.percent(30)) {
    fitted(chooser, statement, {{2, free_size(chooser, 2), k}, {m, k}, {m}});
  } else {
    fitted(chooser, statement, {{free_size(chooser, 2), k}, {m, k}, {m}});
  }
  return true;
}
bool convolution1d(Chooser& chooser, Statement& statement) {
  const int64_t channels = chooser.random.between(1, 2), out = chooser.random.between(1, 2);
  const int64_t batch = free_size(chooser, 2), length = free_size(chooser, 4);
  fitted(chooser, statement, {{batch, channels, length}, {out, channels, 2}, {out}});
  statement.i = chooser.random.between(1, 2);
  statement.j = chooser.random.between(0, 1);
  return true;
}
bool convolution2d(Chooser& chooser, Statement& statement) {
  const int64_t out = chooser.random.between(1, 2);
  const int64_t batch = free_size(chooser, 1), height = free_size(chooser, 3);
  fitted(chooser, statement, {{batch, 2, height, free_size(chooser, 2)}, {out, 2, 2, 2}, {out}});
  statement.i = 1;
  statement.j = chooser.random.between(0, 1);
  return true;
}
bool image(Chooser& chooser, Statement& statement) {
  const int64_t channels = chooser.random.between(1, 2), batch = free_size(chooser, 1);
  const int64_t height = free_size(chooser, 3), width = free_size(chooser, 4);
  fitted(chooser, statement, {{batch, channels, height, width}});
  return true;
}
bool classes(Chooser& chooser, Statement& statement) {
  int64_t n = chooser.random.between(1, 3);
  const int64_t count = chooser.random.between(2, 4);
  // Of no rows at all its kernel leaves the result as the memory was.
  if (statement.op->name != "multi_margin_loss") n = free_size(chooser, n);
  fitted(chooser, statement, {{n, count}});
  statement.operands.push_back(chooser.indices({n}, count));
  return true;
}
bool last_dim(Chooser& chooser, Statement& statement) {
  const int64_t n = free_size(chooser, chooser.random.between(2, 4));
  fitted(chooser, statement, {{free_size(chooser, 2), n}, {n}, {n}});
  statement.sizes = {n};
  return true;
}
bool channels(Chooser& chooser, Statement& statement) {
  const int64_t length = free_size(chooser, chooser.random.between(1, 2));
  fitted(chooser, statement, {{free_size(chooser, 2), 4, length}, {4}, {4}});
  statement.i = 2;
  return true;
}
bool channel_state(Chooser& chooser, Statement& statement) {
  const int64_t count = chooser.random.between(1, 3);
  fitted(chooser, statement, {{free_size(chooser, 3), count}});
  const at::ScalarType dtype = statement.dtype;
  for (int part = 0; part < 2; ++part) {
    const auto state = chooser.pick([&](const at::Tensor& tensor) {
      return tensor.scalar_type() == dtype && tensor.sizes() == at::IntArrayRef{count} &&
             !tensor.requires_grad() && is_writable(tensor);
    });
    if (state && std::ranges::find(statement.operands, *state) == statement.operands.end()) {
      statement.operands.push_back(*state);
    } else {
      Statement ramp;
      ramp.op = find_op("ramp");
      ramp.sizes = {count};
      ramp.dtype = dtype;
      ramp.i = count;
      statement.operands.push_back(chooser.prepend(ramp));
    }
  }
  return true;
}
bool attention(Chooser& chooser, Statement& statement) {
  const int64_t length = free_size(chooser, chooser.random.between(1, 2));
  const int64_t batch = free_size(chooser, 1), keys = free_size(chooser, 2);
  fitted(chooser, statement, {{batch, 2, length, 2}, {batch, 2, keys, 2}, {batch, 2, keys, 2}});
  return true;
}

bool index_dim(Chooser& chooser, Statement& statement) {
  if (!floating_dim(chooser, statement)) return false;
  const int64_t size = x_of(chooser, statement).size(statement.i);
  statement.operands.push_back(chooser.indices({chooser.random.between(1, 3)}, size));
  return true;
}
bool index_like(Chooser& chooser, Statement& statement) {
  if (!floating_dim(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  const int64_t size = x_of(chooser, statement).size(statement.i);
  statement.operands.push_back(chooser.indices(sizes, size));
  statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  return true;
}
bool index_rows(Chooser& chooser, Statement& statement) {
  if (!matrix(chooser, statement)) return false;
  const int64_t rows = x_of(chooser, statement).size(0);
  statement.operands.push_back(chooser.indices({chooser.random.between(1, 3)}, rows));
  return true;
}
bool index_source(Chooser& chooser, Statement& statement) {
  if (!floating_dim(chooser, statement)) return false;
  statement.i = 0;
  Sizes sizes = x_of(chooser, statement).sizes().vec();
  const int64_t rows = sizes[0];
  sizes[0] = chooser.random.between(1, 2);
  statement.operands.push_back(chooser.indices({sizes[0]}, rows));
  statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  return true;
}

bool list(Chooser& chooser, Statement& statement) {
  if (!floating_dim(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  const int64_t more = chooser.random.between(1, 2);
  for (int64_t index = 0; index < more; ++index) {
    statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  }
  return true;
}
bool other_sizes(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, [](const at::Tensor& tensor) { return tensor.numel() > 0; })) {
    return false;
  }
  int64_t left = x_of(chooser, statement).numel();
  for (int64_t factor : {2, 3, 5}) {
    if (left % factor == 0 && chooser.random.percent(60)) {
      statement.sizes.push_back(factor);
      left /= factor;
    }
  }
  if (left != 1 || chooser.random.percent(30)) statement.sizes.push_back(left);
  return true;
}
bool wider_sizes(Chooser& chooser, Statement& statement) {
  if (!anything(chooser, statement)) return false;
  statement.sizes = x_of(chooser, statement).sizes().vec();
  for (int64_t& size : statement.sizes) {
    if (size == 1) size = chooser.random.between(1, 2);
  }
  if (statement.sizes.size() < 3 && chooser.random.percent(60)) {
    statement.sizes.insert(statement.sizes.begin(), chooser.random.between(1, 2));
  }
  return true;
}
bool permutation(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, [](const at::Tensor& tensor) { return tensor.dim() > 1; })) {
    return false;
  }
  statement.sizes.resize(static_cast<size_t>(x_of(chooser, statement).dim()));
  std::iota(statement.sizes.begin(), statement.sizes.end(), 0);
  for (size_t index = statement.sizes.size(); index > 1; --index) {
    std::swap(
        statement.sizes[index - 1],
        statement.sizes[static_cast<size_t>(chooser.random.below(static_cast<int64_t>(index)))]);
  }
  return true;
}
bool range(Chooser& chooser, Statement& statement) {
  if (!anything_dim(chooser, statement)) return false;
  const int64_t size = x_of(chooser, statement).size(statement.i);
  statement.j = chooser.random.below(size);
  statement.k = chooser.random.between(statement.j + 1, size);
  return true;
}
bool strided(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, [](const at::Tensor& tensor) {
        return tensor.numel() >= 4 && tensor.is_contiguous();
      })) {
    return false;
  }
  const int64_t elements = x_of(chooser, statement).numel();
  statement.sizes = {2, 2};
  statement.i = 2;
  statement.j = 1;
  // Relative to the tensor would be an offset of a view; libtorch's is that of the storage.
  statement.k = x_of(chooser, statement).storage_offset() + chooser.random.below(elements - 3);
  return true;
}
bool sizes_only(Chooser& chooser, Statement& statement) {
  constants(chooser, statement);
  const auto some = chooser.pick([](const at::Tensor& tensor) {
    return is_floating(tensor) && tensor.numel() > 0 && tensor.numel() <= 12;
  });
  statement.sizes = some ? chooser.value(*some).sizes().vec() : Sizes{2, 3};
  statement.dtype = some ? chooser.value(*some).scalar_type() : at::kDouble;
  return true;
}
bool spread(Chooser& chooser, Statement& statement) {
  if (!floating(chooser, statement) || x_of(chooser, statement).numel() == 0) return false;
  const auto y = chooser.pick([](const at::Tensor& tensor) {
    return is_floating(tensor) && tensor.numel() > kLargestNumel;
  });
  if (y) statement.operands.push_back(*y);
  return y.has_value();
}
bool scalar(Chooser& chooser, Statement& statement) {
  constants(chooser, statement);
  statement.dtype = chooser.random.one_of({at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                           at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
                                           at::kBool, at::kComplexFloat});
  // Of the small ones nothing is left in 16 bits.
  statement.c = chooser.random.one_of({1e-8, 0.1, 0.3, 1.0, 2.5, 3.0, 1e-5, 250.0});
  return true;
}
bool with_scalar(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, is_short)) return false;
  const auto y = chooser.pick([](const at::Tensor& tensor) { return tensor.dim() == 0; });
  if (!y) return false;
  statement.operands.push_back(*y);
  return true;
}
bool unfit(Chooser& chooser, Statement& statement) {
  if (!numeric(chooser, statement)) return false;
  statement.dtype = chooser.random.one_of({at::kHalf, at::kByte, at::kChar, at::kShort, at::kInt,
                                           at::kLong, at::kBFloat16, at::kFloat, at::kBool});
  statement.c = chooser.random.one_of({1e5, 300.0, -1.0, 70000.0, 3e9, 1e19, 1e39, 2.0, -129.0});
  if (chooser.random.percent(20)) statement.c = INFINITY;
  return true;
}
bool with_number(Chooser& chooser, Statement& statement) {
  const auto x = chooser.pick(is_short);
  if (!x || !scalar(chooser, statement)) return false;
  statement.operands = {*x};
  return true;
}
bool pairs(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor& tensor) {
    return (tensor.scalar_type() == at::kDouble || tensor.scalar_type() == at::kFloat) &&
           tensor.dim() > 0 && tensor.size(-1) == 2 && tensor.is_contiguous() &&
           tensor.storage_offset() % 2 == 0;
  });
}

bool write(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) { return is_floating(tensor) && is_writable(tensor); });
}
bool write_numeric(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) { return is_numeric(tensor) && is_writable(tensor); });
}
bool write_pair(Chooser& chooser, Statement& statement) {
  return write(chooser, statement) && partner(chooser, statement, is_floating, true);
}
bool write_scalar(Chooser& chooser, Statement& statement) {
  return with_scalar(chooser, statement) && is_writable(x_of(chooser, statement));
}
bool write_in_backward(Chooser& chooser, Statement& statement) {
  const auto is_log = [&](const at::Tensor& tensor) {
    return chooser.inputs.contains(tensor.unsafeGetTensorImpl()) && is_floating(tensor) &&
           !tensor.requires_grad() && is_writable(tensor);
  };
  if (!one(chooser, statement, is_log)) return false;
  const auto y = chooser.pick(
      [](const at::Tensor& tensor) { return is_floating(tensor) && tensor.requires_grad(); });
  if (y) statement.operands.push_back(*y);
  return y.has_value();
}
bool write_triple(Chooser& chooser, Statement& statement) {
  const auto same_dtype = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == statement.dtype;
  };
  return write(chooser, statement) && partner(chooser, statement, same_dtype, true) &&
         partner(chooser, statement, same_dtype, true);
}
bool write_masked(Chooser& chooser, Statement& statement) {
  if (!write(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  statement.operands.push_back(chooser.mask(sizes));
  statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  return true;
}
bool write_dim(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, [](const at::Tensor& tensor) {
        return is_floating(tensor) && is_writable(tensor) && has_dims(tensor);
      })) {
    return false;
  }
  with_dim(chooser, statement);
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  return true;
}
bool write_rows(Chooser& chooser, Statement& statement) {
  if (!write_dim(chooser, statement)) return false;
  statement.i = 0;
  Sizes sizes = x_of(chooser, statement).sizes().vec();
  const int64_t rows = sizes[0];
  sizes[0] = chooser.random.between(1, std::min<int64_t>(2, rows));
  // Which of two writes to one place wins is not promised: distinct rows.
  Statement rows_from;
  rows_from.op = find_op("row_numbers");
  rows_from.i = chooser.random.between(0, rows - sizes[0]);
  rows_from.j = rows_from.i + sizes[0];
  statement.operands[1] = chooser.prepend(rows_from);
  statement.operands.push_back(chooser.fit(sizes, statement.dtype));
  return true;
}
bool write_like(Chooser& chooser, Statement& statement) {
  if (!write_dim(chooser, statement)) return false;
  const Sizes sizes = x_of(chooser, statement).sizes().vec();
  const int64_t size = x_of(chooser, statement).size(statement.i);
  const int values = statement.operands[1];
  statement.operands[1] = chooser.indices(sizes, size);
  statement.operands.push_back(values);
  return true;
}
bool write_product(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, [](const at::Tensor& tensor) {
        return is_floating(tensor) && is_writable(tensor) && tensor.dim() == 2;
      })) {
    return false;
  }
  const int64_t n = x_of(chooser, statement).size(0), m = x_of(chooser, statement).size(1);
  const int64_t k = chooser.random.between(1, 2);
  statement.operands.push_back(chooser.fit({n, k}, statement.dtype));
  statement.operands.push_back(chooser.fit({k, m}, statement.dtype));
  return true;
}
bool write_first(Chooser& chooser, Statement& statement) { return write_dim(chooser, statement); }
bool write_list(Chooser& chooser, Statement& statement) {
  return write(chooser, statement) && partner(chooser, statement, is_writable, false) &&
         is_floating(chooser.value(statement.operands[1]));
}
bool write_complex(Chooser& chooser, Statement& statement) {
  return one(chooser, statement,
             [](const at::Tensor& tensor) { return tensor.is_complex() && is_writable(tensor); });
}
bool write_complex_pair(Chooser& chooser, Statement& statement) {
  return write_complex(chooser, statement) && complex_partner(chooser, statement);
}
bool reshapable(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && !tensor.is_view() && !tensor.requires_grad();
  });
}

bool root_and_input(Chooser& chooser, Statement& statement) {
  if (!one(chooser, statement, [](const at::Tensor& tensor) {
        return is_floating(tensor) && tensor.requires_grad() && !tensor.is_leaf();
      })) {
    return false;
  }
  const auto y = chooser.pick([&](const at::Tensor& tensor) {
    if (!is_floating(tensor) || !tensor.requires_grad()) return false;
    for (int variable : chooser.closed_over) {
      if (chooser.value(variable).is_same(tensor)) return false;
    }
    // What leads from one argument to another lies outside the function.
    const bool parameter = chooser.parameters.contains(tensor.unsafeGetTensorImpl());
    if (parameter && chooser.parameters_are_related) return false;
    return !tensor.is_same(x_of(chooser, statement));
  });
  if (!y) return false;
  statement.operands.push_back(*y);
  return true;
}
bool fresh_leaf(Chooser& chooser, Statement& statement) {
  return one(chooser, statement, [](const at::Tensor& tensor) {
    return is_floating(tensor) && tensor.is_leaf() && !tensor.requires_grad() && !tensor.is_view();
  });
}

}  // namespace tandem::fuzz::patterns
