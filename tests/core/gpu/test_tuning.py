"""Tuning tables and the tuner without a GPU: keys, damaged files, resuming, and that nothing gets slower."""

import math
import re
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest

from core.errors import InputError
from core.gpu import tuner, tuning
from core.gpu.candidates import CANDIDATES
from core.gpu.cost_model import estimate, rank_tiles, time_of
from core.gpu.driver.device import open_device
from core.gpu.explain import explain, frame_for, inside
from core.gpu.gradients import Backward
from core.gpu.hardware import Identity, typical
from core.gpu.ops.conv.configurations import product_tiles
from core.gpu.parts.tile import Tile
from core.gpu.segments import backward_segment, cheapest, choose_forward
from core.gpu.select import BACKWARD, FORWARD, INPUT, WEIGHT, Case
from core.gpu.timing import Bench, write_choice
from core.gpu.tuner import TuningTarget, accept, find_cases, measure_case, ready_plan
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.program import lower

GPU = Identity("NVIDIA H200", (9, 0), "CUDA 13.0")
H200 = SimpleNamespace(hardware=typical())
"""What the tuner asks of a device."""


def frame_of(name="squeezenet1_1", batch=32, side=224, precision="mixed", capability=(9, 0), tuning=tuning.EMPTY):
    graph = with_loss(build(name, 10, side), 0.0, ())
    frame = frame_for(lower(graph, True), batch, precision, capability)
    frame.tuning = tuning
    return frame


def case_of(frame, node, direction=FORWARD):
    step = next(step for step in frame.program.steps if step.node == node)
    return Case(frame, (step,), direction)


@pytest.fixture
def case():
    return case_of(frame_of(), "features.3.expand1x1")


def row_of(case):
    return next(row for row in CANDIDATES.consider(case) if row.candidate.name == "implicit_gemm")


def entry(case, fastest="", microseconds=5.0, configuration=None):
    """A measured case in which one candidate is the fastest, with this configuration of its own."""
    usable, _ = CANDIDATES.usable(case)
    return {
        name: tuning.Measured(tuning.encode(of[0] if name != fastest or configuration is None else configuration),
        microseconds if name == fastest else 100.0) for name, of in usable.items()
    }  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("core.gpu.tuning.SHIPPED", tmp_path / "shipped")
    return tmp_path


def test_a_measured_case_decides_about_candidate_and_configuration(case):
    assert {row.source for row in CANDIDATES.consider(case) if not row.reason} == {"estimated"}
    wanted = product_tiles(case)[5]
    case.frame.tuning = tuning.Table({case.key: entry(case, "implicit_gemm", configuration=wanted)})
    choice = CANDIDATES.choose(case)
    assert (choice.candidate.name, choice.case.configuration, choice.microseconds) == ("implicit_gemm", wanted, 5.0)


def test_times_are_scaled_by_pixels_up_to_four_times_as_many_and_not_beyond():
    measured = case_of(frame_of(batch=32), "features.3.expand1x1")
    table = tuning.Table({measured.key: entry(measured, "implicit_gemm", configuration=product_tiles(measured)[5])})
    for batch, near in ((64, True), (128, True), (256, False), (8, True)):
        case = case_of(frame_of(batch=batch, tuning=table), "features.3.expand1x1")
        row = row_of(case)
        assert row.source == ("measured nearby" if near else "estimated")
        if near:
            assert row.microseconds == pytest.approx(5.0 * batch / 32)


def test_a_case_counts_only_where_every_candidate_was_measured_with_a_configuration_that_fits(case):
    whole = entry(case, "implicit_gemm", configuration=product_tiles(case)[5])
    del whole["pointwise_tma"]
    case.frame.tuning = tuning.Table({case.key: whole})
    row = row_of(case)
    assert (row.source, row.case.configuration) == ("estimated", product_tiles(case)[5]), "still the best guess"
    found = entry(case, "implicit_gemm") | {"implicit_gemm": tuning.Measured([7, 7, 7, 7, 7, 7, 7], 0.1)}
    case.frame.tuning = tuning.Table({case.key: found})
    row = row_of(case)
    assert (row.source, row.case.configuration) == ("estimated", product_tiles(case)[0])


def test_steps_that_their_neighbours_rely_on_keep_their_candidate_however_slow_it_was():
    frame = frame_of("mobilenetv2")
    found = {}
    for step in frame.program.steps:
        for direction in (FORWARD, BACKWARD):
            case = Case(frame, (step,), direction)
            for row in CANDIDATES.of(case.pattern, direction):
                if row.exclusive and not row.reason_against(case):
                    found[step.node, direction] = row.name
                    others = (r for r in CANDIDATES.of(case.pattern, direction) if not r.reason_against(case))
                    rows = {r.name: tuning.Measured(tuning.encode(r.configurations(case)[0]), 1e6 ** r.exclusive)
                            for r in others}  # fmt: skip
                    frame.tuning = frame.tuning.with_entries({case.key: rows})
    assert len(found) > 50
    chosen = {(s.node, c.case.direction): c.candidate.name
              for segment in (*choose_forward(frame), *cheapest(frame, backward_segment))
              for c in segment.choices for s in c.case.steps}  # fmt: skip
    assert {key: chosen.get(key) for key in found} == found


