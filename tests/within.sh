# For other scripts (`. tests/within.sh`): bounded waits. A failure shows the end of each log in the folder $work.
within() { # SECONDS WHAT CMD...: until the command succeeds
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ $SECONDS -ge $end ]; then
      echo "$what: not in time" >&2
      tail -n 30 "$work"/*.log >&2
      return 1
    fi
    sleep 0.2
  done
}
is_gone() { ! kill -0 "$1" 2>/dev/null; }
