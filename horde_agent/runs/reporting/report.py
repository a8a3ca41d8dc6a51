"""report.html: what a run learned, from the files in its folder only.

If the run was cut off before its tables were written, they are first learned again from its log.
Other missing or damaged files are listed on the page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

import numpy as np
from rich.console import Console

from horde_agent import html
from horde_agent.html import section
from horde_agent.life.counts import duration
from horde_agent.record import A_DAY, Stream, read
from horde_agent.refusals import BadInput, one_line
from horde_agent.runs.config import read_settings, refuse_no_run, time_name
from horde_agent.runs.reporting.frozen import frozen_section
from horde_agent.runs.reporting.held_out import held_out_section
from horde_agent.runs.sources.relearn import relearn_tables
from horde_agent.runs.storage.files import read_json, write_whole
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.frozen import read_frozen
from horde_agent.runs.storage.question_table import QuestionLine, read_held_out, read_questions
from horde_agent.scoring.bands import FEWEST_ERRORS, MOST_ERRORS, SHARE, BandFacts, bands_of
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import nmsre_text
from horde_agent.scoring.return_errors import DISCARDED_BY, Discard
from horde_agent.scoring.returns import MOST_REPEATED
from horde_agent.scoring.two_pass_nmsre import PolicyScores, policy_scores

T = TypeVar("T")

N_WORST = 12
_MOST_REASONS = 5  # why questions were not scored, one by one
NMSRE_IS = (
    "NMSRE: mean squared error of a prediction against the return that followed, divided by the variance of that "
    "return. Always predicting the mean return scores 1; lower is better. Persistence: the present reading lasts."
)

NEARLY_CONSTANT_IS = (
    "Nearly constant: the return varied by less than the rounding of its channel (variance below step^2 / 12), so its "
    "NMSRE can be very large and can dominate the mean."
)


def write_report(path: Path) -> Path:
    """Write the report of a run and its pictures, and return its path; raise BadInput without a readable run."""
    folder = RunFolder(path)
    noted = Notes()
    _check_folder(folder)
    if folder.missing_tables():
        _learn_again(folder, noted)
    summary = _summary(folder)
    config = noted.read(folder.config, read_settings) or {}
    details = noted.read(folder.details, read_json) or {}
    questions = noted.read(folder.questions, read_questions)
    stream = noted.read(folder.life, _read_stream)
    is_tested = summary.get("n_excursions") is not None or details.get("n_on_policy_tests")
    tested = None
    if is_tested:
        tested = noted.read(folder.excursions, _tested)
    bands = BandFacts.of_details(details)
    if tested is not None:
        bands = bands_of(tested[0]).facts()
    n_excursions = tested and sum(
        course.n_excursions for course in tested[1] if not course.policy.is_behaviour
    )
    noted.compare(folder, summary, n_excursions, questions)
    noted.compare_steps(folder, summary, stream, details.get("passes"))
    noted.sentences += [f"{fault}." for fault in folder.setting_faults()]
    results = [folder.summary, folder.details]
    named_time = _time_name(config, stream)
    question_files = [folder.questions]
    sections = [
        noted.drawn(
            "The headline", results, lambda: _headline(summary, details, stream, named_time)
        ),
        *draw_pictures(
            folder,
            noted.drawn,
            tested,
            questions or [],
            stream,
            details,
            named_time,
            _half_widths(bands, questions or []),
        ),
        noted.drawn(
            "The table of bands",
            question_files,
            lambda: _bands_section(bands, questions or [], stream),
        ),
        noted.drawn("The table of means", question_files, lambda: _means_section(questions or [])),
        noted.drawn(
            "The table of held-out scores",
            [folder.held_out],
            lambda: held_out_section(read_held_out(folder.held_out)),
        ),
        noted.drawn(
            "The table of frozen weights",
            [folder.frozen_scores],
            lambda: frozen_section(read_frozen(folder.frozen_scores)),
        ),
        noted.drawn(
            "The table of the worst questions",
            question_files,
            lambda: _worst_section(questions or []),
        ),
        noted.drawn("The features", results, lambda: _features_section(summary, details)),
        noted.drawn("The table of options", results, lambda: _options_section(details)),
        noted.drawn(
            "The table of time and health", results, lambda: _timing_section(summary, details)
        ),
        _settings_section(config),
    ]
    name = path.resolve().name
    (mark, *early) = _marks(summary, details, config) or [""]
    warnings = html.notes(early)
    if noted.sentences:
        warnings += html.element("h2", "Missing or damaged") + html.items(noted.sentences)
    if warnings:
        sections.insert(0, section("", warnings))
    heading = f"Run {name}" + (f" ({mark})" if mark else "")
    try:
        write_whole(folder.report, html.page(f"{name} · horde", sections, heading=heading))
    except OSError as error:
        raise BadInput(f"{folder.report} cannot be written ({error.strerror})") from None
    return folder.report


def _check_folder(folder: RunFolder) -> None:
    refuse_no_run(folder.path)
    as_who = {}
    if os.access in os.supports_effective_ids:
        as_who = {"effective_ids": True}
    if not os.access(folder.path, os.R_OK | os.X_OK, **as_who):
        raise BadInput(f"{folder.path} is not readable; ask its owner for a copy")
    if not os.access(folder.path, os.W_OK, **as_who):
        raise BadInput(
            f"{folder.report} cannot be written because its folder is read-only; copy it first"
        )


def _learn_again(folder: RunFolder, noted: Notes) -> None:
    """Write missing and outdated tables again from the log; if that fails and there is a summary, note why."""
    old_summary = None
    if folder.summary.is_file():
        old_summary = _summary(folder)
    names = ", ".join(table.name for table in folder.missing_tables())
    is_old = folder.has_gone_on()
    try:
        learned = relearn_tables(folder, Console(stderr=True))
    except (BadInput, OSError) as error:
        if old_summary is None:
            raise BadInput(str(error)) from error
        noted.sentences.append(f"{names} cannot be written again: {error}.")
        return
    if old_summary is None or is_old:
        return
    noted.sentences.append(f"{names} was missing and was learned again from the log.")
    if old_summary.get("weights_sha256") != learned["weights_sha256"]:
        noted.sentences.append(
            f"The weights learned again with version {learned['version']} differ from those in {folder.summary.name}, "
            f"which version {old_summary.get('version')} wrote."
        )


def _summary(folder: RunFolder) -> dict[str, Any]:
    try:
        return read_json(folder.summary)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{folder.summary} is damaged ({error}); remove it, and `horde report` writes it again from the log"
        ) from None


def _read_stream(path: Path) -> Stream:
    """Return what the page shows of the newest rows; it lists their faults itself."""
    return read(
        path, newest=A_DAY, columns=("step", "pose", "flags", "reward"), on_fault=lambda _: None
    )


def _tested(path: Path) -> tuple[ExcursionTable, list[PolicyScores]]:
    tests = ExcursionTable.read(path)
    return tests, policy_scores(tests)


def draw_pictures(*files: Any) -> list[str]:
    """Return the sections with pictures."""
    from horde_agent.runs.reporting.pictures import figures  # takes long to import

    return figures(*files)


# ---- missing and damaged files ---------------------------------------------------------------------------------------


class Notes:
    """Collects warnings, `sentences`, while files are read and sections are written."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def read(self, file: Path, reader: Callable[[Path], T]) -> T | None:
        """Return the contents of a file; if it is missing or damaged, add a warning and return None."""
        try:
            return reader(file)
        except FileNotFoundError:
            self.sentences.append(f"{file.name} is missing.")
        # A damaged file can raise anything, and the other files are still of use
        except Exception as error:
            self.sentences.append(f"{file.name} is damaged: {_short(error)}.")
        return None

    def drawn(self, what: str, files: Sequence[Path], draw: Callable[[], str]) -> str:
        """Return a section; if it cannot be made from its files, add a warning and return an empty string."""
        try:
            return draw()
        except Exception as error:  # as above
            names = " and ".join(file.name for file in files)
            self.sentences.append(f"{what} cannot be made from {names}: {_short(error)}.")
        return ""

    def compare(
        self,
        folder: RunFolder,
        summary: Mapping[str, Any],
        found: int | None,
        questions: Sequence[QuestionLine] | None,
    ) -> None:
        """Add a warning for each file that contains less than the summary says; None is an unreadable file."""
        n_tests = summary.get("n_excursions")
        n_questions = summary.get("n_questions")
        n_lines = None
        if questions is not None:
            n_lines = len(questions)
        of_excursions = (folder.excursions, found, n_tests)
        of_questions = (folder.questions, n_lines, n_questions)
        for (file, there, expected), unit in (
            (of_excursions, "excursions"),
            (of_questions, "questions"),
        ):
            if isinstance(expected, int) and there is not None and there < expected:
                self.sentences.append(
                    f"{file.name} is cut off: it contains {there:,} of {expected:,} {unit}."
                )

    def compare_steps(
        self,
        folder: RunFolder,
        summary: Mapping[str, Any],
        stream: Stream | None,
        passes: int | None,
    ) -> None:
        """Add a warning for a recording that ends before the last step, and for each of its faults.

        The steps of a data set are counted on from pass to pass; the recording has those of one.
        """
        if stream is None:
            return
        last = 0
        if len(stream):
            last = int(stream.rows["step"][-1])
        steps = summary.get("steps")
        n_recorded = last
        if summary.get("backend") == "data" and isinstance(passes, int):
            n_recorded *= passes
        if isinstance(steps, int) and n_recorded < steps:
            self.sentences.append(
                f"{folder.life.name} is cut off: it ends at step {last:,} of {steps:,}."
            )
        self.sentences += [f"{fault}." for fault in stream.faults]


