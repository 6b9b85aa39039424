"""Texts stay whole in small windows: what does not fit beside goes below."""

import pytest
from PySide6.QtWidgets import QPushButton, QWidget

from app.widgets.layouts import Flow

pytestmark = [pytest.mark.gui, pytest.mark.styled]


def test_what_does_not_fit_beside_goes_below(qtbot):
    holder = QWidget()
    qtbot.addWidget(holder)
    made = [QPushButton("a button with a text") for _ in range(3)]
    flow = Flow(*made)
    holder.setLayout(flow)
    wide = made[0].sizeHint().width()
    holder.resize(2 * wide + 20, flow.heightForWidth(2 * wide + 20))
    holder.show()
    assert made[0].y() == made[1].y() < made[2].y()
    assert made[2].x() == made[0].x()
    assert all(button.width() == wide for button in made)
    made[0].hide()
    flow.activate()
    assert made[1].y() == made[2].y(), "what is hidden takes no room"
    assert flow.heightForWidth(10 * wide) == made[0].sizeHint().height()
    flow.removeWidget(made[2])
    assert flow.count() == 2
    made[1].setText("a text that is much longer than the one before, so that more room is needed")
    assert flow.minimumSize().width() > wide, "heights are remembered until something changes"
