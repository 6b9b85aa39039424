"""What a run says of itself: the same figures in its event, in its sentences and in its model file."""

from core.data.baseline import Baseline
from core.diagnosis.background_dependence import BackgroundDependence
from core.diagnosis.metrics import Metrics
from core.training.run_evaluation import VALIDATION_NOTE, RunEvaluation

FIGURES = Metrics(("rust", "healthy"), ((8, 2), (1, 9)), 0.5)
BASELINE = Baseline(0.6, 0.55, 0.5, 20)
READING = BackgroundDependence(20, border=0.6, commonest=0.5, plain=0.85, blurred=0.8, swapped=0.7, off_leaf=0.3)


def test_an_event_tells_every_figure_that_was_measured():
    told = RunEvaluation("test", FIGURES, baseline=BASELINE, reading=READING).to_event()
    assert (told.border, told.commonest) == (0.6, 0.5)
    assert (told.plain, told.blurred, told.swapped, told.off_leaf) == (0.85, 0.8, 0.7, 0.3)
    assert told.parts[0] == ("test", 20, 17)


def test_what_was_not_measured_is_none():
    told = RunEvaluation("test", FIGURES).to_event()
    assert {told.border, told.commonest, told.plain, told.blurred, told.swapped, told.off_leaf} == {None}


def test_figures_on_photos_that_chose_the_epoch_say_so():
    assert VALIDATION_NOTE in RunEvaluation("validation", FIGURES).words()
    assert VALIDATION_NOTE not in RunEvaluation("test", FIGURES).words()
