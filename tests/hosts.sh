#!/usr/bin/env bash
# Rings over TCP: the tests of the ring and of the fetch plane; then two hosts made of network namespaces, where the
# frontend plane of one serves from the device plane of the other what a frontend next to the device serves through
# shared memory, and where the fetch plane of one brings the other what it has stored. Needs curl.
#   tests/hosts.sh            all
#   tests/hosts.sh ring       only the tests of crates/ring and crates/fetch
#   tests/hosts.sh hosts      only the two hosts (needs the right to make namespaces, and iproute2)
#   tests/hosts.sh fetching   only the fetch plane of the second host (needs the same)
#   tests/hosts.sh secrets    only planes with and without the right secret (needs the same)
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/skip.sh
. tests/within.sh
parts=("$@")
[ $# -gt 0 ] || parts=(ring hosts secrets fetching)
saccade=target/debug/saccade

# The build of all other tests.
build() { cargo test --quiet --workspace --no-run; }

# Tests that hold for any way to a region.
ring() {
  SACCADE_TEST_RING=tcp cargo test --quiet --workspace --test lives --test properties --test chunks --test hostile
}

# Two namespaces $a and $b, connected, and a folder $work; all goes when this shell ends.
two_hosts() { # PART
  a=saccade-a-$$ b=saccade-b-$$
  if ! ip netns add "$a" 2>/dev/null; then
    skip "$1" "this user may not make network namespaces (ip netns add)"
    return 1
  fi
  work=$(mktemp -d)
  pids=()
  # shellcheck disable=SC2064  # the names are of now
  trap "kill -KILL \${pids[*]} 2>/dev/null; wait 2>/dev/null; ip netns del $a; ip netns del $b; rm -rf $work" EXIT
  ip netns add "$b"
  ip link add va netns "$a" type veth peer name vb netns "$b"
  ip -n "$a" addr add 10.201.7.1/24 dev va && ip -n "$a" link set va up && ip -n "$a" link set lo up
  ip -n "$b" addr add 10.201.7.2/24 dev vb && ip -n "$b" link set vb up && ip -n "$b" link set lo up
  # The kernel brings them up in its own time.
  is_up() { ip -n "$1" link show "$2" | grep -q 'state UP'; }
  within 20 "the link of the first host" is_up "$a" va
  within 20 "the link of the second host" is_up "$b" vb
}
make_secret() { # FILE
  (umask 077 && head -c 32 /dev/urandom >"$1")
}
is_ready() { ip netns exec "$1" curl -sf "localhost:$2/ready" >/dev/null; }
ready() { within 60 "port $2 is ready" is_ready "$1" "$2"; }

hosts() {
  local a b work
  two_hosts hosts || return 0
  local ring=$work/ring
  make_secret "$work/secret"
  export SACCADE_LOG=info

  serve() {
    ip netns exec "$a" $saccade serve --port 8001 --ring "$ring" --ring-slots 128 --api-server-count 1 \
      --remote-frontends 1 --ring-listen 10.201.7.1:7700 --ring-secret-file "$work/secret" --kv-cache-memory-bytes 64000000 >"$work/a.log" 2>&1 &
    pids+=($!)
    served=$!
    ready "$a" 8001
  }
  join() {
    ip netns exec "$b" $saccade frontend models/saccade-tiny --ring tcp://10.201.7.1:7700 --frontend-index 1 \
      --ring-secret-file "$work/secret" --served-model-name saccade-tiny --port 8002 >>"$work/b.log" 2>&1 &
    pids+=($!)
    joined=$!
  }
  ask() {
    ip netns exec "$1" curl -sf "localhost:$2/v1/completions" -H 'content-type: application/json' \
      -d '{"model": "saccade-tiny", "prompt": "In the beginning", "max_tokens": 24, "temperature": 0, "logprobs": 1, "ignore_eos": true}' |
      python3 -c 'import json, sys; c = json.load(sys.stdin)["choices"][0]; print(c["text"], c["logprobs"]["token_logprobs"])'
  }
  stream() { # into a file: seconds of tokens, so that whatever is killed after the first dies before the last
    ip netns exec "$b" timeout 60 curl -sN localhost:8002/v1/completions -H 'content-type: application/json' -d '{"model":
      "saccade-tiny", "prompt": "Once", "max_tokens": 2000, "n": 8, "ignore_eos": true, "stream": true}' \
      >"$work/stream" || true
  }
  same() { # WHEN
    local got
    got=$(ask "$b" 8002)
    if [ "$got" != "$expected" ]; then
      printf '%s: over TCP\n%s\nthrough shared memory\n%s\n' "$1" "$got" "$expected" >&2
      return 1
    fi
    echo "hosts: $1: the same completion over TCP as through shared memory"
  }
  serve
  expected=$(ask "$a" 8001)
  join
  ready "$b" 8002
  same "two network namespaces"

  # The device dies under a stream: the stream ends with an error, and its frontend serves again.
  : >"$work/stream"
  stream &
  local streaming=$!
  within 20 "a first token" grep -q '"text"' "$work/stream"
  kill -KILL "$(pgrep -P "$served" -f 'saccade device')"
  wait $streaming
  grep -q '"error"' "$work/stream" || { echo "no error event:" >&2; tail -c 400 "$work/stream" >&2; return 1; }
  ready "$b" 8002
  same "after the device was killed"

  # The frontend dies under a stream: the device keeps serving, and another takes its place.
  : >"$work/stream"
  stream &
  streaming=$!
  within 20 "a first token" grep -q '"text"' "$work/stream"
  kill -KILL "$joined"
  wait $streaming
  [ "$(ask "$a" 8001)" = "$expected" ]
  join
  ready "$b" 8002
  same "after the frontend was killed"

  # Everything on the first host is restarted: that is another ring, and the frontend says so and ends.
  kill -TERM "$served" && wait "$served"
  serve
  within 20 "the frontend's end" is_gone "$joined"
  grep -q "another ring is handed out" "$work/b.log"
  join
  ready "$b" 8002
  same "after everything restarted"

  # The second host vanishes: no packet says so, and its connections end here all the same.
  ip -n "$b" link set vb down
  within 60 "the end of a host that has vanished" grep -qE "ring: .*(timed out|No route to host)" "$work/a.log"
  echo "hosts: connections of a host that has vanished have ended"
}

