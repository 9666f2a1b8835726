#include "shapes/overlap.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tandem::shapes {
namespace {

using Wide = __int128;  // byte positions of views that libtorch allows always fit

/// Bytes a view touches lie in [first, last].
struct ByteRange {
  Wide first = 0, last = 0;
};

bool is_empty(const StridedView& view) {
  return std::find(view.sizes.begin(), view.sizes.end(), 0) != view.sizes.end();
}

ByteRange byte_range(const StridedView& view) {
  Wide low = view.offset;
  Wide high = view.offset;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    Wide reach = static_cast<Wide>(view.sizes[i] - 1) * view.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  return {low * view.element_bytes, (high + 1) * view.element_bytes - 1};
}

/// One dimension of a view in bytes, stepped upwards.
struct Step {
  Wide stride = 1;
  Wide count = 1;
};

/// A view as a box in some coordinates: start plus steps of growing stride, the finest being single
/// bytes.
struct Box {
  Wide start = 0;
  std::vector<Step> steps{};
};

/// Steps sorted by stride, neighbours merged where the coarser continues the finer or repeats part
/// of it.
Box box_of(const StridedView& view) {
  Box box{static_cast<Wide>(view.offset) * view.element_bytes, {}};
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    Wide stride = static_cast<Wide>(view.strides[i]) * view.element_bytes;
    if (view.sizes[i] == 1 || stride == 0) continue;  // reaches no further element
    if (stride < 0) {
      box.start += stride * (view.sizes[i] - 1);
      stride = -stride;
    }
    box.steps.push_back({stride, view.sizes[i]});
  }
  box.steps.push_back({1, view.element_bytes});
  std::sort(box.steps.begin(), box.steps.end(), [](const Step& x, const Step& y) {
    return x.stride != y.stride ? x.stride < y.stride : x.count < y.count;
  });
  std::vector<Step> merged;
  for (const Step& step : box.steps) {
    Step* finer = merged.empty() ? nullptr : &merged.back();
    bool continues =
        finer && step.stride % finer->stride == 0 && step.stride <= finer->stride * finer->count;
    if (continues) {
      finer->count += (step.count - 1) * (step.stride / finer->stride);
    } else {
      merged.push_back(step);
    }
  }
  box.steps = std::move(merged);
  return box;
}

/// The strides of a grid in which both boxes are boxes: each divides the next. Nullopt if there is
/// none.
std::optional<std::vector<Wide>> common_grid(const Box& a, const Box& b) {
  std::vector<Wide> strides;
  for (const Box* box : {&a, &b}) {
    for (const Step& step : box->steps) strides.push_back(step.stride);
  }
  std::sort(strides.begin(), strides.end());
  strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
  for (size_t i = 1; i < strides.size(); ++i) {
    if (strides[i] % strides[i - 1] != 0) return std::nullopt;
  }
  return strides;
}

/// Along one grid axis: first and last digit.
struct Digits {
  Wide first = 0, last = 0;
};

