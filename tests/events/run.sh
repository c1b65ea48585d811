#!/usr/bin/env bash
# KV events: their bytes against msgspec, and a subscriber with pyzmq and msgpack against a device that evicts, overflows
# its ring and outlives its publishers. Needs python3-venv; installs the packages below $SACCADE_TOOLS.
#   tests/events/run.sh [SEED...]
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=${SACCADE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-ci}
player=${SACCADE_PLAY_DEVICE:-target/debug/examples/play_device}
mkdir -p "$tools"
[ -x "$tools/events/bin/python" ] || python3 -m venv "$tools/events"
"$tools/events/bin/pip" install -q --disable-pip-version-check -r tests/events/requirements.txt
python=$tools/events/bin/python
"$python" tests/events/make_golden.py --check
[ $# -gt 0 ] || set -- 1 2
for seed in "$@"; do
  folder=$(mktemp -d)
  # Closed before they are printed: Python's exit may come after the player's bind.
  read -r pub replay < <("$python" -c '
import socket
ends = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
ports = [end.getsockname()[1] for end in ends]
for end in ends:
    end.close()
print(*ports)')
  config='{"enable_kv_cache_events": true, "topic": "kv@test@model", "buffer_steps": 100000, "hwm": 200,
    "endpoint": "tcp://127.0.0.1:'$pub'", "replay_endpoint": "tcp://127.0.0.1:'$replay'"}'
  echo "seed $seed"
  "$player" "$folder" "$config" "$seed" "${SACCADE_KV_EVENTS:-150000}" &
  code=0
  "$python" tests/events/rebuild.py "$folder" "tcp://127.0.0.1:$pub" "tcp://127.0.0.1:$replay" || code=$?
  touch "$folder/done"
  wait $!
  rm -rf "$folder"
  [ $code -eq 0 ] || exit $code
done
