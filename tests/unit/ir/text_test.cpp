#include "tandem/ir/text.h"

#include "support/graph_text.h"
#include "support/paths.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

namespace tandem::ir {
namespace {

/// A graph of one input whose lines are `body`; indented as the printer does.
std::string graph_of(const std::string& body, const std::string& result = "%x") {
  return "graph g(%x: f32[4, 4] user_input 0) {\n  " + body + "\n  return " + result +
         ": output 0\n}\n";
}

#define EXPECT_ROUND_TRIP(text) EXPECT_EQ(print(parse(text)), text)

// The page is what users read: its example must stay true.
TEST(Text, KeepsTheExampleOfTheReferencePage) {
  std::ifstream page(std::filesystem::path(test::kTestsDir) / ".." / "docs" / "reference" /
                     "graph-text.md");
  std::string text(std::istreambuf_iterator<char>(page), {});
  size_t start = text.find("```\ngraph ");
  ASSERT_NE(start, std::string::npos);
  start += 4;
  EXPECT_ROUND_TRIP(text.substr(start, text.find("```", start) - start));
}

TEST(Text, KeepsTheExampleOfTheManual) {
  std::string text =
      R"(graph gelu_mlp.forward(%x: f32[32, 512] user_input 0, %w: f32[512, 512] param "fc.weight", %b: f32[512] param "fc.bias", %m: f32[512] lifted 3) {
  %t: f32[512, 512] (1, 512) = aten.t(%w)
  %h: f32[32, 512] = aten.addmm(%b, %x, %t, beta=1, alpha=1)  # net.cpp:41
  %v: f32[32], %i: i64[32] = aten.max.dim(%h, 1, false)
  return %v: output 0, %h: saved 0
}
)";
  EXPECT_ROUND_TRIP(text);
  Graph graph = parse(text);
  EXPECT_EQ(graph.name(), "gelu_mlp.forward");
  EXPECT_EQ(graph.node_count(), 3u);
  EXPECT_EQ(graph.node(NodeId{1}).location(), (Location{"net.cpp", 41}));
  EXPECT_EQ(*graph.value(ValueId{4}).tensor_type()->strides[0].maybe_value(), 1);
}

TEST(Text, KeepsEveryInputAndOutputRole) {
  EXPECT_ROUND_TRIP(
      "graph g(%a: f32[2] user_input 0, %b: f32[2] param \"a.b\", %c: f32[2] buffer \"c\", %d: "
      "f32[2] lifted 4, "
      "%e: f32[2] tangent 1, %f: int symbol, %g: i64[] seed 0, %h: f32[0] token 2, %i: f32[2] base "
      "3, "
      "%j: f32[2] saved 5) {\n"
      "  return %a: output 0, %b: mutated 1, %c: base 0, %d: saved 0, %e: grad 2, %a: grad 3 "
      "\"fc.weight\", "
      "%h: token 2, none: grad 4\n}\n");
}

TEST(Text, KeepsEveryKindOfType) {
  EXPECT_ROUND_TRIP(
      "graph g(%a: f32[] user_input 0, %b: cuda:0 f32[4] user_input 1, %c: f32[2, 3] (1, 2) "
      "user_input 2, "
      "%d: cuda:1 bf16[2, 0, 3] user_input 3, %e: sparse_csr f64[4, 4] user_input 4, %f: int "
      "symbol, "
      "%h: float symbol 1, %i: bool symbol 2, %j: bool[3] user_input 5, %k: mkldnn f32[8] "
      "user_input 6, "
      "%l: f32[4, 4] (0, 1) user_input 7, %m: f32[1, 3] (1, 1) user_input 8) {\n  return\n}\n");
}

TEST(Text, KeepsEveryDtype) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
    std::string name = dtype_name(static_cast<c10::ScalarType>(i));
    EXPECT_NE(name, "unknown") << i;
    EXPECT_EQ(parse_dtype(name), static_cast<c10::ScalarType>(i));
    EXPECT_ROUND_TRIP("graph g(%a: " + name + "[2] user_input 0) {\n  return\n}\n");
  }
}