def test_another_gpu_and_one_without_a_table_use_estimates_and_other_kernels_their_own_table(case, cache, monkeypatch):
    tuning.write_table(tuning.make_user_path(GPU), GPU, {case.key: entry(case, "halo")}, "test")
    assert tuning.load_table(GPU).entries
    for other in (replace(GPU, name="NVIDIA H100"), replace(GPU, capability=(8, 6)), replace(GPU, driver="CUDA 13.1")):
        assert tuning.load_table(other) == tuning.Table()
    tuning.user_path(GPU).rename(tuning.user_path(replace(GPU, name="NVIDIA H100")))
    assert tuning.load_table(replace(GPU, name="NVIDIA H100")) == tuning.Table(), "its head names another GPU"
    before = tuning.user_path(GPU)
    monkeypatch.setattr("core.gpu.tuning.source_hash", lambda: "f" * 64)
    assert tuning.user_path(GPU) != before


def test_the_users_measurements_count_more_than_shipped_ones(case, cache):
    tuning.shipped_path(GPU).parent.mkdir()
    shipped = {case.key: entry(case, "halo"), tuning.Key("other", (1, 1, 1)): {}}
    tuning.write_table(tuning.shipped_path(GPU), GPU, shipped, "shipped")
    tuning.write_table(tuning.make_user_path(GPU), GPU, {case.key: entry(case, "implicit_gemm")}, "own")
    table = tuning.load_table(GPU)
    assert (len(table.entries), table.entries[case.key]["implicit_gemm"].microseconds) == (2, 5.0)
    assert [origin.split("(")[1].split(")")[0] for origin in table.origins] == ["shipped", "your own"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpu": 1}', '{"gpu": "a", "capability": [9, 0]}', "TWO", "ZERO"])
def test_a_damaged_table_is_named_in_a_sentence(cache, text):
    path = tuning.make_user_path(GPU)
    tuning.write_table(path, GPU, {tuning.Key("other", (1, 1) if text == "TWO" else (0, 1, 1)): {}}, "test")
    path.write_text(path.read_text() if text.isupper() else text)
    with pytest.raises(InputError, match=rf"{tuning.user_path(GPU).name} is not a tuning table: .* Remove the file"):
        tuning.load_table(GPU)


def test_what_is_written_is_read_again(case, tmp_path):
    rows = entry(case, "halo") | {"old": tuning.Measured([1, [2, 3]], 7.25)}
    tuning.write_table(tmp_path / "table.json", GPU, {case.key: rows}, "leafclinic lab tune", "abc")
    head, entries = tuning.read_table(tmp_path / "table.json")
    assert entries == {case.key: rows}
    named = {"gpu": "NVIDIA H200", "driver": "CUDA 13.0", "command": "leafclinic lab tune", "commit": "abc"}
    assert named.items() <= head.items()


def test_a_shipped_table_names_its_command_and_its_entries_can_be_chosen():
    head, _ = tuning.read_table(tuning.shipped_path(GPU))
    assert head["command"].startswith("leafclinic lab tune")
    for name in ("squeezenet1_0", "mobilenetv2"):
        frame = frame_of(name, 256, tuning=tuning.load_table(GPU))
        sources = [row.source for step in frame.program.steps if step.op in ("conv2d", "depthwise_conv2d", "dense")
                   for row in CANDIDATES.consider(Case(frame, (step,), FORWARD)) if not row.reason]  # fmt: skip
        assert set(sources) == {"measured"}


@pytest.mark.parametrize(("together", "wanted"), [(199.0, [BACKWARD]), (201.0, [WEIGHT, INPUT])])
def test_gradients_are_computed_together_where_that_is_faster(together, wanted):
    frame = frame_of()
    cases = [case_of(frame, "features.3.squeeze", direction) for direction in (BACKWARD, WEIGHT, INPUT)]
    frame.tuning = tuning.Table({case.key: entry(case, "pointwise_tma", together) for case in cases})
    segment = backward_segment(frame, cases[0].steps)
    assert [choice.case.direction for choice in segment.choices] == wanted


def test_estimates_are_the_roofline_and_tiles_are_ranked_by_the_work_of_a_multiprocessor(case):
    bytes_moved = 2 * (32 * 55 * 55 * (16 + 64) + 16 * 64 + 64)
    for direction, products in ((FORWARD, 1), (BACKWARD, 2)):
        moved = products * (bytes_moved - 2 * 17 * 64) + 2 * 17 * 64
        assert estimate(case.frame, case.steps, direction, 0.5) == pytest.approx(1e6 * moved / 4.8e12 / 0.5 + 2)
    tile = Tile(64, 32, 64, 3, 2, 2, 2)  # 4 warps a block, two blocks at once
    assert [time_of(tile, blocks, 10) for blocks in (10, 20, 21)] == [10240, 10240, 15360]
    slow = case_of(frame_of(precision="float32"), "features.12.expand3x3")
    flops, rate = 2 * 32 * 13 * 13 * 256 * 9 * 64, slow.frame.hardware.rate("float32")
    assert estimate(slow.frame, slow.steps, FORWARD, 1.0) == pytest.approx(1e6 * flops / rate + 2)
    narrow, wide = Tile(64, 32), Tile(64, 64)
    assert rank_tiles((wide, narrow), 640, 32, 10) == (narrow,)
    assert len(rank_tiles((Tile(64, 72), Tile(64, 80)), 640, 70, 10)) == 2
    assert rank_tiles((narrow, wide), 64000, 64, 10) == (wide, narrow)


class FakeBench:
    """Times by candidate and configuration; everything else takes its estimate."""

    known: dict[tuple[str, str], float] = {}
    asked: list[int] = []

    def __init__(self, *arguments):
        pass

    def times(self, choices, rounds):
        self.asked.append(len(choices))
        return [self.known.get((one.candidate.name, str(tuning.encode(one.case.configuration))), 50.0)
                for one in choices]

    def close(self):
        pass


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(FakeBench, "known", {})
    monkeypatch.setattr(FakeBench, "asked", [])
    monkeypatch.setattr(tuner, "Bench", FakeBench)
    monkeypatch.setattr(tuner, "_load", lambda *arguments: None)
    monkeypatch.setattr(tuner, "compare_steps", lambda *arguments: (1.0, 1.0))
    return FakeBench


def test_the_fastest_configuration_of_each_candidate_is_kept_and_a_refused_one_left_out(case, bench):
    tiles = product_tiles(case)
    bench.known = {("implicit_gemm", str(tuning.encode(tiles[2]))): 3.0, ("pointwise_tma", "[1]"): 2.0}
    choices = tuner.find_choices(case, {})
    best = measure_case(choices, {}, bench())
    assert best["implicit_gemm"] == tuning.Measured(tuning.encode(tiles[2]), 3.0)
    assert set(best) == {one.candidate.name for one in choices}
    refusing = SimpleNamespace(times=lambda choices, rounds: [None] * len(choices))
    assert measure_case(choices, {}, refusing) == {}


def test_the_way_in_use_is_measured_too_and_stays_unless_another_is_faster(case, bench):
    last = product_tiles(case)[-1]  # not among the promising ones
    used = {"implicit_gemm": tuning.Measured(tuning.encode(last), 1.0)}
    for time, wanted in ((3.0, tuning.encode(last)), (60.0, tuning.encode(product_tiles(case)[0]))):
        bench.known = {("implicit_gemm", str(tuning.encode(last))): time}
        best = measure_case(tuner.find_choices(case, used), used, bench())
        assert best["implicit_gemm"].configuration == wanted


def target(name="cnn", batch=8, precision="mixed", side=32):
    base = build(name, 10, side)
    return TuningTarget(name, with_loss(base, 0.0, ()), initial_weights(base, 0), batch, precision, True)


def test_a_tuning_that_was_stopped_goes_on_where_it_was(bench, tmp_path):
    path, measured = tmp_path / "table.json", {}

    def save(entries):
        tuning.write_table(path, GPU, entries, "test")

    events = tuner.tune(H200, target(), tuning.EMPTY, measured, save, math.inf)
    for _ in range(4):
        next(events)
    events.close()
    kept = tuning.read_table(path)[1]
    assert len(kept) == 3
    asked = len(bench.asked)
    again = list(tuner.tune(H200, target(), tuning.EMPTY, dict(kept), save, math.inf))
    assert (again[0].done, again[-1].is_last, again[-1].done) == (3, True, again[-1].total)
    assert len(bench.asked) - asked == 2 * (again[-1].total - 3)
    assert len(tuning.read_table(path)[1]) == again[-1].total
    (only,) = tuner.tune(H200, target(), tuning.EMPTY, tuning.read_table(path)[1], save, math.inf)
    assert (only.is_last, only.text) == (True, "all of them are in the table")


def test_a_table_of_other_kernels_is_not_continued(driver, cache, monkeypatch):
    tuning.write_table(path := cache / "table.json", open_device().identity, {}, "test")
    assert next(tuner.tune_into(path, target(), "test")).done == 0
    monkeypatch.setattr("core.gpu.tuning.source_hash", lambda: "f" * 64)
    with pytest.raises(InputError, match="table.json was measured with other kernels.* Write to a new file"):
        next(tuner.tune_into(path, target(), "test"))


def test_every_way_is_launched_and_timed_and_both_steps_are_compared(driver, cache):
    """On a driver that is not there: what is captured, its memory, and that everything is given back."""
    measured, saved = {}, []
    run = tuner.tune(open_device(), target(batch=2), tuning.EMPTY, measured, lambda n: saved.append(len(n)), math.inf)
    events = list(run)
    assert saved[:3] == [1, 2, 3]
    assert re.fullmatch(r"the whole step takes [\d.]+ ms, before [\d.]+ ms", events[-1].text)
    assert all(rows and all(row.microseconds > 0 for row in rows.values()) for rows in measured.values())
    assert driver.launches > driver.replays > len(measured)
    assert not driver.blocks


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_a_network_is_tuned_on_this_gpu(precision, tmp_path):
    path = tmp_path / "table.json"
    events = list(tuner.tune_into(path, target("squeezenet1_1", 4, precision, 64), "test"))
    assert events[-1].done == events[-1].total > 20
    assert all(one.microseconds > 0 for row in tuning.read_table(path)[1].values() for one in row.values())


def test_no_array_of_a_captured_choice_is_freed_before_all_are_timed(driver, cache):
    events, frame = [], frame_of(precision="float32")
    segments = choose_forward(frame)
    choices = [segments[8].choices[0], segments[0].choices[0]]  # the second has larger arrays
    for choice in choices:
        write_choice(frame, {}, {}, choice)
    bench = Bench(open_device(), frame)
    free, begin = driver.cuMemFree, driver.cuGraphInstantiate
    driver.cuMemFree = lambda pointer: events.append("free") or free(pointer)
    driver.cuGraphInstantiate = lambda *arguments: events.append("captured") or begin(*arguments)
    assert all(bench.times(choices, 1))
    assert events[-2:] == ["captured", "captured"]
    bench.close()


def test_what_launches_add_to_a_captured_step_adds_up(driver, cache):
    of = target()
    plan, batch = ready_plan(of, table := tuning.Table())
    assert (plan.frame.tuning is table, plan.frame.arithmetic) == (True, "bf16")
    found = plan.time_inside(batch)
    choices = explain(plan.frame)
    times, others = inside(choices, found)
    plan.close()
    assert {one for one in choices if one.chosen} == set(times)
    assert sum(times.values()) + sum(others.values()) == pytest.approx(sum(us for _, us in found))
    assert set(others) == {"photo", "head", "norm", "result", "update", "pack"}


def test_no_case_is_begun_after_the_deadline(bench):
    measured = {}
    events = list(tuner.tune(H200, target(), tuning.EMPTY, measured, lambda entries: None, 0.0))
    assert (len(events), measured) == (1, {})


def test_new_entries_with_which_the_whole_step_is_slower_are_not_kept(bench, monkeypatch):
    monkeypatch.setattr(tuner, "compare_steps", lambda *arguments: (1.0, 1.1))
    cases = find_cases(tuner._frame(H200, target()), tuning.EMPTY)
    first = next(iter(cases))
    before, measured = tuning.Table({first: entry(cases[first][0].case)}), {}
    saved = []
    last = list(tuner.tune(H200, target(), before, measured, lambda now: saved.append(dict(now)), math.inf))[-1]
    assert measured == saved[-1] == before.entries
    assert "without" in last.text


def test_parts_of_the_new_entries_are_accepted_alone():
    fresh = {tuning.Key(str(i), (1, 1, 1)): {} for i in range(8)}

    def compare(some):
        return 1.0, 1.5 if any(key.kind in "37" for key in some) else 0.9

    accepted, times = accept(fresh, compare)
    assert {key.kind for key in accepted} == {"0", "1", "2", "4", "5", "6"}
    assert times == (1.0, 0.9)


@pytest.mark.parametrize(("name", "precision", "capability"), [
    ("squeezenet1_1", "mixed", (9, 0)), ("mobilenetv2", "mixed", (9, 0)), ("squeezenet1_0", "float32", (8, 6)),
    ("cnn", "float32", (7, 5)), ("mlp", "tf32", (8, 0)),
])  # fmt: skip
def test_every_way_that_tuning_measures_can_be_written_and_built(name, precision, capability):
    frame = frame_of(name, 128, 64, precision, capability)
    recipes = set()
    for choice in chain.from_iterable(find_cases(frame, tuning.EMPTY).values()):
        frame.restart({}, {})
        choice.write(Backward(frame, False))
        assert frame.launches or choice.case.direction == INPUT
        assert all(launch.shared <= frame.shared for launch in frame.launches)
        recipes |= {launch.recipe for launch in frame.launches}
    for recipe in recipes:
        assert callable(recipe.function())
    assert len(recipes) > 10
