# Each target does all of its set-up; see scripts/setup.sh. TORCH_DIR=<folder> uses a torch that is
# already there instead of the one in .venv.

TORCH_DIR ?=
ifneq ($(TORCH_DIR),)
  override TORCH_DIR := $(abspath $(TORCH_DIR))
endif
export TORCH_DIR
JOBS ?= $(shell nproc)
# Passed even if empty, so that leaving TORCH_DIR away goes back to .venv.
CONFIGURE = cmake -DTORCH_DIR=$(TORCH_DIR) --preset

.PHONY: help setup configure build test install fuzz fuzz-planted demo bench bench-partition bench-peers bench-quick bench-kernels format lint docs test-all clean

help:
	@echo "make demo       build the release library and run the demonstration; results in demo-out/"
	@echo "make test       build for development and run all tests"
	@echo "make install PREFIX=  build the release library and the tool, and install them, headers and documentation in that folder"
	@echo "make fuzz N=    N random programs against eager (100000), other ones for each commit; resumes, sums in fuzz.ledger, failures in fuzz-failures/; BACKEND=llvm: another backend, fuzz-llvm.ledger; SEED_FROM=: these seeds"
	@echo "make fuzz-planted  plant each bug of tests/fuzz/planted into a copy of the tree; the fuzzer must find it within 10,000 programs; some ten minutes; SEED_FROM=: these seeds, BUGS=: only these bugs"
	@echo "make bench      run the benchmarks, some ten minutes; JSON and a table in build/release/bench/"
	@echo "make bench-quick  some of them in two minutes, for orientation; in build/release/bench-quick/"
	@echo "make bench-partition  bytes kept for the backward: eager, Tandem, and torch's own min-cut on the same graphs"
	@echo "make bench-peers  training steps of five models: Tandem, eager libtorch, torch.compile; in build/release/bench-peers.json"
	@echo "make bench-kernels  20 kernels beside Inductor's and a copy, 1 and 2 threads; in build/release/bench-kernels-*.json"
	@echo "make format     format all sources"
	@echo "make lint       layers, documentation, format, clang-tidy on changed files"
	@echo "make docs       compare the documentation with the code"
	@echo "make test-all   all presets and the oldest supported torch, with a table; takes long"
	@echo "make clean      remove build/ and demo-out/"

setup:
	@scripts/setup.sh

configure: setup
	@$(CONFIGURE) dev >/dev/null

build: configure
	@cmake --build --preset dev

test: build
	@python3 scripts/check_layers.py
	@ctest --preset dev -j $(JOBS)

# The library and the tool alone: no tests, no benchmarks.
PREFIX ?=
install:
	@test -n "$(PREFIX)" || { echo "make install: say where: make install PREFIX=<folder>" >&2; exit 1; }
	@$(MAKE) --no-print-directory setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t tandem tandem_cli
	@cmake --install build/release --prefix "$(abspath $(PREFIX))" >/dev/null
	@echo "installed in $(abspath $(PREFIX)): cmake -DCMAKE_PREFIX_PATH=$(abspath $(PREFIX)) finds the package, bin/tandem is the tool"

# Programs that are done, and the sums over all runs, are in the ledger: remove it to begin again.
N ?= 100000
# Programs that nobody has seen: each commit has a million seeds of its own.
SEED_FROM ?= $(shell printf '%d000000' "0x$$(git rev-parse HEAD 2>/dev/null | cut -c1-8 | grep . || echo 0)")
BACKEND ?= eager
LEDGER ?= fuzz$(if $(filter-out eager,$(BACKEND)),-$(BACKEND)).ledger
fuzz: configure
	@cmake --build --preset dev -t tandem_fuzz
	@build/dev/bin/tandem_fuzz --backend $(BACKEND) --seed-from $(SEED_FROM) --count $(N) --jobs $(JOBS) --ledger $(LEDGER) --coverage

BUGS ?=
fuzz-planted: setup
	@python3 scripts/planted_bugs.py --seed-from $(SEED_FROM) --jobs $(JOBS) $(BUGS)

demo: setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t tandem_demo
	@build/release/bin/tandem_demo

bench: setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t bench

bench-partition: setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t partition_bytes
	@python3 benchmarks/run_partition.py --program build/release/bin/partition_bytes --peer .venv/bin/python --out build/release/partition

bench-peers: setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t peer_bench tandem_malloc_meter
	@python3 benchmarks/run_peers.py --program build/release/bin/peer_bench --peer .venv/bin/python \
	  --meter build/release/lib/libtandem_malloc_meter.so --out build/release/bench-peers.json

bench-quick: setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t bench-quick

bench-kernels: setup
	@$(CONFIGURE) release >/dev/null
	@cmake --build --preset release -t kernel_bench
	@for threads in 1 2; do echo "$$threads thread(s)"; python3 benchmarks/run_kernels.py --program build/release/bin/kernel_bench \
	  --peer .venv/bin/python --threads $$threads --out build/release/bench-kernels-$$threads.json; done

format: setup
	@scripts/lint.sh --format

lint: configure
	@cmake --build --preset dev
	@scripts/lint.sh --build-dir build/dev

docs: setup
	@python3 scripts/check_docs.py

test-all: setup
	@scripts/test_all.sh

clean:
	rm -rf build demo-out
