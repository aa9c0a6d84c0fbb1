#!/bin/sh
# Install the Debian packages that building and the demo need; with the argument "test", those of the tests too. Does
# nothing, quickly, when all are there.
set -eu

packages="gcc libc6-dev cmake ninja-build pkg-config git
  libjansson-dev libpcre2-dev libutf8proc-dev libssl-dev libcmocka-dev
  libsqlite3-dev libpq-dev libevent-dev libwslay-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
  clang libclang-rt-14-dev python3 python3-numpy python3-pytest python3-venv curl"
[ "${1:-}" = test ] && packages="$packages postgresql"

missing=""
for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "punica: these packages (Debian names) are needed and this is not Debian:$missing" >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "punica: install as root first: apt-get install$missing" >&2; exit 1; }
    as_root=sudo
fi
echo "installing:$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
