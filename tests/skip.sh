# What a script skips because a tool or a permission is missing; sourced. `skip` notes it, `say_skipped` makes it the
# last line of the run. In CI (SACCADE_CI) nothing may be skipped.
skips=$(mktemp)

skip() { # WHAT WHY
  if [ -n "${SACCADE_CI:-}" ]; then
    echo "$1: left out, which CI must not: $2" >&2
    exit 1
  fi
  echo "$1 ($2)" >>"$skips"
}

say_skipped() {
  [ ! -s "$skips" ] || echo "SKIPPED: $(paste -sd';' "$skips" | sed 's/;/; /g')"
  rm -f "$skips"
}
