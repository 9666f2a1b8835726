/// Convolutions, pools, pads, norms, embeddings, folds and resampling of the C++ front end:
/// compiled as in eager.
#include "support/module_cases.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;

Tensors none() { return {}; }

const ModuleCase kConvolutions[] = {
    unary("Conv1d", {2, 4, 9}, [] { return nn::Conv1d(nn::Conv1dOptions(4, 6, 3).padding(1)); }),
    unary("Conv1d_circular", {2, 4, 9},
          [] {
            return nn::Conv1d(nn::Conv1dOptions(4, 6, 3).padding(2).padding_mode(torch::kCircular));
          }),
    unary("Conv2d", {2, 4, 7, 8}, [] { return nn::Conv2d(4, 6, 3); }),
    unary("Conv2d_strided", {2, 4, 7, 8},
          [] {
            return nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 2}).stride(2).padding(1).bias(false));
          }),
    unary("Conv2d_grouped", {2, 4, 7, 8},
          [] { return nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(2).dilation(2)); }),
    unary("Conv2d_depthwise", {2, 4, 7, 8},
          [] { return nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(4).padding(torch::kSame)); }),
    unary("Conv2d_reflect", {2, 4, 7, 8},
          [] {
            return nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1).padding_mode(torch::kReflect));
          }),
    unary("Conv2d_replicate", {2, 4, 7, 8},
          [] {
            return nn::Conv2d(
                nn::Conv2dOptions(4, 6, 3).padding(1).padding_mode(torch::kReplicate));
          }),
    unary("Conv2d_unbatched", {4, 7, 8}, [] { return nn::Conv2d(4, 6, 3); }),
    unary("Conv3d", {2, 3, 4, 5, 6}, [] { return nn::Conv3d(3, 4, 3); }),
    unary("Conv3d_strided", {2, 3, 4, 5, 6},
          [] { return nn::Conv3d(nn::Conv3dOptions(3, 4, 2).stride(2).padding(1)); }),
    unary("ConvTranspose1d", {2, 4, 5},
          [] {
            return nn::ConvTranspose1d(
                nn::ConvTranspose1dOptions(4, 3, 3).stride(2).padding(1).output_padding(1));
          }),
    unary("ConvTranspose2d", {2, 4, 5, 3},
          [] {
            return nn::ConvTranspose2d(
                nn::ConvTranspose2dOptions(4, 3, 3).stride(2).padding(1).output_padding(1));
          }),
    unary("ConvTranspose2d_grouped", {2, 4, 5, 3},
          [] {
            return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 2).groups(2).bias(false));
          }),
    module_case(
        "ConvTranspose2d_outputSize",
        [] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 3).stride(2)); },
        [] { return Tensors{torch::randn({2, 4, 5, 3})}; }, none,
        [](nn::ConvTranspose2d& m, const Tensors& x) {
          return Tensors{m(x[0], std::vector<int64_t>{12, 8})};
        }),
    unary("ConvTranspose3d", {2, 3, 3, 4, 2},
          [] { return nn::ConvTranspose3d(nn::ConvTranspose3dOptions(3, 2, 3).stride(2)); }),

    unary("Fold", {2, 12, 12}, [] { return nn::Fold(nn::FoldOptions({4, 5}, {2, 2})); }),
    unary("Unfold", {2, 3, 4, 5},
          [] { return nn::Unfold(nn::UnfoldOptions({2, 3}).padding(1).stride(2)); }),
    unary("PixelShuffle", {2, 8, 3, 4}, [] { return nn::PixelShuffle(2); }),
    unary("PixelUnshuffle", {2, 2, 4, 6}, [] { return nn::PixelUnshuffle(2); }),
};

/// Pools with their indices, undone.
template <class Pool, class Unpool>
ModuleCase unpool(std::string name, std::vector<int64_t> sizes, Unpool unpool) {
  return module_case(
      std::move(name), [] { return Pool(2); }, [=] { return Tensors{torch::randn(sizes)}; }, none,
      [=](Pool& pool, const Tensors& x) {
        auto [y, indices] = pool->forward_with_indices(x[0]);
        Unpool m = unpool;
        return Tensors{m(y * 2, indices), y};
      });
}