# Without a secret only loopback is listened at; with one, only planes that know it join, whichever ring they join.
secrets() {
  local a b work
  two_hosts secrets || return 0
  export SACCADE_LOG=info
  make_secret "$work/right"
  make_secret "$work/wrong"
  make_secret "$work/open" && chmod 644 "$work/open"
  head -c 31 /dev/urandom >"$work/short" && chmod 600 "$work/short"

  refused() { # CODE SENTENCE COMMAND FLAG...
    local expected=$1 sentence=$2 said code=0
    shift 2
    said=$(ip netns exec "$b" timeout 20 "$saccade" "$@" 2>&1) || code=$?
    [ $code -eq "$expected" ] && grep -qF -- "$sentence" <<<"$said" || { echo "$*: $code: $said" >&2; return 1; }
    echo "secrets: refused: $sentence"
  }
  local serve=(serve --ring "$work/ring-b" --remote-frontends 1 --ring-listen)
  refused 2 "joining needs a secret: --ring-secret-file FILE (head -c 32" "${serve[@]}" 10.201.7.2:7701
  refused 2 "joining needs a secret" "${serve[@]}" 0.0.0.0:7701
  refused 2 "joining needs a secret" serve --fetch-listen 10.201.7.2:7702
  refused 2 "its mode is 644" "${serve[@]}" 10.201.7.2:7701 --ring-secret-file "$work/open"
  refused 2 "holds 31 bytes" "${serve[@]}" 127.0.0.1:7701 --ring-secret-file "$work/short"
  refused 2 "No such file" "${serve[@]}" 127.0.0.1:7701 --ring-secret-file "$work/none"
  refused 2 "no plane joins without" serve --ring-secret-file "$work/right"

  ip netns exec "$a" $saccade serve --port 8001 --ring "$work/ring" --ring-slots 128 --api-server-count 1 \
    --remote-frontends 1 --ring-listen 10.201.7.1:7700 --fetch-listen 10.201.7.1:7702 --fetch-frame-bytes 33554432 \
    --ring-secret-file "$work/right" --kv-cache-memory-bytes 64000000 >"$work/a.log" 2>&1 &
  pids+=($!)
  ready "$a" 8001
  local frontend=(frontend models/saccade-tiny --ring tcp://10.201.7.1:7700 --frontend-index 1 --port 8002)
  refused 2 "refused: the secrets of the two sides differ" "${frontend[@]}" --ring-secret-file "$work/wrong"
  refused 2 "refused: only the listener has a secret" "${frontend[@]}"
  # A fetch plane waits for a listener that lets it in, and says why it waits.
  local fetch=(fetch --ring tcp://10.201.7.1:7702 --prefix-store "file://$work/store")
  refused 124 "refused: the secrets of the two sides differ" "${fetch[@]}" --ring-secret-file "$work/wrong"
  within 10 "the listeners' lines" grep -q 'ring: .*refused: only the listener has a secret.*turned away so far' "$work/a.log"
  grep -q "fetch ring: .*refused: the secrets of the two sides differ" "$work/a.log"
  ! grep -q ": connected" "$work/a.log" || { echo "a stranger was let in" >&2; return 1; }

  ip netns exec "$b" $saccade "${frontend[@]}" --ring-secret-file "$work/right" >"$work/b.log" 2>&1 &
  pids+=($!)
  ip netns exec "$b" $saccade "${fetch[@]}" --ring-secret-file "$work/right" >"$work/c.log" 2>&1 &
  pids+=($!)
  ready "$b" 8002
  within 20 "the fetch plane" grep -q "fetch ring: .*: connected" "$work/a.log"
  echo "secrets: planes with the right one have joined"
}

# The device on the first host has no store; the fetch plane on the second one has.
fetching() {
  local a b work
  two_hosts fetching || return 0
  export SACCADE_LOG=info
  make_secret "$work/secret"
  serve() {
    ip netns exec "$a" $saccade serve --port 8001 --ring "$work/ring" --ring-slots 128 --api-server-count 1 \
      --fetch-listen 10.201.7.1:7702 --ring-secret-file "$work/secret" --fetch-frame-bytes 33554432 --fetch-always --fetch-late-ms 60000 \
      --kv-cache-memory-bytes 64000000 >>"$work/a.log" 2>&1 &
    pids+=($!)
    served=$!
    ready "$a" 8001
  }
  fetch() { # it may come before the device
    ip netns exec "$b" $saccade fetch --ring tcp://10.201.7.1:7702 --prefix-store "file://$work/store" \
      --ring-secret-file "$work/secret" >>"$work/b.log" 2>&1 &
    pids+=($!)
    fetched=$!
  }
  prompt() { # N: 1500 tokens, unlike those of other N
    python3 -c "print([10 + ($1 * 7919 + i * i * 31 + i * 17 + (i >> 5) * $1) % 240 for i in range(1500)])"
  }
  # What was said, and how many tokens of the prompt were cached.
  ask() { # N
    ip netns exec "$a" curl -sSf localhost:8001/v1/completions -H 'content-type: application/json' \
      -d "{\"model\": \"saccade-tiny\", \"prompt\": $(prompt "$1"), \"max_tokens\": 24, \"temperature\": 0,
           \"logprobs\": 1, \"ignore_eos\": true}" |
      python3 -c 'import json, sys; a = json.load(sys.stdin); c = a["choices"][0]
print(c["text"].encode(), c["logprobs"]["token_logprobs"], a["usage"]["prompt_tokens_details"]["cached_tokens"], sep="|")'
  }
  counted() { # METRIC LEAST
    local value
    value=$(ip netns exec "$a" curl -sf localhost:8001/metrics | grep -F "$1" | awk '{ n += $NF } END { print int(n) }')
    [ "${value:-0}" -ge "$2" ]
  }
  joins() { within 30 "life $1 of the fetch plane" counted saccade:fetch_planes_joined_total "$1"; }
  cached() { # WHEN N: answers as at first, from the store
    local got
    got=$(ask "$2")
    if [ "${got%|*}" != "${expected[$2]%|*}" ] || [ "${got##*|}" -lt 1280 ]; then
      printf '%s: with the store\n%s\ncomputed\n%s\n' "$1" "$got" "${expected[$2]}" >&2
      return 1
    fi
    echo "fetching: $1: the same completion, ${got##*|} of 1500 tokens from the store behind the second host"
  }
  refused() { # SENTENCE COMMAND FLAG...
    local sentence=$1 said code=0
    shift
    said=$(timeout 20 "$saccade" "$@" 2>&1) || code=$?
    [ $code -eq 2 ] && grep -qF -- "$sentence" <<<"$said" || { echo "$*: $code: $said" >&2; return 1; }
  }
  local listen=(--fetch-listen 127.0.0.1:7703) join=(fetch --ring tcp://127.0.0.1:7703)
  refused "--prefix-store: the fetch plane" serve "${listen[@]}" --prefix-store "file://$work/store"
  refused "--kv-events-config: needs" serve "${listen[@]}" --kv-events-config '{"enable_kv_cache_events": true}'
  refused "--fetch-listen: needs --device cpu" serve "${listen[@]}" --device null
  refused "--prefix-store names the store" "${join[@]}"
  refused "--kv-events-config: events" "${join[@]}" --kv-events-config '{"enable_kv_cache_events": true}'
  refused "--ring tcp://HOST:PORT or --fetch-ring" fetch --prefix-store "file://$work/store"

  local expected=() n asking
  fetch
  serve
  joins 1
  for n in 1 2 3; do expected[n]=$(ask $n); done
  [ "${expected[1]##*|}" = 0 ]
  within 30 "chunks in the store" counted 'op="store",result="done"' 15

  # The device is killed, and with it its KV: the fetch plane joins the next one.
  # A tiny model is back within 200 ms, which a poll for an unready moment would miss.
  kill -KILL "$(pgrep -P "$served" -f 'saccade device')"
  within 30 "the next device" grep -q "device ready epoch=2" "$work/a.log"
  ready "$a" 8001
  joins 1
  cached "after the device was killed" 1
  # The server is another one.
  kill -TERM "$served" && wait "$served"
  [ ! -e "$work/ring.fetch" ] || { echo "the fetch ring is left behind" >&2; return 1; }
  serve
  joins 1
  cached "by another server" 2

  # The fetch plane is killed under load, again and again: no request fails, and the next one joins.
  load() { # FIRST: prompts that are new, until it is enough
    for n in $(seq "$1" $(($1 + 99))); do
      [ ! -e "$work/enough" ] || break
      ask "$n" >/dev/null || return 1
    done
  }
  load 100 &
  local one=$!
  load 200 &
  local other=$!
  for n in 2 3 4; do
    sleep 1
    kill -KILL "$fetched"
    fetch
    joins $n
  done
  touch "$work/enough"
  for asking in $one $other; do
    wait "$asking" || { echo "a request failed beside a killed fetch plane" >&2; tail -n 30 "$work"/*.log >&2; return 1; }
  done
  cached "after the fetch plane was killed" 3
  # While there is none, requests are computed.
  kill -KILL "$fetched"
  ask 300 >/dev/null
}

build
for part in "${parts[@]}"; do ("$part"); done
say_skipped
