#!/usr/bin/env bash
# Snakream with a tier: the S3 server of the tests, on loopback, with its objects in DATA_DIR.s3.
# Its port is $BENCH_S3_PORT, by default PORT + 2. Both end when the script is ended.
#   snakream-tier.sh install
#   snakream-tier.sh run DATA_DIR PORT ADMIN_PORT [FLAG…]      in the foreground; the store too, unless it runs
#   snakream-tier.sh restore DATA_DIR PORT ADMIN_PORT [FLAG…]  snakream restore instead of snakream serve
#   snakream-tier.sh store DATA_DIR PORT ADMIN_PORT            the store alone, in the foreground
#   snakream-tier.sh get DATA_DIR PORT ADMIN_PORT [FLAG…]      reads the objects by the SDK alone: bench/s3get
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${BENCH_SNAKREAM:-$root/bin/snakream}
what=${1:-}
case $what in
install)
	make -C "$root" build
	(cd "$root/test/s3testd" && CGO_ENABLED=0 go build -trimpath -o "$root/bin/s3testd" .)
	(cd "$root" && CGO_ENABLED=0 go build -trimpath -o bin/s3get ./bench/s3get)
	exit
	;;
run | restore | store | get) ;;
*) sed -n '2,8p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

dir=$2 port=$3 admin=$4
shift 4
dir=$(cd "$(dirname "$dir")" && pwd)/$(basename "$dir")
s3=${BENCH_S3_PORT:-$((port + 2))}
objects=$dir.s3
mkdir -p "$objects/bench"
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_EC2_METADATA_DISABLED=true
unset AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE
tier=(--tier s3 --s3-bucket bench --s3-prefix node --s3-endpoint "http://127.0.0.1:$s3" --s3-path-style --log-level warn)

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$s3") 2>/dev/null; }

# The store ends with this process, which becomes the server.
store() {
	listening && return
	setpriv --pdeathsig KILL "$root/bin/s3testd" -addr "127.0.0.1:$s3" -dir "$objects" &
	for _ in {1..200}; do
		listening && return
		sleep 0.05
	done
	echo "the object store does not listen on port $s3" >&2
	exit 1
}

case $what in
run)
	store
	exec "$bin" serve --listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$admin" --data-dir "$dir" "${tier[@]}" "$@"
	;;
restore)
	store
	exec "$bin" restore --data-dir "$dir" "${tier[@]}" "$@"
	;;
store) exec "$root/bin/s3testd" -addr "127.0.0.1:$s3" -dir "$objects" ;;
get)
	store
	exec "$root/bin/s3get" -endpoint "http://127.0.0.1:$s3" -bucket bench -prefix node/ "$@"
	;;
esac
