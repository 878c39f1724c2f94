#!/usr/bin/env bash
# Electric's Durable Streams server (crate durable-streams 0.1.5), durable by its write-ahead log.
# Lives in $PEERS_DIR/electric, by default ~/.cache/snakream-peers/electric.
#   electric.sh install
#   electric.sh run DATA_DIR PORT ADMIN_PORT [FLAG…]     in the foreground; it has no admin listener
set -euo pipefail
root=${PEERS_DIR:-$HOME/.cache/snakream-peers}/electric
case ${1:-} in
install) cargo install durable-streams --version 0.1.5 --locked --root "$root" ;;
run)
	dir=$2 port=$3
	shift 4
	exec "$root/bin/durable-streams-server" --host 127.0.0.1 --port "$port" --data-dir "$dir" --durability wal "$@"
	;;
*) sed -n '2,5p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
