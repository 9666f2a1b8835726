// Captures a transformer for every line on stdin, with source lines and without, and answers with a
// line of JSON. run_capture.py asks it and peers/capture_peer.py in turns.
// Usage: capture_bench [BLOCKS] [--sizes-vary]     with the flag each capture has another length
#include "models.h"
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

int main(int argc, char** argv) {
  torch::manual_seed(0);
  auto net = bench::plain_blocks(argc > 1 ? std::stoll(argv[1]) : 12);
  const bool sizes_vary = argc > 2 && std::string_view(argv[2]) == "--sizes-vary";
  at::Tensor x = bench::plain_input();
  auto loss = [net](const at::Tensor& x) mutable { return net->forward(x).pow(2).mean(); };

  // The peer writes no op as others, so the backend must not ask for that.
  const tandem::Options options{.backend = "eager"};
  tandem::Joint joint;
  const auto capture_with_lines = [&](const char* setting) {
    setenv("TANDEM_SOURCE_LINES", setting, 1);
    joint = {};  // what the last round made goes outside of the clock
    return bench::seconds_of([&] { joint = tandem::export_joint(loss, std::tuple{x}, options); });
  };

  std::string line;
  for (int64_t round = 0; std::getline(std::cin, line); ++round) {
    if (sizes_vary) x = torch::randn({2, 128 + round, 768});
    // The cold start counts with lines; later the two take turns in who comes first.
    const bool lines_first = round % 2 == 0;
    double capture = lines_first ? capture_with_lines("on") : 0;
    const double without_lines = capture_with_lines("off");
    if (!lines_first) capture = capture_with_lines("on");
    tandem::Split parts;
    const double split = bench::seconds_of([&] { parts = tandem::split(joint, options); });
    fmt::print(
        "{{\"capture_ms\": {:.4f}, \"without_lines_ms\": {:.4f}, \"split_ms\": {:.4f}, \"nodes\": "
        "{}, \"forward_nodes\": {}, "
        "\"backward_nodes\": {}}}\n",
        1e3 * capture, 1e3 * without_lines, 1e3 * split, joint.graph.node_count(),
        parts.forward.node_count(), parts.backward.node_count());
    std::fflush(stdout);
  }
  return 0;
}
