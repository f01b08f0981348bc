#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The transfers' edge on a kernel that has fq, Debian 12's own, in a machine of tests/vm/debian12.sh: copies paced by fq
# at the sender's device and by TCP itself, and what `reclaim-warden doctor` says of such a kernel. Builds what it
# brings; root. Ten to twenty minutes without virtualization, most of it the machine's making and boot.
#
#   tests/vm/edge_with_fq.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly programs=(src/traffic/traffic_test tests/system/transfer_edge apps/reclaim-warden/reclaim-warden)

if [[ ! -e /usr/local/sbin/machine-job ]]; then
  [[ -f build/ci/build.ninja ]] || cmake --preset ci >/dev/null
  ninja -C build/ci traffic_test transfer_edge reclaim-warden >/dev/null
  bring=()
  for program in "${programs[@]}"; do bring+=(--bring "build/ci/$program"); done
  exec tests/vm/debian12.sh --packages 'libbpf1 libcurl4 libspdlog1.10 libyaml-cpp0.7 libzstd1' "${bring[@]}" \
    tests/vm/edge_with_fq.sh
fi

uname -sr
build/ci/apps/reclaim-warden/reclaim-warden doctor | tee /root/said
grep -q '^ok *fq ' /root/said
build/ci/src/traffic/traffic_test --gtest_filter='KernelProbe.*'
build/ci/tests/system/transfer_edge --gtest_filter='TransferEdge.*' | tee /root/played
# A test that is left out where there is no fq must not have been left out here.
grep -q '\[       OK \] TransferEdge.a_sender_that_fq_paces_at_its_grant_loses_nothing' /root/played
