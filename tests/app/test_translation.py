"""English and Vietnamese: complete, with the same places, and spoken by Qt's own buttons too."""

import json
import re
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QCoreApplication, QLocale, Qt

from app import resources, translation
from app.panels.dataset.classes import balance_text
from app.translation import LANGUAGES, PAGE_TEXT, count, duration, number, sentence, tr, translate_page
from app.widgets.parts import label
from core.data.dataset import Skipped, describe_skipped
from core.diagnosis import page
from core.diagnosis.metrics import Metrics, Subset, describe_accuracy, describe_subsets
from core.percent import percent, percents, stated
from core.training.report import render_report
from tests.core.training.test_report import data as report  # noqa: F401 (fixture)
from tests.helpers.texts import ROOT, code_texts, core_texts, error_texts, help_texts, idea_texts, written_texts

pytestmark = pytest.mark.gui

CATALOGUE = json.loads(resources.data("translations/vi.json"))
ENGLISH = json.loads(resources.data("translations/en.json"))
SYSTEM_ERRORS = {
    "Cannot allocate memory", "Device or resource busy", "Disk quota exceeded", "File exists", "File name too long",
    "Input/output error", "Is a directory", "No space left on device", "No such file or directory", "Not a directory",
    "Operation not permitted", "Permission denied", "Read-only file system", "Stale file handle",
    "Too many levels of symbolic links", "Too many open files", "Transport endpoint is not connected",
}  # fmt: skip
"""What the operating system says of a file; a reason within sentences of core."""
NOT_IN_ONE_PIECE = SYSTEM_ERRORS | {
    "&No", "&Yes", "Close window", "OK",  # Qt's own buttons, and its menu of text fields
    "&Copy", "&Paste", "&Step up", "Copy &Link Location", "Cu&t", "Select All", "Step &down",
    "1 field photo is excluded: {reasons}.", "{n} field photos are excluded: {reasons}.",
    "1 photo is excluded: {reasons}.", "{n} photos are excluded: {reasons}.", "lab photos", "test photos",
    "By place: {parts}. All photos were taken in the field.", "{low}–{high} %, {n} photos",
    "By place: {parts}. No photo was taken in the field, so the accuracy in the field is unknown.",
    "By place: {parts}. For use outdoors, only the accuracy on field photos counts.",
    "It does not compute in {arithmetic}.", "It does not compute in {arithmetic}. Use --precision float32.",
    "field photos of leaves", "lab photos of leaves", "{value} is not a number.", "{value} is not a whole number.",
    "new classifier for {classes} classes", "Macro F1: {f1}. Mean average precision: {precision}.",
    "new classifier for {classes} classes, {known} of which keep their weights",
    "{a1} x {a2} (such as {a3}); {a4} x {a5} (such as {a6}); {a7} x {a8} (such as {a9})",
    "{b1} x {b2} (such as {b3}); {b4} x {b5} (such as {b6})", "{t}, the largest logit is reduced by {offset}",
    "{d1}; {d2} more for other reasons", "processor", "{pictures} new", "right, {name}", "all labels right, {name}",
    "{count} classes and {pictures} generated pictures without a leaf", "{low}–{high}, mean over the classes",
    "{count} classes. Each prediction is the mean over the photo and its mirror image.",
    "{train} training, {validation} validation, {test} test", "{t}, the largest logit is raised by {offset}",
    "Each crop has its own temperature, measured on held-out photos predicted as its classes. {rest}",
    "On photos that this run used neither for training nor for choosing the epoch. {groups}",
    "There is no test split. The epoch was chosen on these photos, so this accuracy is slightly too high. {groups}",
    "This lowers the confidence of predictions about {less}. It raises the confidence of predictions about {more}.",
    *(f"All labels right on {{share}} %: {{right}} of {{photos}} {split} photos (95 % interval {{low}} to {{high}} %), "
      "mean F1 {f1}, mean average precision {precision}." for split in ("test", "validation")),
    "Accuracy {share} %: {right} of {photos} test photos correct (95 % interval {low} to {high} %), macro F1 {f1}.",
    "Accuracy {share} %: {right} of {photos} validation photos correct (95 % interval {low} to {high} %), macro F1 "
    "{f1}.",
} | {
    f"{part} {{share}} % ({{right}} of {{photos}}, 95 % interval {{low}} to {{high}} %)" for part in (
        "lab photos", "field photos", "lab photos of leaves", "field photos of leaves", "own field photos",
        "photos unseen in training", "test photos", "validation photos")
}  # fmt: skip
"""Texts that the code puts together from parts, or that Qt asks for."""


@pytest.fixture
def vietnamese(qapp):
    assert translation.install(qapp, "vi") == "vi"
    yield
    translation.remove(qapp)


