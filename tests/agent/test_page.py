"""The live page in Chromium, by `make test-page`. `python -m tests.agent.test_page` takes the picture of the docs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.stop_request import StopAnswer
from tests.agent.test_page_numbers import EVALUATED, assert_results
from tests.agent.test_watch import ask_about_variance, lived, served

pytestmark = pytest.mark.browser
WIDTH = 400
NOT_CONFIRMED = "not confirmed: press the robot's own switch"
STEP = "Number(document.querySelector('#headline').textContent.match(/step ([\\d,]+)/)?.[1].replaceAll(',', ''))"


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield the system's Chromium, or Playwright's own; skip the test if there is neither."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: make test-page"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as driver:
        if path is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip("needs Chromium: make test-page")
        chromium_browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium_browser
        chromium_browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@contextmanager
def opened(
    browser: Any, address: str, scheme: Any = "light", expected: Sequence[str] = ()
) -> Iterator[Any]:
    """Yield the open page, WIDTH pixels wide; it must write nothing to the console but what is expected."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": 800}, color_scheme=scheme, bypass_csp=False
    )
    output: list[str] = []
    page.on(
        "console",
        lambda message: (
            output.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: output.append(str(error)))
    try:
        page.goto(address)
        page.wait_for_function(f"() => {STEP} > 0")
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
        yield page
        assert [text for text in output if not any(words in text for words in expected)] == []
    finally:
        page.close()


def await_text(page: Any, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => document.querySelector(selector).textContent.includes(words)",
        arg=[selector, words],
    )


def tab_to(page: Any, wanted: str) -> None:
    """Press Tab until the focused element fulfils a condition in JavaScript on `e`."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate(
            f"(() => {{ const e = document.activeElement; return Boolean({wanted}); }})()"
        ):
            return
    raise AssertionError(f"no element with {wanted} is reached by Tab")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with 10,000 questions."""
    folder = tmp_path_factory.mktemp("runs") / "many"
    lived(folder, 200, n_demons=10_000)
    return folder


def test_every_control_of_the_questions_works_by_keyboard(browser: Any, many: Path) -> None:
    """In the order of Tab: skip link, search, legend of a chart, map, order of the table, a question, the next page."""
    with served(many) as address, opened(browser, address) as page:
        page.wait_for_function("() => document.querySelectorAll('#demons tr').length === 50")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main"
        tab_to(page, "e.id === 'find'")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("saw-999")
        page.wait_for_function("() => document.querySelectorAll('#found li').length === 11")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        await_text(page, "#demon-said", "left/saw-9990 ")
        page.wait_for_selector("#demon .u-series th[tabindex='0']")
        tab_to(page, "e.closest('#demon .u-series')")
        page.keyboard.press("Enter")
        assert page.evaluate(
            "document.activeElement.closest('.u-series').classList.contains('u-off')"
        )
        tab_to(page, "e.id === 'map'")
        page.keyboard.press("ArrowRight")
        await_text(page, "#map-at", "left/saw-1")
        page.keyboard.press("Enter")
        await_text(page, "#demon-said", "left/saw-1 ")
        tab_to(page, "e.dataset.sort === 'name'")
        page.keyboard.press("Enter")
        await_text(page, "#demons tr", "left/saw-0")
        page.keyboard.press("Enter")
        await_text(page, "#demons tr", "left/saw-9999")
        tab_to(page, "e.textContent === 'left/saw-9999'")
        page.keyboard.press("Enter")
        await_text(page, "#demon-said", "left/saw-9999 ")
        tab_to(page, "e.id === 'on'")
        page.keyboard.press("Enter")
        await_text(page, "#place", "51 to 100")
        page.focus("#back")
        page.keyboard.press("Enter")
        await_text(page, "#place", "1 to 50")


def test_what_is_typed_before_the_first_question_is_shown_stays(browser: Any, many: Path) -> None:
    """The reply with the first question arrives after a name was typed."""
    with served(many) as address, opened(browser, address) as page:
        held: list[Any] = []
        page.route("**/api/demons?sort=nmsre&limit=1", lambda route: held.append(route))
        page.reload()
        page.wait_for_function("() => document.querySelectorAll('#demons tr').length === 50")
        page.focus("#find")
        page.keyboard.type("saw-999")
        page.wait_for_function("() => document.querySelectorAll('#found li').length === 11")
        held.pop().continue_()
        page.wait_for_selector("#demon .u-series")
        assert page.evaluate("document.getElementById('find').value") == "saw-999"
        assert page.evaluate("document.querySelectorAll('#found li').length") == 11
        assert page.evaluate("document.getElementById('found').hidden") is False


def test_the_table_shows_the_latest_order_and_keeps_the_focus_when_it_is_drawn_again(
    browser: Any, many: Path
) -> None:
    """The reply to the first press of two arrives last."""
    with served(many) as address, opened(browser, address) as page:
        page.wait_for_function("() => document.querySelectorAll('#demons tr').length === 50")
        held: list[Any] = []
        page.route("**/api/demons?sort=name&descending=0*", lambda route: held.append(route))
        by_name = page.locator("button[data-sort=name]")
        by_name.click()
        by_name.click()
        await_text(page, "#demons tr", "left/saw-9999")
        with page.expect_response("**/api/demons?sort=name&descending=0*") as late:
            held[0].continue_()
        late.value.finished()
        page.get_by_text("left/saw-9998", exact=True).focus()
        page.evaluate("drawTable()")
        assert page.evaluate("document.activeElement.textContent") == "left/saw-9998"
        await_text(page, "#demons tr", "left/saw-9999")


@contextmanager
def open_robot(folder: Path) -> Iterator[None]:
    """Hold what the process of a run holds while its robot is open."""
    (folder / ".stop").touch()
    with RunFolder(folder).locked():
        yield


def press_stop_twice(page: Any) -> None:
    page.wait_for_function("() => !document.querySelector('#stop').disabled")
    page.focus("#stop")
    page.keyboard.press("Enter")
    await_text(page, "#stop", "Really")
    page.keyboard.press("Enter")


def test_the_stop_is_disabled_after_the_run_and_needs_two_presses_during_it(
    browser: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    stopped = list[int]()
    lived(folder, 50)

    def stop() -> StopAnswer:
        stopped.append(1)
        return StopAnswer(is_confirmed=True, said="the latch is set")

    with (
        ExitStack() as stack,
        served(folder, stop=stop) as address,
        opened(browser, address) as page,
    ):
        assert page.evaluate("document.querySelector('#stop').disabled")
        stack.enter_context(open_robot(folder))
        page.wait_for_function("() => !document.querySelector('#stop').disabled")
        page.focus("#stop")
        page.keyboard.press("Enter")
        await_text(page, "#stop", "Really")
        assert not stopped
        page.keyboard.press("Enter")
        await_text(page, "#stop-said", "stopped (the latch is set)")
        assert stopped == [1]


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_stop_that_is_not_confirmed_within_two_seconds_names_the_robots_switch(
    is_confirmed: bool, browser: Any, tmp_path: Path
) -> None:
    """The answer comes late, and then replaces the advice."""
    folder = tmp_path / "run"
    answers = threading.Event()
    lived(folder, 50)

    def stop() -> StopAnswer:
        assert answers.wait(60.0)
        return StopAnswer(is_confirmed, "the port is busy")

    with (
        ExitStack() as stack,
        served(folder, stop=stop) as address,
        opened(browser, address) as page,
    ):
        stack.enter_context(open_robot(folder))
        press_stop_twice(page)
        began_s = time.monotonic()
        await_text(page, "#stop-said", "stopping")
        await_text(page, "#stop-said", NOT_CONFIRMED)
        assert 1.5 < time.monotonic() - began_s < 4.0
        answers.set()
        await_text(page, "#stop-said", "(the port is busy)")
        outcome = {True: "stopped", False: NOT_CONFIRMED}[is_confirmed]
        assert page.inner_text("#stop-said") == f"{outcome} (the port is busy)"


def test_a_stop_that_nobody_receives_is_not_confirmed(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lived(folder, 50)
    with (
        ExitStack() as stack,
        served(folder) as address,
        opened(browser, address, expected=("ERR_FAILED",)) as page,
    ):
        stack.enter_context(open_robot(folder))
        page.route("**/api/stop?word=*", lambda route: route.abort())
        press_stop_twice(page)
        await_text(page, "#stop-said", NOT_CONFIRMED)


def test_numbers_are_formatted_as_in_the_table(browser: Any, many: Path) -> None:
    with served(many) as address, opened(browser, address) as page:
        assert_results(page.evaluate(EVALUATED))


def test_the_table_of_questions_has_all_its_columns_on_a_narrow_screen(
    browser: Any, many: Path
) -> None:
    """400 pixels: "diverged" ends within the frame of the table, and names end a line after "/" or "_" alone."""
    with served(many) as address, opened(browser, address) as page:
        page.wait_for_function("() => document.querySelectorAll('#demons tr').length === 50")
        hidden = "(() => { const s = document.querySelector('.map .scroll'); return s.scrollWidth - s.clientWidth; })()"
        assert page.evaluate(hidden) == 0
        await_text(page, "#demon-said", "left/saw-")
        page.evaluate(
            "say('demon-said', 'rotate_counterclockwise/g0.8/motor_temperature_of_wheel_340')"
        )
        assert page.evaluate("document.documentElement.scrollWidth") == WIDTH
        parts = "[...document.querySelector('#demons button').childNodes].map((node) => node.textContent || '|')"
        assert "".join(page.evaluate(parts)).startswith("left/|saw-")


def test_an_environment_without_a_picture_and_a_pose_has_no_pen(
    browser: Any, tmp_path: Path
) -> None:
    """A robot was drawn in an empty pen. The toy body has a pose only in drives, which come later."""
    lived(tmp_path / "run", 5)
    with served(tmp_path / "run") as address, opened(browser, address) as page:
        page.wait_for_selector("#pen-section", state="hidden")
        assert page.is_visible("#health")


def test_legends_without_a_cursor_show_no_dashes(browser: Any, many: Path) -> None:
    with served(many) as address, opened(browser, address) as page:
        page.wait_for_selector("#demon .u-series th[tabindex='0']")
        assert "-" not in page.inner_text("#demon .u-legend")


def test_the_map_names_its_families_and_the_question_under_the_pointer(
    browser: Any, tmp_path: Path
) -> None:
    """Two families of questions: a click into the second row is one into the second family."""
    folder = tmp_path / "run"
    lived(folder, 200, n_demons=6)
    facts = folder / "live" / "facts.json"
    table = json.loads(facts.read_text())
    for question in table["questions"][:3]:
        question["policy"] = "left"
    for question in table["questions"][3:]:
        question["name"] = question["name"].replace("left", "right")
        question["policy"] = "right"
    facts.write_text(json.dumps(table))
    with served(folder) as address, opened(browser, address) as page:
        page.wait_for_function("() => grid !== null && grid.blocks.length === 2")
        names = page.evaluate("grid.blocks.map((block) => block.name)")
        assert names == ["left/g0.5", "right/g0.5"]
        x, y = page.evaluate("cellAt(4).map((edge) => edge + grid.size / 2)")
        page.locator("#map").hover(position={"x": x, "y": y})
        await_text(page, "#map-at", "right/saw-4")
        page.locator("#map").click(position={"x": x, "y": y})
        page.wait_for_function("() => document.querySelector('#find').value === 'right/saw-4'")


def test_the_page_reconnects_to_a_restarted_server(browser: Any, tmp_path: Path) -> None:
    """It says that it is lost meanwhile, and shows the state again afterwards."""
    folder = tmp_path / "run"
    lived(folder, 50)
    first = served(folder)
    address = first.__enter__()
    expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
    with opened(browser, address, expected=expected) as page:
        await_text(page, "#state", "over")
        first.__exit__(None, None, None)
        await_text(page, "#state", "page lost")
        with served(folder, port=int(address.rpartition(":")[2])):
            await_text(page, "#state", "over")
            page.focus("#find")
            page.keyboard.press("ControlOrMeta+a")
            page.keyboard.type("saw-3")
            page.keyboard.press("Enter")
            await_text(page, "#demon-said", "left/saw-3 ")


def learn(*words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "horde_agent.cli",
        "learn",
        "--backend",
        "simulator",
        "--physics",
        "planar",
        *words,
    ]


def test_a_band_is_drawn_around_a_question_whose_variance_is_learned(
    browser: Any, tmp_path: Path
) -> None:
    """With it the legend of the chart has two edges; they go when a question without a variance is chosen."""
    folder = tmp_path / "run"
    lived(folder, 300, n_demons=2, midway=ask_about_variance)
    legend = "[...document.querySelectorAll('#demon .u-series th')].map((e) => e.textContent)"
    curves = ["robot time (s)", "prediction", "return"]
    with served(folder) as address, opened(browser, address) as page:
        for name, edges in (("saw-0", 2), ("saw-1", 0), ("saw-0", 2)):
            page.focus("#find")
            page.keyboard.press("ControlOrMeta+a")
            page.keyboard.type(name)
            page.wait_for_function("() => document.querySelectorAll('#found li').length > 0")
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
            await_text(page, "#demon-said", f"left/{name} ")
            page.wait_for_function(f"(n) => ({legend}).length === n", arg=3 + edges)
            assert page.evaluate(legend)[:3] == curves
            assert page.locator("#demon canvas").count() == 1


def test_a_simulated_life_is_shown_as_it_goes_on_and_stopped_by_keyboard(
    browser: Any, tmp_path: Path
) -> None:
    """The emergency stop in simulation: the page's two presses end the life, which says so in its summary."""
    command = learn("--realtime", "--steps", "100000", "--watch", "--out", str(tmp_path / "run"))
    life = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert life.stderr is not None
    try:
        text = b""
        while b"watch at " not in text or not text.endswith(b"\n"):
            line = life.stderr.readline()
            text += line
            assert line, text.decode()
        address = text.rpartition(b"watch at ")[2].split()[0].decode()
        with opened(browser, address) as page:
            await_text(page, "#state", "living")
            first_step = page.evaluate(STEP)
            page.wait_for_function(f"(before) => {STEP} >= before + 10", arg=first_step)
            pixels = (
                "document.querySelector('#pen').getContext('2d').getImageData(0, 0, 300, 300).data"
            )
            inked = f"[...{pixels}].some(Boolean)"
            assert page.evaluate(inked)
            assert page.is_visible("#pen-section")
            # Drawn only while on the screen
            page.evaluate("document.querySelector('#channels').scrollIntoView()")
            page.wait_for_function(
                "() => document.querySelector('.channel').textContent.includes('V')"
            )
            press_stop_twice(page)
            await_text(page, "#stop-said", "stopped")
            _, errors = life.communicate(timeout=60)
            assert life.returncode == 0, errors.decode()
            page.wait_for_function("() => document.querySelector('#stop').disabled")
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["stopped_early"]
    finally:
        life.kill()
        life.communicate()


def take_pictures(folder: Path, n_steps: int = 6_000) -> None:
    """Write page.png, the page of a simulated life at its end, for the documentation."""
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        run = Path(place) / "simulator-1"
        subprocess.run(learn("--seed", "0", "--steps", str(n_steps), "--out", str(run)), check=True)
        with served(run) as address:
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.goto(address)
            page.wait_for_selector("#demon .u-series th[tabindex='0']")
            page.wait_for_function("() => document.querySelectorAll('#demons tr').length === 50")
            page.screenshot(path=folder / "page.png", animations="disabled")


if __name__ == "__main__":
    take_pictures(Path(__file__).resolve().parents[2] / "docs" / "images")