TEST(Text, KeepsSymbols) {
  std::string text =
      "graph g[s0: 2..512 hint 32, s1: 0.., s2: -4..4](%x: f32[s0, 4*s0] (4*s0, 1) user_input 0, "
      "%y: f32[s0 + 1, floordiv(s1, 2)] user_input 1) {\n"
      "  %z: f32[4*s0*s0] = aten.view(%x, [4*s0*s0])\n"
      "  return %z: output 0\n}\n";
  Graph graph = parse(text);
  EXPECT_EQ(graph.symbols()[0], (Symbol{"s0", 2, 512, 32}));
  EXPECT_EQ(graph.symbols()[1], (Symbol{"s1", 0, std::nullopt, std::nullopt}));
  // The strides written out are the contiguous ones.
  EXPECT_EQ(print(graph), std::string(text).replace(text.find(" (4*s0, 1)"), 10, ""));
  EXPECT_ROUND_TRIP(print(graph));
}

TEST(Text, KeepsEveryKindOfOperand) {
  for (std::string body : {
           "%y: f32[4, 4] = aten.add.Tensor(%x, %x, alpha=1)",
           "%y: f32[4, 4] = aten.add.Tensor(%x, %x, alpha=-2.5)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, inf, 1)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, -inf, 1)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, nan, 1)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, nan(0xfff8000000000000), 1)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, true, 1)",
           "%y: c64[4, 4] = aten.add.Scalar(%x, (1.0, -2.5), 1)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, 1e+20, 0.1)",
           "%y: f32[4, 4] = aten.add.Scalar(%x, -9223372036854775808, 1)",
           "%y: f32[4] = aten.sum.dim_IntList(%x, [-1], false, dtype=none)",
           "%y: f32[] = aten.sum.dim_IntList(%x, [], false, dtype=none)",
           "%y: f64[4] = aten.sum.dim_IntList(%x, [0], false, dtype=f64)",
           "%y: f32[4, 4] = aten.gelu(%x, approximate=\"tanh\")",
           "%y: f32[4, 4] = aten.empty_like(%x, dtype=bf16, layout=strided, device=cpu, "
           "pin_memory=false, "
           "memory_format=channels_last)",
           "%y: f32[4, 4] = aten.empty_like(%x, dtype=none, layout=none, device=cuda:0, "
           "pin_memory=none, "
           "memory_format=preserve)",
           "%y: f32[8, 4] = aten.cat([%x, %x], 0)",
           "%y: f32[4, 4] = aten.index.Tensor(%x, [none, none])",
           "%y: f32[4, 4] = aten.index.Tensor(%x, [])",
           "%y: f32[4, 4] = aten.bernoulli(%x, generator=none)",
           "%y: f32[4, 4] = aten.bernoulli(%x, generator=generator 1)",
           "%y: f32[4, 4] = aten.upsample_nearest1d.vec(%x, none, [2.0, 1.5])",
           "%y: f32[4, 4], %z: f32[4, 4], %w: f32[4] = aten.convolution_backward(%x, %x, %x, [4], "
           "[1, 1], [0, 0], "
           "[1, 1], false, [0, 0], 1, [true, false, true])",
           "[%y: f32[4, 4]] = aten._foreach_add.ScalarList([%x], [1.0])",
           "[%y: f32[4, 4]] = aten._foreach_add.ScalarList([%x], [2])",
           "[%y: f32[4, 4]] = aten._foreach_add.ScalarList([%x], [true])",
           "%y: f32[4, 4] = aten.clamp(%x, none, 1.0)",
           "%y: f32[4, 4] = aten.mul.Tensor(%x, 2.5)",
           "%y: f32[4, 4] = aten.mul.Tensor(%x, -3)",
           "%y: f32[4, 4] = aten.mul.Tensor(%x, true)",
           "%y: f32[4, 4] = aten.mul.Tensor(%x, -inf)",
           "%y: c64[4, 4] = aten.mul.Tensor(%x, (0.0, 1.0))",
       }) {
    EXPECT_ROUND_TRIP(graph_of(body));
  }
}

