"""A resumed run keeps the conditions that its bits depend on, and says so where it cannot."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.cpu import instruction_set
from core.training import conditions
from core.training.conditions import Conditions, describe_change, keep_conditions
from core.training.events import LOG, Warned
from tests.helpers.runs import last_weights, only, same_bits, train

BEFORE = Conditions("1.2", "0.60", "cpu", "avx2", 3)


@pytest.fixture
def cores(monkeypatch):
    """Pretend that the machine has so many cores."""

    return lambda number: [
        monkeypatch.setattr(f"{module}.usable_cores", lambda: number)
        for module in ("core.training.conditions", "core.cpu.plan")
    ]


@pytest.fixture
def config(tiny):
    """A run whose bits depend on the number of threads: batches of photos that several threads share."""
    return lambda name: tiny(name, batch_size=8, epochs=2, leaf_tests=False)


def test_a_run_resumed_on_another_number_of_cores_has_the_same_bits(config, cores):
    cores(2)
    train(config("whole"))
    train(config("parted"), stop_after=2)
    cores(3)
    events = train(config("parted"), resume=True)
    same_bits(last_weights(config("whole")), last_weights(config("parted")))
    assert not [e for e in only(events, Warned) if "different conditions" in e.message]
    cores(3)
    train(config("other"))
    assert {"LeafClinic", "Numba", "NumPy", "OpenCV"} <= set(str(last_weights(config("other")).conditions).split())
    with pytest.raises(AssertionError):
        same_bits(last_weights(config("whole")), last_weights(config("other")))


def test_a_run_resumed_with_other_threads_and_instructions_says_so(config, cores, monkeypatch):
    cores(2)
    train(config("run"), stop_after=2)
    own = instruction_set.current_isa()
    other = next(each for each in instruction_set.INSTRUCTION_SETS.values() if each is not own)
    monkeypatch.setattr(instruction_set, "current_isa", lambda: other)
    events = train(replace(config("run"), threads=1), resume=True)
    told = [e.message for e in only(events, Warned) if "different conditions" in e.message]
    assert told == [f"This run was resumed under different conditions: processor {other.name} instead of {own.name}; "
                    "threads 1 instead of 2. After step 2 its results differ from an uninterrupted run by rounding; "
                    "they are not worse."]  # fmt: skip
    assert last_weights(config("run")).conditions.threads == 1
    assert told[0] in (Path(config("run").out) / LOG).read_text("utf-8")


def test_every_condition_that_changed_is_named():
    now = Conditions("1.3", "0.61", "cuda", "NVIDIA H200", 0)
    assert describe_change(BEFORE, BEFORE, 5) == ""
    told = ("conditions: LeafClinic 1.3 instead of 1.2; Numba 0.61 instead of 0.60; device cuda instead of cpu; "
            "processor NVIDIA H200 instead of avx2; threads 0 instead of 3. After step 5")  # fmt: skip
    assert told in describe_change(BEFORE, now, 5)


def test_what_the_settings_leave_open_stays_as_it_was(tiny, monkeypatch):
    open_config = tiny(device="auto")
    kept = keep_conditions(open_config, BEFORE)
    assert (kept.device, kept.threads) == ("cpu", 3)
    assert keep_conditions(tiny(threads=5), BEFORE).threads == 5
    assert keep_conditions(open_config, None) == open_config
    on_gpu = replace(BEFORE, device="cuda", threads=0)
    for problem, device in (("No GPU.", "auto"), (None, "cuda")):
        monkeypatch.setattr(conditions, "cuda_problem", lambda problem=problem: problem)
        assert keep_conditions(open_config, on_gpu).device == device
