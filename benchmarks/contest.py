"""Two programs that take turns, and the ratio of what they report. README.md has the method."""

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

PEERS = pathlib.Path(__file__).resolve().parent / "peers"


class Contestant:
    """A process that does its work once for every line that it is sent, and answers with a line of JSON."""

    def __init__(self, command):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.answers = []

    def answer(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: the next line says so
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{sys.argv[0]}: {self.process.args[0]} ended with status {self.process.wait()}")
        self.answers.append(json.loads(line))

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    @property
    def warm(self):
        """Without the first answer, which is the cold start."""
        return self.answers[1:] or self.answers


def take_turns(contestants, rounds):
    """One warm-up and `rounds` answers of each; who is first changes from round to round."""
    order = list(contestants)
    for _ in range(rounds + 1):
        for contestant in order:
            contestant.answer()
        order.reverse()
    for contestant in contestants:
        contestant.close()


def ratio(above, below, resamples=4000):
    """Ratio of the medians of two lists of equal rounds, and its 95 % interval, as Rounds::ratio in rounds.cpp."""
    rounds = list(zip(above, below))
    source = random.Random(1)
    ratios = []
    for _ in range(resamples):
        sample = source.choices(rounds, k=len(rounds))
        ratios.append(statistics.median(a for a, _ in sample) / statistics.median(b for _, b in sample))
    ratios.sort()
    return {"ratio": statistics.median(above) / statistics.median(below),
            "ratio_low": ratios[resamples // 40], "ratio_high": ratios[-1 - resamples // 40],
            "rounds": len(rounds)}


def peer_command(python, script, *arguments):
    """A script of peers/. torch's warning about a missing NumPy is none of our business."""
    return [python, "-W", "ignore:Failed to initialize NumPy", PEERS / script, *arguments]


def find_peer(python):
    """The interpreter if it can be used; says so otherwise."""
    if python and os.access(python, os.X_OK):
        return python
    print(f"no peer: {python or '--peer'} is no python with torch; Tandem is timed alone", file=sys.stderr)
    return None
