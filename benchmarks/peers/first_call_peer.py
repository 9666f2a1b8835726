"""The first training step of a fresh process through torch.compile: one line of JSON.

Usage: first_call_peer.py MODEL, with TORCHINDUCTOR_CACHE_DIR an empty folder. The models are those of
benchmarks/models.cpp, which first_call_bench times for Tandem.
"""

import json
import sys
import time

import models
import torch


def main():
    net, x, y = models.make(sys.argv[1])
    step = torch.compile(lambda x, y: models.loss_of(net(x), y))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        step(x, y).backward()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"first_ms": times[0], "second_ms": times[1]}))


if __name__ == "__main__":
    main()
