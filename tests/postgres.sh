#!/bin/sh
# A PostgreSQL server of Debian's for tests, reached by a socket in DIR only.
#   tests/postgres.sh start DIR     make it if DIR is not there, start it, print its URL
#   tests/postgres.sh stop DIR      at once, as a crash would be: what was committed stays
#   tests/postgres.sh freeze DIR    all of it hangs, connections stay; thaw DIR: it goes on
#   tests/postgres.sh remove DIR
set -eu
what=$1
dir=$2
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -n "$bin" ] || { echo "PostgreSQL is not installed: apt-get install postgresql" >&2; exit 1; }

# The server refuses to run as root.
as_owner() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi
}

case $what in
start)
    if [ ! -d "$dir/data" ]; then
        mkdir -p "$dir"
        [ "$(id -u)" != 0 ] || chown postgres "$dir"
        (cd "$dir" && as_owner "$bin/initdb" -D "$dir/data" -U punica -A trust --no-sync -E UTF8 --locale=C >/dev/null)
    fi
    (cd "$dir" && as_owner "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" \
        -o "-k $dir -c listen_addresses='' -c fsync=off -c shared_buffers=8MB -c max_connections=20" start >/dev/null)
    echo "postgres://punica@/postgres?host=$dir"
    ;;
stop)
    (cd "$dir" && as_owner "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null)
    ;;
freeze | thaw)
    server=$(head -n 1 "$dir/data/postmaster.pid")
    signal=$([ "$what" = freeze ] && echo STOP || echo CONT)
    # shellcheck disable=SC2046
    kill -"$signal" "$server" $(ps -o pid= --ppid "$server")
    ;;
remove)
    "$0" thaw "$dir" 2>/dev/null || true
    "$0" stop "$dir" 2>/dev/null || true
    rm -rf "$dir"
    ;;
esac
