#!/usr/bin/env python3
"""Times the first training step of a fresh process, compile and all: Tandem against torch.compile, in turns.

Usage: run_first_call.py --program build/release/bin/first_call_bench [--peer .venv/bin/python]
                         [--models mlp conv_net gpt] [--rounds 3] [--out FILE]
Each round of the rival starts with empty caches and takes some 20 seconds; hence few rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from contest import find_peer, peer_command


def once(command, caches):
    """What a fresh process answers. Only the rival looks at the variables."""
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=caches, TRITON_CACHE_DIR=f"{caches}/triton")
    done = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"run_first_call: {command[0]} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the built first_call_bench")
    parser.add_argument("--peer", help="a python with torch; without it only Tandem is timed")
    parser.add_argument("--models", nargs="*", default=["mlp", "conv_net", "gpt"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="file for the JSON result")
    options = parser.parse_args()
    options.peer = find_peer(options.peer)

    cases = []
    print(f"{'first step of a process':<26}{'tandem':>12}{'torch.compile':>16}{'ratio':>8}")
    for model in options.models:
        ours, theirs = [], []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as caches:
                ours.append(once([options.program, model], caches))
                if options.peer:
                    theirs.append(once(peer_command(options.peer, "first_call_peer.py", model), caches))
        case = {"name": model, "rounds": options.rounds,
                "tandem_ms": statistics.median(answer["first_ms"] for answer in ours),
                "tandem_second_ms": statistics.median(answer["second_ms"] for answer in ours)}
        text = f"{model:<26}{case['tandem_ms']:>9.0f} ms"
        if theirs:
            case["rival_ms"] = statistics.median(answer["first_ms"] for answer in theirs)
            case["rival_second_ms"] = statistics.median(answer["second_ms"] for answer in theirs)
            case["ratio"] = case["rival_ms"] / case["tandem_ms"]
            text += f"{case['rival_ms']:>13.0f} ms{case['ratio']:>8.0f}"
        print(text, flush=True)
        cases.append(case)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"benchmark": "first_call", "cases": cases}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