TEST(Text, KeepsOperandsAsTheirSchemaHasThem) {
  Graph graph =
      parse(graph_of("%y: f32[4, 4] = aten.empty_like(%x, dtype=f32, layout=strided, device=cpu, "
                     "pin_memory=true, memory_format=contiguous)"));
  auto operands = graph.node(NodeId{0}).operands();
  EXPECT_EQ(operands[0], Operand(ValueId{0}));
  EXPECT_EQ(operands[1], Operand(c10::ScalarType::Float));
  EXPECT_EQ(operands[2], Operand(c10::Layout::Strided));
  EXPECT_EQ(operands[3], Operand(c10::Device("cpu")));
  EXPECT_EQ(operands[4], Operand(true));
  EXPECT_EQ(operands[5], Operand(c10::MemoryFormat::Contiguous));
}

TEST(Text, KeepsEveryShapeOfResults) {
  EXPECT_ROUND_TRIP(graph_of("[%a: f32[2, 4], %b: f32[2, 4]] = aten.split.Tensor(%x, 2, 0)"));
  EXPECT_ROUND_TRIP(graph_of("[] = aten.split.Tensor(%x, 2, 0)"));
  EXPECT_ROUND_TRIP(
      graph_of("none, %b: f32[4, 4], none = aten.convolution_backward(%x, %x, %x, none, [1, 1], "
               "[0, 0], [1, 1], false, [0, 0], 1, [false, true, false])"));
  EXPECT_ROUND_TRIP(graph_of("%n: int = aten.size.int(%x, 0)"));
  EXPECT_ROUND_TRIP(graph_of("%n: float = aten.item(%x)"));
  EXPECT_ROUND_TRIP(graph_of("%n: bool = aten.equal(%x, %x)"));
  EXPECT_ROUND_TRIP(graph_of("aten._assert_async(%x)"));
}

TEST(Text, KeepsNumbersThatAreComputed) {
  EXPECT_ROUND_TRIP(
      graph_of("%n: int = aten.size.int(%x, 0)\n  %y: f32[4] = aten.select.int(%x, 0, %n)"));
}

TEST(Text, KeepsPhases) {
  std::string text = graph_of(
      "%a: f32[4, 4] = aten.sin(%x)\n  backward:\n  %b: f32[4, 4] = aten.cos(%x)\n  %c: f32[] = "
      "constant {1.0}\n"
      "  forward:\n  %d: f32[4, 4] = aten.exp(%x)");
  EXPECT_ROUND_TRIP(text);
  Graph graph = parse(text);
  EXPECT_EQ(graph.node(NodeId{0}).phase(), Phase::Forward);
  EXPECT_EQ(graph.node(NodeId{1}).phase(), Phase::Backward);
  EXPECT_EQ(graph.node(NodeId{2}).phase(), Phase::Backward);
  EXPECT_EQ(graph.node(NodeId{3}).phase(), Phase::Forward);
}

TEST(Text, KeepsRegions) {
  std::string text = graph_of(
      "%y: f32[4, 4] = region \"checkpoint\" (%x) graph body(%a: f32[4, 4] user_input 0) {\n"
      "    %z: f32[4, 4], none = region \"inner\" (%a, none) graph (%a: f32[4, 4] user_input 0, "
      "%b: f32[1] "
      "user_input 1) {\n"
      "      backward:\n"
      "      %x: f32[4, 4] = aten.sin(%a)\n"
      "      return %x: output 0, none: output 1\n"
      "    }  # deep.cpp:3\n"
      "    return %z: output 0\n"
      "  }  # net.cpp:7",
      "%y");
  EXPECT_ROUND_TRIP(text);
  Graph graph = parse(text);
  const Node& region = graph.node(NodeId{0});
  EXPECT_EQ(region.kind(), NodeKind::Region);
  EXPECT_EQ(region.label(), "checkpoint");
  EXPECT_EQ(region.location(), (Location{"net.cpp", 7}));
  EXPECT_EQ(region.region().node_count(), 1u);
  EXPECT_EQ(print(graph, region),
            "%y: f32[4, 4] = region \"checkpoint\" (%x) graph {...}  # net.cpp:7");
}

