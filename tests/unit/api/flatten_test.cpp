#include "tandem/flatten.h"

#include "support/error_text.h"
#include "tandem/error.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace shop {

enum class Mode : uint8_t { slow, quick = 7 };

struct Inner {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
};
TANDEM_STRUCT(Inner, weight, bias)

struct Batch {
  at::Tensor tokens;
  int64_t length = 0;
  std::vector<Inner> layers;
  Mode mode = Mode::slow;
};
TANDEM_STRUCT(Batch, tokens, length, layers, mode)

struct Empty {};
TANDEM_STRUCT(Empty)

struct Base {
  at::Tensor first;
};
TANDEM_STRUCT(Base, first)
struct Derived : Base {
  at::Tensor second;
};
TANDEM_STRUCT(Derived, first, second)
struct Undescribed : Base {
  at::Tensor second;
};

template <class T>
struct Box {
  T content;
};
TANDEM_STRUCT(Box<at::Tensor>, content)

struct Outer {
  struct Nested {
    at::Tensor a;
  };
};
TANDEM_STRUCT(Outer::Nested, a)

struct Wide {
  int f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
      f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35, f36, f37, f38, f39,
      f40, f41, f42, f43, f44, f45, f46, f47, f48, f49, f50, f51, f52, f53, f54, f55, f56, f57, f58,
      f59, f60, f61, f62, f63;
};
TANDEM_STRUCT(Wide, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
              f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34,
              f35, f36, f37, f38, f39, f40, f41, f42, f43, f44, f45, f46, f47, f48, f49, f50, f51,
              f52, f53, f54, f55, f56, f57, f58, f59, f60, f61, f62, f63)

}  // namespace shop

// The global namespace is a namespace, too.
struct GlobalPair {
  at::Tensor a, b;
};
TANDEM_STRUCT(GlobalPair, a, b)

