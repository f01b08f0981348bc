#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training for tests that need no Python: a chain of hashes, saved every N steps, resumed from what it saved; it knows
# nothing of ReclaimNet. Needs busybox. Times are seconds since the machine's start.
#
#   sh chain.sh STEPS SAVE_EVERY STEP_S [rename|in-place] [handles-term]
#
# BALLAST_KIB=0 of noise in each save, LAST_BALLAST_KIB in the one at SIGTERM. Where a file `hurry` lies, STEP_S is 0.
# state.ckpt: "STEP HASH", noise, "end". steps.log and standard output: one line a start, a step, a save.
# At the end `result` holds the last hash.
steps=$1 save_every=$2 step_s=$3 way=${4:-rename} handler=${5:-}

tell() {
  read -r up _ </proc/uptime
  line="$* time=$up"
  echo "$line" >>steps.log
  echo "$line"
}

content() {
  echo "$step $hash"
  [ "${BALLAST_KIB:-0}" = 0 ] || head -c "$((BALLAST_KIB * 1024))" /dev/urandom
  echo
  echo end
}

save() {
  if [ "$way" = in-place ]; then
    content >state.ckpt
  else
    content >state.tmp
    mv state.tmp state.ckpt
  fi
  tell "saved step=$step"
}

step=0 hash=start
if [ -e state.ckpt ]; then
  [ "$(tail -n 1 state.ckpt)" = end ] || { echo "state.ckpt is torn"; exit 9; }
  read -r step hash <state.ckpt
  tell "begin step=$step from=checkpoint"
else
  tell "begin step=0 from=nothing"
fi
stop=
[ -z "$handler" ] || trap "stop=1" TERM  # looked at where step and hash belong together

while [ "$step" -lt "$steps" ]; do
  hash=$(echo "$hash $((step + 1))" | sha256sum)
  hash=${hash%% *}
  step=$((step + 1))
  tell "step=$step loss=$hash"
  [ $((step % save_every)) -ne 0 ] || save
  [ -z "$stop" ] || { BALLAST_KIB=${LAST_BALLAST_KIB:-${BALLAST_KIB:-0}}; save; tell "signalled step=$step"; exit 0; }
  [ -e hurry ] || sleep "$step_s"
done
echo "$hash" >result
