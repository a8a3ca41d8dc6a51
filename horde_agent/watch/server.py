"""`horde watch RUN`: the live page's server, a separate process whose only effect on a run is the stop request.

It listens on the loopback by default; on other addresses every request needs the token. Requests
from other sites are refused: by their Host header, and stop requests by the header `x-horde`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from horde_agent.processes import python
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.files import finite
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.stop_request import PAGE_REASON, StopAnswer, ask_process, stop_options
from horde_agent.watch import WatchConfig
from horde_agent.watch.reader import RunReader

_CLOSE_S = 5.0
PAGE = Path(__file__).parent / "page"
TICK_S = 0.25
HEAD_START_S = 0.2  # of the run's process, before `horde-robot stop` is started
CONFIRM_S = 10.0  # within which a stop must be confirmed
MOST_ROWS = 50  # in a message after the first
MOST_DEMONS = 500  # in one part of the table of demons
MOST_QUESTIONS = 10**9  # the highest number in a query
LONGEST_SHOWN = 60  # characters of a wrong value in a message
_SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Latest:
    """The status and the newest rows of a run, read once per tick for all open pages."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._read_at = -1.0
        self.rows: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}

    def refresh(self) -> None:
        """Read the run again, at most once per tick."""
        if time.monotonic() - self._read_at >= 0.8 * TICK_S:
            self.rows = self._reader.rows()
            self.status = self._reader.status()
            self._read_at = time.monotonic()

    def message(self, after: int) -> tuple[str, int]:
        """Return the message for a page with newest step `after` (-1: none), and the newest step in it.

        If there are more than MOST_ROWS new rows, every second, third, ... is sent.
        """
        newest = -1
        if self.rows:
            newest = self.rows[-1]["step"]
        is_first = after < 0 or newest < after  # the run may have been resumed from an earlier step
        if is_first:
            rows = list(self.rows)
        else:
            rows = [row for row in self.rows if row["step"] > after]
            stride = -(-len(rows) // MOST_ROWS) or 1
            rows = rows[::-1][::stride][::-1]
        return json.dumps({"status": self.status, "rows": rows}), newest


class Query:
    """The parameters of a request, each given once; BadInput names the first one that is wrong.

    Args:
        items: Names and values, in their order.
    """

    def __init__(self, items: Sequence[tuple[str, str]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in items:
            if name in self._values:
                raise BadInput(f"the parameter {_shortened(name)} is given twice; give it once")
            self._values[name] = value
        self._values.pop("token", None)

    def has(self, name: str) -> bool:
        """Return whether the parameter is given."""
        return name in self._values

    def check_names(self, *known: str) -> None:
        """Raise BadInput if another parameter than these is given."""
        for name in self._values:
            if name not in known:
                expected = "leave it out"
                if known:
                    expected = f"choose from {', '.join(known)}"
                raise BadInput(f"there is no parameter {_shortened(name)} here; {expected}")

    def text(self, name: str, default: str = "") -> str:
        """Return the parameter's value."""
        return self._values.get(name, default)

    def whole_number(self, name: str, default: int, highest: int = MOST_QUESTIONS) -> int:
        """Return the parameter as a whole number; raise BadInput unless it is one from 0 to `highest`."""
        value = self._values.get(name)
        if value is None:
            return default
        is_number = value.isascii() and value.isdecimal() and len(value) <= len(str(highest))
        if not is_number or int(value) > highest:
            raise BadInput(
                f"{name} must be a whole number from 0 to {highest:,}, not {_shortened(value)}"
            )
        return int(value)


def _shortened(value: str) -> str:
    if len(value) > LONGEST_SHOWN:
        value = f"{value[:LONGEST_SHOWN]}..."
    return repr(value)


def make_app(
    folder: Path,
    token: str | None = None,
    stop: Callable[[], StopAnswer] | None = None,
    is_ending: Callable[[], bool] = lambda: False,
) -> Any:
    """Return the application for a run's folder; raise BadInput without one, or without the extra `dash`.

    Every request needs the token, if there is one, as ?token= or as a cookie. `stop` stops the run
    and returns whether that is confirmed; `request_stop` when None. Once `is_ending`, each page
    receives a final message.
    """
    need_extras()
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    queries = _Queries(folder)
    stop_button = _StopButton(stop or (lambda: request_stop(folder)))
    events = _Events(queries.reader, is_ending, queries.final)
    routes = [
        Route("/api/run", _endpoint(queries.run)),
        Route("/api/stream", events.respond),
        Route("/api/demons", _endpoint(queries.demons)),
        Route("/api/heat", _endpoint(queries.heat)),
        Route("/api/demon", _endpoint(queries.demon)),
        Route("/api/curves", _endpoint(queries.curves)),
        Route("/api/surprise", _endpoint(queries.surprise)),
        Route("/api/stop", stop_button.respond, methods=["POST"]),
        Mount("/", StaticFiles(directory=PAGE, html=True)),
    ]
    return _Guard(Starlette(routes=routes), token)


def _refusal(sentence: str, code: int) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse({"error": sentence}, code)


def _endpoint(answer: Callable[[Query], Any]) -> Any:
    """Return an endpoint that sends the answer to a query as JSON, or status 400 and a sentence for BadInput."""
    from starlette.responses import JSONResponse

    async def endpoint(request: Any) -> Any:
        try:
            query = Query(request.query_params.multi_items())
            return JSONResponse(await asyncio.to_thread(lambda: finite(answer(query))))
        except BadInput as error:
            return _refusal(str(error), 400)

    return endpoint


class _Queries:
    """Answers the requests of the page from the files of a run.

    Attributes:
        reader: Reads the run's folder.
        final: The last message to a page.
    """

    def __init__(self, folder: Path) -> None:
        self.reader = RunReader(folder)
        self.final = f"This page is no longer served: `horde watch {folder}` shows the run again."
        self._name = folder.resolve().name

    def demons(self, query: Query) -> Any:
        """Return a part of the table of demons, or one of its rows."""
        if query.has("index"):
            query.check_names("index")
            return self.reader.at(query.whole_number("index", 0))
        query.check_names("find", "sort", "descending", "offset", "limit")
        return self.reader.demons(
            find=query.text("find"),
            sort=query.text("sort", "nmsre"),
            descending=query.whole_number("descending", 0, highest=1) == 1,
            offset=query.whole_number("offset", 0),
            limit=query.whole_number("limit", 100, highest=MOST_DEMONS),
        )

    def demon(self, query: Query) -> Any:
        """Return the predictions and returns of one demon."""
        query.check_names("name")
        return self.reader.demon(query.text("name"))

    def heat(self, query: Query) -> Any:
        """Return what the map of questions shows."""
        query.check_names()
        nmsre, _, diverged = self.reader.measures().tolist()
        rounded = [float(f"{value:.3g}") for value in nmsre]
        return {"nmsre": rounded, "diverged": diverged, "families": self.reader.families()}

    def curves(self, query: Query) -> Any:
        """Return the learning curves."""
        query.check_names()
        return self.reader.curves()

    def surprise(self, query: Query) -> Any:
        """Return the evidence over time and the alarms; {} if no surprise is watched for."""
        query.check_names()
        return self.reader.surprise()

    def run(self, query: Query) -> Any:
        """Return what does not change in a run."""
        query.check_names()
        facts = dict(self.reader.facts())
        n_questions = len(facts.pop("questions"))
        return {**facts, "n_questions": n_questions, "name": self._name, "final": self.final}


class _Events:
    """The stream of new rows and the status, until the server ends."""

    def __init__(self, reader: RunReader, is_ending: Callable[[], bool], final: str) -> None:
        self._reader = reader
        self._latest = Latest(reader)
        self._is_ending = is_ending
        self._final = final

    async def respond(self, request: Any) -> Any:
        """Return the response of a request."""
        from starlette.responses import StreamingResponse

        return StreamingResponse(self._messages(request), media_type="text/event-stream")

    async def _messages(self, request: Any) -> AsyncIterator[str]:
        newest_step = -1
        sent = ""
        while not self._is_ending() and not await request.is_disconnected():
            await asyncio.to_thread(self._latest.refresh)
            text, newest = self._latest.message(newest_step)
            if text != sent or newest != newest_step:
                yield f"data: {text}\n\n"
                sent = text
            else:
                yield ": nothing new\n\n"
            newest_step = newest
            await asyncio.sleep(TICK_S)
        # The run that started this server is over or dead when the server ends; another run may
        # continue.
        status = await asyncio.to_thread(self._reader.status, silent_s=0.0)
        yield f"data: {json.dumps({'status': status, 'rows': [], 'final': self._final})}\n\n"


class _StopButton:
    """Stops the run at a second request with the word of the first one, within CONFIRM_S."""

    def __init__(self, stop: Callable[[], StopAnswer]) -> None:
        self._stop = stop
        self._asked_at: dict[str, float] = {}  # by word

    async def respond(self, request: Any) -> Any:
        """Return a word at the first request, the answer of the run at the second one."""
        from starlette.responses import JSONResponse

        if request.headers.get("x-horde") != "stop":
            return _refusal("only the live page can stop the run", 403)
        now_s = time.monotonic()
        for old in [word for word, at_s in self._asked_at.items() if now_s - at_s > CONFIRM_S]:
            del self._asked_at[old]
        word = request.query_params.get("word")
        if not word:
            if len(self._asked_at) > 100:
                self._asked_at.clear()
            word = secrets.token_urlsafe(8)
            self._asked_at[word] = now_s
            return JSONResponse({"word": word, "within_s": CONFIRM_S})
        if self._asked_at.pop(word, None) is None:
            return _refusal(
                "the confirmation was too late: press stop again, and confirm within ten seconds",
                409,
            )
        answer = await asyncio.to_thread(self._stop)
        return JSONResponse(answer._asdict())


class _Guard:
    """Allows requests to a loopback host name, or with the token if there is one, and adds headers to responses."""

    def __init__(self, app: Any, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        request = Request(scope)
        headers = dict(_SAFE)
        problem = self._problem(request)
        if problem is None and self._token is not None and request.query_params.get("token"):
            cookie = f"horde={self._token}; HttpOnly; SameSite=Strict; Path=/"
            headers["Set-Cookie"] = cookie

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        app = self._app
        if problem is not None:
            app = _refusal(problem, 403)
        await app(scope, receive, with_headers)

    def _problem(self, request: Any) -> str | None:
        """Return why a request is refused; None if it is allowed."""
        if self._token is None:
            if _is_own(request.headers.get("host", "")):
                return None
            return "open this page as localhost"
        token = request.query_params.get("token") or request.cookies.get("horde", "")
        if secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        return "this page requires its token: open the address that `horde watch` printed"


def _is_own(host: str) -> bool:
    """Return whether a Host header names the loopback; names that resolve to it do not count (DNS rebinding)."""
    name = host
    if not host.endswith("]"):
        name = host.rsplit(":", 1)[0]
    return name in ("localhost", "127.0.0.1", "[::1]")


def request_stop(folder: Path) -> StopAnswer:
    """Stop a run and its robot, and return whether that is confirmed; it blocks until then.

    Two ways are tried, and the first confirmation counts: the run's process stops its robot and
    ends the run; for a physical robot, `horde-robot stop` sets its emergency stop and sends a stop
    to its port. The command starts when the process cannot be reached, and `HEAD_START_S` later at
    most: it needs a processor for a second.
    """
    run = RunFolder(folder)
    options = stop_options(run)
    pool = ThreadPoolExecutor(2)
    try:
        ways: list[Future[StopAnswer | None]] = [pool.submit(ask_process, run)]
        if options:
            wait(ways, HEAD_START_S)
            ways.append(pool.submit(_run_stop_command, options))
        for done in as_completed(ways):
            answer = done.result()
            if answer is not None and answer.is_confirmed:
                return answer
    finally:
        pool.shutdown(wait=False)
    answers = [way.result() for way in ways]  # that of the process first
    unconfirmed = [answer.said for answer in answers if answer is not None and answer.said]
    if not options and not unconfirmed:
        unconfirmed.append("the process of this run does not answer")
    return StopAnswer(is_confirmed=False, said="; ".join(unconfirmed))


def _run_stop_command(options: Mapping[str, str]) -> StopAnswer | None:
    """Run `horde-robot stop` with these options, and return whether it confirms that the robot has stopped."""
    words = [
        "stop",
        *(f"--{name}={value}" for name, value in options.items()),
        f"--reason={PAGE_REASON}",
    ]
    command = shutil.which("horde-robot", path=str(Path(sys.executable).parent)) or shutil.which(
        "horde-robot"
    )
    if command is None:
        return StopAnswer(is_confirmed=False, said="`horde-robot` was not found")
    try:
        result = subprocess.run(
            [command, *words], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return StopAnswer(is_confirmed=False, said=f"`horde-robot stop` failed ({error})")
    # Without a port the command only sets the emergency stop, and cannot look at the robot.
    is_confirmed = "port" in options and result.returncode == 0
    return StopAnswer(is_confirmed, said=" ".join(f"{result.stdout} {result.stderr}".split()))


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; raise BadInput if it cannot be opened."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # "::" stands for every address
        accepts_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(
            (host, port), family=family, backlog=128, dualstack_ipv6=accepts_both
        )
    except (socket.gaierror, OverflowError) as error:
        raise BadInput(f"the host {host!r} is not an address of this machine ({error})") from error
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise BadInput(
            f"port {port} of {host} cannot be opened ({why}); choose another --port"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---- the command, and the page of a run -----------------------------------------------------------------------------


def watch(config: WatchConfig, wait_for_end: Callable[[], object] | None = None) -> None:
    """Serve a run's page until Ctrl-C or SIGTERM, or until `wait_for_end`, called in another thread, returns.

    Raise BadInput if the folder contains no run, the host or port cannot be listened on, or an
    extra is missing.
    """
    if not 0 <= config.port <= 65535:
        raise BadInput(f"--port must be from 0 to 65535, got {config.port}")
    host = config.host
    if _is_loopback(config.host):
        token = None
    else:
        token = secrets.token_urlsafe(16)
    app = make_app(config.run, token, is_ending=lambda: page.should_exit)
    import uvicorn

    with listening_socket(host, config.port) as open_socket:
        number = open_socket.getsockname()[1]
        shown = host
        if ":" in host:
            shown = f"[{host}]"
        print(
            f"watch at http://{shown}:{number}/" + (f"?token={token}" if token else ""), flush=True
        )
        page = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=3, lifespan="off")
        )

        def end() -> None:
            if wait_for_end is not None:
                wait_for_end()
                page.should_exit = True

        Thread(target=end, daemon=True).start()
        page.run(sockets=[open_socket])


class LivePage:
    """The page of a run at the URL `address`, served by a child process, which ends with this one at the latest."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address

    def wait(self) -> None:
        """Wait until the page's process ends, or a signal handler raises here."""
        self._process.wait()

    def close(self) -> None:
        """Send the final state to open pages, then end the process. Idempotent."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_beside(folder: Path, say: Callable[[str], None]) -> LivePage:
    """Start the page of a run in a child process and say its address; raise BadInput if it cannot be opened."""
    need_extras()
    command, environment = python("horde_agent.watch.server", str(folder))
    page = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to the run only
    )
    assert page.stdout is not None
    assert page.stderr is not None
    line = page.stdout.readline().strip()
    if not line:
        page.wait()
        raise BadInput(
            page.stderr.read().strip().removeprefix("horde: ")
            or "the live page could not be opened"
        )
    say(line)
    return LivePage(page, line.split()[-1])


def need_extras() -> None:
    """Raise BadInput if the extra `dash` is not installed."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise BadInput("the live page needs the extra `dash`: pip install -e '.[dash]'")


def main(folder: str) -> int:
    """Serve the page of a run at a free port until standard input is closed, and return the exit code.

    The run holds the other end of standard input, so the page ends even if the run is killed.
    """
    try:
        watch(WatchConfig(run=Path(folder), port=0), sys.stdin.read)
    except BadInput as error:
        print(f"horde: {error}", file=sys.stderr)
        return 2
    return 0
