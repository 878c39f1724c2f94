#!/usr/bin/env bash
# Snakream itself. The binary is $BENCH_SNAKREAM, by default bin/snakream of this tree.
#   snakream.sh install
#   snakream.sh run DATA_DIR PORT ADMIN_PORT [FLAG…]     in the foreground
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${BENCH_SNAKREAM:-$root/bin/snakream}
case ${1:-} in
install) make -C "$root" build ;;
run)
	dir=$2 port=$3 admin=$4
	shift 4
	exec "$bin" serve --listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$admin" --data-dir "$dir" --log-level warn "$@"
	;;
*) sed -n '2,4p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
