#!/usr/bin/env bash
# Everything on one machine: three data centers with three engines each, three relays, one router, and
# a recorded trace through it. Half way a relay and then the router are killed and started again, each
# while requests are under way. Needs only the programs of this package; ends with an error unless every
# request was answered, the first time where the router lived, and the router's picture equals what the
# engines hold.
#
#   examples/demo.sh [TRACE]
#
# CKF_BIN: folder with the programs (built when unset). CKF_DEMO_PORT: first of 40 ports.
# CKF_DEMO_REQUESTS: requests in each of the three parts. CKF_DEMO_STAY=1: goes on running at the end.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trace=${1:-${CKF_SHARED:-$here/../../shared}/data/traces/mooncake_fast25_conversation.jsonl}
port=${CKF_DEMO_PORT:-21000}
requests=${CKF_DEMO_REQUESTS:-300}
[ -r "$trace" ] || { echo "no trace at $trace: name one as the argument" >&2; exit 1; }
if [ -z "${CKF_BIN:-}" ]; then
    cargo build --release --manifest-path "$here/Cargo.toml" --features hosts --bins
    CKF_BIN=${CARGO_TARGET_DIR:-$here/../target}/release
fi
work=$(mktemp -d)
declare -A process
cleanup() {
    for name in "${!process[@]}"; do kill -9 "${process[$name]}" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
start() { # NAME PROGRAM ARGS...
    local name=$1 program=$2
    shift 2
    "$CKF_BIN/$program" "$@" 2>>"$work/$name.log" &
    process[$name]=$!
    # The shell shall not comment on its end.
    disown
}
kill_hard() {
    kill -9 "${process[$1]}"
    while kill -0 "${process[$1]}" 2>/dev/null; do sleep 0.05; done
}
ready() { # PORT: waits for /readyz
    for _ in $(seq 200); do
        if exec 3<>"/dev/tcp/127.0.0.1/$1"; then
            printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
            read -r _ status _ <&3 || status=none
            exec 3>&-
            [ "$status" = 200 ] && return
        fi 2>/dev/null
        sleep 0.1
    done
    fail "nothing ready on port $1"
}
under_way() { # requests that the router is waiting for
    exec 3<>"/dev/tcp/127.0.0.1/$((port + 4))"
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
    sed -n 's/^ckf_requests_under_way{.*} //p' <&3 | awk '{ sum += $1 } END { print sum + 0 }'
    exec 3>&-
}
until_under_way() {
    for _ in $(seq 500); do
        now=$(under_way)
        [ "$now" -gt 0 ] && return
        sleep 0.01
    done
    fail "no request gets under way"
}
fail() {
    echo "FAILED: $1" >&2
    tail -n 20 "$work"/*.log >&2
    exit 1
}
count() { # NAME FILE: a figure of what a driver printed
    grep -o "\"$1\":[0-9]*" "$2" | cut -d: -f2
}
tls() { echo --ca "$work/ca.pem" --cert "$work/$1.pem" --key "$work/$1.key"; }

"$CKF_BIN/engine-sim" certs "$work"
engines=() dcs=()
for dc in 1 2 3; do
    sources=$work/sources.$dc
    spec="id=$dc,relay=https://127.0.0.1:$((port + dc)),cost=$((dc - 1))"
    for engine in 0 1 2; do
        at=$((port + 10 * dc + 3 * engine))
        start "engine.$dc.$engine" engine-sim serve --name "dc$dc/engine$engine" --token-ms 5 \
            --listen "127.0.0.1:$at" --events "127.0.0.1:$((at + 1))" --replay "127.0.0.1:$((at + 2))"
        echo "zmq://127.0.0.1:$((at + 1))?worker=$engine&replay=$((at + 2))" >>"$sources"
        spec+=",endpoint=http://127.0.0.1:$at"
        engines+=(--engine "$dc=http://127.0.0.1:$at")
    done
    dcs+=(--dc "$spec")
done
relay() { # DC
    # shellcheck disable=SC2046
    start "relay.$1" relay --dc-id "$1" --listen "127.0.0.1:$((port + $1))" \
        --admin "127.0.0.1:$((port + 4 + $1))" $(tls relay) --sources-file "$work/sources.$1" --heartbeat-ms 500
}
router() {
    # shellcheck disable=SC2046
    start router router --listen "127.0.0.1:$port" --admin "127.0.0.1:$((port + 4))" $(tls router) \
        "${dcs[@]}" --silence-ms 3000 --patience-ms 5000
}
for dc in 1 2 3; do relay "$dc"; done
for dc in 1 2 3; do ready $((port + 4 + dc)); done
router
ready $((port + 4))

url=(--router "http://127.0.0.1:$port" --trace "$trace")
drive() { # SKIP NAME: sends the next requests of the trace through the router
    "$CKF_BIN/engine-sim" drive "${url[@]}" --concurrency 8 --requests "$requests" --skip "$1" >"$work/$2"
}
verify() { # SKIP: compares the router's depths with what the engines hold
    "$CKF_BIN/engine-sim" verify "${url[@]}" --requests 40 --skip "$1" "${engines[@]}"
}
answered() { # NAME: all of them, or the demo has failed
    cat "$work/$1"
    [ "$(count requests "$work/$1")" = "$requests" ] || fail "not all requests were sent"
    [ "$(count failed "$work/$1")" = 0 ] || fail "requests failed"
}

echo "status page: http://127.0.0.1:$((port + 4))/status"
echo "== $requests requests, all processes there"
drive 0 first
answered first
[ "$(count retries "$work/first")" = 0 ] || fail "requests had to be sent twice"
verify 0

echo "== $requests requests, the relay of data center 2 killed under way and started again"
drive "$requests" second &
driver=$!
sleep 0.3
until_under_way
kill_hard relay.2
before=$now
until_under_way
echo "requests under way when the relay was killed: $before before, $now after"
wait "$driver"
answered second
[ "$(count retries "$work/second")" = 0 ] || fail "requests had to be sent twice"
relay 2
ready $((port + 6))
verify "$requests"

echo "== $requests requests, the router killed under way and started again"
drive $((2 * requests)) third &
driver=$!
sleep 0.3
until_under_way
kill_hard router
sleep 0.5
router
wait "$driver"
answered third
cut=$(count cut "$work/third")
# By what the client saw: sent, and cut off before the end of the answer. It has sent them again.
echo "requests under way when the router was killed: $now before, $cut cut off"
[ "$cut" -gt 0 ] || fail "no request was under way"
ready $((port + 4))
verify $((2 * requests))
echo "== converged: $((3 * requests)) requests, 0 failed"
if [ "${CKF_DEMO_STAY:-}" = 1 ]; then
    echo "running on until Ctrl-C; logs are in $work"
    # Waited for, so that a signal ends the script at once.
    sleep infinity &
    process[stay]=$!
    wait "${process[stay]}"
fi
