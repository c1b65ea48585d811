#!/usr/bin/env bash
# Reports in headless Chromium: plots drawn, labels apart, no network, readable without scripts and in print.
#   tests/reports/run.sh                 the gallery of every kind of chart, and an audit of generated accounting
#   tests/reports/run.sh a.html b.html   reports made elsewhere, by the same rules
# SACCADE_SHOTS=DIR keeps screenshots and PDFs. Needs python3, node with npm, and chromium.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=${SACCADE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-ci}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The browser driver is the one of the client tests.
mkdir -p "$tools/node"
cp "$here/../clients/package.json" "$tools/node/"
(cd "$tools/node" && npm install --silent --no-audit --no-fund)
ln -s "$tools/node/node_modules" "$work/node_modules"
cp "$here"/*.mjs "$work/"

reports=()
for report in "$@"; do reports+=("$(realpath "$report")"); done
if [ $# -eq 0 ]; then
  cd "$here/../.."
  cargo build -q --workspace --examples
  examples=${CARGO_TARGET_DIR:-target}/debug/examples
  "$examples/gallery" "$work/gallery.html"
  python3 crates/audit/tests/independent.py 20000 "$work/jobs.txt" >"$work/expected.json"
  # Its exit code is its verdict on jobs that are short of cores on purpose.
  "$examples/audit" "$work/jobs.txt" --html "$work/audit.html" >"$work/audit.txt" || true
  reports+=("$work/gallery.html" "$work/audit.html")
  export SACCADE_GALLERY=$work/gallery.html
fi
export SACCADE_REPORTS
SACCADE_REPORTS=$(printf '%s\n' "${reports[@]}")
cd "$work"
node --test report.mjs