@pytest.mark.parametrize("texts", [written_texts, core_texts, help_texts, idea_texts])
@pytest.mark.parametrize("language", sorted(LANGUAGES.keys() - {"en"}))
def test_every_text_of_the_window_has_a_translation(language, texts):
    translated = set(resources.table(file := f"translations/{language}.json"))
    assert not sorted(texts() - translated), f"resources/{file} needs a line for each of these texts"


def test_no_translation_outlives_its_text_and_no_two_differ_only_in_names_of_places():
    said = code_texts() | idea_texts() | help_texts()
    lines = "\0".join(["", *(text for text in said if " " in text), ""])
    forms = {source: re.sub(r"\\{\w+\\}", "[^\0]+?", re.escape(source)) for source in set(CATALOGUE) - said}
    assert {s for s, form in forms.items() if not re.search(f"\0{form}\0", lines)} <= NOT_IN_ONE_PIECE
    forms = [re.sub(r"\{\w+\}", "{}", source) for source in CATALOGUE]
    assert not {form for form in forms if forms.count(form) > 1}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_is_not_empty_and_has_the_places_of_its_source(language):
    catalogue = resources.table(f"translations/{language}.json")
    assert catalogue.keys() == (ENGLISH if language == "en" else CATALOGUE).keys(), "it is complete, and no line is old"
    assert all(text.strip() for text in catalogue.values())
    places = {text: sorted(re.findall(r"\{\w+\}", text)) for text in (*catalogue, *catalogue.values())}
    assert not [source for source, text in catalogue.items() if places[source] != places[text]]


def test_a_system_in_another_language_has_the_window_s_own_english(qapp, monkeypatch):
    monkeypatch.setattr(translation, "QLocale", SimpleNamespace(system=lambda: QLocale("is_IS")))
    assert translation.install(qapp, "system") == "en"
    said = sentence("/a is not empty and contains no run. Choose a new folder with --out.")
    translation.remove(qapp)
    assert said == "/a is not empty and contains no run. Choose a new folder."


def test_texts_are_spoken_in_the_chosen_language(vietnamese):
    assert (tr("Dataset"), count(1204, "{n} photo", "{n} photos")) == ("Bộ ảnh", "1,204 ảnh")
    assert QCoreApplication.translate("QPlatformTheme", "Cancel") == "Hủy"
    assert tr("a text nobody translated") == "a text nobody translated"


def test_a_finished_sentence_of_the_engine_is_translated_with_its_values(vietnamese):
    said = sentence("It may be tomato/rust or tomato/healthy. Take another photo, close up and in even light.")
    assert said == "Có thể là tomato/rust hoặc tomato/healthy. Hãy chụp lại, gần hơn và ánh sáng đều."
    assert sentence("Something nobody foresaw.") == "Something nobody foresaw."
    said = sentence("Both are the same picture; they stay in the same split.")
    assert said == "Hai tệp là cùng một ảnh; chúng ở cùng một phần.", "values that are texts are translated too"
    said = sentence("Data leakage: a.safetensors was trained on 3 of the 10 field photos. The accuracy on them is too "
                    "high.")
    assert said == (
        "Rò rỉ dữ liệu: a.safetensors được huấn luyện trên 3 trong 10 ảnh ngoài đồng. Độ chính xác trên chúng quá cao.")
    said = sentence("Data leakage: The model was trained on 3 of the 9 evaluated photos. The accuracy on them is too "
                    "high.")
    assert said.startswith("Rò rỉ dữ liệu: Mô hình được huấn luyện trên 3 trong 9 ảnh đánh giá. "), "of an adaptation"
    for text in (
        "There are no photos in /a. Put the photos of each class into a subfolder (JPEG, PNG, WebP, TIFF, BMP or GIF).",
        "Both are the same file, but labelled apple/healthy and apple/scab. Correct the label, or remove both.",
        "50 generated pictures without a leaf are added to the training photos as the class background/no, so that "
        'the model can say "no leaf". --pictures-without-leaf 0 trains without them.',
    ):
        assert not {"Put", "and", "added", "--pictures-without-leaf"} & set(sentence(text).split())
    skipped = [Skipped(path, reason) for path, reason in (
        ("a.jpg", "The file is empty."), ("b.jpg", "The file is empty."), ("c.jpg", "The file does not exist."))]
    assert sentence(describe_skipped(tuple(skipped[:2]))) == "Loại 2 ảnh: 2 x Tệp rỗng (ví dụ a.jpg)."
    said = sentence(describe_skipped(tuple(skipped)))
    assert said == "Loại 3 ảnh: 2 x Tệp rỗng (ví dụ a.jpg); 1 x Tệp không tồn tại (ví dụ c.jpg)."
    skipped += [Skipped(f"{n}.jpg", f"{n}?") for n in range(4)]
    assert sentence(describe_skipped(tuple(skipped))).endswith("; 3 ảnh nữa vì lý do khác.")


