"""The choice of the crop of all photos, where the user knows it."""

from __future__ import annotations

from app.translation import tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.widgets.fields import ComboBox
from app.widgets.parts import named
from core.diagnosis.known_crop import list_crops


def crop_choice(model: DiagnosisModel) -> ComboBox:
    """The choice among the crops of the model in use; hidden where it knows one only."""
    choice = named(ComboBox(), tr("Known crop"))
    choice.setToolTip(tr("Diagnoses all photos as photos of this crop, and excludes the diseases of others."))
    choice.setMinimumWidth(100)  # of a narrow window; else the width of its texts

    def fill() -> None:
        crops = list_crops(model.ready.get("classes", ()))
        named_crops = [(tr("Crop: {name}", name=crop.replace("_", " ")), crop) for crop in crops]
        choice.fill([(tr("Crop: any"), ""), *named_crops], model.known_crop)
        choice.setVisible(bool(crops))

    choice.currentIndexChanged.connect(lambda _: model.set_known_crop(choice.currentData()))
    model.model_ready.connect(fill)
    fill()
    return choice
