"""The table of bench/run: one row per figure, with its peer, their ratio and its target."""
import statistics
import sys


def spell(value, unit):
    if value is None:
        return "unknown"
    if unit == "ns":
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.0f} ns"
    if unit == "bytes":
        return f"{value / 1024:.0f} KiB" if value < 4 << 20 else f"{value / (1 << 20):.1f} MiB"
    if unit == "share":
        return f"{value * 100:.3f} %"
    if unit == "error":
        return f"{value * 100:.2f} %"
    if unit == "per s":
        return f"{value:.0f}/s"
    return f"{value:g}"


class Table:
    def __init__(self, quiet):
        self.quiet = quiet
        self.rows = []
        self.skipped = []

    def row(self, where, what, ours, unit, peer_name=None, peer=None, target=None, of="ratio", ratios=None):
        """Adds one figure.  `of` says what the target limits: the ratio to the peer, from above ("ratio") or from below
        ("least"); our value ("value"); or our value minus that of the peer ("excess").
        ratios has the ratio of each pair of turns; the table shows their median and range."""
        ratio = statistics.median(ratios) if ratios else ours / peer if peer else None
        bounded = {"ratio": ratio, "least": ratio, "value": ours, "excess": ours - (peer or 0)}[of]
        good = target is None or (bounded >= target if of == "least" else bounded <= target)
        self.rows.append({"where": where, "figure": what, "value": ours, "unit": unit, "peer": peer_name, "peer_value": peer,
                          "ratio": ratio, "ratio_low": min(ratios) if ratios else None, "ratio_high": max(ratios) if ratios else None,
                          "target": target, "target_of": of if target is not None else None,
                          "verdict": None if target is None else "ok" if good else "OVER" if of != "least" else "UNDER"})
        if not self.quiet:
            self.show(self.rows[-1])

    def turns(self, where, what, unit, peer_name, ours, theirs, target=None, of="ratio"):
        """Adds one figure from two lists.  The two values of a pair were measured directly after each other."""
        ratios = [a / b for a, b in zip(ours, theirs) if b]
        self.row(where, what, statistics.median(ours), unit, peer_name, statistics.median(theirs), target, of, ratios)

    def skip(self, what, remedy):
        """Adds a line for a peer that is not installed."""
        self.skipped.append({"peer": what, "remedy": remedy})
        print(f"bench: skipped: {what}; {remedy}", file=sys.stderr, flush=True)

    @staticmethod
    def show(r):
        ratio = f"{r['ratio']:.3g} x" if r["ratio"] else ""
        if r["ratio_low"] is not None and r["ratio_low"] != r["ratio_high"]:
            ratio += f" ({r['ratio_low']:.3g} to {r['ratio_high']:.3g})"
        peer = f"{spell(r['peer_value'], r['unit'])} {r['peer']}" if r["peer"] else ""
        bound = ""
        if r["target"] is not None:
            bound = {"ratio": f"<= {r['target']:g} x", "least": f">= {r['target']:g} x"}.get(
                r["target_of"], "<= " + spell(r["target"], r["unit"]) + (" more" if r["target_of"] == "excess" else ""))
        print(f"{r['where']:<10} {r['figure']:<46} {spell(r['value'], r['unit']):>10}  {peer:<24} {ratio:<22}  {bound:<14} "
              f"{r['verdict'] or ''}".rstrip(), flush=True)

    def good(self):
        return all(r["verdict"] in (None, "ok") for r in self.rows)