def test_lab_beside_field_is_said_in_the_windows_language(vietnamese):
    figures = Metrics(("a", "b"), ((5, 0), (1, 4)), 0.3)
    parts = (Subset("lab photos", 6, 6), Subset("field photos of leaves", 4, 3))
    reached, said = sentence(describe_accuracy(figures, "test")), sentence(describe_subsets(parts))
    assert reached.startswith("Độ chính xác 90.0\u00a0%: đúng 9 trên 10 ảnh kiểm tra")
    assert "ảnh ngoài đồng (chỉ lá) 75.0\u00a0% (3 trên 4" in said
    assert not [word for word in ("place", "photos", "interval", "field", " of ") if word in said]
    assert "field" not in sentence(describe_subsets(parts[:1]))


def test_a_report_is_in_the_windows_language(vietnamese, report):  # noqa: F811
    made = render_report(report)
    kept = set(PAGE_TEXT.findall(made)) & set(PAGE_TEXT.findall(translate_page(made)))
    assert {text for text in kept if not text.startswith(("leafclinic ", "&lt;rust"))} == {
        "F1", "adamw", "healthy", "healthy  2", "macro F1", "mlp", "1 photo is excluded.", "Eight photos."}


def test_every_error_that_a_person_may_meet_has_a_translation(vietnamese):
    assert not sorted(text for text in error_texts() if sentence(text) == text)


def test_no_text_of_the_window_names_an_option_of_the_command_line():
    of_a_terminal = {source for source in CATALOGUE if re.search(r"--[a-z]|held-out", source)}
    assert of_a_terminal == set(ENGLISH)
    assert not [text for text in (*CATALOGUE.values(), *ENGLISH.values()) if re.search(r"--[a-z]", text)]


def test_every_card_speaks_all_languages_and_names_its_source():
    cards = json.loads(resources.data("cards/cards.json"))
    for card in cards.values():
        assert card["source"]
        assert not LANGUAGES.keys() - card, "resources/cards/cards.json needs its texts in each"
        for language in LANGUAGES:
            assert set(card[language]) == {"name", "looks", "confused", "advice"}
            assert all(card[language].values())


@pytest.mark.parametrize(("seconds", "said"), [
    (0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5340, "89 min"), (5400, "1 h 30 min"), (10859, "3 h 1 min"),
    (float("nan"), "–"), (float("inf"), "–"),
])  # fmt: skip
def test_a_time_is_said_as_people_say_it(seconds, said):
    assert duration(seconds) == said


def test_classes_with_few_photos_are_named_or_counted(qapp):
    assert label("a<b>c").textFormat() is Qt.TextFormat.PlainText, "a name is no HTML"
    said = [balance_text([(name, 3) for name in names]) for names in ("abcde", "ab")]
    assert [" a, b, c (+2). " in said[0], " a, b. " in said[1]] == [True, True]


def test_shares_are_written_one_way_and_never_part_from_their_sign_and_a_figure_that_is_none_is_a_dash():
    assert [number(value, "{:.1f}") for value in (0.125, float("nan"))] == ["0.1", "–"]
    assert [percent(0.5694), percent(1, 0), percent(float("nan"))] == ["56.9\u00a0%", "100\u00a0%", "–"]
    assert percents(0.977, 0.987) == "97.7–98.7\u00a0%"
    assert sentence("Of 12 photos 56.9 % are right.") == "Of 12 photos 56.9\u00a0% are right."
    assert "98.0\u00a0% of" in page.render_page("x", [page.paragraphs(["98.0 % of all"])])
    assert 'width="100%"' in page.render_page("x", [page.note("y")])
    files = (*ROOT.glob("app/**/*.py"), *ROOT.glob("core/diagnosis/*.py"))
    assert not [file for file in files if re.search(r":\.\d%", file.read_text("utf-8"))], "core.percent does that"
    said = [stated(p).replace("\u00a0", " ") for p in (1.0, 0.9996, 0.9994, 0.5, 0.0006, 0.0004, 0.0)]
    assert said == ["> 99.9 %", "> 99.9 %", "99.9 %", "50.0 %", "0.1 %", "< 0.1 %", "< 0.1 %"], "none is certain"


def test_no_text_of_the_window_has_a_space_that_breaks_before_its_percent_sign():
    """Texts of core may: where they are shown, `sentence` puts the right one."""
    assert not [text for text in written_texts() if re.search(r"[\d}] ?%", text)]
