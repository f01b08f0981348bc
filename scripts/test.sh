#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test. Root, Debian 12, two cores: under 30 minutes from nothing.
#
#   scripts/test.sh                 every test on the development build (sections unit … system)
#   scripts/test.sh SECTION…        only these: unit structure headers tidy fuzz sim scenario system planted asan tsan
#                                   fuzzing guests. asan, tsan and fuzzing have builds of their own and have not yet
#                                   passed as a whole, guests takes minutes: not in the default run, see README.md
#
# Every section prints its wall time. The last line is `N passed, N failed, N skipped`, counted over the sections that
# ctest runs; the exit status is 0 only if nothing failed anywhere. A section whose tests do not exist fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

jobs=$(nproc)
# NOTE(kernel ≥ 6.1): the sanitizers of g++ 12 and clang 14 want fewer random address bits than kernels give now.
still=(setarch "$(uname -m)" -R)
all_sections=(unit structure headers tidy fuzz sim scenario system planted asan tsan fuzzing guests)
results=$(mktemp -d)
default_sections=(unit structure headers tidy fuzz sim scenario planted system)
failed_sections=() absent=() times=()
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

say() { printf '\n=== %s ===\n' "$*"; }

configure() { # PRESET
  [[ ! -f build/$1/build.ninja ]] || return 0
  cmake --preset "$1" >"$results/configure-$1.log" 2>&1 || { cat "$results/configure-$1.log"; return 1; }
}

# Output of ninja only if it fails: a build has thousands of lines.
build() { # PRESET [TARGET…]
  local preset=$1
  shift
  configure "$preset" || return 1
  ninja -C "build/$preset" -j "$jobs" "$@" >"$results/build-$preset.log" 2>&1 && return 0
  tail -60 "$results/build-$preset.log"
  return 1
}

# The programs that the tests selected by the arguments need, as ninja targets. NOTE: ctest's own listing leaves out
# the command of a test whose program is not built yet, so the commands come from its files.
programs_of() { # PRESET CTEST_ARGUMENT…
  local preset=$1 name
  shift
  ctest --test-dir "build/$preset" "$@" --show-only=json-v1 2>/dev/null | jq -r '.tests[].name' |
    while read -r name; do
      grep -rhF --include=CTestTestfile.cmake -e "add_test([=[$name]=] \"$PWD/build/$preset/" "build/$preset" |
        sed "s|^[^\"]*\"$PWD/build/$preset/\([^\"]*\)\".*|\1|"
    done | sort -u
}

count_of() { # PRESET CTEST_ARGUMENT…
  local preset=$1
  shift
  ctest --test-dir "build/$preset" "$@" --show-only=json-v1 2>/dev/null | jq '.tests | length'
}

# Runs the selected tests; results are counted at the end.
tests() { # SECTION PRESET CTEST_ARGUMENT…
  local section=$1 preset=$2
  shift 2
  if [[ $(count_of "$preset" "$@") == 0 ]]; then
    absent+=("$section (no test selected by: $*)")
    return 1
  fi
  "${still[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    --output-junit "$results/$section.xml" "$@"
}

