"""Plots of a harness result as plain SVG; no library needed."""
import math

COLORS = {
    "ours.jump": "#1b6ca8",
    "ours.walk": "#4f9bd0",
    "ours.batch8": "#0d3b5e",
    "ours.local": "#89bfe4",
    "dynamo.filter": "#c0504d",
    "dynamo.tree": "#dd8a4c",
    "kvindex.chain": "#7f9a48",
    "ours": "#1b6ca8",
    "dynamo": "#c0504d",
}
ROWS = [name for name in COLORS if "." in name]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 360, 70, 150, 40, 50


def all_of(result):
    """File name -> SVG, for every plot whose figures are there."""
    made = {
        "lookups.svg": lookups(result),
        "memory.svg": memory(result),
        "producer.svg": producer(result.get("producer")),
        "load.svg": load(result.get("load")),
    }
    return {name: svg for name, svg in made.items() if svg}


class Canvas:
    """A chart with a logarithmic or linear vertical axis."""

    def __init__(self, title, unit, low, high, log=True):
        self.low, self.high, self.log = low, high, log
        self.parts = [text(LEFT, 22, title, 15, "start", "bold"), text(LEFT, TOP - 4, unit, 11, "start")]
        for tick in ticks(low, high, log):
            y = self.y(tick)
            self.parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            self.parts.append(text(LEFT - 6, y + 4, f"{tick:g}", 11, "end"))

    def y(self, value):
        scale = math.log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def bars(self, groups, series):
        """`series`: name -> a value for each group; None leaves a gap."""
        step = (WIDTH - LEFT - RIGHT) / len(groups)
        width = step * 0.85 / len(series)
        for at, group in enumerate(groups):
            for line, words in enumerate(group.split("\n")):
                self.parts.append(text(LEFT + step * (at + 0.5), HEIGHT - BOTTOM + 16 + 14 * line, words, 11))
            for number, (name, values) in enumerate(series.items()):
                if values[at] is None:
                    continue
                x, y = LEFT + step * (at + 0.075) + width * number, self.y(values[at])
                self.parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.92:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
                    f'fill="{COLORS[name]}"><title>{name}: {values[at]:g}</title></rect>'
                )
        self.legend(series)

    def legend(self, names):
        for at, name in enumerate(names):
            y = TOP + 10 + 20 * at
            self.parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y}" width="12" height="12" fill="{COLORS[name]}"/>')
            self.parts.append(text(WIDTH - RIGHT + 32, y + 11, name, 12, "start"))

    def svg(self):
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
        return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>'] + self.parts + ["</svg>"]) + "\n"


def text(x, y, content, size, anchor="middle", weight="normal"):
    content = content.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{content}</text>'


def ticks(low, high, log):
    if not log:
        step = 10 ** math.floor(math.log10(max(high, 1e-9)))
        return [step * count for count in range(int(high / step) + 1)]
    steps = [factor * 10.0**power for power in range(-3, 9) for factor in (1, 2, 5)]
    return [tick for tick in steps if low <= tick <= high]


def lookups(result):
    runs = [("families_1000000", "1 M"), ("families_10000000", "10 M")]
    runs = [(run, label) for run, label in runs if run in result]
    groups = [f"{label}, {figure}" for run, label in runs for figure in ("p50", "p99")]
    series = {
        name: [result[run].get(name, {}).get(key) for run, _ in runs for key in ("p50_ns", "p99_ns")] for name in ROWS
    }
    series = {name: values for name, values in series.items() if any(values)}
    values = [value for values in series.values() for value in values if value]
    if not values:
        return None
    canvas = Canvas("A lookup, 16 lanes", "ns per request", min(values) / 2, max(values) * 1.3)
    canvas.bars(groups, series)
    return canvas.svg()


def memory(result):
    found = result.get("families_10000000") or result.get("families")
    if not found:
        return None
    names = [name for name in ("ours.jump", "ours.walk", "dynamo.filter", "dynamo.tree", "kvindex.chain") if name in found]
    points = {name: (found[name]["mem_bytes"] / 1e6, found[name]["p50_ns"]) for name in names}
    latencies = [latency for _, latency in points.values()]
    widest = max(size for size, _ in points.values()) * 1.1
    canvas = Canvas("Memory for lookups against p50 latency", "ns", min(latencies) / 2, max(latencies) * 1.5)
    for tick in ticks(0, widest, False):
        x = LEFT + tick / widest * (WIDTH - LEFT - RIGHT)
        canvas.parts.append(text(x, HEIGHT - BOTTOM + 18, f"{tick:g} MB", 11))
    for name, (size, latency) in points.items():
        x = LEFT + size / widest * (WIDTH - LEFT - RIGHT)
        canvas.parts.append(f'<circle cx="{x:.1f}" cy="{canvas.y(latency):.1f}" r="7" fill="{COLORS[name]}"><title>{name}</title></circle>')
    canvas.legend(points)
    return canvas.svg()


def producer(found):
    if not found:
        return None
    held = [name for name in found["ours"] if name.startswith("held_")]
    groups = [f"{phase}\n{int(name.removeprefix('held_')) / 1e6:g} M" for phase in ("store", "remove") for name in held] + ["mixed", "single"]
    series = {
        side: [found[side][name][f"{phase}_blocks_per_s"] / 1e6 for phase in ("store", "remove") for name in held]
        + [found[side][f"{name}_blocks_per_s"] / 1e6 for name in ("mixed", "decode")]
        for side in ("ours", "dynamo")
    }
    highest = max(value for values in series.values() for value in values)
    canvas = Canvas("Producer throughput", "M blocks/s", 0, highest * 1.05, log=False)
    canvas.bars(groups, series)
    return canvas.svg()


def load(found):
    if not found:
        return None
    cells = {side: [cell for cell in found[side]["cells"] if "failed" not in cell] for side in ("ours", "dynamo")}
    cells = {side: sorted(of, key=lambda cell: cell["offered_ops_per_s"]) for side, of in cells.items() if of}
    if not cells:
        return None
    highest = max(cell["offered_ops_per_s"] for of in cells.values() for cell in of) / 1e6 * 1.05
    canvas = Canvas("Load: achieved against offered", "M block operations/s achieved", 0, highest, log=False)

    def place(cell):
        x = LEFT + cell["offered_ops_per_s"] / 1e6 / highest * (WIDTH - LEFT - RIGHT)
        return x, canvas.y(cell["achieved_ops_per_s"] / 1e6)

    for tick in ticks(0, highest, False):
        x = LEFT + tick / highest * (WIDTH - LEFT - RIGHT)
        canvas.parts.append(text(x, HEIGHT - BOTTOM + 18, f"{tick:g}", 11))
    canvas.parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "M block operations/s offered", 11))
    for side, of in cells.items():
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, of))
        canvas.parts.append(f'<polyline points="{line}" fill="none" stroke="{COLORS[side]}" stroke-width="2"/>')
        for cell in of:
            x, y = place(cell)
            fill = COLORS[side] if cell["kept_up"] else "white"
            canvas.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{COLORS[side]}"/>')
    canvas.legend(cells)
    return canvas.svg()
