"""The laboratory's command line prints tables, writes files, and refuses with a sentence."""

import json
import re
import sys

import cv2
import numpy as np
import pytest

from benchmarks.interpreted_loops import totals
from core import lab
from core.config import RunConfig
from core.data import digits
from core.data.dataset import TRAIN
from core.data.source import open_dataset
from core.diagnosis.model_file import read_model
from core.errors import EXIT_INTERRUPTED, EXIT_WRONG_INPUT
from core.laboratory import kernel_comparison, mnist, studies
from core.laboratory.algorithms import Iteration, add_up
from core.laboratory.kernel_comparison import solve
from core.laboratory.plot import HEIGHT, MARGIN, Point, draw_bars, draw_roofline
from core.laboratory.timing import Timing
from tests.core.data.test_idx import idx


@pytest.fixture
def few_digits(tmp_path):
    rng = np.random.default_rng(0)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (16, 28, 28), np.uint8)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(rng.integers(0, 10, 16).astype(np.uint8)))
    return tmp_path


def run_conv(digits, *more):
    """`lab conv` on a few digits on the CPU; returns its exit code."""
    return lab.main(["conv", "--device", "cpu", "--data", str(digits), "--batch", "8", "--examples", "16", *more])


@pytest.mark.thorough
def test_ways_to_convolve_are_timed_and_agree_with_a_file_and_without_pytorch(few_digits, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(lab.pytorch_baseline, "find_spec", lambda name: None)
    out, picture = few_digits / "conv.json", few_digits / "conv.png"
    more = ("--json", str(out), "--png", str(picture))
    assert run_conv(few_digits, "--algorithms", "im2col", "plan", "PyTorch", *more) == 0
    printed = capsys.readouterr()
    assert "\n  im2col " in printed.out
    assert "pip install '.[compare]'" in printed.out
    assert "training" not in printed.err
    results = json.loads(out.read_text())
    assert [r["algorithm"] for r in results[:2]] == ["im2col", "plan"]
    assert abs(results[0]["loss"] - results[1]["loss"]) < 1e-4
    assert cv2.imread(str(picture)).shape[1] == 1000


@pytest.mark.thorough
@pytest.mark.parametrize("told", [True, False])
def test_progress_is_told_to_a_person_at_a_terminal(few_digits, capsys, monkeypatch, told):
    monkeypatch.setattr("sys.stderr.isatty", lambda: told, raising=False)
    assert run_conv(few_digits, "--algorithms", "im2col", "plan") == 0
    printed = capsys.readouterr()
    assert "digits\r" not in printed.out
    for said in ("im2col: training 16/16 digits", "plan: training 8/16 digits"):
        assert (said in printed.err) == told
    assert printed.err.endswith("\r") == told, "the line is free again for the table"


@pytest.mark.thorough
def test_without_a_data_set_digits_are_generated_and_a_model_file_is_trained_further(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(digits, "COUNTS", {"train": 512, "t10k": 64})
    monkeypatch.setattr(mnist, "REPORT_STEPS", 20)
    model = tmp_path / "digits.safetensors"
    assert lab.main(["conv", "--device", "cpu", "--batch", "16", "--examples", "32", "--algorithms", "plan"]) == 0
    train = ["mnist", "train", "--device", "cpu", "--recipe", "mlp", "--epochs", "6", "--model-file", str(model)]
    assert (lab.main(train), lab.main([*train, "--from", str(model)])) == (0, 0)
    printed = capsys.readouterr().out
    assert printed.count("the digits are generated") == 3
    first, second = (float(loss) for loss in re.findall(r"step +20  loss ([\d.]+)  accuracy [\d.]+ %", printed))
    assert second < 0.7 * first, "it continues from the model file"
    assert lab.main(["mnist", "unpack", "--out", str(tmp_path / "photos")]) == 0
    assert "Saved 576 digits" in capsys.readouterr().out
    assert read_model(model).figures["test_accuracy"] > 0.5
    assert lab.main(["mnist", "train", "--device", "cpu", "--recipe", "cnn", "--from", str(model)]) == 2
    assert "is a mlp, but the recipe trains a cnn" in capsys.readouterr().err
    paper = np.full((200, 200, 3), 240, np.uint8)
    cv2.putText(paper, "1", (70, 150), cv2.FONT_HERSHEY_SIMPLEX, 4, (20, 20, 20), 12)
    cv2.imwrite(str(tmp_path / "one.png"), paper)
    predict = ["mnist", "predict", "--device", "cpu", "--model-file", str(model), "--photos", str(tmp_path / "one.png")]
    assert lab.main(predict) == 0
    assert re.fullmatch(r".*one\.png: \d \(\d+ %\)\n", capsys.readouterr().out)


@pytest.mark.thorough
def test_generated_digits_are_like_mnist():
    images, labels = digits.generate_digits("t10k")
    again, _ = digits.generate_digits("t10k")
    assert (images.shape, images.dtype) == ((2000, 28, 28, 1), np.uint8)
    assert np.array_equal(images, again)
    assert set(labels) == set(range(10))
    assert 0.05 < (images > 128).mean() < 0.3
    assert (images[:, [0, -1]] > 128).mean() < 0.02, "digits are in the middle"


@pytest.mark.parametrize(("arguments", "said"), [
    (["conv", "--batch", "0"], "--batch: '0' is not a whole number from 1 to 999,999,999"),
    (["sweep", "--batch", "1000000000"], "--batch: '1000000000' is not a whole number"),
    (["conv", "--learning-rate", "nan"], "--learning-rate: 'nan' is not a number above 0"),
    (["sweep", "--image-size", "-5"], "--image-size"), (["mnist", "train", "--epochs", "-1"], "--epochs: '-1' is not"),
    (["mnist", "train", "--json", "x.json"], "unrecognized arguments: --json"),
])  # fmt: skip
def test_numbers_that_mean_nothing_are_refused(arguments, said, few_digits, capsys):
    with pytest.raises(SystemExit) as end:
        lab.main([*arguments, "--data", str(few_digits)] if arguments[0] != "sweep" else arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "said"), [
    (["conv", "--algorithms", "winograd"], "--algorithms: on cpu there are naive, vectorised"),
    (["conv", "--examples", "7"], "there are 16 training digits"),
    (["conv", "--examples", "17"], "there are 16 training digits"),
    (["conv", "--json", "none/x.json", "--png", "none/x.png"], "--png: there is no folder"),
    (["roofline", "--device", "cpu", "--model", "mlp", "--image-size", "28", "--precision", "mixed"],
     "mixed needs --device cuda"),
    (["matmul", "--device", "cpu"], "on a GPU only"), (["mnist", "predict"], "with --photos"),
    (["kernels", "--device", "cuda"], "There is no NVIDIA driver on this machine."),
    (["mnist", "predict", "--photos", "x.png", "--model-file", "resources/models/leaves.safetensors"],
    "is not a model of digits"),
    (["mnist", "predict", "--photos", "x.png", "--model-file", "none/x.safetensors"], "There is no file none"),
    (["mnist", "train"], "There are 16 training digits, but a batch has 128."),
    (["mnist", "train", "--model-file", "none/x.safetensors"], "--model-file: there is no folder"),
])  # fmt: skip
def test_what_cannot_be_done_is_told_before_any_work(arguments, said, few_digits, capsys, monkeypatch):
    monkeypatch.setattr(lab, "learn", None)
    monkeypatch.setattr(lab, "run_lesson", None)
    monkeypatch.setattr("core.plan.has_driver", lambda: False)
    more = {"conv": ["--device", "cpu", "--batch", "8"], "mnist": ["--device", "cpu"]}.get(arguments[0], [])
    if arguments[0] in ("conv", "mnist"):
        more += ["--data", str(few_digits)]
    assert lab.main([*arguments, *more]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out


def test_every_kernel_of_an_op_is_proved_and_timed(tmp_path, capsys, monkeypatch):
    out = tmp_path / "ladder.json"
    assert lab.main(["kernels", "--device", "cpu", "--ops", "matmul", "softmax_cross_entropy", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("\nmatmul: there are no kernels for cpu; use --device cuda.\n\nsoftmax_")
    results = json.loads(out.read_text())
    assert {(r["direction"], r["algorithm"]) for r in results} == {
        (d, a) for d in ("forward", "backward_input") for a in ("reference", "fused")
    }

    def solve_wrongly(case):
        given, wanted = solve(case)
        return given, {name: value + 1 for name, value in wanted.items()}

    monkeypatch.setattr(kernel_comparison, "solve", solve_wrongly)
    assert lab.main(["kernels", "--device", "cpu", "--ops", "softmax_cross_entropy"]) == 2
    assert "exceed their tolerance" in capsys.readouterr().err


def test_digits_become_photos_that_a_network_learns_from(few_digits, tmp_path, capsys):
    out = tmp_path / "photos"
    assert lab.main(["mnist", "unpack", "--data", str(few_digits), "--out", str(out)]) == 0
    assert "32 digits" in capsys.readouterr().out
    dataset = open_dataset(RunConfig(data=str(out)))
    assert len(dataset) == 32
    assert (dataset.splits == TRAIN).sum() == 16
    photos, labels = digits.read_digits(few_digits, "train")
    first = cv2.imread(str(out / "train" / str(labels[0]) / "00000.png"), cv2.IMREAD_GRAYSCALE)
    assert np.array_equal(first, photos[0, ..., 0])
    assert lab.main(["mnist", "unpack", "--data", str(few_digits), "--out", str(out)]) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_pictures_show_every_bar_and_point():
    bars = draw_bars("title", "ms", [("one", 0.5), ("two", 300.0)])
    assert (bars == (80, 140, 40)).all(-1).any(1).sum() >= 44
    assert not (draw_bars("nothing ran", "ms", []) == (80, 140, 40)).all(-1).any()
    roof = draw_roofline("title", [Point("a", "forward", 2.0, 2e-4), Point("b", "backward_input", 30.0, 90.0)], 200, 30)
    for colour in ((180, 110, 40), (60, 140, 60)):
        assert (roof == colour).all(-1).any(1).nonzero()[0].max() <= HEIGHT - MARGIN + 6, "above the axis"


def test_pytorch_is_the_yardstick_of_the_ways_and_starts_from_the_same_weights(few_digits, capsys):
    pytest.importorskip("torch")
    out = few_digits / "conv.json"
    for padding in ("same", "full"):
        more = ("--padding", padding, "--algorithms", "im2col", "plan", "PyTorch", "--json", str(out))
        assert run_conv(few_digits, *more) == 0
        losses = [r["loss"] for r in json.loads(out.read_text())]
        assert losses == pytest.approx([losses[0]] * 3, abs=1e-4)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.thorough
def test_a_step_stands_under_the_roof_in_a_hundred_columns(tmp_path, capsys):
    picture = tmp_path / "roof.png"
    assert lab.main(["roofline", "--device", "cpu", "--model", "mlp", "--batch", "2", "--image-size", "28",
                     "--png", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "of peak" in lines[3]
    assert max(map(len, lines)) <= 100
    assert cv2.imread(str(picture)).shape[1] == 1000


def test_the_products_are_measured_by_cublas_and_by_the_peak_of_their_arithmetic(monkeypatch, capsys):
    times = [Timing("naive", 4.0, 500.0), Timing("narrow", 0.0, 0.0, "The depth 512 is more than 32."),
             Timing("tma", 0.01, 200_000.0, halved=True), Timing("cublas", 0.1, 20_000.0)]
    monkeypatch.setattr("core.plan.cuda_problem", lambda: None)
    monkeypatch.setattr(studies, "peaks", lambda: {False: 50_000.0, True: 1_000_000.0})
    monkeypatch.setattr(studies, "matmul_study", lambda sizes: iter([("512 x 512 x 512", times)]))
    assert lab.main(["matmul"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert found["naive"].split()[1:] == ["4.0000", "500.0", "1.0x", "2", "%", "1", "%"]
    assert found["tma"].split()[1:] == ["0.0100", "200,000.0", "400.0x", "20", "%"], "cuBLAS was float32"
    assert "more than 32" in found["narrow"]
    assert max(map(len, lines)) <= 100


@pytest.mark.thorough
def test_every_algorithm_of_the_cpu_gives_the_same_loss(capsys, tmp_path):
    file = tmp_path / "algorithms.json"
    assert lab.main(["algorithms", "--device", "cpu", "--model", "mlp", "--image-size", "28", "--batch", "4",
                     "--modules", "--json", str(file)]) == 0  # fmt: skip
    ran = [row for row in json.loads(file.read_text("utf-8")) if not row["reason"]]
    assert {row["algorithm"] for row in ran} >= {"naive", "im2col", "auto"}
    assert max(row["loss"] for row in ran) - min(row["loss"] for row in ran) < 1e-4
    assert all(row["milliseconds"] > 0 for row in ran)
    passes = [row["modules"]["dense1"] for row in ran if row["modules"]]
    assert len(passes) == 3
    assert all(forward > 0 and backward > 0 for forward, backward in passes)
    assert "faster by" in capsys.readouterr().out


def test_the_algorithms_measured_before_a_stop_are_in_the_file(tmp_path, monkeypatch):
    def stop_after_one(*_):
        yield Iteration("cpu", "naive", "float32", 2.0, 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "algorithm_study", stop_after_one)
    file = tmp_path / "algorithms.json"
    assert lab.main(["algorithms", "--device", "cpu", "--json", str(file)]) == EXIT_INTERRUPTED
    assert [row["milliseconds"] for row in json.loads(file.read_text("utf-8"))] == [2.0]


def test_a_module_holds_the_layers_of_a_fire_in_both_directions():
    kernels = [("photo", "forward", 1.0), ("features.3.squeeze", "forward", 2.0),
               ("features.3.expand3x3", "forward", 4.0), ("features.3.squeeze", "backward_input", 8.0),
               ("features.3.expand3x3", "backward_weight", 16.0)]  # fmt: skip
    found = add_up(kernels)
    assert (found, totals(found)) == ({"photo": (1.0, 0.0), "features.3": (6.0, 24.0)}, (7.0, 24.0))


@pytest.mark.thorough
def test_a_sweep_prints_photos_per_second_of_every_size_and_what_does_not_fit(tmp_path, capsys):
    file = tmp_path / "sweep.json"
    assert lab.main(["sweep", "--device", "cpu", "--model", "squeezenet1_1", "--batch", "1", "2", "--image-size", "16",
                     "32", "--training", "--json", str(file)]) == 0  # fmt: skip
    found = json.loads(file.read_text("utf-8"))
    assert [(row["batch"], row["image_size"]) for row in found] == [(1, 16), (2, 16), (1, 32), (2, 32)]
    assert [row["photos_per_second"] > 0 for row in found] == [False, False, True, True]
    assert capsys.readouterr().out.count("cannot be built for photos of 16 pixels") == 2


@pytest.mark.thorough
def test_explain_names_every_candidate_with_its_cost_or_reason_and_the_choice(capsys):
    explained = ["explain", "--model", "mlp", "--batch", "2", "--capability", "8.6"]
    assert (lab.main([*explained, "--algorithm", "none"]), lab.main(explained)) == (EXIT_WRONG_INPUT, 0)
    said = capsys.readouterr().out
    assert said.startswith("mlp, inference, batch 2, mixed, 224 pixels, compute capability 8.6\n")
    first, second = map(float, re.findall(r"^  -> \S+ +([\d.]+) us", said, re.M))  # one for each dense layer
    assert re.search(r"^     \S+ +\D", said, re.M), "a candidate that was refused, with its reason"
    assert float(re.search(r"^([\d.]+) us in all$", said, re.M)[1]) == pytest.approx(first + second, abs=0.2)


@pytest.mark.parametrize("driver", [False, True])
def test_explain_without_the_cuda_packages_names_them(driver, monkeypatch, capsys):
    monkeypatch.setattr("core.plan.has_driver", lambda: driver)
    for module in ("core.gpu.explain", "core.gpu.driver.device"):
        monkeypatch.setitem(sys.modules, module, None)
    assert lab.main(["explain", "--model", "mlp", "--capability", "8.6"]) == EXIT_WRONG_INPUT
    assert re.search(r"not installed \(core.gpu.*pip install '.\[cuda\]'", capsys.readouterr().err)


@pytest.mark.parametrize(("options", "plans"), [
    ("--model mlp", ["mlp, training, batch 32, mixed", "mlp, inference, batch 32, mixed"]),
    ("--precision tf32 --what inference", ["squeezenet1_1, inference, batch 32, tf32"]),  # not one of the standard ones
])  # fmt: skip
def test_tuning_finds_its_plans_and_records_its_command_line(options, plans, monkeypatch):
    monkeypatch.setattr(lab, "tune_plans", lambda wanted, *given: asked.append(([*map(str, wanted)], given[2])) or ())
    asked = []
    assert lab.main(["tune", *options.split()]) == 0
    assert asked == [(plans, f"leafclinic lab tune {options}")]


def test_depthwise_on_a_gpu_ends_with_the_bias(capsys, monkeypatch, tmp_path):
    bias = [Timing("global", 1.0, 2.0), Timing("constant", 4.0, 0.5)]
    monkeypatch.setattr(studies, "depthwise_study", lambda *_: iter([("depthwise 3x3", [Timing("naive", 2.0, 1.0)])]))
    monkeypatch.setattr(studies, "bias_study", lambda *_: iter([("bias", bias)]))
    monkeypatch.setattr("core.plan.cuda_problem", lambda: None)
    file = tmp_path / "depthwise.json"
    assert lab.main(["depthwise", "--device", "cuda", "--json", str(file)]) == 0
    assert [(name, len(found)) for name, found in json.loads(file.read_text("utf-8")).items()] == [
        ("depthwise 3x3", 1), ("bias", 2)]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["constant", "4.0000", "0.5", "0.2x"]


@pytest.mark.thorough
def test_depthwise_names_every_kernel_and_its_time(capsys, monkeypatch):
    monkeypatch.setattr(studies, "DEPTHWISE_SHAPES", ((1, 4, 8),))
    assert lab.main(["depthwise", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    for name in ("depthwise 3x3 1x4x8x8", "pointwise 1x1 1x4x8x8", "standard 3x3 1x4x8x8", "naive"):
        assert name in said
