"""Names of files that must not touch what is there."""

from core.storage import unused


def test_a_name_in_use_is_numbered(tmp_path):
    photo, run = tmp_path / "20261121-pasted.png", tmp_path / "20261121-squeezenet1_1"
    assert unused(photo) == photo
    photo.touch()
    assert unused(photo).name == "20261121-pasted-2.png"
    unused(photo).touch()
    assert unused(photo).name == "20261121-pasted-3.png"
    run.mkdir()
    assert unused(run).name == "20261121-squeezenet1_1-2"
