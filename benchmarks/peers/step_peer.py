"""Training steps of one model in Python, through torch.compile and eagerly: the rival of peer_bench.cpp.

Usage: step_peer.py MODEL THREADS [MODE ...]       one round for every line on stdin
       step_peer.py --once MODEL THREADS MODE      the first step of a process, and a few more
Modes: python_eager, compile. What is timed and answered is as in peer_bench.cpp.
"""

import ctypes
import json
import statistics
import sys
import time

import models
import torch


class Contest:
    def __init__(self, mode, made):
        self.mode = mode
        self.net, self.input, self.target = made
        self.function = torch.compile(self.step_loss) if mode == "compile" else self.step_loss

    def step_loss(self, x):
        return models.loss_of(self.net(x), self.target)

    def step(self):
        start = time.perf_counter()
        self.net.zero_grad(set_to_none=True)
        loss = self.function(self.input)
        loss.backward()
        self.loss = loss.item()
        return 1e3 * (time.perf_counter() - start)

    def round(self):
        times = []
        while len(times) < 3 or sum(times) < 100:
            times.append(self.step())
        return statistics.median(times)


def metered(name):
    """malloc_meter.cpp's functions, if it was preloaded."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        return 0
    function.restype = ctypes.c_int64
    return function()


def once(contest):
    before = metered("malloc_meter_restart")
    torch.manual_seed(1)
    first, loss = contest.step(), contest.loss
    first_peak = metered("malloc_meter_peak") - before
    contest.step()
    metered("malloc_meter_restart")
    step = statistics.median(contest.step() for _ in range(7))
    later_peak = metered("malloc_meter_peak") - before
    contest.net.zero_grad(set_to_none=True)
    kept = metered("malloc_meter_restart") - before
    print(json.dumps({"first_ms": first, "step_ms": step, "loss": loss, "first_peak": first_peak,
                      "later_peak": later_peak, "kept": kept}))


def main():
    words = sys.argv[1:]
    is_once = words[0] == "--once"
    if is_once:
        words.pop(0)
    name, threads, *modes = words
    torch.set_num_threads(int(threads))
    made = models.make(name)
    contests = [Contest(mode, made) for mode in modes or ["python_eager", "compile"]]
    if is_once:
        once(contests[0])
        return
    for _ in sys.stdin:
        answer = {contest.mode: contest.round() for contest in contests}
        contests.reverse()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
