#!/usr/bin/env python3
"""Times the capture of the 12-block transformer: Tandem against torch's aot_function, in turns.

Usage: run_capture.py --program build/release/bin/capture_bench [--peer .venv/bin/python] [--rounds 16]
                      [--out FILE]
Both processes stay alive, so the first round of each is its cold start and the others are warm.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
GOAL, WANTED = 60, 300  # times as fast as the peer
LINES_LIMIT = 1.20  # capture with source lines over capture without


class Contestant:
    """A process that captures once for every line that it is sent."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers = []

    def capture(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: the next line says so
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"run_capture: {self.process.args[0]} ended with status {self.process.wait()}")
        self.answers.append(json.loads(line))

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def summary(self):
        warm = self.answers[1:] or self.answers
        result = {"cold_capture_ms": self.answers[0]["capture_ms"]}
        for key in ("capture_ms", "split_ms"):
            result[key] = statistics.median(answer[key] for answer in warm)
        for key in ("nodes", "forward_nodes", "backward_nodes"):
            result[key] = self.answers[-1][key]
        return result


def interval(rounds, resamples=4000):
    """95 % interval of the ratio of medians, by resampling whole rounds as Rounds::ratio in rounds.cpp does."""
    source = random.Random(1)
    ratios = []
    for _ in range(resamples):
        sample = source.choices(rounds, k=len(rounds))
        ratios.append(statistics.median(theirs for _, theirs in sample) / statistics.median(mine for mine, _ in sample))
    ratios.sort()
    return ratios[resamples // 40], ratios[-1 - resamples // 40]


def compare(ours, peer):
    pairs = list(zip(ours.answers, peer.answers))
    warm = pairs[1:] or pairs
    a, b = ours.summary(), peer.summary()
    low, high = interval([(mine["capture_ms"], theirs["capture_ms"]) for mine, theirs in warm])
    return {
        "ratio": b["capture_ms"] / a["capture_ms"],
        "ratio_low": low,
        "ratio_high": high,
        "cold_ratio": b["cold_capture_ms"] / a["cold_capture_ms"],
        "split_ratio": b["split_ms"] / a["split_ms"],
    }


def cost_of_lines(ours):
    """Time of a capture with source lines over that of one without, in the same process and round."""
    warm = ours.answers[1:] or ours.answers
    pairs = [(answer["without_lines_ms"], answer["capture_ms"]) for answer in warm]
    low, high = interval(pairs)
    ratio = statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs)
    return {"ratio": ratio, "ratio_low": low, "ratio_high": high, "limit": LINES_LIMIT}


def print_table(result):
    columns = [name for name in ("tandem", "peer") if name in result]
    print(f"{'capture of 12 blocks':<24}" + "".join(f"{name:>12}" for name in columns))
    rows = [("joint graph, median ms", "capture_ms", ".2f"), ("joint graph, first ms", "cold_capture_ms", ".1f"),
            ("cut in two, median ms", "split_ms", ".2f"), ("nodes of the joint graph", "nodes", "d")]
    for title, key, form in rows:
        print(f"{title:<24}" + "".join(f"{result[name][key]:>12{form}}" for name in columns))
    lines = result["source_lines"]
    print(f"with source lines {lines['ratio']:.3f} times as long as without (95 %: {lines['ratio_low']:.3f} to "
          f"{lines['ratio_high']:.3f}; limit {lines['limit']:.2f})")
    if "comparison" in result:
        ratio = result["comparison"]
        print(f"tandem is {ratio['ratio']:.0f} times as fast (95 %: {ratio['ratio_low']:.0f} to "
              f"{ratio['ratio_high']:.0f}; goal {GOAL}, wanted {WANTED}); first capture "
              f"{ratio['cold_ratio']:.0f} times, cut {ratio['split_ratio']:.0f} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the built capture_bench")
    parser.add_argument("--peer", help="a python with torch; without it only Tandem is timed")
    parser.add_argument("--rounds", type=int, default=16, help="the first one is the cold start")
    parser.add_argument("--out", help="file for the JSON result")
    options = parser.parse_args()

    contestants = {"tandem": Contestant([options.program])}
    if options.peer and os.access(options.peer, os.X_OK):
        contestants["peer"] = Contestant([options.peer, str(HERE / "peers" / "capture_peer.py")])
    else:
        print(f"run_capture: no peer: {options.peer or '--peer'} is no python with torch", file=sys.stderr)
    order = list(contestants.values())
    for _ in range(options.rounds):
        for contestant in order:
            contestant.capture()
        order.reverse()
    for contestant in order:
        contestant.close()

    result = {"benchmark": "capture", "rounds": options.rounds}
    result |= {name: contestant.summary() for name, contestant in contestants.items()}
    result["source_lines"] = cost_of_lines(contestants["tandem"])
    if len(contestants) == 2:
        result["comparison"] = compare(contestants["tandem"], contestants["peer"])
    print_table(result)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