TEST(Text, KeepsConstantsOfEveryDtype) {
  for (std::string body : {
           "%c: f32[2] = constant {1.0, 2.0}",
           "%c: i64[] = constant {3}",
           "%c: f32[0] = constant {}",
           "%c: f32[2, 2] (1, 2) = constant {1.0, 2.0, 3.0, 4.0}",
           "%c: f32[2, 2] (0, 1) = constant {1.0, 2.0, 1.0, 2.0}",
           "%c: f64[5] = constant {0.1, -0.0, inf, -inf, nan}",
           "%c: f32[3] = constant {0.1, nan(0xffc00000), 1e-45}",
           "%c: f16[3] = constant {0.5, 65504.0, nan(0xfe00)}",
           "%c: bf16[2] = constant {0.5, 3.3895314e+38}",
           "%c: bool[2] = constant {true, false}",
           "%c: i8[2] = constant {-128, 127}",
           "%c: u8[2] = constant {0, 255}",
           "%c: i16[1] = constant {-32768}",
           "%c: i32[1] = constant {-2147483648}",
           "%c: i64[1] = constant {-9223372036854775808}",
           "%c: u16[1] = constant {65535}",
           "%c: u32[1] = constant {4294967295}",
           "%c: u64[1] = constant {18446744073709551615}",
           "%c: c32[1] = constant {(0.5, -0.5)}",
           "%c: c64[2] = constant {(0.1, -0.0), (inf, nan)}",
           "%c: c128[1] = constant {(0.1, 1e-300)}",
           "%c: f64[] = constant wrapped {2.5}",
       }) {
    EXPECT_ROUND_TRIP(graph_of(body));
  }
}

// Every bit pattern of a small dtype, NaNs and subnormals included, survives its text.
TEST(Text, KeepsEveryBitOfSmallFloats) {
  for (auto dtype : {at::kHalf, at::kBFloat16, at::kFloat8_e5m2, at::kFloat8_e4m3fn,
                     at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu}) {
    bool byte = c10::elementSize(dtype) == 1;
    at::Tensor bits =
        byte ? at::arange(256, at::kInt).to(at::kByte) : at::arange(65536, at::kInt).to(at::kShort);
    Graph graph("g");
    graph.add_constant(bits.view(dtype));
    Graph back = parse(print(graph));
    EXPECT_TRUE(at::equal(back.node(NodeId{0}).constant().view(bits.scalar_type()), bits)) << dtype;
  }
}

