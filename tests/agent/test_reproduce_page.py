"""The command and its page: settings, errors, continued runs, contents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from examples.reproduce import __main__ as reproduce
from examples.reproduce import command, efficiency
from examples.reproduce.checks import CheckResult
from examples.reproduce.excursions import NMSRESummary
from examples.reproduce.experiment import ExperimentContext, Figure, Result, Table
from examples.reproduce.page import write_page
from horde_agent.processes import own_version

CALLS: list[str] = []


def first(context: ExperimentContext) -> Result:
    CALLS.append("first")
    (context.folder("first") / "a.png").touch()
    claims = [
        CheckResult(
            "2 < 3 & true", "section 1", "says so", "seen, measured", "reproduced", "by <counting>"
        ),
        CheckResult(
            "It flies.", "section 2", "says so", "it fell", "not reproduced", cause="gravity"
        ),
    ]
    tables = [Table("numbers", ("a", "b"), [[1234, 0.123456], ["x", None]])]
    return Result("first", "The first", claims, [Figure("a.png", "a <picture>")], tables)


def second(context: ExperimentContext) -> Result:
    CALLS.append("second")
    if CALLS.count("second") == 1:
        raise KeyboardInterrupt
    return Result(
        "second", "The second", [CheckResult("Half.", "s", "p", "m", "partly reproduced")]
    )


@pytest.fixture(autouse=True)
def two_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and two experiments of our own."""
    CALLS.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "EXPERIMENTS", ("first", "second"))
    monkeypatch.setattr(command, "FURTHER", ())
    monkeypatch.setattr(command, "WITHOUT_BACKEND", ("second",))
    experiments = {"first": first, "second": second}
    monkeypatch.setattr(command, "run_experiment", lambda name, context: experiments[name](context))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "name an experiment: first, second, all, later"),
        (
            "firstt",
            "unknown experiment 'firstt': choose first, second, all, later; did you mean 'first'?",
        ),
        ("first --scale papr", "unknown scale 'papr'"),
        ("first --seeds 0", "--seeds must be at least 1, got 0"),
        ("first --seeds 101", "--seeds must be at most 100, got 101"),
        ("first --seeds 1.5", "--seeds: '1.5' is no whole number"),
        ("first --bogus 1", "Unrecognized options: --bogus"),
        ("second --backend serial", "the experiment second uses no robot: omit --backend serial"),
        ("first --backend replay", "unknown backend 'replay'"),
        ("first --port /dev/null", "--port belongs to a real robot"),
        ("first --out a-file", "a-file is a file"),
        ("first --out full", "holds other files"),
        ("first --out /proc/none", "cannot be written"),
        ("first --out other", "other holds a reproduction with seeds 0, 1; name another folder"),
        ("first --out broken", "cannot be read"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.dumps(
        {"scale": "quick", "seeds": "0, 1", "backend": "simulator", "version": own_version()}
    )
    for name, content in (("full/x", ""), ("other/settings.json", settings), ("a-file", "")):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    Path("broken").mkdir()
    Path("broken/settings.json").write_text("{")
    assert reproduce.main([*words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert CALLS == []


def test_what_was_broken_off_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """The first experiment is done once; the page of the interrupted run holds it, the next page both."""
    assert reproduce.main(["all", "--out", "run"]) == 130
    page = Path("run/index.html").read_text()
    assert "The first" in page
    assert "The second" not in page
    assert reproduce.main(["all", "--out", "run"]) == 0
    assert CALLS == ["first", "second", "second"]
    assert "The second" in Path("run/index.html").read_text()
    out, err = capsys.readouterr()
    assert out == f"{Path('run/index.html')}\n"
    assert "done before" in err
    settings = json.loads(Path("run/settings.json").read_text())
    assert (settings["scale"], settings["seeds"]) == ("quick", "0")


@pytest.mark.parametrize("content", ["{", "[]", '{"claims": [{"text": 1}], "figures": []}'])
def test_a_damaged_result_is_refused_by_name_and_done_again_once_it_is_removed(
    content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.main(["first", "--out", "run"]) == 0
    capsys.readouterr()
    Path("run/first/result.json").write_text(content)
    assert reproduce.main(["first", "--out", "run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"reproduce: {Path('run/first/result.json')} is damaged (")
    assert len(err.splitlines()) == 1
    Path("run/first/result.json").unlink()
    assert reproduce.main(["first", "--out", "run"]) == 0
    assert CALLS == ["first", "first"]


def test_one_folder_gathers_the_experiments_of_several_commands() -> None:
    CALLS.append("second")
    for name in ("second", "first"):
        assert reproduce.main([name, "--seeds", "2", "--out", "run"]) == 0
    page = Path("run/index.html").read_text()
    assert page.index("The first") < page.index("The second")
    assert reproduce.main(["first", "--seeds", "1", "--out", "run"]) == 2


def test_the_page_has_each_claim_with_its_measurement(tmp_path: Path) -> None:
    result = first(ExperimentContext(tmp_path, "quick", (0,), "simulator", print))
    page = write_page(
        tmp_path, {"command": "python -m examples.reproduce first", "scale": "quick"}, [result]
    ).read_text()
    assert page.count("<img ") == 1
    for words in (
        "2 &lt; 3 &amp; true",
        "by &lt;counting&gt;",
        "gravity",
        "not reproduced",
        "1,234",
        "0.1235",
    ):
        assert words in page


def test_every_line_of_the_picture_of_efficiency_is_in_a_legend() -> None:
    """The dotted one was not."""
    n_steps = np.array([100, 200])
    errors = efficiency.Errors(
        median=np.ones(2),
        mean=np.ones(2),
        below_1=np.ones(2),
        n_diverged=0,
        ms_per_update=1.0,
        second_half=np.ones((2, 1)),
    )
    best_linear = NMSRESummary(mean=0.3, median=0.1, below_1=1.0)
    predictors = (*efficiency.VARIANTS, *efficiency.BASELINES)
    errors_of_seeds = {predictor: {0: errors} for predictor in predictors}
    data = efficiency.EfficiencyResults(
        n_steps, errors_of_seeds, best_linear, family=np.array(["light"]), gamma=np.zeros(1)
    )
    canvas = efficiency.pictures(data)["efficiency"].canvas
    (legend,) = canvas.legends
    labels = {text.get_text() for text in legend.get_texts()}
    assert labels == {line.get_label() for axes in canvas.axes for line in axes.lines}
