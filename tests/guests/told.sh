#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training that saves when it is told to, by the file $RECLAIM_TELL_FILE, and goes on: docs/guests.md, "Told by a
# file". Needs busybox.
#
#   reclaim run --tell-file ctl/SAVE --checkpoint state.ckpt -- sh told.sh STEP_S
step_s=$1
mkdir -p "${RECLAIM_TELL_FILE%/*}"
step=0
[ ! -e state.ckpt ] || read -r step <state.ckpt
echo "begin step=$step"

while :; do
  sleep "$step_s"
  step=$((step + 1))
  [ -e "$RECLAIM_TELL_FILE" ] || continue
  read -r why <"$RECLAIM_TELL_FILE"
  echo "$step" >state.tmp
  echo "saves step=$step told=$why" # before it is there: at a notice the machine is left at once after that
  mv state.tmp state.ckpt
  rm -f "$RECLAIM_TELL_FILE"
done
