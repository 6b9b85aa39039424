import pytest

from core.diagnosis.model_file import with_photo_side
from core.errors import ModelFileError
from core.models import build


@pytest.mark.parametrize("name", ["squeezenet1_1", "squeezenet1_0_bn", "mobilenetv2"])
def test_the_resized_graph_is_the_one_built_for_that_size(name):
    assert with_photo_side(build(name, 5, 224), 256) == build(name, 5, 256)


def test_a_size_too_small_for_the_filters_is_refused_with_a_sentence():
    with pytest.raises(ModelFileError, match="too small"):
        with_photo_side(build("squeezenet1_1", 3, 64), 2)
