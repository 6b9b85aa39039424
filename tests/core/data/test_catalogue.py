"""The catalogue of public photo sets says of each the same things, and keeps no photos."""

import tomllib
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "datasets"
FIELDS = {"name", "source", "crops", "setting", "layout", "licence", "groups", "problems", "evidence"}
OPTIONAL = {"commit", "photos", "copy"}


def entries():
    return tomllib.loads((FOLDER / "catalogue.toml").read_text("utf-8"))["dataset"]


def test_every_set_is_there_once_and_says_the_same_things():
    names = [entry["name"] for entry in entries()]
    assert len(set(names)) == len(names)
    assert len(names) >= 15
    for entry in entries():
        assert FIELDS <= set(entry) <= FIELDS | OPTIONAL, entry["name"]
        assert entry["source"].startswith("https://")
        assert entry["setting"] in ("lab", "field", "mixed")
        assert entry["layout"] in ("classes", "crop/condition", "split/classes", "other")
        assert len(entry.get("commit", "0" * 40)) == 40
        assert entry["evidence"] or not entry["problems"], f"{entry['name']}: who says so?"


def test_the_photos_measured_on_add_up():
    gathered = {"iBean": 1153}  # its published splits less the photos of its test split
    counts = [gathered.get(e["name"], e["photos"]) for e in entries() if "commit" in e]
    assert sum(counts) == 17_445


def test_there_are_no_photos_here():
    assert {p.suffix for p in FOLDER.rglob("*") if p.is_file()} <= {".md", ".toml"}
