"""The shipped model and what the window says of its classes."""

from pathlib import Path

from app.panels.diagnose.start_page import crop_names
from app.viewmodels.model_list import shipped_model
from core.diagnosis.model_file import read_model


def test_every_crop_of_the_shipped_model_has_a_name_in_the_window(qapp):
    crops = {name.partition("/")[0] for name in read_model(Path(shipped_model())).classes if "/" in name}
    assert crops - {"background"} <= crop_names().keys()