template <class Pool, class Make>
ModuleCase with_indices(std::string name, std::vector<int64_t> sizes, Make make) {
  return module_case(
      std::move(name), make, [=] { return Tensors{torch::randn(sizes)}; }, none,
      [](Pool& pool, const Tensors& x) {
        auto [y, indices] = pool->forward_with_indices(x[0]);
        return Tensors{y, indices};
      });
}

const ModuleCase kPools[] = {
    unary("AvgPool1d", {2, 3, 9}, [] { return nn::AvgPool1d(3); }),
    unary("AvgPool2d", {2, 3, 7, 8},
          [] {
            return nn::AvgPool2d(
                nn::AvgPool2dOptions(3).stride(2).padding(1).count_include_pad(false));
          }),
    unary("AvgPool2d_ceil", {2, 3, 7, 8},
          [] {
            return nn::AvgPool2d(nn::AvgPool2dOptions({2, 3}).ceil_mode(true).divisor_override(5));
          }),
    unary("AvgPool3d", {2, 3, 4, 5, 6}, [] { return nn::AvgPool3d(2); }),
    unary("MaxPool1d", {2, 3, 9}, [] { return nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2)); }),
    unary("MaxPool2d", {2, 3, 7, 8},
          [] { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)); }),
    unary("MaxPool2d_ceil", {2, 3, 7, 8},
          [] { return nn::MaxPool2d(nn::MaxPool2dOptions(2).dilation(2).ceil_mode(true)); }),
    with_indices<nn::MaxPool2d>("MaxPool2d_indices", {2, 3, 7, 8}, [] { return nn::MaxPool2d(2); }),
    unary("MaxPool3d", {2, 3, 4, 5, 6}, [] { return nn::MaxPool3d(2); }),
    with_indices<nn::MaxPool3d>("MaxPool3d_indices", {2, 3, 4, 5, 6},
                                [] { return nn::MaxPool3d(2); }),
    unary("AdaptiveAvgPool1d", {2, 3, 9}, [] { return nn::AdaptiveAvgPool1d(4); }),
    unary("AdaptiveAvgPool2d", {2, 3, 7, 8},
          [] { return nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 4})); }),
    unary("AdaptiveAvgPool2d_one", {2, 3, 7, 8}, [] { return nn::AdaptiveAvgPool2d(1); }),
    unary("AdaptiveAvgPool3d", {2, 3, 4, 5, 6}, [] { return nn::AdaptiveAvgPool3d(3); }),
    unary("AdaptiveMaxPool1d", {2, 3, 9}, [] { return nn::AdaptiveMaxPool1d(4); }),
    unary("AdaptiveMaxPool2d", {2, 3, 7, 8}, [] { return nn::AdaptiveMaxPool2d(3); }),
    with_indices<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d_indices", {2, 3, 7, 8},
                                        [] { return nn::AdaptiveMaxPool2d(3); }),
    unary("AdaptiveMaxPool3d", {2, 3, 4, 5, 6}, [] { return nn::AdaptiveMaxPool3d(2); }),
    unary("FractionalMaxPool2d", {2, 3, 7, 8},
          [] { return nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(4)); }),
    unary("FractionalMaxPool2d_ratio", {2, 3, 7, 8},
          [] {
            return nn::FractionalMaxPool2d(
                nn::FractionalMaxPool2dOptions(2).output_ratio(std::vector<double>{0.6, 0.5}));
          }),
    unary("FractionalMaxPool3d", {2, 3, 5, 6, 7},
          [] { return nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(3)); }),
    unary("LPPool1d", {2, 3, 9}, [] { return nn::LPPool1d(2, 3); }),
    unary("LPPool2d", {2, 3, 7, 8}, [] { return nn::LPPool2d(nn::LPPool2dOptions(2, {2, 3})); }),
    unary("LPPool3d", {2, 3, 4, 5, 6},
          [] { return nn::LPPool3d(nn::LPPool3dOptions(2, {2, 2, 2})); }),
    unpool<nn::MaxPool1d>("MaxUnpool1d", {2, 3, 8}, nn::MaxUnpool1d(2)),
    unpool<nn::MaxPool2d>("MaxUnpool2d", {2, 3, 6, 8}, nn::MaxUnpool2d(2)),
    unpool<nn::MaxPool3d>("MaxUnpool3d", {2, 3, 4, 6, 8}, nn::MaxUnpool3d(2)),
};

