"""Captures a transformer with torch's aot_function, once for every line on stdin.

Usage: capture_peer.py [BLOCKS] [--sizes-vary]     with the flag sizes are symbols
Answers each line with a line of JSON, as benchmarks/capture_bench.cpp does for Tandem. The clock stops when
the joint graph is handed to the partitioner (capture); the cut in two is timed by itself (split). Then the capture is given up: nothing is compiled or run.
"""

import gc
import json
import sys
import time

import torch
from functorch.compile import aot_function, default_partition
from torch import nn

from models import Block


class PlainBlock(Block):
    """Attention as two products and a softmax: more nodes to capture."""

    def attend(self, query, key, value):
        weights = torch.softmax(torch.matmul(query, key.transpose(-2, -1)) * 0.125, -1)
        return torch.matmul(weights, value)


class Captured(Exception):
    """Both graphs exist."""


def computing_nodes(module):
    return sum(node.op == "call_function" for node in module.graph.nodes)


def capture(model, parameters, x, sizes_vary):
    """Captures afresh; torch forgets it as soon as the exception passes."""
    seen = {}

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).pow(2).mean()

    def partition(joint, *args, **kwargs):
        seen["joint"], seen["nodes"] = time.perf_counter(), computing_nodes(joint)
        start = time.perf_counter()
        forward, backward = default_partition(joint, *args, **kwargs)
        seen["split"] = time.perf_counter() - start
        seen["forward_nodes"], seen["backward_nodes"] = computing_nodes(forward), computing_nodes(backward)
        return forward, backward

    def give_up(module, example_inputs):
        raise Captured

    gc.collect()  # what the last capture left behind is not charged to this one
    start = time.perf_counter()
    try:
        aot_function(loss, fw_compiler=give_up, bw_compiler=give_up, partition_fn=partition,
                     dynamic=sizes_vary)(parameters, x)
    except Captured:
        pass
    return {
        "capture_ms": 1e3 * (seen["joint"] - start),
        "split_ms": 1e3 * seen["split"],
        **{key: seen[key] for key in ("nodes", "forward_nodes", "backward_nodes")},
    }


def main():
    torch.manual_seed(0)
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    model = nn.Sequential(*(PlainBlock(768, 12) for _ in range(blocks)))
    parameters = dict(model.named_parameters())
    x = torch.randn(2, 128, 768)
    for _ in sys.stdin:
        print(json.dumps(capture(model, parameters, x, "--sizes-vary" in sys.argv)), flush=True)


if __name__ == "__main__":
    main()
