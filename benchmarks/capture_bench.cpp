// Captures a transformer once for every line on stdin, and answers with a line of JSON.
// run_capture.py asks it and peers/capture_peer.py in turns. Usage: capture_bench [BLOCKS]
#include "models.h"
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  torch::manual_seed(0);
  auto net = bench::plain_blocks(argc > 1 ? std::stoll(argv[1]) : 12);
  const at::Tensor x = bench::plain_input();
  auto loss = [net](const at::Tensor& x) mutable { return net->forward(x).pow(2).mean(); };

  std::string line;
  while (std::getline(std::cin, line)) {
    tandem::Joint joint;
    tandem::Split parts;
    const double capture =
        bench::seconds_of([&] { joint = tandem::export_joint(loss, std::tuple{x}); });
    const double split = bench::seconds_of([&] { parts = tandem::split(joint); });
    fmt::print(
        "{{\"capture_ms\": {:.4f}, \"split_ms\": {:.4f}, \"nodes\": {}, \"forward_nodes\": {}, "
        "\"backward_nodes\": {}}}\n",
        1e3 * capture, 1e3 * split, joint.graph.node_count(), parts.forward.node_count(),
        parts.backward.node_count());
    std::fflush(stdout);
  }
  return 0;
}
