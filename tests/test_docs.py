"""The documentation: links lead somewhere, its Python blocks run and print the output shown, docstrings give shapes."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import keyword
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import nbformat
import pytest

import horde_agent
import horde_env  # registers the ids
from horde_agent.runs.reporting import report
from horde_env import make
from horde_env.env import RobotEnv
from horde_env.spaces import MANOEUVRES
from horde_env.tasks import TASKS
from horde_env.testing import INFO_KEYS
from tests.env.toy import ToyBody

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
TUTORIALS = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ARRAYS = {"Bools", "Floats", "Integers", "NDArray", "Observation", "Reals", "Tiles"}
SHAPE = re.compile(r"\bshapes?\b|\((?:n_\w+|[A-Z]|n)(?: \+ 1)?, ?(?:[^()]*)\)")
LOOKED_UP = {"glossary.md": 900, "reference.md": 900}
"""Words of pages that nobody reads from the beginning to the end: they do not count among the others."""
N_PAGES = 16
N_WORDS = 27_389
N_WORDS_README = 900
CONCEPTS = (
    "Question",
    "Policy",
    "Features",
    "Learner",
    "Engine",
    "Readout",
    "Row",
    "Stream",
    "Life",
    "Score",
    "Run",
    "Robot",
)
A_SCREEN = 60
"""Lines of a section."""


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_and_a_heading_resolves(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    broken = []
    for link in (link for link in links if "://" not in link):
        path, _, anchor = link.partition("#")
        target = page
        if path:
            target = page.parent / path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_readme_links_every_page_and_every_example() -> None:
    text = README.read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f"docs/{page.name}" not in text] == []
    examples = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.toml")]
    assert [path.name for path in examples if f"examples/{path.name}" not in text] == []


def test_the_gallery_lists_every_script() -> None:
    text = (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")
    assert [
        path.name for path in (DOCS / "gallery").glob("*.py") if f"]({path.name})" not in text
    ] == []


def test_the_code_of_the_notebooks_is_that_of_the_gallery_and_the_pages() -> None:
    """Nothing is lost on the way: each line of their Python code is in a cell; only a figure is shown, not saved."""
    make = runpy.run_path(str(ROOT / "examples" / "notebooks" / "make.py"))
    assert len(make["NOTEBOOKS"]) == 3
    for name, (_, *sources) in make["NOTEBOOKS"].items():
        content = make["notebook"](name)
        nbformat.validate(content)
        cells = [cell.source for cell in content.cells if cell.cell_type == "code"]
        for cell in cells:
            compile(cell, name, "exec")
        lines = set("\n".join(cells).splitlines())
        for source in (ROOT / source for source in sources if source.endswith(".py")):
            tree = parsed(source)
            code = source.read_text(encoding="utf-8").splitlines()[tree.body[0].end_lineno :]
            assert {line for line in code if "savefig" not in line} <= lines, source
    assert "evaluation = evaluate(" in "\n".join(cells)


def test_the_site_has_the_files_that_it_names() -> None:
    """Stylesheets and scripts, which `mkdocs build --strict` does not look for."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = re.findall(r"[\w./-]+\.(?:css|js)\b", settings)
    assert len(names) >= 4
    assert [name for name in names if not (DOCS / name).is_file()] == []


def test_the_documentation_stays_small() -> None:
    pages = [page for page in DOCS.glob("*.md") if page.name not in LOOKED_UP]
    assert len(pages) <= N_PAGES
    for name, n_words in LOOKED_UP.items():
        assert len((DOCS / name).read_text(encoding="utf-8").split()) <= n_words, name
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= N_WORDS
    readme = README.read_text(encoding="utf-8").splitlines()
    text = " ".join(line for line in readme if not line.startswith("[!["))  # a line of badges
    assert len(text.split()) <= N_WORDS_README


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_the_question_that_it_answers(page: Path) -> None:
    title, question = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert title.startswith("# ")
    assert re.match(r"\*[A-Z][^*]*\?", question), question


@pytest.mark.parametrize(
    "words",
    [
        "continuation", "cumulant", "demon", "GVF", "importance sampling", "MSPBE", "nexting",
        "off-policy evaluation", "option model", "predictive maintenance", "rho", "Roomba", "ROS 2",
        "successor feature", "trace", "what if",
    ],
)  # fmt: skip
def test_the_site_finds_the_words_that_people_use(words: str) -> None:
    """In the left column of the glossary, which the site's search reads as any page."""
    rows = (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()
    names = [row.split("|")[1] for row in rows if row.startswith("| ")]
    assert len(names) > 30
    assert [name for name in names if words in name]


@pytest.mark.sim
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_a_pages_python_blocks_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks share one namespace; a block marked `text` right after one is its output."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setattr(report, "draw_pictures", lambda *_: [])  # no page's output names one
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": page.stem}
    for i, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}, block {i + 1}", "exec"), names)
        if i + 1 < len(blocks) and blocks[i + 1][0] == "text":
            assert printed.getvalue().rstrip() == blocks[i + 1][1].rstrip()


