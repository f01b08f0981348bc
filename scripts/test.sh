#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs the tests. Root, Debian 12, two cores; the goal is 30 minutes from nothing.
#
#   scripts/test.sh             every test; units under AddressSanitizer and UBSan (section asan), and the data plane
#                               under ThreadSanitizer (tsan) too
#   scripts/test.sh SECTION…    only these: unit structure headers tidy fuzz sim scenario planted system asan fuzzing
#                               tsan web guests lint chaos. The default run plays sim, scenario, planted and web beside
#                               system (section together), and leaves out unit and fuzz, which asan and fuzzing do with
#                               sanitizers, and headers (each compiled alone), guests, lint (clang-tidy) and chaos
#                               (scripts/chaos-sim.sh for RN_CHAOS_SECONDS, 180), which take minutes
#   RN_TREE=dev scripts/test.sh SECTION…   on the tree of the edit loop, file by file; ci compiles a dozen as one
#
# Only the programs that the chosen tests need are built. Every section prints its wall time with its build's. The last
# line is `N passed, N failed, N skipped`, counted over the sections that ctest runs, skipped also inside a program; the
# exit status is 0 only if nothing failed anywhere. A section whose tests do not exist fails. RN_FUZZ_SECONDS: for each
# fuzzer (2). Ctrl-C waits until the tests have taken down what they made, two minutes at most; once more, it does not.
set -uo pipefail
umask 022 # the daemons' own users read what the tests write, whatever the caller's mask
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Debian's programs, whatever a user's own profile puts before them.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

jobs=$(nproc)
# NOTE(kernel ≥ 6.1): the sanitizers of clang 14 want fewer random address bits than kernels give now.
still=(setarch "$(uname -m)" -R)
all_sections=(unit structure headers tidy fuzz sim scenario planted system web together asan tsan fuzzing guests lint
  chaos)
default_sections=(structure tidy asan fuzzing tsan together)
plain=${RN_TREE:-ci} # the tree without sanitizers
results=$(mktemp -d)
# For the unit tests: databases sync a thousand times there, which a busy disk makes minutes of; memory does not.
quick_temporary=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
chmod 711 "$quick_temporary" # some tests drop root's rights
failed_sections=() absent=() times=()
trap 'rm -rf "$results" "$quick_temporary"' EXIT
trap 'exit 130' INT TERM

say() { printf '\n=== %s ===\n' "$*"; }

configure() { # PRESET
  # A tree of an older state says first what it consists of now.
  if [[ -f build/$1/build.ninja ]] && ninja -C "build/$1" build.ninja >"$results/configure-$1.log" 2>&1; then
    return 0
  fi
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
      grep -rhF --include=CTestTestfile.cmake -e "add_test([=[$name]=]" "build/$preset" |
        grep -o "\"$PWD/build/$preset/[^\"]*\"" | sed "s|^\"$PWD/build/$preset/||; s|\"$||"
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
  "${still[@]}" scripts/lib/until_clean.py ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    --test-output-size-passed 16384 --test-output-truncation head --output-junit "$results/$section.xml" "$@"
}

