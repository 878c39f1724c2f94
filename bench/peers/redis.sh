#!/usr/bin/env bash
# Redis as a durable log: XADD with an fsync before every answer, no snapshots.
#   redis.sh install
#   redis.sh run DATA_DIR PORT ADMIN_PORT [FLAG…]     in the foreground; it has no admin listener
set -euo pipefail
case ${1:-} in
install) command -v redis-server || apt-get install -y redis-server ;;
run)
	dir=$2 port=$3
	shift 4
	exec redis-server --bind 127.0.0.1 --port "$port" --dir "$dir" --save "" \
		--appendonly yes --appendfsync always --daemonize no --loglevel warning "$@"
	;;
*) sed -n '2,4p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