def _short(error: Exception) -> str:
    """Return an error's message on one line of at most 200 characters, or its class name if it has none."""
    message = one_line(error).rstrip(".")
    if isinstance(error, KeyError):
        message = f"it lacks {message}"
    if len(message) > 200:
        message = f"{message[:200]}..."
    return message


# ---- tables ---------------------------------------------------------------------------------------------------------


def _marks(summary: dict[str, Any], details: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Return a mark and a sentence for a run that stopped early; nothing for any other."""
    if not summary.get("stopped_early"):
        return []
    requested = config.get("steps")
    steps = number(summary.get("steps"), ",")
    total = ""
    if isinstance(requested, int):
        total = f" of {requested:,}"
    if details.get("unfinished"):
        return [
            "unfinished",
            f"Unfinished: cut off after {steps}{total} steps, before its tables were written. They were learned again "
            "from its log; timings are unknown.",
        ]
    why = str(details.get("stopped_by")).rstrip(".")
    return ["stopped early", f"Stopped early, after {steps}{total} steps: {why}."]


def _time_name(config: Mapping[str, Any], stream: Stream | None) -> str:
    """Return what the time of a run's steps is called; "" if they have no duration."""
    period_s = 1.0
    if stream is not None:
        period_s = float(stream.header.get("period_s", period_s))
    return time_name(config, period_s)


def _headline(
    summary: dict[str, Any], details: dict[str, Any], stream: Stream | None, time_name: str
) -> str:
    summary_of = summary.get
    diverged = summary.get("diverged") or []
    tiles = [("questions", number(summary_of("n_questions"), ","))]
    if time_name:
        tiles.append((time_name, _time(summary_of("robot_time_s"))))
    tiles += [
        ("learning steps", number(summary_of("learning_steps"), ",")),
        ("test excursions", number(summary_of("n_excursions"), ",")),
        ("on-policy tests", number(details.get("n_on_policy_tests"), ",")),
        ("median NMSRE", nmsre_text(summary_of("median_nmsre"))),
        ("mean NMSRE", nmsre_text(summary_of("mean_nmsre"))),
        ("NMSRE below 1", number(summary_of("share_nmsre_below_1"), ".1%")),
        ("better than persistence", number(summary_of("share_better_than_persistence"), ".1%")),
        ("nearly constant", number(summary_of("n_nearly_constant"), ",")),
        ("diverged", number(len(diverged), ",")),
    ]
    reward = _mean_reward(stream)
    if reward:
        tiles.append(("mean reward of a step", number(reward, ".3g")))
    meaning = NMSRE_IS
    if summary_of("n_nearly_constant"):
        meaning = f"{NMSRE_IS} {NEARLY_CONSTANT_IS}"
    parts = [html.tiles(tiles), html.element("p", meaning)]
    lost_tests = discarded(details, summary_of("n_excursions"))
    not_scored = unscored(details.get("not_scored", []))
    parts.append(html.notes([*details.get("notes", []), *lost_tests, *not_scored]))
    if diverged:
        parts.append(html.element("p", f"Diverged, and learn no more: {', '.join(diverged[:20])}"))
    return section("Summary", *parts)


def _mean_reward(stream: Stream | None) -> float | None:
    """Return the mean of the known rewards of the newest rows; None without one."""
    if stream is None:
        return None
    rewards = stream.rows["reward"]
    finite_rewards = rewards[np.isfinite(rewards)]
    if not len(finite_rewards):
        return None
    return float(finite_rewards.mean())


def unscored(reasons: Sequence[dict[str, Any]]) -> list[str]:
    """Return why questions have no NMSRE, as in details.json: a sentence for each reason, and one for further ones."""
    sentences = [
        f"Not scored: {r['n']:,} questions ({r['reason']}), the first is {r['first']}."
        for r in reasons[:_MOST_REASONS]
    ]
    further = reasons[_MOST_REASONS:]
    if further:
        n_questions = sum(reason["n"] for reason in further)
        sentences.append(
            f"Not scored: {n_questions:,} questions for {len(further):,} further reasons, which details.json has."
        )
    return sentences


def discarded(
    details: Mapping[str, Any], n_excursions: int | None, least_share: float = 0.0
) -> list[str]:
    """Return sentences on excursions, and tests of questions, that were lost, if they are more than a share of all.

    `details` is the contents of details.json, `n_excursions` the number of complete excursions.
    """
    sentences = []
    n_lost = details.get("n_discarded") or 0
    n_all = n_lost + (n_excursions or 0)
    if n_lost and n_lost > least_share * n_all:
        reasons = details.get("discarded_by") or {}
        by_reason = ", ".join(f"{n:,} by {reason}" for reason, n in reasons.items())
        remedy = "Shorter ones, as with --horizon 10, are interrupted less often."
        if 2 * reasons.get(DISCARDED_BY[Discard.STALE], 0) > n_lost:
            remedy = "A longer period, in which a new frame arrives, leaves more of them."
        sentences.append(
            f"Discarded: {n_lost:,} of {n_all:,} test excursions ({by_reason}). {remedy}"
        )
    n_lost = details.get("n_repeated") or 0
    n_all = n_lost + (details.get("n_tests_of_questions") or 0)
    if n_lost and n_lost > least_share * n_all:
        sentences.append(
            f"Left out: {n_lost:,} of {n_all:,} tests of questions, because stale frames, which repeat a reading, "
            f"had more than {MOST_REPEATED:.0%} of the weight of the return."
        )
    return sentences


def _means_section(questions: Sequence[QuestionLine]) -> str:
    """Return a table of means by policy and time scale."""
    lines_by_group: dict[tuple[str, str], list[QuestionLine]] = {}
    for question in questions:
        about = question.about
        if not question.is_scored or not about.policy:
            continue
        gamma = ""
        if not math.isnan(about.gamma):
            gamma = f"{about.gamma:g}"
        lines_by_group.setdefault((about.policy, gamma), []).append(question)
    if not lines_by_group:
        return ""
    rows = []
    for (policy, gamma), lines in lines_by_group.items():
        values = [line.nmsre for line in lines]
        averages = [nmsre_text(median(values)), nmsre_text(fmean(values))]
        below_1 = f"{fmean(value < 1.0 for value in values):.0%}"
        persistence = [line.nmsre_of_persistence for line in lines]
        better = fmean(v < p for v, p in zip(values, persistence, strict=True))
        rows.append(
            [
                policy,
                gamma or "a function",
                str(len(lines)),
                *averages,
                below_1,
                nmsre_text(median(persistence)),
                f"{better:.0%}",
            ]
        )
    head = [
        "policy",
        "gamma",
        "questions",
        "median NMSRE",
        "mean NMSRE",
        "below 1",
        "median of persistence",
        "better than it",
    ]
    return section("By policy and time scale", html.table(head, rows))


def _half_widths(bands: BandFacts | None, questions: Sequence[QuestionLine]) -> dict[str, float]:
    """Return half the width of each question's band, by name; none if they are not known."""
    if bands is None or len(bands.n_tested) != len(questions):
        return {}
    widths = bands.half_width.tolist()
    return {question.name: width for question, width in zip(questions, widths, strict=True)}


def _bands_section(
    bands: BandFacts | None, questions: Sequence[QuestionLine], stream: Stream | None
) -> str:
    """Return a table of the share of returns that the bands held, by group of sensors."""
    if bands is None or len(bands.n_tested) != len(questions) or not bands.n_tested.any():
        return ""
    group_of: dict[str, str] = {}
    if stream is not None:
        for channel in stream.header.get("channels", []):
            group_of[channel["name"]] = channel.get("group") or channel["name"]
    counts: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        channel_name = question.about.channel
        count = counts.setdefault(group_of.get(channel_name, channel_name or "others"), [0, 0])
        count[0] += int(bands.n_tested[number])
        count[1] += int(bands.n_inside[number])
    counts["all"] = [int(bands.n_tested.sum()), int(bands.n_inside.sum())]
    rows = [
        [group, f"{n_tested:,}", f"{n_inside / n_tested:.1%}"]
        for group, (n_tested, n_inside) in counts.items()
        if n_tested
    ]
    explanation = (
        f"Half a band is a quantile of the question's last {FEWEST_ERRORS} or {MOST_ERRORS} errors, so that it holds "
        f"{SHARE:.0%} of the returns if errors stay alike; more if they shrink."
    )
    table = html.table(["sensors", "returns with a band", "in it"], rows)
    return section(f"Bands of {SHARE:.0%}", table + html.element("p", explanation))


def _options_section(details: dict[str, Any]) -> str:
    """Return a table of what a curious behaviour followed; nothing for any other behaviour."""
    options = details.get("options")
    if not options:
        return ""
    total = max(sum(option["steps"] for option in options), 1)
    rows = [
        [
            option["option"],
            number(option["steps"], ","),
            f"{option['steps'] / total:.1%}",
            f"{option['probability']:.1%}",
        ]
        for option in options
    ]
    head = ["policy followed", "steps", "share", "probability at the end"]
    text = "What the curious behaviour followed, and how it would choose at the last step."
    return section("What the robot did", html.element("p", text), html.table(head, rows))


def _worst_section(questions: Sequence[QuestionLine]) -> str:
    scored = [question for question in questions if question.is_scored]
    if not scored:
        return ""
    worst = sorted(scored, key=lambda question: -question.nmsre)[:N_WORST]
    rows = [
        [
            question.name,
            nmsre_text(question.nmsre),
            nmsre_text(question.nmsre_of_persistence),
            f"{question.variance:.3g}",
            str(question.n_tests),
            "yes" if question.is_nearly_constant else "",
        ]
        for question in worst
    ]
    text = (
        "A return with a tiny variance has a large NMSRE: a reading that hardly changes, or one that changed in a few "
        f"tests only. Such questions can dominate the mean. {_weight_of([question.nmsre for question in scored])}"
    )
    head = [
        "question",
        "NMSRE",
        "of persistence",
        "variance of its returns (squared units of the reading)",
        "tests",
        "nearly constant",
    ]
    return section("Worst questions", html.element("p", text), html.table(head, rows))


def _weight_of(nmsre: Sequence[float]) -> str:
    """Return a sentence on the share of the worst 1 % of the questions in the mean."""
    ordered = sorted(nmsre, reverse=True)
    n = max(len(ordered) // 100, 1)
    if len(ordered) <= n or not sum(ordered):
        return ""
    share = sum(ordered[:n]) / sum(ordered)
    mean_of_others = nmsre_text(fmean(ordered[n:]))
    return f"Here the worst {n} of {len(ordered)} contribute {share:.1%}; the mean of the others is {mean_of_others}."


def _features_section(summary: dict[str, Any], details: dict[str, Any]) -> str:
    """Return the description of the features and of LSTD; "" for the tilings of the layout alone."""
    sentences = []
    if details.get("features"):
        n_features = number(summary.get("n_features"), ",")
        n_active = number(summary.get("n_active"), ",")
        sentences.append(f"{n_features} features, {n_active} of them active. {details['features']}")
    n_random = details.get("n_random_features")
    if n_random:
        sentences.append(
            f"Predictions of readings and reward are mixed with LSTD on the readings and {n_random:,} random features "
            "of them."
        )
    if not sentences:
        return ""
    return section("Features", html.element("p", " ".join(sentences)))


def _timing_section(summary: dict[str, Any], details: dict[str, Any]) -> str:
    summary_of = summary.get
    faults = [number(summary_of(key), ",") for key in ("deadlines_missed", "gaps", "crc_errors")]
    rows = [
        ["steps", number(summary_of("steps"), ",")],
        ["wall time", _time(summary_of("wall_s"))],
        ["steps per second", number(summary_of("steps_per_s"), ",.0f")],
        ["compiling the kernels", number(details.get("compile_s"), ".1f", " s")],
        [
            "one update, or its share of a batch, p50 / p99 / max",
            _percentiles(summary_of("learn_ms")),
        ],
        ["one cycle, p50 / p99 / max", _percentiles(summary_of("cycle_ms"))],
        [
            "age of the newest packet at use, p50 / p99 / max",
            _percentiles(details.get("sensor_age_ms")),
        ],
        ["lateness of a step, p50 / p99 / max", _percentiles(details.get("overrun_ms"))],
        [
            "steps in which no action was applied (charging, safety)",
            number(details.get("n_not_applied"), ","),
        ],
        [
            "demons updated per learning step (rho > 0)",
            number(summary_of("n_updated_per_step"), ".1f"),
        ],
        ["largest trace", number(summary_of("max_trace"), ".3g")],
        ["deadlines missed · gaps · checksum errors", " · ".join(faults)],
        ["excursions discarded", _discarded_by(details)],
        ["weights (SHA-256)", f"{summary.get('weights_sha256', '-')[:16]}..."],
    ]
    if details.get("missing"):
        rows.append(["time without a reading", _missing_readings(details)])
    return section("Timing and health", html.table(["", ""], rows))


def _missing_readings(details: dict[str, Any]) -> str:
    """Return how long each channel had no reading, and since when."""
    texts = []
    for one in details["missing"]:
        text = f"{one['channel']} {duration(one['missing_s'])}"
        if one["since_step"] is not None:
            text += f", none since step {one['since_step']:,}"
        texts.append(text)
    return " · ".join(texts)


def _discarded_by(details: dict[str, Any]) -> str:
    reasons = details.get("discarded_by") or {}
    texts = [number(details.get("n_discarded"), ",")]
    texts += [f"{n:,} by {reason}" for reason, n in reasons.items()]
    return " · ".join(texts)


def _percentiles(ms: dict[str, float] | None) -> str:
    if not ms:
        return "-"
    return " / ".join(f"{ms[key]:.3f}" for key in ("p50", "p99", "max")) + " ms"


def _settings_section(config: dict[str, Any]) -> str:
    tables = [config, *(table for table in config.values() if isinstance(table, dict))]
    rows = [
        [key, str(value)]
        for table in tables
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    if not rows:
        return ""
    return section("Settings", html.table(["setting", "value"], rows))


def number(value: float | None, form: str, unit: str = "") -> str:
    """Return a formatted number with its unit; "-" for None."""
    if value is None:
        return "-"
    return f"{value:{form}}{unit}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return duration(seconds)
