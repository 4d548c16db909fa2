"""A subscriber that shares no code with the Rust side, for the sockets of a simulated engine: pyzmq, msgpack.

usage: subscriber.py EVENTS_PORT REPLAY_PORT TOPIC LIVE

Prints `ready` once connected, hears LIVE batches, then asks the replay socket for all, and for those
from the second on. Prints what it found as JSON.
"""

import json
import struct
import sys
import time

import msgpack
import zmq

END = b"\xff" * 8


def socket(context, kind, port, topic=None):
    made = context.socket(kind)
    # Pings that nobody answers would end the connection.
    made.setsockopt(zmq.HEARTBEAT_IVL, 100)
    made.setsockopt(zmq.HEARTBEAT_TIMEOUT, 300)
    made.setsockopt(zmq.RCVTIMEO, 10_000)
    if topic is not None:
        made.setsockopt(zmq.SUBSCRIBE, topic)
    made.connect(f"tcp://127.0.0.1:{port}")
    return made


def numbered(frames):
    *_, number, payload = frames
    return struct.unpack(">Q", number)[0], payload


def replay(dealer, start):
    dealer.send_multipart([b"", struct.pack(">Q", start)])
    batches = []
    while (frames := dealer.recv_multipart())[-2] != END:
        assert frames[0] == b"" and len(frames) == 4, frames
        batches.append(numbered(frames))
    return batches


def main():
    events, replay_port, topic, count = sys.argv[1:]
    topic = topic.encode()
    context = zmq.Context()
    live = socket(context, zmq.SUB, events, topic)
    deaf = socket(context, zmq.SUB, events, b"another topic")
    monitor = live.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    time.sleep(1)
    print("ready", flush=True)
    heard = []
    for _ in range(int(count)):
        frames = live.recv_multipart()
        assert frames[0] == topic and len(frames) == 3, frames
        heard.append(numbered(frames))
    dealer = socket(context, zmq.DEALER, replay_port)
    everything, later = replay(dealer, 0), replay(dealer, 1)
    request = socket(context, zmq.REQ, replay_port)
    request.send(struct.pack(">Q", 0))
    first = numbered(request.recv_multipart())
    stored = [msgpack.unpackb(payload)[1] for _, payload in everything]
    print(json.dumps({
        "live": [number for number, _ in heard],
        "replayed": [number for number, _ in everything],
        "live_is_replayed": all(batch in everything for batch in heard),
        "from_the_second": later == everything[1:],
        "by_req": first == everything[0],
        "deaf": deaf.poll(200) == 0,
        "disconnects": monitor.poll(0),
        "blocks": sum(len(event["block_hashes"] if isinstance(event, dict) else event[1])
                      for events in stored for event in events),
    }), flush=True)


main()
