#!/usr/bin/env python3
"""Times fused kernels of real models: Tandem's, Inductor's for the same function, and a copy, in turns.

Usage: run_kernels.py --program build/release/bin/kernel_bench [--peer .venv/bin/python] [--threads 1]
                      [--rounds 15] [--out FILE]
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from contest import Contestant, find_peer, peer_command, ratio, take_turns


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the built kernel_bench")
    parser.add_argument("--peer", help="a python with torch; without it only Tandem is timed")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", help="file for the JSON result")
    options = parser.parse_args()
    options.peer = find_peer(options.peer)

    # Both sides keep the memory that results had: kernels are compared, not how malloc gives pages back.
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"
    contestants = [Contestant([options.program, options.threads])]
    if options.peer:
        contestants.append(Contestant(peer_command(options.peer, "kernel_peer.py", options.threads)))
    take_turns(contestants, options.rounds)

    def times(contestant, name, kind):
        return [answer[name][kind] for answer in contestant.warm]

    cases = []
    print(f"{'kernel, us':<30}{'tandem':>9}{'eager':>9}{'copy':>9}{'Inductor':>10}  "
          "of copy bandwidth; tandem / Inductor (95 %)")
    for name, first in contestants[0].answers[0].items():
        tandem, eager, copy = (times(contestants[0], name, kind) for kind in ("compiled_us", "eager_us", "copy_us"))
        case = {"name": name, "tandem_us": statistics.median(tandem), "eager_us": statistics.median(eager),
                "copy_us": statistics.median(copy), "of_copy_bandwidth": ratio(copy, tandem),
                "to_eager": ratio(tandem, eager), "bytes": first["bytes"], "memory_bound": first["memory_bound"]}
        text = f"{name:<30}{case['tandem_us']:>9.1f}{case['eager_us']:>9.1f}{case['copy_us']:>9.1f}"
        notes = f"{100 * case['of_copy_bandwidth']['ratio']:>4.0f} %{' *' if first['memory_bound'] else '  '}"
        if options.peer:
            rival = times(contestants[1], name, "compiled_us")
            case |= {"rival_us": statistics.median(rival), "to_rival": ratio(tandem, rival)}
            text += f"{case['rival_us']:>10.1f}"
            notes += "; {ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f})".format(**case["to_rival"])
        print(f"{text:<67}  {notes}")
        cases.append(case)
    bound = [case for case in cases if case["memory_bound"]]
    near = sum(case["of_copy_bandwidth"]["ratio"] >= 0.75 for case in bound)
    print(f"{near} of {len(bound)} kernels that memory bounds (*) at 75 % of copy bandwidth or more")
    if options.peer:
        fast = sum(case["to_rival"]["ratio"] <= 1 for case in cases)
        print(f"{fast} of {len(cases)} kernels at least as fast as Inductor's")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"benchmark": "kernels", "cases": cases}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
