"""The ways of messages between queues as a drawn graph: queues in columns from left to right, ways as bands as wide as the messages
that went them, and those that lead back to an earlier queue drawn underneath, with an arrow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..words import number, plural

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, MARGIN, TOP = 960, 44, 18
NODE, GAP, LEAST = 11, 16, 3.0
#: Pixels for the busiest column, and for a lane under the picture.
BUSIEST, LANE = 240, 15
#: Letters of a name that are shown, where there is room between the columns, and where there is little.
NAME, SHORT = 28, 16


@dataclass(slots=True)
class _Way:
    source: str
    target: str
    why: str
    messages: int
    circling: int
    back: bool = False

    @property
    def css(self) -> str:
        return "circling" if self.circling else self.why


@dataclass(slots=True)
class _Node:
    name: str
    column: int = 0
    y: float = 0.0
    height: float = 0.0
    left: float = 0.0
    right: float = 0.0
    ins: list[_Way] = field(default_factory=list)
    outs: list[_Way] = field(default_factory=list)


def drawn_flow(rows: Sequence[Mapping[str, Any]], title: str) -> Markup:
    """``rows`` of ``flow`` as an SVG picture."""
    from markupsafe import Markup

    ways = [_Way(*(row[name] for name in ("source", "target", "why", "messages", "circling"))) for row in rows]
    nodes = _columns(ways)
    bottom = _place(nodes)
    widths = _scale(nodes)
    back = sorted((way for way in ways if way.back), key=lambda way: abs(nodes[way.source].column - nodes[way.target].column))
    parts = [_forward(way, nodes, widths) for way in ways if not way.back]
    parts += [_back(way, nodes, bottom + LANE * (lane + 1)) for lane, way in enumerate(back)]
    parts += [_node(node, max(each.column for each in nodes.values())) for node in nodes.values()]
    height = bottom + LANE * (len(back) + 1) + 6
    frame = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return frame.format(WIDTH, f"{height:.0f}", title, Markup("").join(parts))


def _columns(ways: Sequence[_Way]) -> dict[str, _Node]:
    """Every queue stands to the right of those that lead to it; a way that would close a circle is a way back. Redrives yield first."""
    nodes: dict[str, _Node] = {}
    ahead: dict[str, set[str]] = defaultdict(set)
    for way in sorted(ways, key=lambda way: (way.why == "redriven", -way.messages)):
        for name in (way.source, way.target):
            nodes.setdefault(name, _Node(name))
        way.back = way.source == way.target or _leads(ahead, way.target, way.source)
        if not way.back:
            ahead[way.source].add(way.target)
            nodes[way.source].outs.append(way)
            nodes[way.target].ins.append(way)
    for _ in nodes:  # the longest chain has at most as many links
        for source, targets in ahead.items():
            for target in targets:
                nodes[target].column = max(nodes[target].column, nodes[source].column + 1)
    return nodes


def _leads(ahead: Mapping[str, set[str]], start: str, end: str) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        for each in ahead.get(waiting.pop(), ()):
            if each == end:
                return True
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return False


def _volume(node: _Node) -> int:
    return max(sum(way.messages for way in node.ins), sum(way.messages for way in node.outs), 1)


def _pixels(nodes: Mapping[str, _Node]) -> float:
    """Pixels a message, so that the busiest column fills BUSIEST."""
    of_column: dict[int, int] = defaultdict(int)
    for node in nodes.values():
        of_column[node.column] += _volume(node)
    return BUSIEST / max(of_column.values())


def _place(nodes: Mapping[str, _Node]) -> float:
    """Gives every node its place and height; returns the bottom. Nodes are ordered by where their neighbours on the left are."""
    pixels = _pixels(nodes)
    bottom = 0.0
    for column in range(max(node.column for node in nodes.values()) + 1):
        own = [node for node in nodes.values() if node.column == column]
        own.sort(key=lambda node: (_from_left(node, nodes), -_volume(node), node.name))
        y = float(TOP)
        for node in own:
            widths = [max(LEAST, way.messages * pixels) for way in node.ins], [max(LEAST, way.messages * pixels) for way in node.outs]
            node.y, node.height = y, max(12.0, sum(widths[0]), sum(widths[1]))
            y += node.height + GAP
        bottom = max(bottom, y)
    return bottom


def _from_left(node: _Node, nodes: Mapping[str, _Node]) -> float:
    if not node.ins:
        return 0.0
    return sum(nodes[way.source].y * way.messages for way in node.ins) / sum(way.messages for way in node.ins)


def _scale(nodes: Mapping[str, _Node]) -> dict[int, tuple[float, float, float]]:
    """id of a way -> (width, y at its source, y at its target): stacked in the order of the nodes at the other end."""
    pixels = _pixels(nodes)
    found: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for node in nodes.values():
        for side, ways in ((1, node.outs), (2, node.ins)):
            y = node.y + (node.height - sum(max(LEAST, way.messages * pixels) for way in ways)) / 2
            for way in sorted(ways, key=lambda way: nodes[way.target if side == 1 else way.source].y):
                width = max(LEAST, way.messages * pixels)
                found[id(way)][0], found[id(way)][side] = width, y + width / 2
                y += width
    return {key: (value[0], value[1], value[2]) for key, value in found.items()}


def _x(column: int, last: int) -> float:
    return MARGIN + column * (WIDTH - 2 * MARGIN - NODE) / max(last, 1)


def _last(nodes: Mapping[str, _Node]) -> int:
    return max(node.column for node in nodes.values())


def _describe(way: _Way) -> str:
    circles = f", {plural(way.circling, 'message')} in circles" if way.circling else ""
    return f"{way.source} → {way.target}: {plural(way.messages, 'message')} {way.why}{circles}"


def _forward(way: _Way, nodes: Mapping[str, _Node], widths: Mapping[int, tuple[float, float, float]]) -> Markup:
    from markupsafe import Markup

    last = _last(nodes)
    width, y1, y2 = widths[id(way)]
    x1, x2 = _x(nodes[way.source].column, last) + NODE, _x(nodes[way.target].column, last)
    middle = (x1 + x2) / 2
    path = f"M{x1:.1f},{y1:.1f}C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    label = Markup('<text class="axis halo" x="{}" y="{}" text-anchor="middle">{}</text>')
    label = label.format(f"{middle:.1f}", f"{(y1 + y2) / 2 + 4:.1f}", number(way.messages))
    band = Markup('<g class="way"><path class="{}" d="{}" stroke-width="{}"/><title>{}</title>{}</g>')
    return band.format(way.css, path, f"{width:.1f}", _describe(way), label)


def _back(way: _Way, nodes: Mapping[str, _Node], lane_y: float) -> Markup:
    """Down on the right of its source, along under the picture, and up on the left of its target."""
    from markupsafe import Markup

    last = _last(nodes)
    source, target = nodes[way.source], nodes[way.target]
    y1, y2 = source.y + source.height / 2, target.y + target.height / 2
    x1, x2 = _x(source.column, last) + NODE, _x(target.column, last)
    out, into = x1 + 14, x2 - 14
    path = (
        f"M{x1:.1f},{y1:.1f}C{out + 12:.1f},{y1:.1f} {out + 12:.1f},{lane_y:.1f} {out - 12:.1f},{lane_y:.1f}"
        f"H{into + 12:.1f}C{into - 12:.1f},{lane_y:.1f} {into - 12:.1f},{y2:.1f} {x2 - 8:.1f},{y2:.1f}"
    )
    tip = f"M{x2 - 9:.1f},{y2 - 5:.1f}L{x2 - 1:.1f},{y2:.1f}L{x2 - 9:.1f},{y2 + 5:.1f}z"
    label = Markup('<text class="axis halo" x="{}" y="{}" text-anchor="middle">{}</text>')
    text = label.format(f"{(x1 + x2) / 2:.1f}", f"{lane_y + 4:.1f}", number(way.messages))
    line = Markup('<g class="way back"><path class="{}" d="{}"/><path class="tip {}" d="{}"/><title>{}</title>{}</g>')
    return line.format(way.css, path, way.css, tip, _describe(way), text)


def _node(node: _Node, last: int) -> Markup:
    from markupsafe import Markup

    x, y = _x(node.column, last), node.y + node.height / 2 + 4
    most = NAME if last <= 2 else SHORT
    name = node.name if len(node.name) <= most else f"{node.name[: most - 1]}…"
    if node.column == 0:
        at, anchor = x + NODE + 8, "start"
    elif node.column == last:
        at, anchor = x - 8, "end"
    else:
        at, anchor, y = x + NODE / 2, "middle", node.y - 4
    box = Markup('<g><rect class="node" x="{}" y="{}" width="{}" height="{}" rx="2"/><text class="name halo" x="{}" y="{}" ')
    text = Markup('text-anchor="{}">{}</text><title>{}</title></g>')
    return box.format(f"{x:.1f}", f"{node.y:.1f}", NODE, f"{node.height:.1f}", f"{at:.1f}", f"{y:.1f}") + text.format(
        anchor, name, f"{node.name}: {number(_volume(node))} in or out"
    )
