"""Nanoseconds of whole calls on tiny tensors, eager and torch.compile, one round for every line on stdin.

Answers each line with a line of JSON, as benchmarks/compiled_call_bench.cpp does for Tandem: same functions,
sizes and names.
"""

import json
import sys
import time

import torch

CALLS, ELEMENTS = 500, 16


class Case:
    def __init__(self, name, count, grad):
        self.name, self.grad = name, grad
        self.x, self.y = torch.randn(ELEMENTS), torch.randn(ELEMENTS)
        parameters = [torch.randn(ELEMENTS, requires_grad=True) for _ in range(count)]

        def function(x, y):
            result = x * y + x
            for parameter in parameters:
                result = result + x * parameter
            return result

        self.eager, self.compiled = function, torch.compile(function)

    def time(self, function):
        x, y = self.x, self.y
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            function(x, y)
        return (time.perf_counter_ns() - start) / CALLS

    def round(self):
        with torch.set_grad_enabled(self.grad):
            self.compiled(self.x, self.y)
            self.eager(self.x, self.y)
            return {"eager_ns": self.time(self.eager), "compiled_ns": self.time(self.compiled)}


def main():
    torch.set_num_threads(1)
    cases = [Case("4 parameters", 4, True), Case("4 parameters, no gradients", 4, False),
             Case("104 parameters", 104, True)]
    for _ in sys.stdin:
        print(json.dumps({case.name: case.round() for case in cases}), flush=True)


if __name__ == "__main__":
    main()