Wide floor_divide_wide(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/// A box in grid digits, coarsest axis without bound. Nullopt if a run crosses into the next
/// coarser digit, where it would no longer be a box.
std::optional<std::vector<Digits>> digits_of(const Box& box, const std::vector<Wide>& grid,
                                             Wide origin) {
  std::vector<Digits> digits(grid.size());
  Wide rest = box.start - origin;
  for (size_t i = grid.size(); i-- > 0;) {
    digits[i].first = digits[i].last = floor_divide_wide(rest, grid[i]);
    rest -= digits[i].first * grid[i];
  }
  for (const Step& step : box.steps) {
    auto axis =
        static_cast<size_t>(std::find(grid.begin(), grid.end(), step.stride) - grid.begin());
    digits[axis].last += step.count - 1;
  }
  for (size_t i = 0; i + 1 < grid.size(); ++i) {
    if (digits[i].last >= grid[i + 1] / grid[i]) return std::nullopt;
  }
  return digits;
}

/// Exact answer where both views are boxes of one grid whose lines start at `origin`.
std::optional<bool> overlap_on_grid(const Box& a, const Box& b, const std::vector<Wide>& grid,
                                    Wide origin) {
  auto x = digits_of(a, grid, origin);
  auto y = digits_of(b, grid, origin);
  if (!x || !y) return std::nullopt;
  for (size_t i = 0; i < grid.size(); ++i) {
    if ((*x)[i].last < (*y)[i].first || (*y)[i].last < (*x)[i].first) return false;
  }
  return true;
}

/// Runs of bytes that a view consists of, if they are few.
constexpr Wide kMaxRuns = 4096;

std::optional<std::vector<ByteRange>> runs_of(const Box& box) {
  Wide run = box.steps.front().stride == 1 ? box.steps.front().count : 1;
  Wide count = 1;
  size_t first = box.steps.front().stride == 1 ? 1 : 0;
  for (size_t i = first; i < box.steps.size(); ++i) {
    count *= box.steps[i].count;
    if (count > kMaxRuns) return std::nullopt;
  }
  std::vector<ByteRange> runs{{box.start, box.start + run - 1}};
  for (size_t i = first; i < box.steps.size(); ++i) {
    size_t before = runs.size();
    for (Wide k = 1; k < box.steps[i].count; ++k) {
      for (size_t j = 0; j < before; ++j) {
        Wide shift = k * box.steps[i].stride;
        runs.push_back({runs[j].first + shift, runs[j].last + shift});
      }
    }
  }
  std::sort(runs.begin(), runs.end(),
            [](const ByteRange& x, const ByteRange& y) { return x.first < y.first; });
  return runs;
}

bool runs_meet(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  // Runs of one view may overlap each other, so the furthest end so far counts, not the last one.
  size_t i = 0;
  size_t j = 0;
  Wide end_a = 0;
  Wide end_b = 0;
  bool seen_a = false;
  bool seen_b = false;
  while (i < a.size() || j < b.size()) {
    bool from_a = j == b.size() || (i < a.size() && a[i].first <= b[j].first);
    const ByteRange& run = from_a ? a[i++] : b[j++];
    if (from_a ? seen_b && end_b >= run.first : seen_a && end_a >= run.first) return true;
    Wide& end = from_a ? end_a : end_b;
    bool& seen = from_a ? seen_a : seen_b;
    end = seen ? std::max(end, run.last) : run.last;
    seen = true;
  }
  return false;
}

/// Positions of a view are its start plus multiples of the greatest common divisor of its strides:
/// where both views keep to different residues of it they never meet.
bool residues_meet(const Box& a, const Box& b, Wide bytes_a, Wide bytes_b) {
  Wide divisor = 0;
  for (const Box* box : {&a, &b}) {
    for (const Step& step : box->steps) {
      if (step.stride == 1) continue;
      Wide x = divisor;
      Wide y = step.stride;
      while (y != 0) {
        x %= y;
        std::swap(x, y);
      }
      divisor = x;
    }
  }
  if (divisor <= 1) return true;
  Wide distance = b.start - a.start;
  Wide residue = distance - floor_divide_wide(distance, divisor) * divisor;
  // a covers residues [0, bytes_a), b covers [residue, residue + bytes_b), around the circle.
  return residue < bytes_a || residue + bytes_b > divisor;
}

Wide run_bytes(const Box& box) {
  return box.steps.front().stride == 1 ? box.steps.front().count : 1;
}

}  // namespace

bool may_overlap(const StridedView& a, const StridedView& b) {
  if (is_empty(a) || is_empty(b)) return false;
  ByteRange range_a = byte_range(a);
  ByteRange range_b = byte_range(b);
  if (range_a.last < range_b.first || range_b.last < range_a.first) return false;

  Box box_a = box_of(a);
  Box box_b = box_of(b);
  if (!residues_meet(box_a, box_b, run_bytes(box_a), run_bytes(box_b))) return false;
  if (auto grid = common_grid(box_a, box_b)) {
    // The lines of the grid may start at the storage's first byte or at either view's own.
    for (Wide origin : {Wide{0}, box_a.start, box_b.start}) {
      if (auto answer = overlap_on_grid(box_a, box_b, *grid, origin)) return *answer;
    }
  }
  auto runs_a = runs_of(box_a);
  auto runs_b = runs_of(box_b);
  return !runs_a || !runs_b || runs_meet(*runs_a, *runs_b);
}

}  // namespace tandem::shapes
