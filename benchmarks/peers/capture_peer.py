"""Captures the 12-block transformer with torch's aot_function, once for every line on stdin.

Answers each line with a line of JSON, as benchmarks/capture_bench.cpp does for Tandem. The clock stops when
the joint graph is handed to the partitioner (capture), and when the forward is handed to its compiler (split).
"""

import json
import sys
import time

import torch
from functorch.compile import aot_function, default_partition, nop
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = lambda part: part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        query, key, value = map(split, self.qkv(self.norm1(x)).split(width, 2))
        weights = torch.softmax(torch.matmul(query, key.transpose(-2, -1)) * 0.125, -1)
        x = x + self.out(torch.matmul(weights, value).transpose(1, 2).reshape(batch, length, width))
        hidden = nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.down(hidden)


def computing_nodes(module):
    return sum(node.op == "call_function" for node in module.graph.nodes)


def capture(model, parameters, x):
    """Compiles afresh; the result of the call is thrown away."""
    seen = {}

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).pow(2).mean()

    def partition(joint, *args, **kwargs):
        seen["joint"], seen["nodes"] = time.perf_counter(), computing_nodes(joint)
        return default_partition(joint, *args, **kwargs)

    def forward_compiler(module, example_inputs):
        seen["forward"], seen["forward_nodes"] = time.perf_counter(), computing_nodes(module)
        return nop(module, example_inputs)

    def backward_compiler(module, example_inputs):
        seen["backward_nodes"] = computing_nodes(module)
        return nop(module, example_inputs)

    start = time.perf_counter()
    aot_function(
        loss, fw_compiler=forward_compiler, bw_compiler=backward_compiler, partition_fn=partition
    )(parameters, x).backward()
    return {
        "capture_ms": 1e3 * (seen["joint"] - start),
        "split_ms": 1e3 * (seen["forward"] - seen["joint"]),
        **{key: seen[key] for key in ("nodes", "forward_nodes", "backward_nodes")},
    }


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(768, 12) for _ in range(12)))
    parameters = dict(model.named_parameters())
    x = torch.randn(2, 128, 768)
    for _ in sys.stdin:
        print(json.dumps(capture(model, parameters, x)), flush=True)


if __name__ == "__main__":
    main()
