#!/usr/bin/env bash
# Every preset, and the oldest supported torch. Logs in build/test-all/, a table at the end.
# Usage: test_all.sh [NAME...]    names: dev release asan tsan ci-gcc ci-clang torch-2.11
set -uo pipefail
cd "$(dirname "$0")/.."

names=("$@")
((${#names[@]})) || names=(dev release asan tsan ci-gcc ci-clang torch-2.11)
old_torch=2.11.0
logs=build/test-all
mkdir -p "$logs"

run_preset() {
  cmake --preset "$1" -DTORCH_DIR="${TORCH_DIR:-}" && cmake --build --preset "$1" && ctest --preset "$1"
}

# The dev preset against another torch, in its own build folder.
run_old_torch() {
  local venv=build/venv-$old_torch build=build/torch-2.11 torch
  TORCH_DIR="" scripts/setup.sh "$venv" "$old_torch" || { echo "CANNOT GET torch $old_torch"; return 1; }
  torch=$(compgen -G "$PWD/$venv/lib/python3*/site-packages/torch") &&
    cmake --preset dev -B "$build" -DTORCH_DIR="$torch" && cmake --build "$build" &&
    ctest --test-dir "$build" --output-on-failure -j 2
}

table=""
failed=0
for name in "${names[@]}"; do
  echo "test-all: $name ..."
  start=$SECONDS
  result=passed
  if [[ $name == torch-2.11 ]]; then run_old_torch; else run_preset "$name"; fi >"$logs/$name.log" 2>&1 || result=FAILED
  tests=$(grep -Eo '[0-9]+ tests failed out of [0-9]+' "$logs/$name.log" | tail -1)
  if grep -q '^CANNOT GET' "$logs/$name.log"; then
    tests="torch $old_torch could not be installed from the configured package index"
  elif [[ $result == FAILED ]]; then
    tail -30 "$logs/$name.log"
  fi
  [[ $result == passed ]] || failed=1
  seconds=$((SECONDS - start))
  table+=$(printf '%-12s %-8s %5d:%02d  %s' "$name" "$result" $((seconds / 60)) $((seconds % 60)) \
    "${tests:-did not get to the tests}")$'\n'
done

printf '\n%-12s %-8s %8s  %s\n%s' configuration result minutes tests "$table"
exit $failed