const ModuleCase kPads[] = {
    unary("ReflectionPad1d", {2, 3, 6}, [] { return nn::ReflectionPad1d(2); }),
    unary("ReflectionPad2d", {2, 3, 5, 6},
          [] { return nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 3, 0})); }),
    unary("ReflectionPad2d_unbatched", {3, 5, 6}, [] { return nn::ReflectionPad2d(1); }),
    unary("ReflectionPad3d", {2, 3, 4, 5, 6}, [] { return nn::ReflectionPad3d(1); }),
    unary("ReplicationPad1d", {2, 3, 6}, [] { return nn::ReplicationPad1d(2); }),
    unary("ReplicationPad2d", {2, 3, 5, 6},
          [] { return nn::ReplicationPad2d(nn::ReplicationPad2dOptions({1, 2, 3, 0})); }),
    unary("ReplicationPad3d", {2, 3, 4, 5, 6}, [] { return nn::ReplicationPad3d(1); }),
    unary("ZeroPad1d", {2, 3, 6}, [] { return nn::ZeroPad1d(2); }),
    unary("ZeroPad2d", {2, 3, 5, 6},
          [] { return nn::ZeroPad2d(nn::ZeroPad2dOptions({1, -1, 2, 0})); }),
    unary("ZeroPad3d", {2, 3, 4, 5, 6}, [] { return nn::ZeroPad3d(1); }),
    unary("ConstantPad1d", {2, 3, 6}, [] { return nn::ConstantPad1d(2, 0.5); }),
    unary("ConstantPad2d", {2, 3, 5, 6}, [] { return nn::ConstantPad2d(1, 0.5); }),
    unary("ConstantPad3d", {2, 3, 4, 5, 6}, [] { return nn::ConstantPad3d(1, 0.5); }),
    unary_function("pad_circular", {2, 3, 5, 6},
                   [](const at::Tensor& x) {
                     return F::pad(x, F::PadFuncOptions({1, 2, 2, 1}).mode(torch::kCircular));
                   }),
};

const ModuleCase kNorms[] = {
    unary("BatchNorm1d", {4, 3}, [] { return nn::BatchNorm1d(3); }),
    unary("BatchNorm1d_sequence", {4, 3, 5}, [] { return nn::BatchNorm1d(3); }),
    unary("BatchNorm2d", {2, 3, 4, 5}, [] { return nn::BatchNorm2d(3); }),
    unary("BatchNorm2d_plain", {2, 3, 4, 5},
          [] {
            return nn::BatchNorm2d(
                nn::BatchNorm2dOptions(3).affine(false).track_running_stats(false));
          }),
    unary("BatchNorm3d", {2, 3, 2, 4, 5}, [] { return nn::BatchNorm3d(3); }),
    unary("InstanceNorm1d", {2, 3, 5}, [] { return nn::InstanceNorm1d(3); }),
    unary("InstanceNorm2d", {2, 3, 4, 5},
          [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true)); }),
    unary(
        "InstanceNorm2d_tracked", {2, 3, 4, 5},
        [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).track_running_stats(true)); }),
    unary("InstanceNorm3d", {2, 3, 2, 4, 5}, [] { return nn::InstanceNorm3d(3); }),
    unary("LayerNorm", {2, 3, 6}, [] { return nn::LayerNorm(nn::LayerNormOptions({6})); }),
    unary("LayerNorm_plain", {2, 3, 4, 5},
          [] { return nn::LayerNorm(nn::LayerNormOptions({4, 5}).elementwise_affine(false)); }),
    unary("GroupNorm", {2, 6, 4, 5}, [] { return nn::GroupNorm(nn::GroupNormOptions(3, 6)); }),
    unary("GroupNorm_plain", {2, 6, 5},
          [] { return nn::GroupNorm(nn::GroupNormOptions(2, 6).affine(false)); }),
    unary("LocalResponseNorm", {2, 5, 4, 3}, [] { return nn::LocalResponseNorm(3); }),
    unary("LocalResponseNorm_volume", {2, 5, 2, 4, 3}, [] { return nn::LocalResponseNorm(2); }),
    unary("CrossMapLRN2d", {2, 5, 4, 3}, [] { return nn::CrossMapLRN2d(3); }),
};

