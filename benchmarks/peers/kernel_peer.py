"""Microseconds of fused kernels of real models by Inductor, one round for every line on stdin.

Answers each line with a line of JSON, as benchmarks/kernel_bench.cpp does for Tandem: same functions, shapes
and names. The functions are handed to Inductor itself: without Dynamo, whose guards would cost some
microseconds a call that are not the kernels'.
"""

import json
import os
import shutil
import sys
import time

try:
    import torch
    from torch._inductor import compile as inductor
    from torch.fx.experimental.proxy_tensor import make_fx
except ImportError as error:
    sys.exit(f"kernel_peer.py: {sys.executable} has no torch with Inductor: {error}\n"
             "  remedy: pip install torch, or run run_kernels.py without --peer")

aten = torch.ops.aten
EPS = 1e-5


def pointwise(x, w, b):
    y = torch.tanh(x * w + b)
    return torch.sigmoid(y) * x + torch.exp(-y.abs())


def adam(p, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - m * 0.001 / (v.sqrt() + 1e-8), m, v


def relu_backward(g, x):
    g = aten.threshold_backward(g, x, 0)
    return g, g.sum(0)


def layer_norm_weights(g, x, mean, rstd):
    scaled = (x - mean) * rstd
    return (g * scaled).sum(0), g.sum(0)


def cases():
    n = torch.randn
    return {
        "pointwise forward": (pointwise, n(512, 4096), n(4096), n(4096)),
        "pointwise row sums": (lambda x: (x * x.cos()).sum(1, keepdim=True) + x.mean(-1, keepdim=True), n(512, 4096)),
        "gelu tanh forward": (lambda x: aten.gelu(x, approximate="tanh"), n(512, 1024)),
        "gelu tanh backward": (lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), n(512, 1024), n(512, 1024)),
        "gelu erf forward": (lambda x: aten.gelu(x), n(2048, 512)),
        "gelu erf backward": (lambda g, x: aten.gelu_backward(g, x), n(2048, 512), n(2048, 512)),
        "silu and product": (lambda x, y: torch.nn.functional.silu(x) * y, n(2048, 1024), n(2048, 1024)),
        "layer norm forward": (lambda x, w, b: aten.native_layer_norm(x, [768], w, b, EPS), n(8192, 768), n(768), n(768)),
        "layer norm backward, input": (
            lambda g, x, m, r, w, b: aten.native_layer_norm_backward(g, x, [768], m, r, w, b, [True, False, False])[0],
            n(8192, 768), n(8192, 768), n(8192, 1), n(8192, 1), n(768), n(768)),
        "layer norm backward, weights": (layer_norm_weights, n(8192, 768), n(8192, 768), n(8192, 1), n(8192, 1)),
        "softmax forward": (lambda x: torch.softmax(x, -1), n(4096, 512)),
        "softmax backward": (lambda g, y: aten._softmax_backward_data(g, y, -1, torch.float32), n(12288, 512),
                             torch.softmax(n(12288, 512), -1)),
        "log softmax forward": (lambda x: torch.log_softmax(x, -1), n(512, 2048)),
        "masked softmax": (lambda x, m: torch.softmax((x * 0.125).masked_fill(m.logical_not(), -1e9), -1),
                           n(64, 128, 128), torch.ones(128, 128, dtype=torch.bool).tril()),
        "bias and residual": (lambda x, b, r: torch.relu(x + b) + r, n(8192, 768), n(768), n(8192, 768)),
        "bias gradient": (lambda g: g.sum(0), n(8192, 3072)),
        "relu backward and sum": (relu_backward, n(4096, 1536), n(4096, 1536)),
        "mean square error": (lambda x, y: ((x - y) * (x - y)).mean(), n(8192, 1024), n(8192, 1024)),
        "adam": (adam, n(2359296), n(2359296), n(2359296), n(2359296).abs()),
        "bf16 gelu forward": (lambda x: aten.gelu(x, approximate="tanh"), n(2048, 1024).bfloat16()),
    }


def main():
    if not shutil.which(os.environ.get("CXX", "g++")):
        sys.exit("kernel_peer.py: Inductor compiles with g++ (or $CXX), which is not on the path\n"
                 "  remedy: install g++, or run run_kernels.py without --peer")
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    torch.manual_seed(0)
    with torch.no_grad():
        table = {}
        for name, (function, *inputs) in cases().items():
            table[name] = (inductor(make_fx(function)(*inputs), inputs), inputs)
        for _ in sys.stdin:
            answer = {}
            for name, (function, inputs) in table.items():
                function(*inputs)
                best = 1e9
                for _ in range(7):
                    start = time.perf_counter()
                    function(*inputs)
                    best = min(best, time.perf_counter() - start)
                answer[name] = {"compiled_us": 1e6 * best}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