namespace tandem::detail {
namespace {

using test::error_text;

template <class T>
T round_trip(const T& value) {
  return detail::unflatten<T>(detail::flatten(value));
}

TEST(Flatten, GivesBackTheSameTensorObject) {
  at::Tensor x = torch::ones({2, 3});

  Flat flat = detail::flatten(x);

  ASSERT_EQ(flat.tensors.size(), 1u);
  EXPECT_TRUE(flat.constants.empty());
  EXPECT_TRUE(detail::unflatten<at::Tensor>(flat).is_same(x));
}

TEST(Flatten, KeepsPlainTensorsInsideTheListItself) {
  at::Tensor x = torch::ones({2});

  Flat flat = detail::flatten(x, x, x);

  const char* begin = reinterpret_cast<const char*>(&flat);
  const char* data = reinterpret_cast<const char*>(flat.tensors.data());
  EXPECT_TRUE(data >= begin && data < begin + sizeof(Flat)) << "the call path must not allocate";
}

TEST(Flatten, KeepsAnUndefinedTensor) {
  EXPECT_FALSE(round_trip(at::Tensor()).defined());
  EXPECT_EQ(detail::flatten(at::Tensor()).tensors.size(), 1u);
}

TEST(Flatten, MovesResultsAndCopiesArguments) {
  at::Tensor x = torch::ones({2});
  Flat flat = detail::flatten(x);
  ASSERT_EQ(x.use_count(), 2u);

  Reader arguments(flat);
  at::Tensor copy = arguments.tensor();
  EXPECT_EQ(x.use_count(), 3u);

  Reader results(std::move(flat));
  at::Tensor moved = results.tensor();
  EXPECT_EQ(x.use_count(), 3u);
}

TEST(Flatten, RoundTripsEveryConstant) {
  EXPECT_EQ(round_trip(true), true);
  EXPECT_EQ(round_trip(-3), -3);
  EXPECT_EQ(round_trip(int64_t{1} << 40), int64_t{1} << 40);
  EXPECT_EQ(round_trip(std::numeric_limits<uint64_t>::max()), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(round_trip(0.1f), 0.1f);
  EXPECT_EQ(round_trip(0.1), 0.1);
  EXPECT_TRUE(std::isnan(round_trip(std::nan(""))));
  EXPECT_EQ(round_trip(std::string("mean")), "mean");
  EXPECT_EQ(round_trip(shop::Mode::quick), shop::Mode::quick);
  EXPECT_EQ(round_trip(at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(round_trip(at::Device("cuda:1")), at::Device("cuda:1"));
  EXPECT_EQ(round_trip(at::Device("cpu")), at::Device("cpu"));
  EXPECT_EQ(round_trip(c10::SymInt(5)), 5);
}

// Two calls that differ in a constant must not look alike.
TEST(Flatten, ConstantsOfDifferentKindsDiffer) {
  EXPECT_NE(detail::flatten(at::Scalar(1)).constants[0],
            detail::flatten(at::Scalar(1.0)).constants[0]);
  EXPECT_NE(detail::flatten(at::Scalar(1)).constants[0],
            detail::flatten(at::Scalar(true)).constants[0]);
  EXPECT_NE(detail::flatten(at::Device("cuda:0")).constants,
            detail::flatten(at::Device("cuda:1")).constants);
}

TEST(Flatten, AScalarKeepsItsKind) {
  EXPECT_TRUE(round_trip(at::Scalar(2)).isIntegral(false));
  EXPECT_EQ(round_trip(at::Scalar(2)).toLong(), 2);
  EXPECT_TRUE(round_trip(at::Scalar(2.0)).isFloatingPoint());
  EXPECT_EQ(round_trip(at::Scalar(2.0)).toDouble(), 2.0);
  EXPECT_TRUE(round_trip(at::Scalar(true)).isBoolean());
  EXPECT_EQ(round_trip(at::Scalar(c10::complex<double>(1, -2))).toComplexDouble(),
            c10::complex<double>(1, -2));
  const uint64_t large = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(round_trip(at::Scalar(large)).type(), at::kUInt64);
  EXPECT_EQ(round_trip(at::Scalar(large)).toUInt64(), large);
}

TEST(Flatten, AGeneratorStaysTheSame) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  Flat flat = detail::flatten(generator);
  EXPECT_TRUE(flat.tensors.empty());
  Reader reader(flat);
  EXPECT_EQ(Structure<at::Generator>::read(reader), generator);
}

TEST(Flatten, RoundTripsContainers) {
  at::Tensor a = torch::ones({1}), b = torch::ones({2});

  EXPECT_FALSE(round_trip(std::optional<at::Tensor>()).has_value());
  EXPECT_TRUE(round_trip(std::optional<at::Tensor>(a))->is_same(a));
  // An undefined tensor that is there is not an absent one.
  EXPECT_TRUE(round_trip(std::optional<at::Tensor>(at::Tensor())).has_value());

  EXPECT_TRUE(round_trip(std::vector<at::Tensor>{a, b}).at(1).is_same(b));
  EXPECT_TRUE(round_trip(std::vector<at::Tensor>{}).empty());
  EXPECT_EQ(round_trip(std::vector<bool>{true, false}), (std::vector<bool>{true, false}));
  EXPECT_EQ(round_trip(std::vector<int64_t>{3, 1}), (std::vector<int64_t>{3, 1}));

  auto array = round_trip(std::array<std::array<at::Tensor, 2>, 2>{{{a, b}, {b, a}}});
  EXPECT_TRUE(array[0][0].is_same(a) && array[0][1].is_same(b) && array[1][0].is_same(b));
  EXPECT_EQ((round_trip(std::array<int, 0>{}).size()), 0u);

  EXPECT_TRUE(round_trip(std::pair(1, b)).second.is_same(b));
  auto tuple = round_trip(std::tuple(a, std::tuple(std::string("k"), b), 2.0));
  EXPECT_TRUE(std::get<0>(tuple).is_same(a) && std::get<1>(std::get<1>(tuple)).is_same(b));
  EXPECT_EQ(std::get<0>(std::get<1>(tuple)), "k");
  EXPECT_EQ(round_trip(std::tuple<>()), std::tuple<>());
  EXPECT_EQ((round_trip(std::tuple<std::tuple<int>>(4))), std::tuple<std::tuple<int>>(4));

  auto map = round_trip(std::map<std::string, at::Tensor>{{"b", b}, {"a", a}});
  EXPECT_TRUE(map.at("a").is_same(a) && map.at("b").is_same(b));
}

TEST(Flatten, EmitsInDeclarationOrder) {
  at::Tensor a = torch::ones({1}), b = torch::ones({2}), c = torch::ones({3});

  Flat flat =
      detail::flatten(std::pair(a, 5), std::vector<at::Tensor>{b}, std::optional<at::Tensor>(), c);

  ASSERT_EQ(flat.tensors.size(), 3u);
  EXPECT_TRUE(flat.tensors[0].is_same(a) && flat.tensors[1].is_same(b) &&
              flat.tensors[2].is_same(c));
  ASSERT_EQ(flat.constants.size(), 3u);
  EXPECT_EQ(flat.constants[0], Constant(int64_t{5}));
  EXPECT_EQ(flat.constants[1], Constant(int64_t{1}));  // the length
  EXPECT_EQ(flat.constants[2], Constant(false));       // the absence
}

TEST(Flatten, ATensorListIsAViewOfTheFlatList) {
  std::vector<at::Tensor> tensors{torch::ones({1}), torch::ones({2})};
  Flat flat = detail::flatten(at::TensorList(tensors));
  Reader reader(flat);

  at::TensorList list = Structure<at::TensorList>::read(reader);

  EXPECT_EQ(list.data(), flat.tensors.data());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[1].is_same(tensors[1]));
}

TEST(Flatten, AnIntArrayRefLivesAsLongAsTheReader) {
  std::vector<int64_t> sizes{4, 5, 6};
  Flat flat = detail::flatten(std::optional<at::IntArrayRef>(sizes));
  Reader reader(flat);

  auto list = Structure<std::optional<at::IntArrayRef>>::read(reader);

  EXPECT_EQ(list->vec(), sizes);
}

TEST(Flatten, RoundTripsStructs) {
  shop::Batch batch{torch::ones({3}),
                    17,
                    {{torch::ones({1}), std::nullopt}, {torch::ones({2}), torch::ones({4})}},
                    shop::Mode::quick};

  shop::Batch back = round_trip(batch);

  EXPECT_TRUE(back.tokens.is_same(batch.tokens));
  EXPECT_EQ(back.length, 17);
  ASSERT_EQ(back.layers.size(), 2u);
  EXPECT_FALSE(back.layers[0].bias.has_value());
  EXPECT_TRUE(back.layers[1].bias->is_same(*batch.layers[1].bias));
  EXPECT_EQ(back.mode, shop::Mode::quick);

  EXPECT_TRUE(detail::flatten(shop::Empty{}).tensors.empty());
  GlobalPair pair{batch.tokens, at::Tensor()};
  EXPECT_TRUE(round_trip(pair).a.is_same(pair.a));
  EXPECT_TRUE(round_trip(shop::Box<at::Tensor>{pair.a}).content.is_same(pair.a));
  EXPECT_TRUE(round_trip(shop::Outer::Nested{pair.a}).a.is_same(pair.a));
  shop::Derived derived{{pair.a}, pair.a};
  EXPECT_TRUE(round_trip(derived).first.is_same(pair.a));
}

TEST(Flatten, TakesStructsOfSixtyFourFields) {
  shop::Wide wide{};
  wide.f0 = 1;
  wide.f63 = 64;

  shop::Wide back = round_trip(wide);

  EXPECT_EQ(detail::flatten(wide).constants.size(), 64u);
  EXPECT_EQ(back.f0, 1);
  EXPECT_EQ(back.f63, 64);
}

// It would lose the fields that the base does not have.
TEST(Flatten, AStructDoesNotPassForItsBase) {
  static_assert(HasFields<shop::Base> && HasFields<shop::Derived>);
  static_assert(!HasFields<shop::Undescribed>);
  static_assert(!HasFields<at::Tensor> && !HasFields<int>);
}

TEST(Flatten, KnowsWhatMayOnlyBeAnArgument) {
  static_assert(Structure<at::TensorList>::kArgumentOnly);
  static_assert(Structure<std::vector<std::pair<int, at::Generator>>>::kArgumentOnly);
  static_assert(!Structure<std::map<std::string, std::tuple<at::Tensor>>>::kArgumentOnly);
  static_assert(!Structure<shop::Batch>::kArgumentOnly);
}

TEST(Flatten, NamesTensorsByTheirPath) {
  shop::Batch batch{
      at::Tensor(), 1, {{at::Tensor(), std::nullopt}, {at::Tensor(), at::Tensor()}}, {}};
  std::map<std::string, std::vector<at::Tensor>> map{{"k", {at::Tensor(), at::Tensor()}}};
  Flat flat = detail::flatten(at::Tensor(), batch, std::pair(at::Tensor(), 3), map);

  auto paths = detail::tensor_paths<at::Tensor, shop::Batch, std::pair<at::Tensor, int>,
                                    std::map<std::string, std::vector<at::Tensor>>>(flat);

  EXPECT_EQ(paths, (std::vector<std::string>{
                       "argument 0", "argument 1.tokens", "argument 1.layers[0].weight",
                       "argument 1.layers[1].weight", "argument 1.layers[1].bias", "argument 2[0]",
                       "argument 3[\"k\"][0]", "argument 3[\"k\"][1]"}));
  EXPECT_TRUE(detail::tensor_paths<>(Flat{}).empty());
}

TEST(Flatten, NoticesAListThatDoesNotFit) {
  Flat flat = detail::flatten(std::vector<at::Tensor>{torch::ones({1})});

  std::string short_of = error_text<InternalError>([&] { detail::unflatten<at::Tensor>(Flat{}); });
  std::string left_over = error_text<InternalError>([&] { detail::unflatten<at::Tensor>(flat); });
  std::string wrong_kind =
      error_text<InternalError>([&] { detail::unflatten<std::optional<at::Tensor>>(flat); });

  EXPECT_EQ(
      short_of.find(
          "call: a flat list does not have the structure of its type: read 0 of 0 tensors and "
          "0 of 0 constants"),
      0u)
      << short_of;
  EXPECT_EQ(
      left_over.find(
          "call: a flat list does not have the structure of its type: read 1 of 1 tensors and "
          "0 of 1 constants"),
      0u)
      << left_over;
  EXPECT_NE(wrong_kind.find("read 0 of 1 tensors and 1 of 1 constants"), std::string::npos)
      << wrong_kind;
}

}  // namespace
}  // namespace tandem::detail
