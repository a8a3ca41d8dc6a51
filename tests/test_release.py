"""What a release needs agrees: versions, requirements, Pythons, and the workflows' pins and permissions."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from typing_extensions import deprecated

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DEPRECATION = re.compile(r"use `[^`]+`; it will be removed in (\d+\.\d+)")
CLASSIFIER = "Programming Language :: Python :: "


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> dict[str, Any]:
    return {
        f"{path.name}/{name}": job
        for path in WORKFLOWS
        for name, job in read_yaml(path)["jobs"].items()
    }


def test_the_citation_has_the_version_of_the_packages() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_has_the_version_or_says_unreleased() -> None:
    newest = re.findall(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )[0]
    expected = PROJECT["version"]
    if ".dev" in expected:
        expected = "Unreleased"
    assert newest == expected


def test_every_python_that_is_declared_is_allowed_and_tested() -> None:
    declared = [
        text.removeprefix(CLASSIFIER)
        for text in PROJECT["classifiers"]
        if re.fullmatch(rf"{CLASSIFIER}3\.\d+", text)
    ]
    assert len(declared) >= 3
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert [python for python in declared if python not in allowed] == []
    pythons = {
        name: job["strategy"]["matrix"]["python"]
        for name, job in jobs().items()
        if "python" in job.get("strategy", {}).get("matrix", {})
    }
    tested = pythons["ci.yml/check-and-test"]
    tried = pythons["release.yml/try"]
    assert tested == declared[: len(tested)]
    assert set(declared) == {*tested, *pythons["ci.yml/smoke"]}
    assert tried == declared


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    """Return the versions by name, without those of one platform only."""
    parsed = [Requirement(line) for line in lines]
    return {item.name: item.specifier for item in parsed if item.marker is None}


def test_the_conda_recipe_requires_what_the_wheel_requires() -> None:
    recipe = read_yaml(ROOT / "packaging" / "conda" / "recipe.yaml")
    lines = [line for line in recipe["requirements"]["run"] if not line.startswith("python ")]
    of_conda = requirements([line.replace("matplotlib-base", "matplotlib") for line in lines])
    assert of_conda == requirements(PROJECT["dependencies"])
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert PROJECT["version"].startswith(recipe["context"]["version"])
    entry_points = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == entry_points


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_the_sha_of_a_named_version(path: Path) -> None:
    """A tag can be moved to other code; Dependabot reads the version behind the SHA."""
    lines = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    assert lines
    assert [
        line for line in lines if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ] == []


def test_one_version_of_each_action_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    uses = set(re.findall(r"uses: (.+)", text))
    assert len({line.partition("@")[0] for line in uses}) == len(uses)


def test_jobs_may_read_and_only_those_that_publish_may_write() -> None:
    for path in WORKFLOWS:
        assert read_yaml(path)["permissions"] == {"contents": "read"}, path.name
    granted = {name: job["permissions"] for name, job in jobs().items() if "permissions" in job}
    assert granted == {
        "release.yml/build": {"contents": "read", "id-token": "write", "attestations": "write"},
        "release.yml/publish": {"id-token": "write"},
        "release.yml/documentation": {"contents": "write"},
    }


def test_nothing_is_published_without_an_environment_and_the_tried_wheel() -> None:
    publish = jobs()["release.yml/publish"]
    assert publish["environment"]["name"] == "pypi"
    assert publish["needs"] == "try"
    assert "checkout" not in str(
        publish["steps"]
    )  # it publishes what was tried, and builds nothing
    assert [name for name, job in jobs().items() if "timeout-minutes" not in job] == []


ADDRESS = runpy.run_path(str(ROOT / ".ci" / "address.py"))


def test_all_places_have_the_repositorys_address_of_pyproject_or_none() -> None:
    assert ADDRESS["disagreeing"](ROOT) == []


def copied_places(folder: Path) -> Path:
    for place in ADDRESS["PLACES"]:
        (folder / place.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place.file, folder / place.file)
    return folder


def test_an_address_is_entered_everywhere_replaced_and_taken_out(tmp_path: Path) -> None:
    """The second address leaves nothing of the first: appended instead of replaced, both would stand there."""
    root = copied_places(tmp_path)
    files = [root / place.file for place in ADDRESS["PLACES"]]
    ADDRESS["enter"](root, None)
    bare = [path.read_text(encoding="utf-8") for path in files]
    ADDRESS["enter"](root, "https://github.com/first/one")
    ADDRESS["enter"](root, "https://github.com/second/other.one")
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert [
        text.count("first") - old.count("first") for text, old in zip(texts, bare, strict=True)
    ] == [0] * 6
    assert all("second/other.one" in text for text in texts)
    settings = read_yaml(root / "mkdocs.yml")
    assert settings["repo_url"] == "https://github.com/second/other.one"
    assert settings["site_url"] == "https://second.github.io/other.one/"
    assert read_yaml(root / "CITATION.cff")["repository-code"] == settings["repo_url"]
    about = read_yaml(root / "packaging" / "conda" / "recipe.yaml")["about"]
    assert about["homepage"] == settings["repo_url"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert f"{settings['repo_url']}/actions/workflows/{WORKFLOWS[0].name}" in readme
    make = runpy.run_path(str(ROOT / "examples" / "notebooks" / "make.py"))
    badges = (root / "examples" / "notebooks" / "README.md").read_text(encoding="utf-8")
    opened = re.findall(r"github/second/other\.one/blob/notebooks/(\w+)\.ipynb", badges)
    assert opened == list(make["NOTEBOOKS"])
    assert ADDRESS["disagreeing"](root) == []
    files[1].write_text(bare[1], encoding="utf-8")
    assert ADDRESS["disagreeing"](root) == [ADDRESS["PLACES"][1].file]
    ADDRESS["enter"](root, None)
    assert [path.read_text(encoding="utf-8") for path in files] == bare


@pytest.mark.parametrize(
    "address", ["github.com/a/b", "https://github.com/a", "https://example.org/a/b"]
)
def test_what_is_no_address_of_a_repository_is_refused_before_a_file_is_written(
    tmp_path: Path, address: str
) -> None:
    root = copied_places(tmp_path)
    with pytest.raises(ValueError, match="an address is https:"):
        ADDRESS["enter"](root, address)
    assert ADDRESS["disagreeing"](root) == []


def broken_deprecations(source: str, version: str) -> list[str]:
    """Return the names that a module deprecates without naming the replacement and a later version of the removal."""
    broken = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            if not ast.unparse(decorator.func).endswith("deprecated"):
                continue
            message = ast.literal_eval(decorator.args[0])
            removal = DEPRECATION.fullmatch(message)
            if removal is None or Version(removal[1]).release <= Version(version).release[:2]:
                broken.append(node.name)
    return broken


@pytest.mark.parametrize(
    ("message", "version", "names"),
    [
        ("use `Horde.learn`; it will be removed in 0.4", "0.3.1", []),
        ("use `Horde.learn`; it will be removed in 0.4", "0.4.0.dev0", ["update"]),
        ("use `Horde.learn`; it will be removed in 0.10", "0.9", []),
        ("it will be removed in 0.4", "0.3", ["update"]),
        ("use `Horde.learn`", "0.3", ["update"]),
    ],
)
def test_a_deprecation_names_the_replacement_and_does_not_outlive_its_version(
    message: str, version: str, names: list[str]
) -> None:
    """As text, 0.10 would be before 0.9."""
    source = f"class Old:\n    @deprecated({message!r})\n    def update(self): ...\n"
    assert broken_deprecations(source, version) == names


@pytest.mark.parametrize("package", ["horde_agent", "horde_env"])
def test_nothing_that_is_deprecated_is_due_for_removal(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert broken_deprecations(source, PROJECT["version"]) == [], path


def test_what_is_deprecated_works_and_warns_where_it_is_called() -> None:
    @deprecated("use `double`; it will be removed in 0.4")
    def twice(number: int) -> int:
        return 2 * number

    with pytest.warns(DeprecationWarning, match="use `double`; it will be removed in 0.4") as seen:
        assert twice(3) == 6
    assert seen[0].filename == __file__