std::function<Tensors()> ids(int64_t limit, std::vector<int64_t> sizes) {
  return [=] { return Tensors{torch::randint(limit, sizes)}; };
}

template <class Mode>
ModuleCase bag(std::string name, Mode mode, bool weighted = false) {
  return module_case(
      std::move(name), [=] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(7, 4).mode(mode)); },
      [=] {
        Tensors inputs{torch::randint(7, {9}), torch::tensor({0, 2, 2, 6})};
        if (weighted) inputs.push_back(torch::rand({9}));
        return inputs;
      },
      none,
      [=](nn::EmbeddingBag& m, const Tensors& x) {
        return Tensors{weighted ? m(x[0], x[1], x[2]) : m(x[0], x[1])};
      });
}

const ModuleCase kEmbeddings[] = {
    module_case(
        "Embedding", [] { return nn::Embedding(7, 4); }, ids(7, {2, 3}), none,
        [](nn::Embedding& m, const Tensors& x) { return Tensors{m(x[0])}; }),
    module_case(
        "Embedding_padded",
        [] {
          return nn::Embedding(nn::EmbeddingOptions(7, 4).padding_idx(2).scale_grad_by_freq(true));
        },
        ids(7, {2, 9}), none, [](nn::Embedding& m, const Tensors& x) { return Tensors{m(x[0])}; }),
    bag("EmbeddingBag_sum", torch::kSum),
    bag("EmbeddingBag_mean", torch::kMean),
    bag("EmbeddingBag_max", torch::kMax),
    bag("EmbeddingBag_weighted", torch::kSum, true),
    module_case(
        "EmbeddingBag_rows", [] { return nn::EmbeddingBag(7, 4); }, ids(7, {3, 5}), none,
        [](nn::EmbeddingBag& m, const Tensors& x) { return Tensors{m(x[0])}; }),
    module_case(
        "EmbeddingBag_padded",
        [] {
          return nn::EmbeddingBag(
              nn::EmbeddingBagOptions(7, 4).padding_idx(1).include_last_offset(true));
        },
        [] { return Tensors{torch::randint(7, {6}), torch::tensor({0, 3, 6})}; }, none,
        [](nn::EmbeddingBag& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; }),
};

template <class Mode>
ModuleCase upsample(std::string name, std::vector<int64_t> sizes, Mode mode,
                    std::optional<bool> align = {}) {
  return unary(std::move(name), sizes, [=] {
    return nn::Upsample(nn::UpsampleOptions()
                            .scale_factor(std::vector<double>(sizes.size() - 2, 2.0))
                            .mode(mode)
                            .align_corners(align));
  });
}

template <class Mode>
ModuleCase resize(std::string name, std::vector<int64_t> sizes, std::vector<int64_t> to,
                  Mode mode) {
  return unary_function(std::move(name), sizes, [=](const at::Tensor& x) {
    return F::interpolate(x, F::InterpolateFuncOptions().size(to).mode(mode));
  });
}

