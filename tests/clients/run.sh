#!/usr/bin/env bash
# The official OpenAI clients (Python, Node), agents' libraries, Hugging Face references, a trained checkpoint and a
# browser, against the release binary. Needs python3-venv, node with npm, and chromium; installs the clients below $SACCADE_TOOLS.
set -euo pipefail
cd "$(dirname "$0")"
tools=${SACCADE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-ci}
mkdir -p "$tools/node"
[ -x "$tools/clients/bin/python" ] || python3 -m venv "$tools/clients"
"$tools/clients/bin/pip" install -q --disable-pip-version-check -r requirements.txt
cp package.json "$tools/node/"
(cd "$tools/node" && npm install --silent --no-audit --no-fund)
export NODE_PATH=$tools/node/node_modules
export SACCADE_NODE_MODULES=$NODE_PATH
export SACCADE_TRAINED=$tools/smollm2-135m-instruct
"$tools/clients/bin/python" ../reference/trained/fetch.py "$SACCADE_TRAINED"
export SACCADE_BINARY=${SACCADE_BINARY:-$(cd ../.. && pwd)/target/release/saccade}
"$tools/clients/bin/python" -m pytest -q -p no:cacheprovider "$@" .
