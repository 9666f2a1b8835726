#!/usr/bin/env python3
"""Times a whole call on tiny tensors: Tandem and eager in C++, torch.compile and eager in Python, in turns.

Usage: run_compiled_call.py --program build/release/bin/compiled_call_bench [--peer .venv/bin/python]
                            [--rounds 15] [--out FILE]
"""

import argparse
import json
import pathlib
import statistics
import sys

from contest import Contestant, find_peer, peer_command, ratio, take_turns


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the built compiled_call_bench")
    parser.add_argument("--peer", help="a python with torch; without it only Tandem is timed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", help="file for the JSON result")
    options = parser.parse_args()
    options.peer = find_peer(options.peer)

    contestants = [Contestant([options.program])]
    if options.peer:
        contestants.append(Contestant(peer_command(options.peer, "compiled_call_peer.py")))
    take_turns(contestants, options.rounds)

    def times(contestant, name, kind):
        return [answer[name][kind] for answer in contestant.warm]

    cases = []
    print(f"{'whole call, ns':<30}{'tandem':>9}{'eager C++':>11}{'t.compile':>11}{'eager Py':>10}  ratios of medians (95 %)")
    for name in contestants[0].answers[0]:
        tandem, eager = (times(contestants[0], name, kind) for kind in ("compiled_ns", "eager_ns"))
        case = {"name": name, "tandem_ns": statistics.median(tandem), "eager_ns": statistics.median(eager),
                "to_eager": ratio(tandem, eager)}
        text = f"{name:<30}{case['tandem_ns']:>9.0f}{case['eager_ns']:>11.0f}"
        notes = "tandem is {ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f}) of eager".format(**case["to_eager"])
        if options.peer:
            rival, rival_eager = (times(contestants[1], name, kind) for kind in ("compiled_ns", "eager_ns"))
            case |= {"rival_ns": statistics.median(rival), "rival_eager_ns": statistics.median(rival_eager),
                     "to_rival": ratio(tandem, rival)}
            text += f"{case['rival_ns']:>11.0f}{case['rival_eager_ns']:>10.0f}"
            notes += ", {ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f}) of torch.compile".format(**case["to_rival"])
        print(f"{text:<71}  {notes}")
        cases.append(case)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"benchmark": "compiled_call", "cases": cases}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
