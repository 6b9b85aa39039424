"""The shipped models and what the window says of their classes."""

from pathlib import Path

import pytest

from app.cards import find_card
from app.panels.diagnose.start_page import crop_names
from app.viewmodels.model_list import shipped_model
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import SHIPPED_MODELS


def test_every_crop_of_the_shipped_model_has_a_name_in_the_window(qapp):
    crops = {name.partition("/")[0] for name in read_model(Path(shipped_model())).classes if "/" in name}
    assert crops - {"background"} <= crop_names().keys()


@pytest.mark.parametrize("model", SHIPPED_MODELS)
def test_every_class_of_a_shipped_model_has_a_card_and_a_vietnamese_name(model):
    classes = read_model(Path(shipped_model(model))).classes
    names = {name: [card.name for card in (find_card(name, "en"), find_card(name, "vi")) if card] for name in classes}
    assert [name for name, shown in names.items() if len(set(shown)) < 2] == []
