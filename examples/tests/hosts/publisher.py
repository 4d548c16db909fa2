"""An engine's event publisher that shares no code with the Rust side: pyzmq sockets, msgpack payloads.

usage: publisher.py EVENTS_PORT REPLAY_PORT capture FILE    a recording: lost batches only by replay
       publisher.py EVENTS_PORT REPLAY_PORT payloads DIR    each file one batch, numbered in order
       publisher.py EVENTS_PORT REPLAY_PORT blocks COUNT    blocks made here, some batches withheld

Publishes once a subscriber is there, prints `done N` with the number of the last batch, and serves
replay until its standard input closes.
"""

import os
import struct
import sys
import threading

import msgpack
import zmq

END = b"\xff" * 8


def capture(path):
    """Live batches in order, and all batches that a replay can give."""
    data = open(path, "rb").read()
    assert data[:8] == b"KVEVCAP1"
    at, live, known = 8, [], {}
    while at < len(data):
        channel, count = data[at], data[at + 1]
        at += 2
        frames = []
        for _ in range(count):
            (size,) = struct.unpack_from("<I", data, at)
            frames.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        if channel == 1 or frames[-1] == b"":
            continue
        number = struct.unpack(">Q", frames[-2])[0]
        known[number] = frames[-1]
        if channel == 0:
            live.append(number)
    return live, known


def payloads(folder):
    names = sorted(os.listdir(folder))
    known = {i: open(os.path.join(folder, name), "rb").read() for i, name in enumerate(names)}
    return list(known), known


def blocks(count):
    """Batch i stores block i, alternately as array and as map, under all kinds of hashes; every
    third batch is withheld from the live socket. Ends with the removal of block 0."""
    name = lambda i: [i - 2**40, i + 2**63, struct.pack(">4Q", 0, 0, 0, i + 7)][i % 3]
    known = {}
    for i in range(count):
        tokens = list(range(16 * i, 16 * i + 16))
        if i % 2:
            event = ["BlockStored", [name(i)], None, tokens, 16, None, "GPU", None]
        else:
            event = {"token_ids": tokens, "block_size": 16, "block_hashes": [name(i)],
                     "parent_block_hash": None, "medium": None, "news": {"a": [1]}, "type": "BlockStored"}
        elsewhere = {"type": "BlockStored", "block_hashes": [10**6 + i], "parent_block_hash": None,
                     "token_ids": [9] * 16, "block_size": 16, "medium": "CPU"}
        known[i] = msgpack.packb([float(i), [event, elsewhere, ["Unheard", 1]], 0])
    known[count] = msgpack.packb([0.0, [{"type": "BlockRemoved", "block_hashes": [name(0)]}], 0])
    return [i for i in known if i % 3 != 1 or i == count], known


def serve_replay(socket, known, topic):
    while True:
        peer, _, start = socket.recv_multipart()
        (start,) = struct.unpack(">Q", start)
        for number in sorted(known):
            if number >= start:
                socket.send_multipart([peer, b"", topic, struct.pack(">Q", number), known[number]])
        socket.send_multipart([peer, b"", b"", END, b""])


def main():
    events, replay, kind, what = sys.argv[1:]
    live, known = {"capture": capture, "payloads": payloads, "blocks": lambda n: blocks(int(n))}[kind](what)
    topic = b"kv@pod@model"
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(f"tcp://127.0.0.1:{replay}")
    # XPUB is PUB that tells about subscriptions.
    publisher = context.socket(zmq.XPUB)
    publisher.bind(f"tcp://127.0.0.1:{events}")
    assert publisher.recv()[0] == 1
    served = {}
    threading.Thread(target=serve_replay, args=(router, served, topic), daemon=True).start()
    for number in live:
        # What was withheld is in the buffer before anything that follows it is out.
        served.update({n: known[n] for n in known if n <= number and n not in served})
        publisher.send_multipart([topic, struct.pack(">Q", number), known[number]])
    print(f"done {live[-1]}", flush=True)
    sys.stdin.read()


main()
