#!/usr/bin/env bash
# The router's status page in headless Chromium (Debian: apt-get install chromium): one engine, one relay, one
# router; requests are sent after the page was loaded, and must show in what the browser has at the end.
# The page has no script, so only its own renewal can bring them there.
#
#   examples/status_check.sh [PICTURE.png]
#
# CKF_BIN: folder with the programs (built when unset). CKF_CHECK_PORT: first of 10 ports.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
port=${CKF_CHECK_PORT:-22000}
if ! command -v chromium >/dev/null; then
    echo "skipped: chromium is missing"
    exit 0
fi
if [ -z "${CKF_BIN:-}" ]; then
    cargo build --release --manifest-path "$here/Cargo.toml" --features hosts --bins
    CKF_BIN=${CARGO_TARGET_DIR:-$here/../target}/release
fi
work=$(mktemp -d)
started=()
cleanup() {
    kill "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" 2>/dev/null || true
    rm -rf "$work" || true
}
trap cleanup EXIT
start() { # PROGRAM ARGS...
    local program=$1
    shift
    "$CKF_BIN/$program" "$@" 2>>"$work/log" &
    started+=($!)
}
http() { # METHOD PORT PATH [BODY]: the answer's body
    local method=$1 at=$2 path=$3 body=${4:-}
    exec 3<>"/dev/tcp/127.0.0.1/$at" || return 1
    printf '%s %s HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s' \
        "$method" "$path" "${#body}" "$body" >&3
    sed '1,/^\r$/d' <&3
    exec 3>&-
}
until_seen() { # PORT PATH TEXT: waits until the page contains the text
    for _ in $(seq 200); do
        if http GET "$1" "$2" 2>/dev/null | grep -qF -- "$3"; then return; fi
        sleep 0.1
    done
    echo "no '$3' in $2 on port $1" >&2
    cat "$work/log" >&2
    exit 1
}
tls() { echo --ca "$work/ca.pem" --cert "$work/$1.pem" --key "$work/$1.key"; }
complete() { http POST "$port" /v1/completions "{\"prompt\":[$(seq -s, 64)],\"max_tokens\":1}" >/dev/null; }
fail() {
    echo "FAILED: $1" >&2
    tail -n 20 "$work/log" "$work/browser.log" >&2
    exit 1
}

"$CKF_BIN/engine-sim" certs "$work"
start engine-sim serve --listen "127.0.0.1:$((port + 4))" --events "127.0.0.1:$((port + 5))" \
    --replay "127.0.0.1:$((port + 6))"
# shellcheck disable=SC2046
start relay --dc-id 1 --listen "127.0.0.1:$((port + 2))" --admin "127.0.0.1:$((port + 3))" $(tls relay) \
    --heartbeat-ms 500 --source "zmq://127.0.0.1:$((port + 5))?worker=1&replay=$((port + 6))"
# The second data center has no relay, and a name that must not become a script.
# shellcheck disable=SC2046
start router --listen "127.0.0.1:$port" --admin "127.0.0.1:$((port + 1))" $(tls router) \
    --dc "id=1,relay=https://127.0.0.1:$((port + 2)),endpoint=http://127.0.0.1:$((port + 4))" \
    --dc "id=<script>document.title='run'</script>,relay=https://127.0.0.1:1,endpoint=http://127.0.0.1:1,cost=9999"
until_seen $((port + 1)) /metrics \
    "ckf_lane_ready{pool=\"default\",dc=\"1\",name=\"1\",relay=\"https://127.0.0.1:$((port + 2))\"} 1"
complete
until_seen "$port" /v1/route '' # the front is there

# The browser is driven through two pipes, by messages that end in a zero byte.
mkfifo "$work/commands" "$work/events"
chromium --version
chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/browser" \
    --window-size=1300,600 --remote-debugging-pipe about:blank 3<"$work/commands" 4>"$work/events" 2>>"$work/browser.log" &
started+=($!)
exec 5>"$work/commands" 6<"$work/events"
number=0 session=
ask() { # METHOD PARAMS: the answer within ten seconds; what else the browser tells is left out
    printf '{"id":%d,"method":"%s","params":%s%s}\0' $((number += 1)) "$1" "$2" "$session" >&5
    while IFS= read -r -d '' -t 10 answer <&6; do
        case $answer in "{\"id\":$number,"*) return ;; esac
    done
    fail "the browser does not answer to $1"
}
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$answer"; }
evaluate() { # EXPRESSION: its value, a string
    # There is none while the page is being replaced.
    for _ in $(seq 50); do
        ask Runtime.evaluate "{\"expression\":\"$1\"}"
        if [[ $answer == *'"value":"'* ]]; then
            shown=$(sed 's/.*"value":"\(.*\)"}}.*/\1/' <<<"$answer")
            return
        fi
        sleep 0.1
    done
    fail "the browser: $1: $answer"
}
until_shown() { # TEXT: waits until the page in the browser has it
    for _ in $(seq 60); do
        evaluate "document.body.innerText.replace(/\\\\s+/g,' ')"
        [[ $shown == *"$1"* ]] && return
        sleep 0.1
    done
    fail "the browser does not show '$1' but: $shown"
}
ask Target.createTarget "{\"url\":\"http://127.0.0.1:$((port + 1))/status\"}"
ask Target.attachToTarget "{\"targetId\":\"$(field targetId)\",\"flatten\":true}"
session=",\"sessionId\":\"$(field sessionId)\""

until_shown "by depth 1 "
evaluate "''+performance.timeOrigin"
loaded=$shown
for _ in 1 2 3; do complete; done
until_shown "by depth 4 "
page=$shown
evaluate "''+performance.timeOrigin"
[ "$shown" != "$loaded" ] || fail "the page was not loaded again"
echo "shows: $page"
[[ $page =~ " 0 1 Ready "([0-9]+)" "([0-9.]+)" s "([0-9]+)" " ]] || fail "no ready lane with sequence, age and resyncs"
echo "lane 0: sequence ${BASH_REMATCH[1]}, last heard ${BASH_REMATCH[2]} s ago, ${BASH_REMATCH[3]} resyncs"
[[ $page == *"depth where sent requests 0 1 1 0 2-3 0 4-7 3"* ]] || fail "not the depths that there were"
[[ $page == *" 1 <script>document.title='run'</script> "* ]] || fail "the odd name is not shown as it is"
evaluate "document.title+' '+document.scripts.length"
[ "$shown" = "ckf router 0" ] || fail "a name became a script: $shown"
evaluate "''+[...document.querySelectorAll('.bar')].map(bar=>bar.offsetWidth)"
[ "$shown" = "100,0,0,300" ] || fail "the bars of the histogram are $shown wide"
if [ -n "${1:-}" ]; then
    ask Page.captureScreenshot '{}'
    field data | base64 -d >"$1"
fi
echo "== as it should be"
