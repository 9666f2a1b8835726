#!/usr/bin/env bash
# Fails if a shared library exports anything but namespace tandem, its type information, and tandem_*.
# Usage: check_exports.sh libtandem.so
set -euo pipefail

symbols=$(nm -D --defined-only "$1" | awk '{print $NF}')
[[ -n $symbols ]] || { echo "exports: $1 exports nothing"; exit 1; }
# The mangled names: a demangled template starts with its result type, which says nothing.
foreign=$(grep -Ev '^(tandem_|_ZN(K?[RO]?)6tandem|_ZT[ISVT]N6tandem|_ZT[hv][n0-9_]+_NK?6tandem)' <<<"$symbols" || true)
if [[ -n $foreign ]]; then
  echo "exports: not ours, see cmake/tandem.map:"
  c++filt <<<"$foreign" | sort -u
  exit 1
fi
echo "exports: $(wc -l <<<"$symbols") symbols, all ours"
