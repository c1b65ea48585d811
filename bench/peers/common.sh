# What the scripts of peers and the benchmarks over them share: where things are, and how a server is
# started and stopped. Sourced, not run.
#   SACCADE_PEERS        folder of everything installed (default ~/.cache/saccade-peers; some GB)
#   SACCADE_PEERS_TORCH  a virtual environment that has torch already; saves its download
#   SACCADE_PEERS_BATCHED_TOKENS  tokens of a step, the same for every engine (512)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${SACCADE_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-peers}
torch_version=2.13.0
ready_timeout_s=${SACCADE_PEERS_READY_TIMEOUT_S:-300}
batched_tokens=${SACCADE_PEERS_BATCHED_TOKENS:-512}
foreground=
mkdir -p "$peers"

die() { echo "$*" >&2; exit 1; }

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }

# The environment with torch: an existing one, or our own. Prints its folder.
torch_venv() {
  local venv=${SACCADE_PEERS_TORCH:-$peers/torch}
  if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "torch==$torch_version" numpy safetensors transformers
  fi
  "$venv/bin/python" -c "import torch; v = torch.__version__.split('+')[0]
assert v == '$torch_version', f'$venv has torch {v}, not $torch_version'"
  echo "$venv"
}

# A new environment $1 that also sees the packages of the environment with torch.
venv_over_torch() {
  local venv=$1 base
  base=$(torch_venv)
  [ -x "$venv/bin/python" ] || "$base/bin/python" -m venv "$venv"
  site_packages "$base" >"$(site_packages "$venv")/torch-base.pth"
}

# start_server NAME PORT READY_PATH COMMAND…: in a session of its own, so that all of it can be
# stopped; waits until the server answers, prints the pid of its first process.
start_server() {
  local name=$1 port=$2 ready=$3 log="$peers/$1-$2.log" file="$peers/$1-$2.pid" pid
  shift 3
  [ -z "$foreground" ] || exec "$@"
  if curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$port$ready"; then
    die "$name: port $port is taken"
  fi
  setsid "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$file"
  for _ in $(seq $((ready_timeout_s * 5))); do
    if curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$port$ready"; then
      echo "$pid"
      return
    fi
    if ! kill -0 "$pid" 2>/dev/null; then
      tail -20 "$log" >&2
      die "$name ended before it was ready; log: $log"
    fi
    sleep 0.2
  done
  stop_server "$name" "$port"
  die "$name was not ready after $ready_timeout_s s; log: $log"
}

# Every process of session $1 that still runs.
session_of() { ps -o pid=,stat= -s "$1" | awk '$2 !~ /^Z/ { print $1 }'; }

# end_session PID NAME: asks every process of a session to end, then makes it.
end_session() {
  local signal left
  for signal in INT TERM KILL; do
    left=$(session_of "$1")
    # shellcheck disable=SC2086  # a list of pids
    [ -z "$left" ] || kill -s "$signal" $left 2>/dev/null || true
    for _ in $(seq 50); do
      [ -n "$(session_of "$1")" ] || return 0
      sleep 0.1
    done
  done
  die "$2: processes of session $1 are still there: $(session_of "$1" | tr '\n' ' ')"
}

# serve_alone NAME PORT LOG COMMAND: starts one server of a benchmark in a session of its own and waits
# until it takes requests. end_serving stops it.
running=
serve_alone() {
  local name=$1 port=$2 log=$3 ready=/v1/models waited
  case $name in saccade*) ready=/ready ;; esac
  setsid sh -c "exec $4" >"$log" 2>&1 </dev/null &
  running=$!
  for ((waited = 0; waited < ready_timeout_s; waited++)); do
    ! curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$port$ready" || return 0
    if ! kill -0 "$running" 2>/dev/null; then
      tail -5 "$log" >&2
      die "$name ended before it was ready"
    fi
    sleep 1
  done
  tail -5 "$log" >&2
  die "$name was not ready after $ready_timeout_s s"
}
end_serving() {
  [ -z "$running" ] || end_session "$running" "the server"
  running=
}

# stop_server NAME PORT: ends what start_server started.
stop_server() {
  local file="$peers/$1-$2.pid" pid
  [ -f "$file" ] || die "$1: none was started on port $2"
  pid=$(cat "$file")
  # Another process may have the number by now.
  if ! ps -o args= -s "$pid" | grep -qF -e "$peers/" -e "VLLM::"; then
    rm -f "$file"
    die "$1: the server on port $2 has ended already"
  fi
  end_session "$pid" "$1"
  rm -f "$file"
}

# check_start_arguments USAGE ARGUMENTS…: MODEL_DIR PORT SLOTS CORES
check_start_arguments() {
  local usage=$1
  shift
  [ $# -ge 4 ] || die "$usage"
  [ -f "$1/config.json" ] || die "MODEL_DIR: no config.json in $1"
  [[ $2 =~ ^[0-9]+$ ]] || die "PORT: $2 is not a number"
  [[ $3 =~ ^[1-9][0-9]*$ ]] || die "SLOTS: $3 is not a number of at least 1"
  taskset -c "$4" true || die "CORES: $4 is not a list of cores that may be used, such as 0-1"
}

# Cores that this process may use: those of a tool that starts a server on cores of its choice.
own_cores() { taskset -cp $$ | sed 's/.*: //'; }

# How many cores a list such as 0-1,4 names.
count_cores() { taskset -c "$1" nproc; }
