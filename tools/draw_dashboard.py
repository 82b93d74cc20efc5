#!/usr/bin/env python3
"""Draws the Grafana dashboard from data of a Prometheus server, without Grafana.

    tools/draw_dashboard.py --prometheus http://127.0.0.1:9090 --minutes 10 --out dashboard.png

tests/observability/dashboard_picture.py makes the docs' picture with it. The PNG's text `panels` is JSON, [title,
queries] of each drawn panel, so that a test can compare picture and dashboard.
"""
import argparse
import json
import math
import time
import urllib.parse
import urllib.request
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

DASHBOARD = Path(__file__).resolve().parent.parent / "deploy/grafana/dashboards/hilbert-ring.json"
COLUMN, ROW, GAP = 62, 34, 8  # pixels: a cell of Grafana's grid, and the space between panels
BACKGROUND, PANEL, INK, FAINT = "#f4f5f5", "#ffffff", "#24292e", "#8e8e8e"
COLORS = ["#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#d62728", "#17becf", "#8c564b", "#e377c2",
          "#bcbd22", "#7f7f7f"]


def font(size):
    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default()


SMALL, TITLE, LARGE = font(11), font(13), font(28)


def ask(prometheus, path, **arguments):
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)["data"]["result"]


def in_words(value, unit):
    """Formats a number with one of Grafana's units, like Grafana."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    suffix = {"bytes": "B", "Bps": "B/s", "flops": "FLOP/s", "s": "s", "ops": "/s", "reqps": "/s"}
    base = 1024 if unit in ("bytes", "Bps") else 1000
    steps = ["", "Ki", "Mi", "Gi", "Ti"] if base == 1024 else ["", "k", "M", "G", "T", "P"]
    step = 0
    while abs(value) >= base and step + 1 < len(steps):
        value /= base
        step += 1
    if unit == "s" and 0 < abs(value) < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} {steps[step]}{suffix.get(unit, '')}".strip()


def drawn_panels(panels):
    """Returns title and queries of each panel."""
    return [[panel["title"], [target["expr"] for target in panel.get("targets", [])]] for panel in panels]


def legend_of(target, labels):
    text = target["legendFormat"]
    for name, value in labels.items():
        text = text.replace("{{%s}}" % name, value)
    while "{{" in text:
        text = text[:text.index("{{")] + text[text.index("}}") + 2:]
    return text.strip() or "value"


class Canvas:
    def __init__(self, panels):
        height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        self.image = Image.new("RGB", (24 * COLUMN + GAP, height * ROW + GAP), BACKGROUND)
        self.draw = ImageDraw.Draw(self.image)

    def box(self, panel):
        at = panel["gridPos"]
        return (at["x"] * COLUMN + GAP, at["y"] * ROW + GAP, (at["x"] + at["w"]) * COLUMN,
                (at["y"] + at["h"]) * ROW)

    def frame(self, panel):
        left, top, right, bottom = self.box(panel)
        self.draw.rectangle((left, top, right, bottom), fill=PANEL, outline="#dcdcdc")
        self.draw.text((left + 8, top + 6), panel["title"], fill=INK, font=TITLE)
        return left + 8, top + 28, right - 10, bottom - 8

    def row(self, panel):
        left, top, _, _ = self.box(panel)
        self.draw.text((left, top + 8), panel["title"], fill=INK, font=TITLE)

    def stat(self, panel, result):
        left, top, _, _ = self.frame(panel)
        defaults = panel["fieldConfig"]["defaults"]
        text = "no data"
        if result:
            value = float(result[0]["value"][1])
            text = in_words(value, defaults["unit"])
            for mapping in defaults.get("mappings", []):
                text = mapping["options"].get(f"{value:g}", {}).get("text", text)
        self.draw.text((left, top + 24), text, fill="#1a7f37", font=LARGE)

    def table(self, panel, result):
        left, top, _, _ = self.frame(panel)
        columns = ["worker", "state", "device", "kernel", "transport"]
        for place, cells in enumerate([columns] + [[series["metric"].get(name, "") for name in columns]
                                                   for series in result]):
            for column, cell in enumerate(cells):
                self.draw.text((left + 260 * column, top + 20 * place), cell,
                               fill=FAINT if place == 0 else INK, font=SMALL)

    def lines(self, panel, series, begin, end):
        left, top, right, bottom = self.frame(panel)
        bottom -= 34  # room for the legend
        left += 64  # room for the axis' numbers
        defaults = panel["fieldConfig"]["defaults"]
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        if stacked:
            below = {}
            for _, points in series:
                for at, value in list(points.items()):
                    points[at] = below[at] = below.get(at, 0) + value
        values = [value for _, points in series for value in points.values()]
        low = defaults.get("min", 0)
        high = max([*values, low + 1e-9]) * 1.08
        high = min(high, defaults["max"]) if "max" in defaults else high
        for step in range(5):
            value = low + (high - low) * step / 4
            y = bottom - (bottom - top) * step / 4
            self.draw.line((left, y, right, y), fill="#e6e6e6")
            self.draw.text((left - 60, y - 6), in_words(value, defaults["unit"]), fill=FAINT, font=SMALL)

        def place(at, value):
            share = (min(value, high) - low) / (high - low)
            return left + (right - left) * (at - begin) / (end - begin), bottom - (bottom - top) * share

        drawn = list(enumerate(series))
        for index, (_, points) in reversed(drawn) if stacked else drawn:
            path = [place(at, value) for at, value in sorted(points.items())]
            color = COLORS[index % len(COLORS)]
            if stacked and len(path) > 1:
                self.draw.polygon([(path[0][0], bottom), *path, (path[-1][0], bottom)], fill=color)
            elif len(path) > 1:
                self.draw.line(path, fill=color, width=2)
        x, y = left - 60, bottom + 14
        for index, (name, _) in drawn:
            width = self.draw.textlength(name, font=SMALL) + 26
            if x + width > right:
                x, y = left - 60, y + 14
            if y > bottom + 30:
                break
            self.draw.rectangle((x, y + 2, x + 9, y + 10), fill=COLORS[index % len(COLORS)])
            self.draw.text((x + 13, y), name, fill=INK, font=SMALL)
            x += width


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate-interval", default="1m", help="in place of $__rate_interval")
    parser.add_argument("--out", required=True)
    parser.add_argument("--all-have-data", action="store_true", help="fail without a picture if a panel has no data")
    given = parser.parse_args()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    end = time.time()
    begin = end - 60 * given.minutes
    canvas = Canvas(panels)
    silent = []
    for panel in panels:
        if panel["type"] == "row":
            canvas.row(panel)
            continue
        targets = panel["targets"]
        queries = [target["expr"].replace("$__rate_interval", given.rate_interval)
                   for target in targets]
        if panel["type"] != "timeseries":
            result = ask(given.prometheus, "query", query=queries[0])
            if not result:
                silent.append(panel["title"])
            (canvas.stat if panel["type"] == "stat" else canvas.table)(panel, result)
            continue
        series = []
        for target, query in zip(targets, queries):
            for one in ask(given.prometheus, "query_range", query=query, start=begin, end=end,
                           step=max(1, round((end - begin) / 300))):
                points = {float(at): float(value) for at, value in one["values"]
                          if math.isfinite(float(value))}
                if points:
                    series.append((legend_of(target, one["metric"]), points))
        if not series:
            silent.append(panel["title"])
        # Series that are always 0 would crowd the legend.
        shown = [one for one in series if any(one[1].values())] or series[:1]
        canvas.lines(panel, shown, begin, end)
    if silent and given.all_have_data:
        raise SystemExit(f"without data: {', '.join(silent)}")
    text = PngImagePlugin.PngInfo()
    text.add_text("panels", json.dumps(drawn_panels(panels)))
    canvas.image.save(given.out, optimize=True, pnginfo=text)


if __name__ == "__main__":
    main()
