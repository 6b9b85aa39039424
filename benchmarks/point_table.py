# ruff: noqa
"""Writes what point_variants.py measured into the table of tiles: point_table.py FOLDER [forward] [gradients] [filters]."""
import json, sys
from pathlib import Path
root = Path(__file__).resolve().parents[1]
path = root / "core/gpu/tiles.json"
table = json.loads(path.read_text())
KEYS = ("arithmetic", "direction", "rows", "columns", "depth", "splits", "tile", "microseconds")
def find(direction, rows, columns, depth):
    return next((r for r in table if (r["arithmetic"], r["direction"], r["rows"], r["columns"], r["depth"]) == ("bf16", direction, rows, columns, depth)), None)
for kind in sys.argv[2:]:
    direction = f"boxes_{kind}"
    table = [r for r in table if r["direction"] != direction]
    seen = set()
    for row in json.loads((Path(sys.argv[1]) / f"{kind}.json").read_text()):
        n, c, d = row["rows"], row["columns"], row["depth"]
        if row["microseconds"] > 1e9 or (n, c, d) in seen: continue
        seen.add((n, c, d))
        others = [find("forward", n, c, d)] if kind == "forward" else [find("backward_weight", n, c, d)] if kind == "filters" else [find("backward_input", n, c, d), find("backward_weight", n, d, c)]
        known = sum(o["microseconds"] for o in others) if all(others) else None
        if known and (row["microseconds"] < row["theirs"]) != (row["microseconds"] < known):
            print("measured again:", kind, n, c, d, "ours", row["microseconds"], "theirs", row["theirs"], "table", known)
            for o in others: o["microseconds"] = round(o["microseconds"] * row["theirs"] / known, 1)
        elif not known: print("no row of the others:", kind, n, c, d, row["microseconds"], row["theirs"])
        table.append({k: row[k] for k in KEYS})
table.sort(key=lambda r: (r["arithmetic"], r["direction"], r["rows"], r["columns"], r["depth"]))
path.write_text("[\n" + ",\n".join(json.dumps(r) for r in table) + "\n]\n")
