#!/usr/bin/env python3
"""Runs every benchmark of a build, keeps the results as JSON and ends with one table. `make bench` calls it.

Usage: run_all.py --bin build/release/bin --out build/release/bench [--peer .venv/bin/python]
                  [--google NAME ...] [--quick | --smoke] [--only NAME ...]
--quick takes a third of the rounds and leaves out what takes long; its numbers are for orientation. --smoke
only shows that everything runs. Without a peer Tandem is timed alone.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def commands_of(options):
    """By name, in the order in which they run: what needs a quiet machine most comes first."""
    tools, out = options.bin, options.out

    def script(name, program, *arguments):
        return [sys.executable, HERE / f"run_{name}.py", "--program", tools / program, "--peer", options.peer,
                "--out", out / f"{name}.json", *arguments]

    rounds = ["--rounds", 1 if options.smoke else 5] if options.quick or options.smoke else []
    blocks = ["--blocks", 1] if options.smoke else ["--blocks", 1, 12] if options.quick else ["--most-rounds", "96=5"]
    models = ["--models", "mlp", "--rounds", 1] if options.quick or options.smoke else []
    commands = {
        "step": [tools / "step_bench", "--out", out / "step.json", *rounds, *(["--small"] if options.smoke else [])],
        "call": [tools / "call_bench", "--out", out / "call.json"],
        "check": [tools / "check_bench", "--out", out / "check.json", *rounds, *(["--small"] if options.smoke else [])],
        "compiled_call": script("compiled_call", "compiled_call_bench", *rounds),
        "overheads": [tools / "overhead_bench", "--out", out / "overheads.json"],
        "capture": script("capture", "capture_bench", *rounds, *blocks),
        "sizes": [tools / "sizes_bench", "--out", out / "sizes.json", *rounds, *(["--small"] if options.smoke else [])],
        "first_call": script("first_call", "first_call_bench", *models),
    }
    seconds = ["--benchmark_min_time=0.001"] if options.smoke else []
    for name in options.google:
        commands[name] = [tools / name, f"--benchmark_out={out / name}.json", *seconds]
    return {name: command for name, command in commands.items() if not options.only or name in options.only}


def rows(data):
    """Lines of the table: what was measured, the number, its 95 % interval, what it means."""
    def interval(numbers, key="ratio", digits=2):
        return f"{numbers[key + '_low']:.{digits}f} to {numbers[key + '_high']:.{digits}f}"

    if "benchmarks" in data:  # Google Benchmark
        for case in data["benchmarks"]:
            if case.get("run_type") != "aggregate":
                yield case["name"], f"{case['real_time']:.4g} {case['time_unit']}", "", ""
        return
    for case in data["cases"]:
        name = f"{data['benchmark'].replace('_', ' ')}: {case['name']}"
        if data["benchmark"] == "step":
            yield (name, f"{case['time_ratio']:.3f}", interval(case, "time_ratio", 3),
                   f"of eager's time; {case['memory_ratio']:.3f} of its peak memory")
        elif data["benchmark"] == "call":
            yield name, f"{case['ratio']:.4f}", interval(case) if "ratio_low" in case else "", "of an at::add"
        elif data["benchmark"] == "check":
            yield name, f"{case['ratio']:.4f}", interval(case, digits=4), "of the time without checks"
        elif data["benchmark"] == "overheads":
            meaning = "of eager's time" if "max_entries" in case["name"] else "of the time with Rounding::eager"
            yield name, f"{case['ratio']:.2f}", interval(case), meaning
        elif data["benchmark"] == "sizes":
            if "ratio" in case:
                yield name, f"{case['ratio']:.3f}", interval(case, digits=3), "of the time with kernels for one size"
            else:
                yield name, f"{case['each_ms']:.3f} ms", "", f"each; the first length takes {case['first_ms']:.0f} ms"
        elif data["benchmark"] == "compiled_call":
            yield name, f"{case['to_eager']['ratio']:.2f}", interval(case["to_eager"]), "of eager's time"
            if "to_rival" in case:
                yield name, f"{case['to_rival']['ratio']:.2f}", interval(case["to_rival"]), "of torch.compile's time"
        elif data["benchmark"] == "capture":
            yield name, f"{case['tandem']['capture_ms']:.4g} ms", "", ""
            if "comparison" in case:
                one = case["comparison"]
                yield (name, f"{one['ratio']:.0f}", interval(one, digits=0),
                       f"times as fast as aot_function ({one['rounds']} rounds)")
        else:
            yield name, f"{case['tandem_ms']:.0f} ms", "", f"median of {case['rounds']}"
            if "ratio" in case:
                yield name, f"{case['ratio']:.0f}", "", f"times as fast as torch.compile ({case['rival_ms'] / 1e3:.1f} s)"


def table(results):
    lines = [("measured", "result", "95 %", "")]
    for data in results.values():
        lines += rows(data)
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join(f"{name:<{widths[0]}}  {value:>{widths[1]}}  {interval:<{widths[2]}}  {meaning}".rstrip()
                     for name, value, interval, meaning in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--peer", default="")
    parser.add_argument("--google", nargs="*", default=[], help="programs made with Google Benchmark")
    parser.add_argument("--only", nargs="*", default=[], help="step, call, check, compiled_call, overheads, capture, ...")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    results, failed = {}, []
    for name, command in commands_of(options).items():
        print(f"\n=== {name}", flush=True)
        file = options.out / f"{name}.json"
        file.unlink(missing_ok=True)
        status = subprocess.run(list(map(str, command))).returncode
        if status != 0:
            failed.append(f"{name}: FAILED with status {status}")
        if file.exists():
            results[name] = json.loads(file.read_text())
    (options.out / "all.json").write_text(json.dumps(results, indent=1) + "\n")
    text = "\n".join([table(results), *failed])
    (options.out / "table.txt").write_text(text + "\n")
    print(f"\n=== all results (all.json and table.txt in {options.out})\n{text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
