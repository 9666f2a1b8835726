#!/usr/bin/env python3
"""What a training step keeps for the backward: eager, Tandem's partitioners, and the peer's min-cut on the same graphs.

Usage: run_partition.py --program build/release/bin/partition_bytes [--peer .venv/bin/python] [--out FOLDER]
                        [--models pointwise mlp resnet gpt gpt_bf16]

`eager` is measured: bytes of tensors that live after the forward. `default` and `min_cut` are the memory that the saved values hold,
an argument kept by reference costs nothing. The last two columns count as the peer counts, the elements of every saved value that is
no parameter or buffer, arguments included. Fails if Tandem's min-cut keeps more than the peer's.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from contest import find_peer

MIB = 1 << 20


def lines_of(command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{result.stderr[-2000:]}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer", default=None)
    parser.add_argument("--out", default="build/partition", type=pathlib.Path)
    parser.add_argument("--models", nargs="*", default=[])
    options = parser.parse_args()
    rows = lines_of([options.program, options.out, *options.models])
    peer = find_peer(options.peer)
    script = pathlib.Path(__file__).parent / "peers" / "partition_peer.py"
    answers = {}
    if peer:
        answers = {a["file"]: a["activation_bytes"] for a in lines_of([peer, script, *[row["file"] for row in rows]])}
    print(f"{'MiB kept for the backward':<26}{'nodes':>7}{'eager':>9}{'default':>9}{'min_cut':>9}{'as the peer counts':>20}{'peer':>9}")
    worse = []
    for row in rows:
        row["peer"] = answers.get(row["file"])
        theirs = f"{row['peer'] / MIB:>9.2f}" if row["peer"] is not None else f"{'-':>9}"
        print(f"{row['model']:<26}{row['nodes']:>7}" + "".join(f"{row[key] / MIB:>9.2f}" for key in ("eager", "default", "min_cut"))
              + f"{row['min_cut_elements'] / MIB:>20.2f}" + theirs)
        if row["peer"] is not None and row["min_cut_elements"] > row["peer"]:
            worse.append(row["model"])
    (options.out / "partition.json").write_text(json.dumps(rows, indent=1) + "\n")
    if worse:
        sys.exit("more than the peer: " + ", ".join(worse))


if __name__ == "__main__":
    main()
