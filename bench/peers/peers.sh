#!/usr/bin/env bash
# Installs the peers, and starts and stops them by hand on loopback, each with a data
# directory of its own under $PEERS_DIR. (The bench starts its own, on empty directories.)
#   peers.sh install [NAME…]        electric redis nginx snakream-tier
#   peers.sh start NAME PORT        prints the process id
#   peers.sh stop NAME
#   peers.sh status
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PEERS_DIR=${PEERS_DIR:-$HOME/.cache/snakream-peers}
state=$PEERS_DIR/run
mkdir -p "$state"

running() { [ -f "$state/$1.pid" ] && kill -0 "$(cat "$state/$1.pid")" 2>/dev/null; }

case ${1:-} in
install)
	shift
	[ $# -gt 0 ] || set -- electric redis nginx snakream-tier
	for name in "$@"; do "$here/$name.sh" install; done
	;;
start)
	name=$2 port=$3
	running "$name" && { echo "$name runs already" >&2; exit 1; }
	mkdir -p "$state/$name"
	nohup "$here/$name.sh" run "$state/$name" "$port" "$((port + 1))" >"$state/$name.log" 2>&1 &
	echo $! >"$state/$name.pid"
	cat "$state/$name.pid"
	;;
stop)
	name=$2
	if running "$name"; then
		pid=$(cat "$state/$name.pid")
		kill "$pid"
		while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	fi
	rm -rf "$state/$name" "$state/$name.pid" "$state/$name.log"
	;;
status)
	for f in "$state"/*.pid; do
		[ -e "$f" ] || continue
		name=$(basename "$f" .pid)
		if running "$name"; then echo "$name $(cat "$f")"; else echo "$name ended"; fi
	done
	;;
*) sed -n '2,7p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
