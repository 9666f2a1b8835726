#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <limits>

/// Writes through views whose elements are not simply those of the base (expanded ones, windows),
/// and ops that write into their own operands.
namespace tandem::conformance {
namespace {

Settings refused_with(const char* words) {
  Settings settings;
  settings.refused = words;
  return settings;
}

Settings refused_for_one_place() {
  return refused_with("written through a view, and several of its elements lie at one place");
}

Settings raising_for_overlap() {
  Settings settings;
  settings.raises = "some elements of the input tensor and the written-to";
  return settings;
}

/// Numbers to which nothing can be added without a loss.
Inputs without_finite_numbers() {
  at::Tensor x = torch::full({3}, std::numeric_limits<double>::infinity(), torch::kDouble);
  x[1] = 1e300;
  return {{x}};
}

/// Into what the op itself reads, of a tensor that the function has made.
Case onto_itself(std::string name, Sizes sizes, std::function<void(at::Tensor&, Tensors&)> write,
                 Settings settings) {
  return judged(
      std::move(name), plain(std::move(sizes)),
      [=](Tensors& a) -> Tensors {
        at::Tensor y = a[0] * 1;
        write(y, a);
        return {y};
      },
      std::move(settings));
}

Case refused_product(std::string name, Sizes sizes,
                     std::function<void(at::Tensor&, Tensors&)> write) {
  return onto_itself(std::move(name), std::move(sizes), std::move(write),
                     refused_with("writes into one of its operands"));
}

Case raising(std::string name, Sizes sizes, std::function<void(at::Tensor&, Tensors&)> write) {
  return onto_itself(std::move(name), std::move(sizes), std::move(write), raising_for_overlap());
}

at::Tensor turned() { return torch::tensor({1, 0}); }

}  // namespace

Category written_places() {
  return {
      "Writes where several elements, or none, lie at one place",
      {
          judged("an expanded view of the same sizes replaces infinities", without_finite_numbers,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0] * 1;
                   y.expand({1, 3}).fill_(1.5);
                   return {y};
                 }),
          judged("the same, drawn, of an argument", without_finite_numbers,
                 [](Tensors& a) -> Tensors {
                   a[0].expand({1, 1, 3}).normal_();
                   return {a[0] * 2};
                 }),
          judged("the same by expand_as, through a further view", without_finite_numbers,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0] * 1;
                   y.expand_as(a[0]).view({3, 1}).t().copy_(at::ones({1, 3}, at::kDouble));
                   return {y};
                 }),
          judged_both("an expanded view of the same sizes is written with a gradient", {{2, 3}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = a[0] * 3, view = y.expand({1, 2, 3});
                        view.mul_(a[0].sin());
                        return {y, view};
                      }),
          judged_both("a transposed one keeps its strides", {{2, 3}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = (a[0] * 3).t();
                        y.expand({1, 3, 2}).copy_(at::ones({1, 3, 2}));
                        return {y, y.contiguous()};
                      }),
          judged(
              "an expanded view is filled", plain({{3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor y = a[0] * 1;
                y.expand({2, 3}).fill_(5);
                return {y};
              },
              refused_for_one_place()),
          judged("an expanded view is reshaped in place, not written", plain({{3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = (a[0] * 1).expand({2, 3}).t_();
                   return {y * 2};
                 }),
          judged_both("windows with gaps", {{2, 8}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = a[0] * 3;
                        y.unfold(1, 2, 3).mul_(2);
                        return {y};
                      }),
          judged_both("windows of an argument, which leave out its end", {{7, 2}},
                      [](Tensors& a) -> Tensors {
                        a[0].unfold(0, 2, 2).select(0, 1).mul_(2);
                        return {a[0] * 2};
                      }),
          judged("windows of a transposed tensor", plain({{2, 8}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = (a[0] * 3).t();
                   y.unfold(0, 2, 3).fill_(2);
                   return {y, y.contiguous()};
                 }),
          judged(
              "windows that overlap", plain({{8}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor y = a[0] * 1;
                y.unfold(0, 3, 1).fill_(2);
                return {y};
              },
              refused_for_one_place()),

          refused_product("a product goes into its left factor", {{2, 2}},
                          [](at::Tensor& y, Tensors& a) { y.addmm_(y, a[0], 0.5, 0.5); }),
          refused_product("a product goes into its transposed right factor", {{2, 2}},
                          [](at::Tensor& y, Tensors& a) { y.addmm_(a[0], y.t(), 0.5, 0.5); }),
          refused_product("a product goes into its vector", {{2}, {2, 2}},
                          [](at::Tensor& y, Tensors& a) { y.addmv_(a[1], y); }),
          refused_product("batched products go into a factor", {{2, 2, 2}},
                          [](at::Tensor& y, Tensors& a) { y.baddbmm_(y, a[0]); }),
          refused_product("a sum of products goes into a part of a factor", {{2, 2, 2}},
                          [](at::Tensor& y, Tensors& a) { y.select(0, 1).addbmm_(y, a[0]); }),
          refused_product("out argument of mm", {{2, 2}},
                          [](at::Tensor& y, Tensors& a) { at::mm_out(y, y, a[0]); }),
          refused_product("out argument of matmul", {{2, 2}},
                          [](at::Tensor& y, Tensors& a) { at::matmul_out(y, a[0], y); }),
          refused_product("masked_scatter_ of itself", {{3}},
                          [](at::Tensor& y, Tensors&) {
                            y.masked_scatter_(torch::tensor({false, true, true}), y);
                          }),
          onto_itself("a product of halves that do not overlap", {{2, 2, 2}},
                      [](at::Tensor& y, Tensors& a) {
                        y.select(0, 0).addmm_(y.select(0, 1), a[0].select(0, 0));
                      },
                      {}),
          onto_itself("a product adds to what is no factor", {{2, 2}},
                      [](at::Tensor& y, Tensors& a) { y.addmm_(a[0], a[0].t()); }, {}),

          raising("index_add_ of itself", {{2, 2}},
                  [](at::Tensor& y, Tensors&) { y.index_add_(0, turned(), y); }),
          raising("index_copy_ of itself", {{2, 2}},
                  [](at::Tensor& y, Tensors&) { y.index_copy_(0, turned(), y); }),
          raising("scatter_ of itself", {{2}},
                  [](at::Tensor& y, Tensors&) { y.scatter_(0, turned(), y); }),
          raising("put_ of itself", {{2}}, [](at::Tensor& y, Tensors&) { y.put_(turned(), y); }),
          raising("outer product of its own row", {{2, 2}},
                  [](at::Tensor& y, Tensors& a) { y.addr_(y.select(0, 0), a[0].select(0, 1)); }),
          raising("out argument of index_select", {{2}},
                  [](at::Tensor& y, Tensors&) { at::index_select_out(y, y, 0, turned()); }),
          raising("out argument of gather", {{2}},
                  [](at::Tensor& y, Tensors&) { at::gather_out(y, y, 0, turned()); }),
          raising("out argument of take", {{2}},
                  [](at::Tensor& y, Tensors&) { at::take_out(y, y, turned()); }),
          raising("out argument of cat", {{4}},
                  [](at::Tensor& y, Tensors&) {
                    at::cat_out(y, {y.slice(0, 2, 4), y.slice(0, 0, 2)});
                  }),
          onto_itself("scatter_add_ of a part that does not overlap", {{2, 2}},
                      [](at::Tensor& y, Tensors&) {
                        y.select(0, 0).scatter_add_(0, turned(), y.select(0, 1));
                      },
                      {}),
          onto_itself("out argument of cumsum, which may be its operand", {{3}},
                      [](at::Tensor& y, Tensors&) { at::cumsum_out(y, y, 0); }, {}),
      }};
}

}  // namespace tandem::conformance
