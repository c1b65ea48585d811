# What a result records about its machine, as text. Sourced, not run; from the root of the repository.
#   describe_machine [LINE...]   processor, caches, kernel, commit, load at this moment, then the lines given
describe_machine() {
  local autogroup=/proc/sys/kernel/sched_autogroup_enabled
  lscpu | grep -E '^(Model name|CPU\(s\)|L[123])'
  echo "kernel $(uname -r), sched_autogroup_enabled $(cat $autogroup 2>/dev/null || echo absent)"
  echo "commit $(git rev-parse HEAD), load $(cut -d' ' -f1-3 /proc/loadavg)"
  [ $# -eq 0 ] || printf '%s\n' "$@"
}