@pytest.mark.parametrize(("robot", "n_ids"), [("Critterbot", 5), ("Create", 3)])
def test_the_environments_of_a_robot_and_their_arguments_are_documented(
    robot: str, n_ids: int
) -> None:
    page = {"Critterbot": "critterbot.md", "Create": "create2.md"}[robot]
    text = (DOCS / page).read_text(encoding="utf-8")
    ids = [id_ for id_ in gymnasium.registry if id_.startswith(robot)]
    assert len(ids) == n_ids
    for id_ in ids:
        line = next(line for line in text.splitlines() if line.startswith(f"| `horde_env:{id_}`"))
        entry = getattr(make, str(gymnasium.spec(id_).entry_point).split(":")[1])
        argument_names = [
            p.name for p in inspect.signature(entry).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        assert [name for name in argument_names if f"`{name}`" not in line] == [], id_


def test_the_shared_arguments_the_rewards_and_the_keys_of_info_are_documented() -> None:
    text = "".join(
        (DOCS / page).read_text(encoding="utf-8") for page in ("critterbot.md", "environment.md")
    )
    shared = ("action_type", "task", "render_mode")
    assert set(shared) < set(inspect.signature(RobotEnv).parameters)
    for word in (*shared, *INFO_KEYS, *(f'"{name}"' for name in (*TASKS, *MANOEUVRES))):
        assert word in text, word


def test_a_function_added_to_the_tasks_is_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "steady", lambda before, request, after, spec: 0.5)
    env = RobotEnv(ToyBody(), task="steady")
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5


def test_the_class_of_the_page_your_robot_is_a_body() -> None:
    """Its documented methods, which its block prints, implemented by a toy, make an environment."""
    text = (DOCS / "robot.md").read_text(encoding="utf-8")
    names: dict[str, type] = {}
    exec("class MyRobot:" + text.split("class MyRobot:")[1].split("\n\n\n")[0], names)
    env = RobotEnv(type("Robot", (ToyBody, names["MyRobot"]), {})())
    assert env.reset(seed=0)[1]["gap"] == 1
    assert env.step(0)[4]["applied"] == 1
    env.close()


@functools.cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def public_functions(module: Path) -> Iterator[ast.FunctionDef]:
    waiting: list[ast.Module | ast.ClassDef] = [parsed(module)]
    while waiting:
        for node in waiting.pop().body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                waiting.append(node)
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield node


def takes_arrays(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = (node for a in arguments if a.annotation for node in ast.walk(a.annotation))
    return any(isinstance(node, ast.Name) and node.id in ARRAYS for node in names)


def test_functions_with_array_arguments_document_their_shapes() -> None:
    """Signatures cannot."""
    lacking = [
        f"{module}:{function.lineno} {function.name}"
        for module in sorted((ROOT / "horde_agent").rglob("*.py"))
        for function in public_functions(module)
        if takes_arrays(function) and not SHAPE.search(ast.get_docstring(function) or "")
    ]
    assert lacking == []


def public_objects() -> Iterator[Any]:
    """Yield public classes and functions, and the functions of the module `questions` that pages name."""
    for package in (horde_agent, horde_env):
        for name in package.__all__:
            value = getattr(package, name)
            if not inspect.ismodule(value):
                yield pytest.param(name, value, id=f"{package.__name__}.{name}")
    for name in ("excursions", "family", "from_file", "nexting", "policies", "values"):
        yield pytest.param(name, getattr(horde_agent.questions, name), id=f"questions.{name}")


@pytest.mark.parametrize(("name", "value"), list(public_objects()))
def test_the_docstring_of_a_public_name_has_an_example(name: str, value: Any) -> None:
    """One that calls the function by its name where it is `make_env` with some arguments."""
    if isinstance(value, functools.partial):
        assert f"{name}(" in "".join(re.findall(r">>> .*", inspect.getdoc(value.func) or ""))
    else:
        assert ">>> " in (inspect.getdoc(value) or "")


def test_examples_have_the_heading_that_the_reference_shows_as_code() -> None:
    """Below "Example:" mkdocstrings prints doctests as quotations."""
    for package in ("horde_agent", "horde_env"):
        for path in (ROOT / package).rglob("*.py"):
            assert not re.search(r"^ *Example:$", path.read_text(encoding="utf-8"), re.MULTILINE), (
                path
            )


def names_of_the_code() -> set[str]:
    """Return names that the packages define or use, modules, folders, texts that are one word, and words of Python."""
    names = {path.stem for path in ROOT.iterdir()} | set(keyword.kwlist)
    for package in ("horde_agent", "horde_env", "examples"):
        for path in (ROOT / package).rglob("*.py"):
            names.update(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    names.add(node.name)
                elif isinstance(node, ast.arg):
                    names.add(node.arg)
                elif isinstance(node, ast.Name):
                    names.add(node.id)
                elif isinstance(node, ast.Attribute):
                    names.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names.add(node.value)
    return names


def test_every_name_on_the_page_of_the_code_exists() -> None:
    """Names in backticks, and those of files, classes and functions in its drawings."""
    page = (DOCS / "internals.md").read_text(encoding="utf-8")
    drawings = [text for language, text in FENCE.findall(page) if not language]
    prose = FENCE.sub("", page)
    quoted = re.findall(r"`([^`\n]+)`", prose)
    assert len(quoted) > 50
    words = [word for text in quoted for word in re.findall(r"[A-Za-z_]\w+", text)]
    for drawing in drawings:
        words.extend(re.findall(r"\b[A-Za-z]\w*_\w+|\b[A-Z][a-z]+[A-Z]\w+", drawing))
    names = names_of_the_code()
    assert sorted({word for word in words if word not in names}) == []
    files = [
        path.as_posix()
        for package in ("horde_agent", "horde_env")
        for path in (ROOT / package).rglob("*.py")
    ]
    shown = re.findall(r"[\w/]+\.py\b", page)
    assert [name for name in shown if not any(path.endswith(f"/{name}") for path in files)] == []


def test_the_page_of_the_code_is_a_guide_by_the_twelve_concepts() -> None:
    page = (DOCS / "internals.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    titles = [section.split("\n", 1)[0] for section in sections]
    assert titles[: len(CONCEPTS)] == list(CONCEPTS)
    assert [
        title for title, text in zip(titles, sections, strict=True) if text.count("\n") > A_SCREEN
    ] == []