# Sanitized builds make only the programs that their tests need.
sanitized() { # SECTION PRESET CTEST_ARGUMENT…
  local section=$1 preset=$2 programs
  shift 2
  configure "$preset" || return 1
  mapfile -t programs < <(programs_of "$preset" "$@")
  if ((${#programs[@]} == 0)); then
    absent+=("$section (no test selected by: $*)")
    return 1
  fi
  build "$preset" "${programs[@]}" && tests "$section" "$preset" "$@"
}

section_unit() { tests unit dev -L '^unit$' -j "$jobs"; }
section_structure() { tests structure dev -L '^structure$' -j "$jobs"; }
section_tidy() { tests tidy dev -L '^tidy$' -j "$jobs"; }
section_fuzz() { tests fuzz dev -L '^fuzz$' -j "$jobs"; }
section_sim() { tests sim dev -L '^sim$' -j "$jobs"; }
section_scenario() { tests scenario dev -L '^scenario$' -j "$jobs"; }

section_system() {
  local image
  image=$(scripts/build-image.sh) && scripts/build-tiny-image.sh >/dev/null || return 1
  echo "base image: $image"
  tests system dev -L '^system$' -j 1
}

section_headers() {
  if ! ninja -C build/dev -t targets all 2>/dev/null | grep -q '^all_headers:'; then
    absent+=("headers (no target all_headers)")
    return 1
  fi
  build dev all_headers && echo "every header compiles alone"
}

section_planted() { tests planted dev -L '^planted$' -j "$jobs"; }
section_asan() { sanitized asan asan -L '^(unit|sim)$' -j "$jobs"; }
# The code with real threads: sockets and workers, chunking and transfers.
section_tsan() { sanitized tsan tsan -R '^(io|checkpoint)\.unit$' -j "$jobs"; }

# One fuzz target on a copy of its corpus; a finding is printed and fails.
fuzz_one() { # TARGET SECONDS
  local corpus=$results/corpus/$1 program
  mkdir -p "$corpus" "$results/findings"
  cp -r "tests/fuzz/corpus/${1#fuzz_}/." "$corpus/" 2>/dev/null || true
  program=$(find build/fuzz -type f -name "$1" -perm -u+x)
  if "${still[@]}" "$program" -max_total_time="$2" -seed=1 -rss_limit_mb=4096 \
    -artifact_prefix="$results/findings/" "$corpus" >"$results/$1.log" 2>&1; then
    echo "$1: $(sed -n "s/^Done \([0-9]*\) runs.*/\1 runs/p" "$results/$1.log")"
    return 0
  fi
  echo "$1: FAILED"
  tail -40 "$results/$1.log"
  return 1
}

section_fuzzing() {
  local targets target status=0
  configure fuzz || return 1
  mapfile -t targets < <(ninja -C build/fuzz -t targets all | sed -n 's/^\(fuzz_[a-z_0-9]*\): phony$/\1/p' | sort -u)
  if ((${#targets[@]} == 0)); then
    absent+=("fuzzing (no target fuzz_*)")
    return 1
  fi
  build fuzz "${targets[@]}" || return 1
  for target in "${targets[@]}"; do fuzz_one "$target" "${RN_FUZZ_SECONDS:-5}" || status=1; done
  return "$status"
}

section_guests() { tests/guests/check_determinism.sh --steps 80 --kills 2 --seed 1; }

run_section() {
  local name=$1 started=$SECONDS verdict=ok
  say "$name"
  "section_$name" || verdict=FAILED
  times+=("$(printf '%-10s %4d s  %s' "$name" $((SECONDS - started)) "$verdict")")
  [[ $verdict == ok ]] || failed_sections+=("$name")
}

summary() {
  say "summary"
  printf '%s\n' "${times[@]}"
  printf 'total %d s\n' "$SECONDS"
  ((${#absent[@]} == 0)) || printf 'not there yet: %s\n' "${absent[@]}"
  ((${#failed_sections[@]} == 0)) || echo "failed: ${failed_sections[*]}"
  /usr/bin/python3 - "$results" <<'PYTHON'
import pathlib, sys, xml.etree.ElementTree as tree
passed = failed = skipped = 0
for path in pathlib.Path(sys.argv[1]).glob("*.xml"):
    for case in tree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled"):
            skipped += 1
            print("skipped:", case.get("name"))
        else:
            failed += 1
            print("failed:", case.get("name"))
print(f"{passed} passed, {failed} failed, {skipped} skipped")
PYTHON
}

main() {
  local sections=("$@") name
  ((${#sections[@]} > 0)) || sections=("${default_sections[@]}")
  for name in "${sections[@]}"; do
    [[ " ${all_sections[*]} " != *" $name "* ]] || continue
    echo "test: no section $name; there are: ${all_sections[*]}" >&2
    exit 2
  done
  say "dependencies"
  scripts/install-deps.sh || exit 1
  say "build"
  local started=$SECONDS
  build dev || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
  times+=("$(printf '%-10s %4d s  ok' build $((SECONDS - started)))")
  for name in "${sections[@]}"; do run_section "$name"; done
  summary
  ((${#failed_sections[@]} == 0))
}

main "$@"
