// SPDX-License-Identifier: Apache-2.0
#include "cli_slurm_script.h"

// What runs in front of a script's own first command. POSIX shell without `local`, safe under -e
// and -u: scripts switch these on in their first line.
namespace rn::cli {

namespace {

constexpr std::string_view kVariables =
    R"(export SLURM_JOB_ID="$RECLAIM_JOB_NUMBER" SLURM_JOBID="$RECLAIM_JOB_NUMBER"; )"
    R"([ "${RECLAIM_RESTART_COUNT:-0}" = 0 ] || )"
    R"(export SLURM_RESTART_COUNT="$RECLAIM_RESTART_COUNT"; )"
    R"([ "${RECLAIM_GPUS_NUM:-0}" = 0 ] || export SLURM_GPUS_ON_NODE="$RECLAIM_GPUS_NUM"; )";

// Nodes have them as programs (apps/reclaim-init/slurm.h), and first on PATH, which a login shell
// sets anew. Those of an older version have not.
constexpr std::string_view kIfPrograms =
    R"(if [ -x /reclaim-slurm/srun ]; then case ":$PATH:" in *:/reclaim-slurm:*) ;; )"
    R"(*) export PATH="/reclaim-slurm:$PATH" ;; esac; else )";

// Options of srun are for other machines and other queues: they are passed over, but for the number
// of tasks. Those that stand here take no value as the next word.
constexpr std::string_view kSrunOptions =
    R"(_rn_n="${SLURM_NTASKS:-1}"; while [ $# -gt 0 ]; do case "$1" in )"
    R"(--) shift; break ;; )"
    R"(-n|--ntasks) [ $# -lt 2 ] || { _rn_n="$2"; shift; }; shift ;; )"
    R"(--ntasks=*) _rn_n="${1#*=}"; shift ;; )"
    R"(-n*) _rn_n="${1#-n}"; shift ;; )"
    R"(--*=*|--exclusive|--exact|--label|--overcommit|--overlap|--oversubscribe|--pty) shift ;; )"
    R"(--quiet|--unbuffered|--verbose|--preserve-env|--spread-job|--no-kill|--whole) shift ;; )"
    R"(--kill-on-bad-exit|--contiguous|--immediate|--propagate|--use-min-nodes) shift ;; )"
    R"(-[EHIKOQXZklsuv]) shift ;; )"
    R"(--*|-?) [ $# -lt 2 ] || shift; shift ;; )"
    R"(-*) shift ;; )"
    R"(*) break ;; esac; done; )"
    R"([ $# -gt 0 ] || { echo "srun: no command" >&2; return 1; }; )"
    R"(case "$_rn_n" in ""|0|*[!0-9]*) echo "srun: '$_rn_n' is no number of tasks" >&2; )"
    R"(return 1 ;; esac; )";

// Many tasks run side by side, and srun answers the greatest of their codes. A signal that the
// script traps interrupts `wait`, which answers as if the task had ended by it: it is asked again,
// of one that has ended some times more, since each may be interrupted (127: it was told already).
constexpr std::string_view kSrunTasks =
    R"(if [ "$_rn_n" = 1 ]; then env SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_PROCID=0 )"
    R"(SLURM_LOCALID=0 "$@"; return; fi; )"
    R"(_rn_i=0; _rn_pids=; while [ "$_rn_i" -lt "$_rn_n" ]; do )"
    R"(env SLURM_NTASKS="$_rn_n" SLURM_NPROCS="$_rn_n" SLURM_PROCID="$_rn_i" )"
    R"(SLURM_LOCALID="$_rn_i" "$@" & _rn_pids="$_rn_pids $!"; _rn_i=$((_rn_i + 1)); done; )"
    R"(_rn_code=0; for _rn_pid in $_rn_pids; do wait "$_rn_pid" && _rn_r=0 || _rn_r=$?; _rn_t=0; )"
    R"(while [ "$_rn_r" -gt 128 ] && [ "$_rn_t" -lt 9 ]; do )"
    R"(kill -0 "$_rn_pid" 2>/dev/null || _rn_t=$((_rn_t + 1)); )"
    R"(wait "$_rn_pid" 2>/dev/null && _rn_s=0 || _rn_s=$?; )"
    R"([ "$_rn_s" != 127 ] || break; _rn_r="$_rn_s"; done; )"
    R"([ "$_rn_r" -le "$_rn_code" ] || _rn_code="$_rn_r"; done; return "$_rn_code"; )";

// 99: start me again (docs/guests.md).
constexpr std::string_view kScontrol =
    R"(scontrol() { case "${1:-} ${2:-}" in "requeue "*) exit 99 ;; )"
    R"("show hostname"|"show hostnames") echo localhost ;; )"
    R"(*) echo "scontrol ${1:-}: not available in this job" >&2; return 1 ;; esac; }; )";

constexpr std::string_view kModule =
    R"(command -v module >/dev/null 2>&1 || module() { )"
    R"(echo "module $*: nothing is loaded, the job has what its image has" >&2; })";

}  // namespace

std::string slurm_prelude() {
  std::string text(kVariables);
  text.append(kIfPrograms).append("srun() { ").append(kSrunOptions).append(kSrunTasks);
  return text.append("}; ").append(kScontrol).append("fi; ").append(kModule);
}

}  // namespace rn::cli
