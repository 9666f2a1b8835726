#!/usr/bin/env python3
"""Training steps of five models: Tandem, eager libtorch and torch.compile, in turns. `make bench-peers` calls it.

Usage: run_peers.py --program build/release/bin/peer_bench --meter build/release/lib/libtandem_malloc_meter.so
                    --peer .venv/bin/python --out FILE [--models NAME ...] [--threads N ...]
                    [--parts cold step memory] [--rounds 15] [--cold-rounds 3]
Results are kept in FILE by model and number of threads: what is measured again replaces what was there, so the table
may be filled bit by bit. Without --parts all of a case is measured.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from contest import Contestant, find_peer, peer_command, ratio, take_turns

MODELS = ["pointwise", "mlp", "resnet", "gpt", "gpt_bf16"]
OURS = ["eager", "tandem_eager", "llvm", "llvm_fast"]
THEIRS = ["compile", "python_eager"]
NAMES = {"eager": "eager libtorch", "tandem_eager": "Tandem, eager", "llvm": "Tandem, llvm",
         "llvm_fast": "Tandem, llvm fast", "python_eager": "eager in Python", "compile": "torch.compile",
         "compile_warm": "torch.compile, warm cache"}


def command_of(options, mode, *arguments):
    if mode in OURS:
        return [options.program, *arguments]
    return peer_command(options.peer, "step_peer.py", *arguments)


def once(options, model, threads, mode, caches, preload=None):
    """What the first steps of a fresh process answer."""
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=caches, TRITON_CACHE_DIR=f"{caches}/triton")
    if preload:
        # Python's own pool of small objects would hide them from the meter.
        environment |= {"LD_PRELOAD": str(preload), "PYTHONMALLOC": "malloc"}
    command = command_of(options, mode, "--once", model, threads, mode)
    done = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"run_peers: {mode} of {model} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_cold(options, model, threads, modes):
    """Milliseconds of the first step beyond a later one, by mode, one number per round."""
    cold, losses = {mode: [] for mode in modes}, {}
    for index in range(options.cold_rounds):
        for mode in modes[::-1] if index % 2 else modes:
            with tempfile.TemporaryDirectory() as caches:
                answer = once(options, model, threads, mode, caches)
                cold[mode].append(answer["first_ms"] - answer["step_ms"])
                losses[mode] = answer["loss"]
                if mode == "compile":
                    answer = once(options, model, threads, mode, caches)
                    cold.setdefault("compile_warm", []).append(answer["first_ms"] - answer["step_ms"])
    return {"cold_ms": cold, "losses": losses}


def measure_step(options, model, threads, modes):
    contestants = []
    for side in (OURS, THEIRS):
        if mine := [mode for mode in modes if mode in side]:
            contestants.append(Contestant(command_of(options, mine[0], model, threads, *mine)))
    take_turns(contestants, options.rounds)
    return {"step_ms": {mode: [answer[mode] for answer in contestant.warm]
                        for contestant in contestants for mode in contestant.answers[0]}}


def peaks_of(answer):
    return {"first": answer["first_peak"], "later": answer["later_peak"], "kept": answer["kept"]}


def measure_memory(options, model, threads, modes):
    """Bytes above the level before the first step: over that step, which compiles, over later ones, and
    between steps, when gradients are gone: what the compiled function keeps."""
    peaks = {}
    for mode in modes:
        with tempfile.TemporaryDirectory() as caches:
            answer = once(options, model, threads, mode, caches, preload=options.meter)
            peaks[mode] = peaks_of(answer)
            if mode == "compile":
                answer = once(options, model, threads, mode, caches, preload=options.meter)
                peaks["compile_warm"] = peaks_of(answer)
    return {"peaks": peaks}


def check_losses(case):
    """Equal weights, data and draws give equal losses; other draws (dropout of the fast modes) only similar ones."""
    losses = case.get("losses", {})
    for mode, loss in losses.items():
        own_draws = case["model"] == "mlp" and mode in ("llvm_fast", "compile")
        bound = 0.05 if own_draws else 0.002 if case["model"] == "gpt_bf16" else 1e-5
        if abs(loss - losses["eager"]) > bound * abs(losses["eager"]):
            sys.exit(f"run_peers: {case['model']}: the loss of {mode} is {loss}, of eager {losses['eager']}")


def add_ratios(case):
    steps = case.get("step_ms", {})
    case["to_eager"] = {mode: ratio(times, steps["eager"]) for mode, times in steps.items()}
    if "compile" in steps:
        case["to_rival"] = {mode: ratio(times, steps["compile"]) for mode, times in steps.items()}
    cold = case.get("cold_ms", {})
    if "compile" in cold:
        case["cold_to_rival"] = {mode: ratio(times, cold["compile"]) for mode, times in cold.items()}


def lines_of(case):
    def against(mode, kind):
        one = case.get(kind, {}).get(mode)
        return "{ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f})".format(**one) if one else ""

    for mode, name in NAMES.items():
        times, cold = case.get("step_ms", {}).get(mode), case.get("cold_ms", {}).get(mode)
        peaks = case.get("peaks", {}).get(mode)
        if not (times or cold or peaks):
            continue
        share = case.get("cold_to_rival", {}).get(mode)
        yield [f"{case['model']}, {case['threads']}", name,
               f"{statistics.median(times):.2f}" if times else "", against(mode, "to_eager"), against(mode, "to_rival"),
               f"{statistics.median(cold):.0f}" if cold else "", f"1/{1 / share['ratio']:.0f}" if share else "",
               f"{peaks['first'] / 2**20:.0f}" if peaks else "", f"{peaks['later'] / 2**20:.0f}" if peaks else "", f"{peaks['kept'] / 2**20:.1f}" if peaks else ""]


def table(cases):
    rows = [["model, threads", "mode", "step, ms", "of eager's (95 %)", "of torch.compile's", "cold, ms", "of its",
             "first peak, MiB", "later", "kept"]]
    for case in cases:
        rows += lines_of(case)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(text.ljust(width) if column < 2 else text.rjust(width)
                                       for column, (text, width) in enumerate(zip(row, widths))) + " |"
                     for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the built peer_bench")
    parser.add_argument("--meter", help="the built malloc meter; without it memory is not measured")
    parser.add_argument("--peer", help="a python with torch; without it only Tandem and eager libtorch are timed")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--modes", nargs="*", default=[*OURS, "compile"],
                        help="python_eager, too, is known: what Python costs")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--parts", nargs="*", default=["cold", "step", "memory"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cold-rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="file for the JSON results")
    options = parser.parse_args()
    options.peer = find_peer(options.peer)
    modes = [mode for mode in options.modes if options.peer or mode in OURS]
    parts = {"cold": measure_cold, "step": measure_step, "memory": measure_memory}

    cases = json.loads(options.out.read_text())["cases"] if options.out.exists() else []
    for model in options.models:
        for threads in options.threads:
            found = [case for case in cases if case["model"] == model and case["threads"] == threads]
            case = found[0] if found else {"model": model, "threads": threads}
            if not found:
                cases.append(case)
            for part in options.parts:
                if part == "memory" and not options.meter:
                    continue
                case.update(parts[part](options, model, threads, modes))
            check_losses(case)
            add_ratios(case)
            cases.sort(key=lambda case: (MODELS.index(case["model"]) if case["model"] in MODELS else 9, case["threads"]))
            options.out.write_text(json.dumps({"benchmark": "peers", "cases": cases}, indent=1) + "\n")
            print(table([case]), flush=True)
    # The table so far, for whoever reads the file and not the JSON.
    text = table(cases)
    options.out.with_suffix(".txt").write_text(text + "\n")
    print(f"\n=== all cases ({options.out})\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
