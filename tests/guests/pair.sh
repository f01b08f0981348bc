# SPDX-License-Identifier: Apache-2.0
# pair.sh FIRST SECOND: computes for four seconds, saves its step into FIRST, a second later into SECOND, and so on;
# goes on with what it finds, and says whether the two belong together.
# pair.sh slow FILE: writes 20 lines into FILE, one each half second, then computes for five seconds.
#
# A file *.safetensors is whole when its header is as long as it says: eight bytes of length, then JSON.
put() { # FILE STEP
  mkdir -p "$(dirname "$1")"
  case $1 in
    *.safetensors) printf '\037\0\0\0\0\0\0\0{"__metadata__":{"s":"%06d"}}' "$2" >"$1" ;;
    *) printf '%06d\n' "$2" >"$1" ;;
  esac
}
step_of() { tr -d '\000' 2>/dev/null <"$1" | grep -o '[0-9]\{6\}' | tail -n 1; }

if [ "$1" = slow ]; then
  save=
  [ ! -e "$2" ] || save=$(step_of "$2")
  [ -z "$save" ] || echo "resumed $(grep -c . "$2") lines of $save"
  save=$(echo "${save:-0}" | sed 's/^0*//')
  while true; do
    save=$((${save:-0} + 1))
    : >"$2"
    i=0
    while [ $i -lt 20 ]; do
      printf '%06d\n' "$save" >>"$2"
      sleep 0.5
      i=$((i + 1))
    done
    echo "saved $save"
    sleep 5
  done
fi

step=
[ ! -e "$1" ] || step=$(step_of "$1" | sed 's/^0*//')
[ -z "$step" ] || echo "resumed $(step_of "$1") $(step_of "$2")"
while true; do
  sleep 4
  step=$((${step:-0} + 1))
  put "$1" "$step"
  sleep 1
  put "$2" "$step"
  echo "saved $step"
done