TEST(Text, WritesWrappedNumbersAndOffsetsOfConstants) {
  Graph graph("g");
  at::Tensor number = at::scalar_tensor(2.5, at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  graph.add_constant(number, "w");
  graph.add_constant(at::arange(6, at::kLong).view({2, 3}).t().slice(0, 1), "s");
  EXPECT_EQ(print(graph),
            "graph g() {\n  %w: f64[] = constant wrapped {2.5}\n"
            "  %s: i64[2, 2] (1, 3) = constant {1, 4, 2, 5}\n  return\n}\n");
  Graph back = parse(print(graph));
  EXPECT_TRUE(back.node(NodeId{0}).constant().unsafeGetTensorImpl()->is_wrapped_number());
  EXPECT_TRUE(at::equal(back.node(NodeId{1}).constant(), graph.node(NodeId{1}).constant()));
}

TEST(Text, ShortensAConstantInALineForErrors) {
  Graph graph("g");
  Node& node = graph.add_constant(at::arange(100, at::kLong), "c");
  EXPECT_EQ(print(graph, node), "%c: i64[100] = constant {0, 1, 2, 3, 4, 5, 6, 7, ...}");
}

TEST(Text, NumbersValuesWithoutANameInOrderOfAppearance) {
  Graph graph("g");
  TensorType type = TensorType::contiguous(at::kFloat, {2});
  ValueId x = graph.add_input(type, Descriptor::user_input(0)).id();
  ValueId y = graph.add_input(type, Descriptor::user_input(1), "1").id();
  auto sin = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sin", "");
  Node& first = graph.add_op({.op = sin, .operands = {x}, .results = {type}});
  graph.add_op({.op = sin, .operands = {first.results()[0]}, .results = {type}, .names = {"x y"}});
  graph.add_op({.op = sin, .operands = {y}, .results = {type}, .names = {"x_y"}});
  EXPECT_EQ(print(graph),
            "graph g(%0: f32[2] user_input 0, %1: f32[2] user_input 1) {\n"
            "  %2: f32[2] = aten.sin(%0)\n"
            "  %x_y: f32[2] = aten.sin(%2)\n"
            "  %x_y.1: f32[2] = aten.sin(%1)\n"
            "  return\n}\n");
  EXPECT_ROUND_TRIP(print(graph));
  EXPECT_EQ(value_names(graph), (std::vector<std::string>{"0", "1", "2", "x_y", "x_y.1"}));
}

TEST(Text, QuotesNamesThatAreNoWords) {
  EXPECT_ROUND_TRIP("graph \"<lambda> \\\"1\\\"\"() {\n  return\n}\n");
  EXPECT_ROUND_TRIP("graph () {\n  return\n}\n");
  EXPECT_ROUND_TRIP("graph g(%x: f32[1] param \"a\\\\b\\n\\t\\x01\") {\n  return\n}\n");
}

TEST(Text, FillsInDefaultsAndTakesNamedArguments) {
  EXPECT_GRAPH_EQ(parse(graph_of("%y: f32[4, 4] = aten.add.Tensor(%x, other=%x)")),
                  graph_of("%y: f32[4, 4] = aten.add.Tensor(%x, %x, alpha=1)"));
  EXPECT_GRAPH_EQ(
      parse(graph_of("%y: f32[4, 4] = aten.max_pool2d(%x, [2, 2])")),
      graph_of("%y: f32[4, 4] = aten.max_pool2d(%x, [2, 2], [], [0, 0], [1, 1], false)"));
}

TEST(Text, IgnoresCommentsAndLayout) {
  EXPECT_GRAPH_EQ(parse("# a file\ngraph g(\n  %x: f32[4,4]\tuser_input 0\n) { # head\n%y: f32[4, "
                        "4]=aten.sin( %x )"
                        "# not a place\nreturn %y: output 0 }\n# end"),
                  graph_of("%y: f32[4, 4] = aten.sin(%x)", "%y"));
}

TEST(Text, ReadsLocationsWithColonsAndSpaces) {
  Graph graph = parse(graph_of("%y: f32[4, 4] = aten.sin(%x)  # C:/my dir/a.cpp:12"));
  EXPECT_EQ(graph.node(NodeId{0}).location(), (Location{"C:/my dir/a.cpp", 12}));
}

// A program without debug information has no lines.
TEST(Text, ReadsASymbolInPlaceOfALine) {
  const std::string text =
      graph_of("%y: f32[4, 4] = aten.sin(%x)  # libnet.so(net::forward(at::Tensor const&)+0x1a)");
  const Graph graph = parse(text);
  EXPECT_EQ(graph.node(NodeId{0}).location(),
            (Location{"libnet.so(net::forward(at::Tensor const&)+0x1a)", 0}));
  EXPECT_EQ(print(graph), text);
  for (const char* comment : {"see (1)", "f(+0x)", "f(a+0xz)", "+0x1a)", "net.cpp:0", "a:-1"}) {
    Graph other = parse(graph_of(std::string("%y: f32[4, 4] = aten.sin(%x)  # ") + comment));
    EXPECT_FALSE(other.node(NodeId{0}).location().known()) << comment;
  }
}

TEST(Text, SharesEqualTypes) {
  Graph graph = parse(graph_of("%y: f32[4, 4] = aten.sin(%x)\n  %z: f32[4, 4] = aten.sin(%y)"));
  EXPECT_EQ(graph.value(ValueId{1}).tensor_type(), graph.value(ValueId{2}).tensor_type());
}

TEST(Text, ReadsSeveralGraphs) {
  std::string one = graph_of("%y: f32[4, 4] = aten.sin(%x)");
  std::vector<Graph> graphs = parse_all(one + "\n" + one);
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(print(graphs[1]), one);
  EXPECT_TRUE(parse_all(" # nothing\n").empty());
}

TEST(GraphText, ComparesWithoutNamesAndLocations) {
  Graph graph = parse(graph_of("%y: f32[4, 4] = aten.sin(%x)  # a.cpp:1"));
  EXPECT_GRAPH_EQ(graph, graph_of("%other: f32[4, 4] = aten.sin(%x)"));
  EXPECT_FALSE(test::same_graph(graph, graph_of("%y: f32[4, 4] = aten.sin(%x)  # a.cpp:2")));
  EXPECT_FALSE(test::same_graph(graph, graph_of("%y: f32[4, 4] = aten.cos(%x)")));
}

}  // namespace
}  // namespace tandem::ir
