#!/usr/bin/env bash
# Keeps what the fuzz targets found: of each corpus the inputs that reach something new, in corpora/TARGET.tar.xz, from
# where fuzz/run.sh goes on in another clone. Run it after fuzz/run.sh, which builds the targets.
#   fuzz/keep.sh [TARGET...]
set -euo pipefail
cd "$(dirname "$0")"
. ./programs.sh
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls corpus)
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=1}
mkdir -p corpora
for target in "${targets[@]}"; do
  kept=$(mktemp -d)
  seeds=()
  [ ! -d "seeds/$target" ] || seeds=("seeds/$target")
  "$(program_of "$target")" -merge=1 -timeout=10 -rss_limit_mb=2048 -verbosity=0 "$kept" "${seeds[@]}" \
    "corpus/$target"
  # The same inputs make the same archive.
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cJf "corpora/$target.tar.xz" -C "$kept" .
  echo "$target: $(find "$kept" -type f | wc -l) inputs, $(stat -c %s "corpora/$target.tar.xz") bytes"
  rm -rf "$kept"
done
