#!/usr/bin/env python3
"""Times the capture of a transformer: Tandem against torch's aot_function, in turns.

Usage: run_capture.py --program build/release/bin/capture_bench [--peer .venv/bin/python]
                      [--blocks 1 12 96] [--rounds 15] [--most-rounds 96=5] [--sizes-vary] [--out FILE]
Both processes stay alive, so the first answer of each is its cold start and the others are warm.
With --sizes-vary Tandem captures another length each time, which is what a new length costs it, and the
peer captures with symbols for sizes.
"""

import argparse
import json
import pathlib
import statistics
import sys

from contest import Contestant, find_peer, peer_command, ratio, take_turns

LINES_LIMIT = 1.20  # capture with source lines over capture without


def summary(contestant):
    result = {"cold_capture_ms": contestant.answers[0]["capture_ms"]}
    for key in ("capture_ms", "split_ms"):
        result[key] = statistics.median(answer[key] for answer in contestant.warm)
    for key in ("nodes", "forward_nodes", "backward_nodes"):
        result[key] = contestant.answers[-1][key]
    return result


def measure(options, blocks, rounds):
    arguments = [blocks, *(["--sizes-vary"] if options.sizes_vary else [])]
    contestants = {"tandem": Contestant([options.program, *arguments])}
    if options.peer:
        contestants["peer"] = Contestant(peer_command(options.peer, "capture_peer.py", *arguments))
    take_turns(contestants.values(), rounds)
    name = f"{blocks} block{'' if blocks == 1 else 's'}{', another length' if options.sizes_vary else ''}"
    result = {"name": name, "blocks": blocks}
    result |= {name: summary(contestant) for name, contestant in contestants.items()}
    result["source_lines"] = cost_of_lines(contestants["tandem"])
    if options.peer:
        ours, theirs = (contestants[name].warm for name in ("tandem", "peer"))
        result["comparison"] = ratio([answer["capture_ms"] for answer in theirs],
                                     [answer["capture_ms"] for answer in ours])
        result["comparison"]["cold_ratio"] = result["peer"]["cold_capture_ms"] / result["tandem"]["cold_capture_ms"]
        result["comparison"]["split_ratio"] = result["peer"]["split_ms"] / result["tandem"]["split_ms"]
    return result


def cost_of_lines(contestant):
    """Time of a capture with source lines over that of one without, in the same process and round."""
    return ratio([answer["capture_ms"] for answer in contestant.warm],
                 [answer["without_lines_ms"] for answer in contestant.warm]) | {"limit": LINES_LIMIT}


def print_case(result):
    columns = [name for name in ("tandem", "peer") if name in result]
    print(f"{'capture of ' + result['name']:<36}" + "".join(f"{name:>12}" for name in columns))
    rows = [("joint graph, median ms", "capture_ms", ".2f"), ("joint graph, first ms", "cold_capture_ms", ".1f"),
            ("cut in two, median ms", "split_ms", ".2f"), ("nodes of the joint graph", "nodes", "d")]
    for title, key, form in rows:
        print(f"{title:<36}" + "".join(f"{result[name][key]:>12{form}}" for name in columns))
    lines = result["source_lines"]
    print(f"with source lines {lines['ratio']:.3f} times as long as without (95 %: {lines['ratio_low']:.3f} to "
          f"{lines['ratio_high']:.3f}; limit {lines['limit']:.2f})")
    if "comparison" in result:
        one = result["comparison"]
        print(f"tandem is {one['ratio']:.0f} times as fast (95 %: {one['ratio_low']:.0f} to {one['ratio_high']:.0f}, "
              f"{one['rounds']} rounds); first capture {one['cold_ratio']:.0f} times, cut {one['split_ratio']:.0f} times")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the built capture_bench")
    parser.add_argument("--peer", help="a python with torch; without it only Tandem is timed")
    parser.add_argument("--blocks", type=int, nargs="*", default=[1, 12, 96])
    parser.add_argument("--rounds", type=int, default=15, help="beside the cold start")
    parser.add_argument("--most-rounds", nargs="*", default=[], metavar="BLOCKS=ROUNDS",
                        help="fewer rounds for a large model: the peer takes long")
    parser.add_argument("--sizes-vary", action="store_true", help="another length each time; the peer has symbols")
    parser.add_argument("--out", help="file for the JSON result")
    options = parser.parse_args()
    options.peer = find_peer(options.peer)
    most = dict(tuple(map(int, text.split("="))) for text in options.most_rounds)

    cases = []
    for blocks in options.blocks:
        cases.append(measure(options, blocks, min(options.rounds, most.get(blocks, options.rounds))))
        print_case(cases[-1])
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"benchmark": "capture", "cases": cases}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
