#!/bin/sh
# Installs the Debian or Ubuntu packages that are missing, and does nothing, quickly, when all are there.
#   tools/setup.sh        what building and the demo need
#   tools/setup.sh test   what the tests need beside that
#   tools/setup.sh gpu    what the programs of a bundle for GPU machines need
# Elsewhere it installs nothing: packages have other names there, and cmake says which libraries are missing.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config git curl
  libjansson-dev libpcre2-dev libutf8proc-dev libssl-dev libsqlite3-dev libpq-dev libcurl4-openssl-dev libarchive-dev
  libevent-dev libwslay-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler"
test="libcmocka-dev clang python3 python3-numpy python3-pytest python3-venv postgresql"

# Prints the packages among the arguments that are not installed.
missing_of() {
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || echo "$p"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "punica: run as root first: $*" >&2
        exit 1
    fi
}

install_missing() {
    missing=$(missing_of "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    echo "installing: $missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "punica: there is no dpkg-query or no apt-get here, so nothing is installed; cmake names the libraries that are missing" >&2
    exit 0
fi
# shellcheck disable=SC2086
case "${1:-}" in
"") install_missing $build ;;
gpu) install_missing $build libcmocka-dev ;;
test)
    install_missing $build $test
    install_missing "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"   # the fuzzers' sanitizers, of clang's own version
    ;;
*)
    echo "usage: tools/setup.sh [test | gpu]" >&2
    exit 2
    ;;
esac
