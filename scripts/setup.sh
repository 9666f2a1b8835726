#!/usr/bin/env bash
# Installs what building and testing needs on Debian 12 or Ubuntu 24.04: system packages, and torch in
# .venv (or none, if TORCH_DIR names one). Does nothing, quickly, when all is there.
#
# Usage: setup.sh [VENV [TORCH_VERSION]]    default: .venv 2.13.0
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
torch_version=${2:-2.13.0}
packages=(
  binutils ca-certificates ccache clang-19 clang-format-19 clang-tidy-19 cmake g++ git libbenchmark-dev
  libboost-dev libclang-rt-19-dev libcli11-dev libdw-dev libfmt-dev libgtest-dev libxxhash-dev libzstd-dev
  lld-19 llvm-19 llvm-19-dev make ninja-build python3 zlib1g-dev
)

has_package() { grep -qx "$1 installed" <<<"$installed"; }
# pip writes this file last, so an interrupted installation does not count.
has_torch() { compgen -G "$venv/lib/python3*/site-packages/torch-$torch_version[.+-]*/RECORD" >/dev/null; }

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this script knows Debian and Ubuntu only; install by hand: ${packages[*]}" >&2
  exit 1
fi

if [[ -z ${TORCH_DIR:-} ]] && ! has_torch; then
  # A Python from elsewhere brings its own venv.
  python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
fi
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  has_package "$package" || missing+=("$package")
done

if ((${#missing[@]})); then
  install="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if ((EUID == 0)); then
    as_root=(env)
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    as_root=(sudo)
  else
    echo "setup: no root here; ask an administrator to run:" >&2
    echo "  sudo sh -c '$install'" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" sh -c "export DEBIAN_FRONTEND=noninteractive; $install" </dev/null
fi

if [[ -n ${TORCH_DIR:-} ]]; then
  if [[ ! -e $TORCH_DIR/include/ATen/ATen.h ]]; then
    echo "setup: TORCH_DIR=$TORCH_DIR is not a torch package or libtorch folder (no include/ATen/ATen.h)" >&2
    exit 1
  fi
elif ! has_torch; then
  echo "setup: installing torch $torch_version into $venv"
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "torch==$torch_version" </dev/null
fi
