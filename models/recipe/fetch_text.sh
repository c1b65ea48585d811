#!/bin/sh
# Get the training text: six Debian packages, unpacked (not installed) into a cache folder.
#
#   SACCADE_TRAIN_DIR=/some/cache ./fetch_text.sh
#
# Needs apt-get, dpkg-deb and the package lists of Debian 12 (bookworm) or later.
set -eu

cache=${SACCADE_TRAIN_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/saccade-train}
packages="
    r-cran-janeaustenr
    r-cran-tokenizers
    golang-github-pierrec-lz4-dev
    sword-text-web
    dict-jargon
    dict-devil
"

mkdir -p "$cache/debs" "$cache/text"
cd "$cache/debs"
for name in $packages; do
    if ! ls "${name}"_*.deb >/dev/null 2>&1; then
        apt-get download "$name"
    fi
    rm -rf "$cache/text/$name"
    mkdir "$cache/text/$name"
    dpkg-deb -x "${name}"_*.deb "$cache/text/$name"
done
echo "text unpacked under $cache/text"