template <class Mode, class Padding>
ModuleCase grid_sample(std::string name, Mode mode, Padding padding) {
  return function_case(
      std::move(name),
      [] { return Tensors{torch::randn({2, 3, 5, 6}), torch::rand({2, 4, 3, 2}) * 2.4 - 1.2}; },
      none,
      [=](const Tensors& x) {
        return Tensors{F::grid_sample(
            x[0], x[1],
            F::GridSampleFuncOptions().mode(mode).padding_mode(padding).align_corners(false))};
      });
}

const ModuleCase kResampling[] = {
    upsample("Upsample_nearest1d", {2, 3, 5}, torch::kNearest),
    upsample("Upsample_nearest2d", {2, 3, 4, 5}, torch::kNearest),
    upsample("Upsample_nearest3d", {2, 3, 2, 3, 4}, torch::kNearest),
    upsample("Upsample_linear", {2, 3, 5}, torch::kLinear, true),
    upsample("Upsample_bilinear", {2, 3, 4, 5}, torch::kBilinear, false),
    upsample("Upsample_bilinearAligned", {2, 3, 4, 5}, torch::kBilinear, true),
    upsample("Upsample_bicubic", {2, 3, 4, 5}, torch::kBicubic, false),
    upsample("Upsample_trilinear", {2, 3, 2, 3, 4}, torch::kTrilinear, false),
    resize("interpolate_area", {2, 3, 6, 8}, {3, 5}, torch::kArea),
    resize("interpolate_nearestExact1d", {2, 3, 5}, {8}, torch::kNearestExact),
    resize("interpolate_nearestExact2d", {2, 3, 6, 8}, {3, 5}, torch::kNearestExact),
    resize("interpolate_nearestExact3d", {2, 3, 2, 3, 4}, {3, 4, 5}, torch::kNearestExact),
    grid_sample("gridSample_bilinear", torch::kBilinear, torch::kZeros),
    grid_sample("gridSample_nearest", torch::kNearest, torch::kBorder),
    grid_sample("gridSample_reflection", torch::kBilinear, torch::kReflection),
    function_case(
        "gridSample_volume",
        [] { return Tensors{torch::randn({2, 3, 3, 4, 5}), torch::rand({2, 2, 3, 4, 3}) * 2 - 1}; },
        none,
        [](const Tensors& x) {
          return Tensors{
              F::grid_sample(x[0], x[1], F::GridSampleFuncOptions().align_corners(true))};
        }),
    without_autocast(
        unary_function("affineGrid", {2, 2, 3},
                       [](const at::Tensor& x) { return F::affine_grid(x, {2, 3, 4, 5}, false); })),
    without_autocast(unary_function(
        "affineGrid_volume", {2, 3, 4},
        [](const at::Tensor& x) { return F::affine_grid(x, {2, 3, 2, 4, 5}, true); })),
};

class LayerModules : public ::testing::TestWithParam<ModuleCase> {};

TEST_P(LayerModules, LikeEager) { expect_module_like_eager(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Convolutions, LayerModules, ::testing::ValuesIn(kConvolutions),
                         module_case_name);
INSTANTIATE_TEST_SUITE_P(Pools, LayerModules, ::testing::ValuesIn(kPools), module_case_name);
INSTANTIATE_TEST_SUITE_P(Pads, LayerModules, ::testing::ValuesIn(kPads), module_case_name);
INSTANTIATE_TEST_SUITE_P(Norms, LayerModules, ::testing::ValuesIn(kNorms), module_case_name);
INSTANTIATE_TEST_SUITE_P(Embeddings, LayerModules, ::testing::ValuesIn(kEmbeddings),
                         module_case_name);
INSTANTIATE_TEST_SUITE_P(Resampling, LayerModules, ::testing::ValuesIn(kResampling),
                         module_case_name);

// The average over all batches so far needs the count as a number.
TEST(LayerModules, BatchNormWithCumulativeAverageIsRefused) {
  expect_module_refused(
      unary("BatchNorm2d", {2, 3, 4, 5},
            [] { return nn::BatchNorm2d(nn::BatchNorm2dOptions(3).momentum(std::nullopt)); }),
      "reads the value of a tensor");
}

}  // namespace
}  // namespace tandem::test