# Builds what the selected tests need, and runs them.
built_tests() { # SECTION PRESET CTEST_ARGUMENT…
  local section=$1 preset=$2 programs
  shift 2
  configure "$preset" || return 1
  mapfile -t programs < <(programs_of "$preset" "$@")
  if ((${#programs[@]} > 0)); then build "$preset" "${programs[@]}" || return 1; fi
  tests "$section" "$preset" "$@"
}

section_unit() { TMPDIR=$quick_temporary built_tests unit "$plain" -L '^unit$' -j "$jobs"; }
section_structure() { built_tests structure "$plain" -L '^structure$' -j "$jobs"; }
section_tidy() { built_tests tidy "$plain" -L '^tidy$' -j "$jobs"; }
section_fuzz() { built_tests fuzz "$plain" -L '^fuzz$' -j "$jobs"; }
section_sim() { built_tests sim "$plain" -L '^sim$' -j "$jobs"; }
section_scenario() { built_tests scenario "$plain" -L '^scenario$' -j "$jobs"; }
section_planted() { built_tests planted "$plain" -L '^planted$' -j "$jobs"; }
# One more than there are processors: the coordinator's tests wait half of their time.
# Where a block was allocated is found by playing the failing test alone, without these options.
section_asan() {
  ASAN_OPTIONS=malloc_context_size=0:quarantine_size_mb=32 TMPDIR=$quick_temporary \
    built_tests asan asan -L '^(unit|sim|scenario)$' -j $((jobs + 1))
}
section_fuzzing() { built_tests fuzzing asan -L '^fuzzing$' -j "$jobs"; }
# The code with real threads: sockets and workers, chunking and transfers. The longest tests of one thread alone, which
# section asan plays, are left out.
section_tsan() {
  GTEST_FILTER='-ChunkStoreCrash.*:Manifest.*:FetchTest.whatever_fails_*' \
    built_tests tsan tsan -R '^(io|checkpoint)\.unit$' -j "$jobs"
}

# What real daemons need. The figures' programs are only built: none is a test, and none may rot.
daemons_and_images() {
  local image
  configure "$plain" && build "$plain" reclaim reclaim-{agent,coordinator,init,kill,warden} bench/all || return 1
  image=$(scripts/build-image.sh) && scripts/build-tiny-image.sh >/dev/null &&
    scripts/build-python-image.sh >/dev/null && scripts/build-notebook-image.sh --small >/dev/null || return 1
  echo "base image: $image"
}

# The system tests wait more than they work: for guests, deadlines, certificates.
section_system() { daemons_and_images && built_tests system "$plain" -L '^system$' -j $((3 * jobs)); }

# The dashboard in Chromium. A build without it would have no test, which fails.
section_web() { daemons_and_images && built_tests web "$plain" -L '^web$'; }

# What only computes fills that time: two at a time, with low precedence (tests/scenarios/CMakeLists.txt).
section_together() {
  daemons_and_images &&
    built_tests together "$plain" -L '^(sim|scenario|planted|system|web)$' -LE '^by_asan$' -j $((3 * jobs))
}

section_headers() {
  configure "$plain" || return 1
  # NOTE: not `grep -q`: it would leave at the match, and the pipe's writer would fail.
  if ! ninja -C "build/$plain" -t targets all 2>/dev/null | grep '^all_headers:' >/dev/null; then
    absent+=("headers (no target all_headers)")
    return 1
  fi
  build "$plain" all_headers && echo "every header compiles alone"
}

section_guests() { tests/guests/check_determinism.sh --steps 80 --kills 2 --seed 1; }

section_chaos() { scripts/chaos-sim.sh "${RN_CHAOS_SECONDS:-180}"; }

# clang-tidy over the libraries' files, a dozen as one, and over every program.
section_lint() {
  local files wanted='/whole_reclaim(net_[a-z]+|_cli)_[0-9a-z]+[.]cc$|/apps/[a-z-]+/[a-z_]+[.]cc$'
  configure "$plain" || return 1
  mapfile -t files < <(jq -r --arg wanted "$wanted" '.[].file | select(test($wanted))' \
    "build/$plain/compile_commands.json" | sort -u)
  ((${#files[@]} > 20)) || { absent+=("lint (only ${#files[@]} files to look at)"); return 1; }
  printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 1 clang-tidy -p "build/$plain" --quiet \
    --extra-arg=-Wno-unknown-warning-option 2>/dev/null && echo "clang-tidy finds nothing in ${#files[@]} files"
}

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
import pathlib, re, sys, xml.etree.ElementTree as tree
passed = failed = skipped = runs = 0
hours = 0.0
# A program that passed may have left out some of what it holds: gtest and unittest say so.
INSIDE = re.compile(r"^\[  SKIPPED \] (\d+) test|\bskipped=(\d+)", re.MULTILINE)
SIMULATED = re.compile(r"(\d+) seeds from \d+, 0 violations, ([\d.]+) simulated cluster-hours")
for path in pathlib.Path(sys.argv[1]).glob("*.xml"):
    for case in tree.parse(path).getroot().iter("testcase"):
        status, name = case.get("status"), case.get("name")
        if status in ("notrun", "disabled"):
            skipped += 1
            print("skipped:", name)
            continue
        inside = sum(int(a or b) for a, b in INSIDE.findall(case.findtext("system-out") or ""))
        for seeds, simulated in SIMULATED.findall(case.findtext("system-out") or ""):
            runs, hours = runs + int(seeds), hours + float(simulated)
        if inside:
            skipped += inside
            print(f"skipped: {inside} inside {name}")
        if status == "run":
            passed += 1
        else:
            failed += 1
            print("failed:", name)
if runs:
    print(f"fault simulation: {hours:.1f} simulated cluster-hours in {runs} seeded runs; more by section chaos")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
PYTHON
}

main() {
  case ${1:-} in -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
  local sections=("$@") name
  ((${#sections[@]} > 0)) || sections=("${default_sections[@]}")
  for name in "${sections[@]}"; do
    [[ " ${all_sections[*]} " != *" $name "* ]] || continue
    echo "test: no section $name; there are: ${all_sections[*]}" >&2
    exit 2
  done
  [[ $(id -u) == 0 || ! " ${sections[*]} " =~ " "(system|web|together)" " ]] || {
    echo "test: the sections system, web and together make namespaces, disks and containers: run them as root," \
      "or name other sections; see --help" >&2
    exit 2
  }
  say "dependencies"
  scripts/install-deps.sh || exit 1
  for name in "${sections[@]}"; do run_section "$name"; done
  summary
  ((${#failed_sections[@]} == 0))
}

main "$@"
