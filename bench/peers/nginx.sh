#!/usr/bin/env bash
# nginx with one worker that serves DATA_DIR/html by sendfile: the yardstick for catch-up reads.
#   nginx.sh install
#   nginx.sh run DATA_DIR PORT ADMIN_PORT     in the foreground; it has no admin listener
set -euo pipefail
case ${1:-} in
install) command -v nginx || apt-get install -y nginx-light ;;
run)
	dir=$(cd "$2" && pwd) port=$3
	mkdir -p "$dir/html" "$dir/tmp"
	user=""
	[ "$(id -u)" = 0 ] && user="user root;"
	cat >"$dir/nginx.conf" <<CONF
worker_processes 1;
daemon off;
$user
pid $dir/nginx.pid;
error_log $dir/error.log warn;
events { worker_connections 4096; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000000;
	default_type application/octet-stream;
	client_body_temp_path $dir/tmp/body;
	proxy_temp_path $dir/tmp/proxy;
	fastcgi_temp_path $dir/tmp/fastcgi;
	uwsgi_temp_path $dir/tmp/uwsgi;
	scgi_temp_path $dir/tmp/scgi;
	server {
		listen 127.0.0.1:$port;
		root $dir/html;
	}
}
CONF
	exec nginx -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log"
	;;
*) sed -n '2,4p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
