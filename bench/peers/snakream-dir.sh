#!/usr/bin/env bash
# Snakream with a tier that is a directory, DATA_DIR.tier.
#   snakream-dir.sh install
#   snakream-dir.sh run DATA_DIR PORT ADMIN_PORT [FLAG…]      in the foreground
#   snakream-dir.sh restore DATA_DIR PORT ADMIN_PORT [FLAG…]  snakream restore instead of snakream serve
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${BENCH_SNAKREAM:-$root/bin/snakream}
case ${1:-} in
install) make -C "$root" build ;;
run | restore)
	what=$1 dir=$2 port=$3 admin=$4
	shift 4
	dir=$(cd "$(dirname "$dir")" && pwd)/$(basename "$dir")
	set -- --data-dir "$dir" --tier dir --tier-dir "$dir.tier" --log-level warn "$@"
	[ "$what" = restore ] && exec "$bin" restore "$@"
	exec "$bin" serve --listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$admin" "$@"
	;;
*) sed -n '2,5p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
