#!/usr/bin/env bash
# Layers, documentation, format, and clang-tidy on the sources changed since main (on main: since
# the last commit). Usage: lint.sh [--format] [--build-dir DIR]
#   --format     rewrite badly formatted files and do nothing else
#   --build-dir  a configured and built clang build folder for clang-tidy; default build/dev
set -uo pipefail
cd "$(dirname "$0")/.."

build_dir=build/dev
format_only=false
while (($#)); do
  case $1 in
    --format) format_only=true ;;
    --build-dir) build_dir=$2; shift ;;
    *) echo "lint: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done

cpp=('*.h' '*.cpp')
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- "${cpp[@]}" | sort -u)
existing=()
for file in "${files[@]}"; do [[ -e $file ]] && existing+=("$file"); done

if $format_only; then
  ((${#existing[@]})) && clang-format-19 -i "${existing[@]}"
  exit
fi

status=0
python3 scripts/check_layers.py || status=1
python3 scripts/check_docs.py || status=1

if ((${#existing[@]})); then
  unformatted=$(clang-format-19 --dry-run "${existing[@]}" 2>&1 | grep -o '^[^: ]*\.\(h\|cpp\):' | sort -u)
  if [[ -n $unformatted ]]; then
    echo "lint: run make format, it will change:"
    tr -d : <<<"$unformatted" | sed 's/^/  /'
    status=1
  fi
fi

# Changed against main, or the last commit when this is main; all files before the first commit.
base=$(git merge-base HEAD main 2>/dev/null || true)
if [[ -n $base && $base == "$(git rev-parse HEAD)" ]]; then base=$(git rev-parse -q --verify HEAD~1 || true); fi
if [[ -n $base ]]; then
  mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base" -- '*.cpp'
                           git ls-files --others --exclude-standard -- '*.cpp'; } | sort -u)
else
  changed=()
  for file in "${existing[@]}"; do [[ $file == *.cpp ]] && changed+=("$file"); done
fi
if ((${#changed[@]})); then
  if [[ ! -e $build_dir/compile_commands.json ]]; then
    echo "lint: no $build_dir/compile_commands.json: run make build first"
    exit 1
  fi
  # Only what the build knows: an example of another project has no compile command.
  known=()
  for file in "${changed[@]}"; do
    grep -qF "\"$PWD/$file\"" "$build_dir/compile_commands.json" && known+=("$file")
  done
  echo "lint: clang-tidy on ${#known[@]} changed sources"
  if ((${#known[@]})); then
    printf '%s\0' "${known[@]}" |
      xargs -0 -n 1 -P "$(nproc)" clang-tidy-19 --quiet -p "$build_dir" --warnings-as-errors='*' 2>/dev/null || status=1
  fi
fi
((status == 0)) && echo "lint: clean"
exit $status
