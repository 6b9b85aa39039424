"""A run as a Chrome trace; which steps have their kernels timed, and the table of their times."""

import json
import os
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.device import KernelTime
from core.errors import StorageError
from core.training.events import CheckpointSaved, EpochDone, KernelTimes, RunStarted, StepDone
from core.training.kernel_timing import LEAST_STEPS, SHARE, KernelSampling, KernelTable
from core.training.trace import TraceWriter

TIMES = (KernelTime("conv1", "forward", "tiled", 2.0, 8_000_000, 4_000_000, 0.5),
         KernelTime("relu", "forward", "fused", 1.0, 0, 2_000_000, 0.5),
         KernelTime("relu", "backward_input", "fused", 1.0, 0, 2_000_000, 0.25),
         KernelTime("conv1", "backward_weight", "tiled", 3.0, 8_000_000, 4_000_000, 0.5))  # fmt: skip
EVENTS = [RunStarted("runs/ü", "cnn", "cpu", ("a", "b"), 100, 20, 20, 1, 2, 0, 5 << 20, ("tiled",)),
          StepDone(1, 0, 1.0, 0.5, 1e-3, 10, 0.1, 0.02), KernelTimes(1, TIMES, 0.01),
          StepDone(2, 0, 0.9, 0.5, 1e-3, 10, 0.2, 0.0),
          EpochDone(0, 2, 0.3, 0.8, 0.25, 0.9, True, ((9, 1), (1, 9)), 1.0, 100.0, 5 << 20),
          CheckpointSaved(2, "runs/ü/last.safetensors", True)]  # fmt: skip
FIELDS = {"X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
          "i": {"name", "cat", "ts", "pid", "tid", "s", "args"}, "M": {"name", "pid", "tid", "args"}}  # fmt: skip


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock by which a quarter of a second passes before each event."""
    ticks = (i / 4 for i in range(100))
    monkeypatch.setattr("core.training.trace.time", SimpleNamespace(perf_counter=lambda: next(ticks)))


def written(path, events=EVENTS):
    writer = TraceWriter(path)
    for event in events:
        writer.show(event)
    writer.close()
    return json.loads(path.read_text("utf-8"))


def check_schema(trace):
    """As the "Trace Event Format" asks for complete (X), instant (i) and metadata (M) events."""
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    by_thread = defaultdict(list)
    for event in trace["traceEvents"]:
        assert set(event) - {"ph"} == FIELDS[event["ph"]], event
        assert [type(event[key]) for key in ("name", "args", "pid", "tid")] == [str, dict, int, int]
        assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
        assert event.get("s", "g") in ("g", "p", "t")
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        if event["ph"] == "X":
            by_thread[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    for spans in by_thread.values():
        open_ends = []
        for begin, length in sorted(spans):
            while open_ends and open_ends[-1] <= begin + 1e-3:
                open_ends.pop()
            end = begin - length
            assert not open_ends or end <= open_ends[-1] + 1e-3, "an event reaches beyond the one around it"
            open_ends.append(end)


def test_a_run_becomes_a_trace_that_follows_the_format(tmp_path):
    trace = written(tmp_path / "out.json")
    check_schema(trace)
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    names = [e["name"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {"step 1", "step 2", "waiting for data", "epoch 1", "validation", "forward", "backward"} <= set(names)


def test_a_timed_step_holds_its_passes_layers_and_kernels_with_their_rates(tmp_path):
    events = [e for e in written(tmp_path / "out.json")["traceEvents"] if e["ph"] == "X" and e["tid"] == 2]
    assert [e["cat"] for e in events] == ["step", "pass", *("layer", "kernel") * 2, "pass", *("layer", "kernel") * 2]
    kernels = [e for e in events if e["cat"] == "kernel"]
    rates = [kernels[0]["args"][name] for name in ("GFLOP/s", "GB/s", "share of floor")]
    assert (kernels[0]["dur"], *rates) == pytest.approx((2000, 4.0, 2.0, 0.25))
    assert events[0]["ts"] == pytest.approx(1e6 * 0.75 - 7000)
    assert events[0]["dur"] == pytest.approx(sum(e["dur"] for e in kernels))


def test_a_run_that_broke_leaves_a_whole_trace_and_a_bad_place_meets_a_sentence(tmp_path):
    check_schema(written(tmp_path / "out.json", EVENTS[:2]))
    TraceWriter(tmp_path / "refused.json").close()
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"], "a run that did not begin keeps an earlier file"
    with pytest.raises(StorageError, match="could not be saved"):
        TraceWriter(tmp_path / "missing" / "out.json").show(EVENTS[0])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_on_a_full_disk_no_half_trace_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("core.storage.open_new", lambda path: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))
    with pytest.raises(StorageError, match="out.json could not be saved: No space left"):
        written(tmp_path / "out.json", EVENTS)
    assert not list(tmp_path.iterdir())
    with pytest.raises(StorageError), closing(TraceWriter(tmp_path / "out.json")) as trace:
        trace.show(replace(EVENTS[0], folder=10_000 * " "))
    assert not list(tmp_path.iterdir())


def timed_steps(sampling, steps, cost=0.5):
    found = []
    for step in range(steps):
        if sampling.is_due(step, 0.1):
            sampling.count(step, cost)
            found.append(step)
    return found


@pytest.mark.parametrize("cost", [0.01, 0.5, 3.0])
def test_all_timings_together_stay_under_a_hundredth_of_the_steps(cost):
    steps = 20000
    found = timed_steps(KernelSampling(0), steps, cost=cost)
    assert len(found) >= 3
    assert len(found) * cost <= SHARE * steps * 0.1 + max(0, cost - 0.8)  # the first one's cost is a guess
    assert min(b - a for a, b in zip(found, found[1:], strict=False)) >= LEAST_STEPS


def test_a_short_run_is_timed_where_it_is_profiled_or_a_number_of_steps_is_given():
    assert timed_steps(KernelSampling(0), 300) == []
    assert timed_steps(KernelSampling(0, soon=True), 300) == [1]
    assert timed_steps(KernelSampling(4), 12, cost=100.0) == [2, 6, 10]


def test_the_table_shows_the_slowest_kernels_first_as_means_of_the_samples():
    table = KernelTable()
    table.add(())
    assert table.describe() == ""
    table = KernelTable()
    for _ in range(2):
        table.add(TIMES)
    lines = table.describe().splitlines()
    assert "mean of 2 steps" in lines[0]
    assert lines[1].split() == ["layer", "pass", "kernel", "ms", "GFLOP/s", "GB/s", "of", "floor"]
    assert lines[2].split() == ["conv1", "backward_weight", "tiled", "3.000", "3", "1.3", "17", "%"]
    assert lines[-1].split() == ["all", "7.000", "2", "1.7", "25", "%"]
    table.add(KernelTime(f"layer{i}", "forward", "tiled", 0.1, 0, 0, 0.0) for i in range(40))
    assert any("more" in line for line in table.describe().splitlines())
