#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training that knows nothing of saving, and the hook that saves for it: docs/guests.md, "Told by a hook". Needs
# busybox.
#
#   reclaim run --tell-hook 'sh told_hook.sh save' --checkpoint state.ckpt -- sh told_hook.sh train STEP_S
if [ "$1" = save ]; then
  read -r step </tmp/step
  echo "$step" >state.tmp
  # Before it is there: at a notice the machine is left at once after that.
  echo "saves step=$step reason=$RECLAIM_REASON deadline=$RECLAIM_DEADLINE_UNIX grace=$RECLAIM_GRACE_S"
  mv state.tmp state.ckpt
  exit
fi
step=0
[ ! -e state.ckpt ] || read -r step <state.ckpt
echo "begin step=$step"

while :; do
  step=$((step + 1))
  echo "$step" >/tmp/step.new && mv /tmp/step.new /tmp/step
  sleep "$2"
done
