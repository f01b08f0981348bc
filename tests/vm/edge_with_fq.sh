#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The transfers' edge on a kernel that has fq, Debian 12's own, in a machine of tests/vm/debian12.sh: copies paced by fq
# at the sender's device and by TCP itself, senders that ignore their grant or heap up packets in fq, a cut, and what
# `reclaim-warden doctor` says of such a kernel. Builds what it brings; root. Five minutes with virtualization, ten to
# twenty without, most of it the machine's making and boot.
#
#   tests/vm/edge_with_fq.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly programs=(src/traffic/traffic_test tests/system/transfer_edge apps/reclaim-warden)

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
build/ci/src/traffic/traffic_test --gtest_filter='KernelProbe.*:Edge.*'
build/ci/tests/system/transfer_edge --gtest_filter='TransferEdge.*' | tee /root/played
# A test that is left out where there is no fq must not have been left out here.
for name in a_sender_that_fq_paces_at_its_grant_loses_nothing a_sender_that_ignores_its_grant_gets_no_more_behind_fq \
  nothing_is_heaped_up_in_fq_to_leave_all_at_once one_write_cuts_one_transfer_and_no_other_behind_fq; do
  grep -q "\[       OK \] TransferEdge.$name" /root/played
done
