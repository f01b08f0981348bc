#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training that saves when it is sent SIGUSR1, and goes on: docs/guests.md, "Told to save". Needs busybox.
#
#   reclaim run --signal USR1 --tell --checkpoint state.ckpt -- sh told_signal.sh STEP_S
step=0
[ ! -e state.ckpt ] || read -r step <state.ckpt

save() {
  echo "$step" >state.tmp
  echo "saves step=$step on USR1" # before it is there: at a notice the machine is left at once after that
  mv state.tmp state.ckpt
}
trap save USR1
echo "begin step=$step"

while :; do
  sleep "$1"
  step=$((step + 1))
done
