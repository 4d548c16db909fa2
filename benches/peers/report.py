#!/usr/bin/env python3
"""Runs the side-by-side harness and writes docs/BENCHMARKS.md and docs/bench/*.svg from its result.

usage: report.py [--blocks-per-lane N]     run, keep the result in docs/bench/run.json, write
       report.py --from FILE               write from a result that is there
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess

import plots

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCS = ROOT / "docs"
PEERS = ["dynamo-kv-router", "kv-index", "cuckoofilter", "scalable_cuckoo_filter"]
RUNS = {
    "families_1000000": "Families, 16 lanes, 1 M blocks a lane",
    "families_10000000": "Families, 16 lanes, 10 M blocks a lane",
    "families_64_lanes": "Families, 64 lanes, 1 M blocks a lane",
    "families_4096_blocks": "Families and queries of 4,096 blocks, 16 lanes, 10 M blocks a lane",
    "mooncake_fast25_conversation": "Trace mooncake_fast25_conversation, 16 lanes",
    "mooncake_fast25_synthetic": "Trace mooncake_fast25_synthetic, 16 lanes",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks-per-lane", type=int, default=10_000_000)
    parser.add_argument("--from", dest="source", type=pathlib.Path)
    args = parser.parse_args()
    result = json.loads(args.source.read_text()) if args.source else measure(args.blocks_per_lane)
    result.setdefault("about", describe(result))
    (DOCS / "bench").mkdir(parents=True, exist_ok=True)
    (DOCS / "bench" / "run.json").write_text(json.dumps(result, indent=1) + "\n")
    (DOCS / "BENCHMARKS.md").write_text(document(result))
    for name, svg in plots.all_of(result).items():
        (DOCS / "bench" / name).write_text(svg)


def measure(blocks_per_lane):
    command = ["cargo", "run", "--release", "--", "--blocks-per-lane", str(blocks_per_lane), "--json"]
    return json.loads(subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout)


def describe(result):
    """Where, when and with what a fresh result was measured."""
    arguments = " ".join(result["settings"]["arguments"])
    return {
        "command": f"cd benches/peers && cargo run --release -- {arguments}",
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "rustc": run("rustc", "--version"),
        "revision": run("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"),
        "peers": versions(),
    }


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def machine():
    fields = dict(re.findall(r"^(.+?)\s*:\s*(.+)$", run("lscpu"), re.M))
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    caches = ", ".join(f"{name} {fields[name]}" for name in ("L2 cache", "L3 cache") if name in fields)
    pages = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    huge = re.search(r"\[(\w+)\]", pages.read_text()).group(1) if pages.exists() else "unknown"
    model = f"family {fields.get('CPU family', '?')} model {fields.get('Model', '?')}"
    return (
        f"{fields.get('Model name', fields.get('Architecture'))} ({model}), {os.cpu_count()} processors"
        f"{', virtual machine' if 'Hypervisor vendor' in fields else ''}, {caches}, {memory / 2**20:.0f} GiB memory, "
        f"Linux {os.uname().release.split('-')[0]}, transparent huge pages: {huge}"
    )


def versions():
    lock = (HERE / "Cargo.lock").read_text()
    return {name: re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock).group(1) for name in PEERS}


# --- the document -----------------------------------------------------------------------------


def document(result):
    about = result.get("about", {})
    parts = [
        "# Side by side with the peers",
        "Written by `benches/peers/report.py`; do not edit. What is measured and how: "
        "[benches/peers/README.md](../benches/peers/README.md). All figures of this page are of one run.",
        "\n".join(
            [
                f"- Machine: {about.get('machine', 'not noted')}",
                f"- Command: `{about.get('command', 'not noted')}`",
                f"- Date: {about.get('date', 'not noted')}; {about.get('rustc', '')}; revision {about.get('revision', '?')}",
                f"- Our table asks for huge pages: {'yes' if result.get('settings', {}).get('huge_pages') else 'no'}",
                "- Peers: " + ", ".join(f"`{name}` {version}" for name, version in about.get("peers", {}).items()),
            ]
        ),
        *([about["note"]] if "note" in about else []),
        "## Targets",
        targets(result),
        "## What is not better",
        not_better(result),
        "## Lookups",
        "![Latency of a lookup](bench/lookups.svg)",
        "![Memory against latency](bench/memory.svg)",
    ]
    for name, title in RUNS.items():
        if isinstance(result.get(name), dict) and "workload" in result[name]:
            parts += [f"### {title}", workload(result[name]), lookups(result[name])]
    if "producer" in result:
        parts += ["## Producer", "![Throughput of the producers](bench/producer.svg)", producers(result["producer"])]
    if "filter" in result:
        parts += ["## The bare filter", filters(result["filter"])]
    if "wire" in result:
        parts += ["## On the wire", wire(result["wire"])]
    if "load" in result:
        parts += ["## Open-loop load", load(result["load"]), "![Offered and achieved load](bench/load.svg)"]
    return "\n\n".join(parts) + "\n"


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)] + rows
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def targets(result):
    rows = []
    for row in result["ratios"]:
        verdict = {True: "met", False: "**not met**", None: "not measured"}[row["met"]]
        rows.append(
            [
                row["name"],
                figure(row["value"]),
                f"{row['relation']} {figure(row['target'])}",
                verdict,
                figure(row["value_without_hashing"]) if "value_without_hashing" in row else "",
                figure(row["value_by_medians"]) if "value_by_medians" in row else "",
            ]
        )
    met = sum(row["met"] is True for row in result["ratios"])
    text = (
        f"{met} of {len(result['ratios'])} met. The last columns say what the value would be without the sequence hashing that the "
        "peer's call does and ours does not, and if each request counted once, with the median of its rounds, which leaves out pauses of the machine."
    )
    return text + "\n\n" + table(["target", "value", "wanted", "", "without hashing", "by medians"], rows)


def not_better(result):
    """Everything in this run where a peer is ahead, and what no run shows, as a list."""
    points = []
    missed = [
        f"{row['name']} ({figure(row['value'])}, wanted {row['relation']} {figure(row['target'])})"
        for row in result["ratios"]
        if row["met"] is False
    ]
    if missed:
        points.append("Targets not met: " + "; ".join(missed) + ".")
    for name, title in RUNS.items():
        behind = [text for ours in ("ours.jump", "ours.walk", "ours.local") for text in slower(result.get(name, {}), ours)]
        if behind:
            points.append(f"{title}, with the fastest peer: " + "; ".join(behind) + ".")
    for scenario, mine, theirs in scenarios(result.get("producer", {})):
        behind = []
        if mine["blocks_per_s"] < theirs["blocks_per_s"]:
            behind.append(f"{figure(mine['blocks_per_s'])} blocks/s against {figure(theirs['blocks_per_s'])}")
        for key, label in (("p50_ns", "p50"), ("p999_ns", "p99.9"), ("worst_ns", "slowest command")):
            if mine[key] > theirs[key]:
                behind.append(f"{label} {figure(mine[key] / 1e3)} us against {figure(theirs[key] / 1e3)} us")
        if behind:
            points.append(f"Producer, {scenario}: " + "; ".join(behind) + ".")
    over = sum(found.get("ours.jump", {}).get("over", 0) for name, found in result.items() if name in RUNS)
    points.append(
        f"What no speed makes up for: the exact indexes are exact and name workers; ours names pools and is a filter, and in the runs of this "
        f"page it put a lane deeper than the truth {over} times. It takes sequence hashes; who has only local hashes pays for rolling them (row "
        "`ours.local`), the exact indexes do not. Their time depends on branch points rather than on the length of the prompt, so small indexes "
        "that fit the cache are hard to beat. Our producer keeps a second image of the filter for publication. Dynamo's wire figures are computed "
        "from its published layout, not captured."
    )
    return "\n".join(f"* {point}" for point in points)


def slower(found, ours):
    """Where a peer answers faster than this row of ours."""
    texts = []
    for key, label in (("p50_ns", "p50"), ("p99_ns", "p99")):
        mine = found.get(ours, {}).get(key)
        peers = ("dynamo.filter", "dynamo.tree", "kvindex.chain", "kvindex.find_matches")
        ahead = {peer: found[peer][key] for peer in peers if mine and found.get(peer, {}).get(key, mine) < mine}
        if ahead:
            fastest = min(ahead, key=ahead.get)
            texts.append(f"`{ours}` {label} {figure(mine)} ns (`{fastest}` {figure(ahead[fastest])})")
    return texts


def workload(found):
    about = found["workload"]
    return (
        f"{about['queries']:,} queries of {about['mean_query_blocks']} blocks on average, {about['rounds']} rounds; "
        f"{about['fullest_lane_blocks']:,} blocks in the fullest lane."
    )


def lookups(found):
    rows = []
    for name, row in found.items():
        if not isinstance(row, dict) or "p50_ns" not in row:
            continue
        memory = row.get("mem_bytes")
        rows.append(
            [f"`{name}`"]
            + [figure(row[key]) for key in ("p50_ns", "p90_ns", "p99_ns", "median_p99_ns", "p999_ns", "first_round_p50_ns")]
            + [figure(row["requests_per_s"]), figure(memory / 1e6 if memory is not None else None)]
            + [figure(row["own_bytes"] / 1e6) if row.get("own_bytes") else "-"]
            + [str(row.get(key, "-")) for key in ("over", "under", "wrong_best")]
            + [figure(100 * row["load"]) + " %" if row.get("load") else "-", figure(row.get("install_ms"))]
        )
    head = ["ns per request", "p50", "p90", "p99", "p99 of medians", "p99.9", "first p50", "requests/s", "memory MB", "own account MB"]
    text = table(head + ["over", "under", "wrong best", "filter load", "install ms"], rows)
    if found.get("busy"):
        rows = [
            [f"`{name}`"]
            + [figure(row[state][key]) for state in ("idle", "busy") for key in ("p50_ns", "p99_ns")]
            + [figure(row["p50_ratio"]), figure(row["writes_per_s"])]
            for name, row in found["busy"].items()
        ]
        head = ["with a writer, ns", "idle p50", "idle p99", "busy p50", "busy p99", "p50 busy / idle", "writes/s"]
        text += "\n\n" + table(head, rows)
    return text


def scenarios(producer):
    """(name, ours, theirs) of every scenario that both sides ran."""
    for name, mine in producer.get("ours", {}).items():
        theirs = producer["dynamo"].get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            if "store" in mine:
                size = name.removeprefix("held_")
                yield f"store, {int(size):,} held", mine["store"], theirs["store"]
                yield f"remove, {int(size):,} held", mine["remove"], theirs["remove"]
            else:
                yield name, mine, theirs


def producers(producer):
    rows = []
    for name, mine, theirs in scenarios(producer):
        rows.append(
            [name]
            + [figure(side["blocks_per_s"] / 1e6) for side in (mine, theirs)]
            + [figure(mine["blocks_per_s"] / theirs["blocks_per_s"])]
            + [figure(side[key] / 1e3) for key in ("p50_ns", "p999_ns", "worst_ns") for side in (mine, theirs)]
        )
    head = ["M blocks/s; us per command", "ours", "Dynamo", "ratio", "p50 ours", "Dynamo", "p99.9 ours", "Dynamo", "worst ours", "Dynamo"]
    text = table(head, rows)
    rows = [
        [f"{int(name.removeprefix('held_')):,}"]
        + [str(producer[side][name][key]) for key in ("bytes_per_edge", "resident_bytes_per_edge", "own_bytes_per_edge") for side in ("ours", "dynamo")]
        for name in producer["ours"]
        if name.startswith("held_")
    ]
    head = ["bytes per edge, without the filter", "allocated ours", "Dynamo", "resident ours", "Dynamo", "own account ours", "Dynamo"]
    note = f"Dynamo's store includes sequence hashing, {producer['hashing_ns_per_block']} ns a block when timed alone."
    return text + "\n\n" + table(head, rows) + "\n\n" + note


def filters(found):
    keys = ["insert_ns", "hit_ns", "miss_ns", "remove_ns", "bytes_per_item", "false_positive_rate", "refused"]
    rows = [[f"`{name}`"] + [figure(row[key]) for key in keys] for name, row in found.items()]
    items = next(iter(found.values()))["items"]
    return table([f"{items:,} items, ns each"] + [key.replace("_", " ") for key in keys], rows)


def wire(found):
    keys = ["snapshot_bytes", "store_bytes_per_block", "remove_bytes_per_block", "decode_bytes_per_block"]
    names = {"ours": "ours, same table", "dynamo": "Dynamo, same table", "ours_at_default_load": "ours, own size"}
    rows = [
        [title, figure(100 * found[name].get("load", found["load"])) + " %"] + [figure(found[name][key]) for key in keys]
        for name, title in names.items()
    ]
    return table(["bytes", "load", "snapshot", "store, per block", "remove, per block", "single blocks, batch of 16, per block"], rows)


def load(found):
    rows = []
    for side in ("ours", "dynamo"):
        for cell in sorted(found[side]["cells"], key=lambda cell: cell.get("offered_ops_per_s", 0)):
            if "failed" in cell:
                rows.append([side, "failed"] + ["-"] * 6)
                continue
            rows.append(
                [side]
                + [figure(cell[key] / 1e6) for key in ("offered_ops_per_s", "achieved_ops_per_s")]
                + [figure(cell["final_drain_s"] * 1e3)]
                + [figure(cell["lookup_latency"][key] / 1e3) for key in ("p50_ns", "p99_ns", "p999_ns")]
                + ["yes" if cell["kept_up"] else "no"]
            )
    highest = {side: found[side]["kept_up_ops_per_s"] for side in ("ours", "dynamo")}
    text = (
        f"Highest load kept up with: ours {figure(highest['ours'] / 1e6)} M block operations/s, Dynamo's {figure(highest['dynamo'] / 1e6)} M/s. "
        "A block looked up, stored or removed is one operation; 16 pools, one consumer, the conversation trace for several tenants at once; "
        f"each cell offers its rate for {found['window_s']} s in a process of its own, and is kept up with when all is applied and drained within 1.10 times that. "
        "Lookup latency counts from the moment a request was due."
    )
    head = ["side", "offered M/s", "achieved M/s", "drain ms", "lookup p50 us", "p99 us", "p99.9 us", "kept up"]
    return text + "\n\n" + table(head, rows)


if __name__ == "__main__":
    main()
