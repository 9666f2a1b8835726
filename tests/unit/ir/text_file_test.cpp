#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

namespace tandem::ir {
namespace {

namespace fs = std::filesystem;

class TextFile : public ::testing::Test {
 protected:
  static std::string contents(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static void set_contents(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  }

  /// One small and two large constants.
  static Graph sample() {
    Graph graph("g");
    graph.add_constant(at::arange(64, at::kFloat), "small");
    graph.add_constant(at::arange(65, at::kFloat), "large");
    graph.add_constant(at::arange(200, at::kLong).view({10, 20}).t(), "transposed");
    return graph;
  }

  /// The error of reading, with the folder's name left out.
  std::string read_error() const {
    std::string text = test::error_text<UserError>([&] { read_file(file_); });
    std::string folder = folder_.string() + "/";
    for (size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  const test::TemporaryFolder temporary_{
      std::string("text_file.") + ::testing::UnitTest::GetInstance()->current_test_info()->name()};
  const fs::path folder_ = temporary_.path();
  const fs::path file_ = folder_ / "g.tdm", side_ = folder_ / "g.tdm.constants";
};

TEST_F(TextFile, KeepsSmallConstantsInTheText) {
  Graph graph = parse(
      "graph g(%x: f32[2] user_input 0) {\n  %c: f32[2] = constant {1.0, 2.0}\n  return\n}\n");
  write_file(file_, {{graph, graph}});
  EXPECT_EQ(contents(file_), print(graph) + "\n" + print(graph));
  EXPECT_FALSE(fs::exists(side_));
  std::vector<Graph> back = read_file(file_);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(print(back[1]), print(graph));
}

TEST_F(TextFile, KeepsLargeConstantsInTheSideFile) {
  Graph graph = sample();
  write_file(file_, {&graph, 1});
  std::string text = contents(file_);
  EXPECT_NE(text.find("%small: f32[64] = constant {0.0, "), std::string::npos) << text;
  EXPECT_NE(text.find("%large: f32[65] = constant @0:"), std::string::npos) << text;
  EXPECT_NE(text.find("%transposed: i64[20, 10] (1, 20) = constant @1:"), std::string::npos)
      << text;
  std::vector<Graph> back = read_file(file_);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(print(back[0]), print(graph));
  EXPECT_EQ(structural_hash(back[0]), structural_hash(graph));
  // Written again, it is the same file.
  write_file(file_, back);
  EXPECT_EQ(contents(file_), text);
}

TEST_F(TextFile, NoticesADamagedSideFile) {
  Graph graph = sample();
  write_file(file_, {&graph, 1});
  std::string good = contents(side_);
  std::string checksum = contents(file_);
  auto column = [&](const std::string& mark) {
    size_t at = checksum.find(mark);
    return std::to_string(at - checksum.rfind('\n', at));
  };
  std::string damage =
      " in g.tdm.constants does not match its checksum\n  remedy: the side file is damaged or "
      "belongs to "
      "another graph; write both again with ir::write_file\n  file:   g.tdm";

  std::string flipped = good;
  flipped.back() ^= 1;
  set_contents(side_, flipped);
  EXPECT_EQ(read_error(), "parse: line 4, column " + column("@1") + ": constant @1" + damage);

  set_contents(side_, good.substr(0, good.size() - 1));
  EXPECT_EQ(read_error(), "parse: line 3, column " + column("@0") +
                              ": g.tdm.constants is cut off\n  file:   g.tdm");

  set_contents(side_, "something else entirely");
  EXPECT_EQ(read_error(), "parse: line 3, column " + column("@0") +
                              ": g.tdm.constants is not a file of constants\n  file:   g.tdm");

  std::string newer = good;
  newer[8] = 2;
  set_contents(side_, newer);
  EXPECT_EQ(read_error(), "parse: line 3, column " + column("@0") +
                              ": g.tdm.constants has version 2, expected 1\n  file:   g.tdm");

  fs::remove(side_);
  EXPECT_EQ(read_error(), "parse: line 3, column " + column("@0") +
                              ": cannot read the side file g.tdm.constants\n  file:   g.tdm");

  // A side file of another graph: fewer constants.
  Graph other("g");
  other.add_constant(at::arange(65, at::kFloat));
  fs::path elsewhere = folder_ / "other.tdm";
  write_file(elsewhere, {&other, 1});
  fs::rename(folder_ / "other.tdm.constants", side_);
  EXPECT_EQ(read_error(),
            "parse: line 4, column " + column("@1") +
                ": constant @1 is not in g.tdm.constants, which holds 1\n  file:   g.tdm");
}

// Every byte of the side file counts: a file cut anywhere is refused, never read beyond its end.
TEST_F(TextFile, NoticesEveryTruncation) {
  Graph graph = sample();
  write_file(file_, {&graph, 1});
  std::string good = contents(side_);
  for (size_t length = 0; length < good.size(); length += 7) {
    set_contents(side_, good.substr(0, length));
    EXPECT_THROW(read_file(file_), UserError) << length;
  }
}

TEST_F(TextFile, NamesFilesThatCannotBeReadOrWritten) {
  EXPECT_EQ(read_error(), "parse: cannot read g.tdm");
  fs::path missing = folder_ / "missing" / "g.tdm";
  EXPECT_EQ(test::error_text<UserError>([&] { write_file(missing, {}); }),
            "write: cannot write " + missing.string() +
                "\n  remedy: check that the folder exists, is writable and has space");
  set_contents(file_, "graph g(");
  EXPECT_EQ(read_error(),
            "parse: line 1, column 9: expected a value, got the end of the text\n  file:   g.tdm");
}

TEST_F(TextFile, LeavesNoPartsBehind) {
  Graph graph = sample();
  write_file(file_, {&graph, 1});
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) files += entry.is_regular_file();
  EXPECT_EQ(files, 2u);
}

}  // namespace
}  // namespace tandem::ir
