"""A life: the calls of the Horde and their order, and learning again from the record."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.flags import are_broken, are_learned
from horde_agent.life.learner import StreamLearner, relearn
from horde_agent.life.life import BodyDisobeys, Life, StepEvent
from horde_agent.life.worker import FEW_DEMONS, Worker, worker_for
from horde_agent.policies import StickyRandom
from horde_agent.questions import excursions, nexting
from horde_agent.record import Flag, Phase, Recorder, Row
from tests.agent.doubles import (
    BeforeStep,
    SpyHorde,
    ToyBody,
    age_of,
    horde_of,
    live,
    toy_life,
    toy_questions,
)

OFTEN = ExcursionConfig(probability=0.1, horizon=5)
ALWAYS = ExcursionConfig(probability=1.0, horizon=5)


# ---- learning -------------------------------------------------------------------------------------------------------


def test_every_transition_is_learned_once_including_the_last_one() -> None:
    body = ToyBody()
    horde = SpyHorde(toy_questions())
    life = live(20, body, horde)

    assert horde.calls[0] == ("begin", 0)
    assert [(call[1], call[2], call[4]) for call in horde.learned] == [
        (k, a, k + 1) for k, a in body.actions
    ]
    assert (life.steps, life.student.learning_steps) == (20, 20)


@pytest.mark.parametrize("fault", [{"gap": 1}, {"applied": 0}, {"stale": 1}])
def test_nothing_is_learned_across_a_gap_a_stale_frame_or_an_action_not_applied(
    fault: Mapping[str, int],
) -> None:
    """The step that ends at age 7 is broken: a new stream begins there, and b of the next action is 1/3."""
    horde = SpyHorde(toy_questions())
    life = live(12, ToyBody({7: fault}), horde)

    assert [call[1] for call in horde.learned] == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert ("begin", 7) in horde.calls
    by_age = {call[1]: call[3] for call in horde.learned}
    assert by_age[0] == by_age[7] == pytest.approx(1 / 3)
    assert all(
        b == pytest.approx(2 / 3) or b == pytest.approx(1 / 6)
        for age, b in by_age.items()
        if age not in (0, 7)
    )
    assert life.counts.gaps == fault.get("gap", 0)


def test_rows_and_steps_have_the_same_rules() -> None:
    """A student learns from the transitions that the rule for rows names: 4 flags of a step of the behaviour."""
    horde = SpyHorde(toy_questions())
    student = StreamLearner(horde, Interface.of(ToyBody()))
    observation = np.zeros(3, dtype=np.float32)
    pairs = list(itertools.product(Phase, range(32)))
    are_seen_learned = []
    for phase, flags in pairs:
        student.observe(observation, Flag.GAP)
        student.set_action(phase, 0, 0.5, 0)
        n_learned = len(horde.learned)
        student.observe(observation, flags)
        are_seen_learned.append(len(horde.learned) > n_learned)

    came_by, flags_of_rows = (
        np.array(column, dtype=np.uint8) for column in zip(*pairs, strict=True)
    )
    assert are_learned(came_by, flags_of_rows).tolist() == are_seen_learned
    assert are_broken(flags_of_rows[:32]).tolist() == [not one for one in are_seen_learned[:32]]
    assert sum(are_seen_learned) == 4


def test_learning_is_suspended_in_excursions_and_drives() -> None:
    """Only steps with a behaviour action are learned from."""
    body = ToyBody()
    horde = SpyHorde(toy_questions())
    recorder = Recorder(3)
    life = live(400, body, horde, excursions=OFTEN, recorder=recorder)
    stream = recorder.stream()

    behaved = stream.rows["phase"] == Phase.BEHAVE
    assert [call[1] for call in horde.learned] == stream.rows["step"][behaved].tolist()
    assert life.student.errors.n_excursions > 5
    assert life.steps == 400 == stream.rows["step"][-1]
    after_drives = [age + body.drive_steps for age in body.drives]
    assert [call[1] for call in horde.calls if call[0] == "begin"] == [0, *after_drives]


def test_an_excursion_scores_the_predictions_of_its_first_observation_after_the_last_update() -> (
    None
):
    """The spy predicts 1000 x updates + age; the sawtooth's return at gamma 0 is its next value."""
    body = ToyBody()
    horde = SpyHorde(toy_questions())
    recorder = Recorder(3)
    with toy_life(body, horde, excursions=OFTEN, recorder=recorder) as life:
        life.run(400)
        rows = recorder.stream().rows

    for outcome in life.student.errors.table.outcomes():
        for step, predictions, returns in zip(
            outcome.step, outcome.predictions, outcome.returns, strict=True
        ):
            n_behaved = int((rows["phase"][rows["step"] < step] == Phase.BEHAVE).sum())
            assert predictions.tolist() == [1000.0 * n_behaved + step] * 6
            saw = [np.float32(((step + k) % 7) / 7) for k in range(1, 6)]
            expected = sum(float(r) * 0.5**k for k, r in enumerate(saw))
            assert returns[1] == pytest.approx(float(saw[0]), abs=1e-12)
            assert returns[4] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("fault", "steps", "discarded_at", "tested"),
    [({3: {"gap": 1}}, 20, 3, [7]), ({5: {"applied": 0}}, 9, 5, [])],
)
def test_a_break_inside_or_in_the_last_step_discards_the_excursion_and_drives_back(
    fault: Mapping[int, Any], steps: int, discarded_at: int, tested: list[int]
) -> None:
    """Excursions of 5 steps from age 0 on, of which the fifth term would complete the first at age 5."""
    body = ToyBody(fault)
    horde = SpyHorde(toy_questions())
    student = live(steps, body, horde, excursions=ALWAYS).student
    errors = student.errors

    assert body.drives[0] == discarded_at
    cut_by_the_end = {20: 4}.get(steps)
    expected = [int(n in (discarded_at - 1, cut_by_the_end)) for n in range(6)]
    np.testing.assert_array_equal(student.errors.interrupted, [np.zeros(6), expected])
    assert (errors.n_discarded, errors.n_excursions) == (1, len(tested))
    reason = "a gap" if 3 in fault else "an action that was not applied"
    assert errors.discarded_by() == {reason: 1}
    assert [step for outcome in errors.table.outcomes() for step in outcome.step.tolist()] == tested
    assert horde.learned == []


@pytest.mark.parametrize(
    ("stale", "n_tests", "reasons"),
    [
        (range(3, 4), [1, 0], {}),
        (range(6, 7), [1, 1], {}),
        (range(1, 2), [0, 0], {"stale frames": 1}),
        (range(1, 21), [0, 0], {"stale frames": 1}),
    ],
)
def test_an_excursion_with_stale_frames_tests_the_questions_for_which_they_matter_little(
    stale: range, n_tests: list[int], reasons: dict[str, int]
) -> None:
    """One excursion of 20 steps. At gamma 0 only the first frame has weight; at .5 the k-th has 1 / 2^k.

    So a third frame that is stale has 1/8 of the return at gamma .5, a sixth 1/64, and the limit is
    1/20. All four were discarded, and ended in a drive, when a stale frame ended an excursion. None
    was interrupted: a shorter horizon is no remedy.
    """
    body = ToyBody({age: {"stale": 1} for age in stale})
    horde = SpyHorde(toy_questions())
    errors = live(21, body, horde, excursions=ExcursionConfig(1.0, 20)).student.errors
    names = np.array(horde.names)
    tested = [
        int(errors.n_tests[np.char.endswith(names, f"/g{gamma}/saw")].sum())
        for gamma in ("0", "0.5")
    ]
    assert tested == n_tests
    assert errors.discarded_by() == reasons
    assert errors.interrupted.sum() == 0
    assert errors.n_repeated.sum() == 6 - 3 * sum(n_tests)
    assert body.drives[0] == 20
    for outcome in errors.table.outcomes():
        assert outcome.returns[0, 1] == pytest.approx(1 / 7, abs=1e-7)


def test_steps_of_a_drive_are_counted_up_to_the_end_of_the_run() -> None:
    """Excursion 0..5, drive 5..9: in a run of 7 steps, two of the drive's four count."""
    body = ToyBody()
    life = live(7, body, SpyHorde(toy_questions()), excursions=ALWAYS)

    assert (life.steps, body.age) == (7, 9)


@pytest.mark.parametrize(("name", "family"), [("CartPole-v1", excursions), ("toy", nexting)])
def test_without_manoeuvres_or_off_policy_questions_there_are_no_excursions(
    name: str, family: Any
) -> None:
    """CartPole has no manoeuvres: its constant-action questions are learned and not scored."""
    if name == "toy":
        env = ToyBody()
    else:
        env = gymnasium.make(name)
    face = Interface.of(env)
    horde = horde_of(family(face), face)
    behaviour = StickyRandom(len(face.actions))
    with Life(env, horde, behaviour, np.random.default_rng(0), excursions=ALWAYS) as life:
        life.run(30)

    assert (life.steps, life.student.learning_steps) == (30, 30), "each step is the behaviour's"


# ---- ends of episodes ------------------------------------------------------------------------------------------------


class Silent(ToyBody):
    """A body with an empty `info`, as most environments have."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0], {}


@pytest.mark.parametrize("kind", [ToyBody, Silent])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_the_last_transition_of_an_episode_is_learned_and_a_new_stream_begins(
    kind: Any, end: str
) -> None:
    """The first observation of each episode is recorded as a gap, which is not counted as a fault."""
    recorder = Recorder(3)
    horde = SpyHorde(toy_questions())
    life = live(8, kind({5: {end: 1}}), horde, recorder=recorder)
    rows = recorder.stream().rows
    is_termination = end == "terminated"
    if is_termination:
        ended = Flag.TERMINATED
    else:
        ended = Flag.TRUNCATED

    assert [call[5] for call in horde.learned] == [False] * 4 + [is_termination] + [False] * 3
    assert [call for call in horde.calls if call[0] == "begin"] == [("begin", 0), horde.calls[6]]
    assert horde.calls[6] == ("begin", 5)
    assert rows["flags"].tolist() == [Flag.GAP, 0, 0, 0, 0, ended, Flag.GAP, 0, 0, 0]
    assert rows["phase"].tolist() == [0] * 5 + [Phase.END] + [0] * 3 + [Phase.END]
    assert rows["b"][[0, 6]] == pytest.approx(1 / 3), "no last action after a reset"
    assert life.counts.gaps == 0


def test_a_truncation_inside_an_excursion_discards_it_without_a_drive() -> None:
    """The reset has placed the body."""
    body = ToyBody()
    life = live(9, TimeLimit(body, 3), SpyHorde(toy_questions()), excursions=ALWAYS)

    assert body.drives == []
    assert life.student.errors.n_excursions == 0
    assert life.student.errors.discarded_by() == {"the end of the episode": 3}


# ---- same seed, same life --------------------------------------------------------------------------------------------


def lived(seed: int, spans: tuple[int, ...] = (300,)) -> tuple[str, Any]:
    horde = horde_of(toy_questions(), Interface.of(ToyBody()))
    recorder = Recorder(3)
    with toy_life(ToyBody(), horde, seed, excursions=OFTEN, recorder=recorder) as life:
        for steps in spans:
            life.run(steps)
    return horde.weights_sha256(), recorder.stream()


def test_same_seed_same_life_also_in_pieces_and_another_seed_another_one() -> None:
    whole = lived(3)
    repeat = lived(3)
    pieces = lived(3, (1, 120, 0, 179))

    assert whole[0] == repeat[0] == pieces[0] != lived(4)[0]
    np.testing.assert_array_equal(whole[1].rows["observation"], pieces[1].rows["observation"])


# ---- acting and learning at once -------------------------------------------------------------------------------------


def test_learning_runs_while_the_step_waits_and_after_the_action_left() -> None:
    """The body's step returns only after learning has begun: without overlap this test times out.

    The long switch interval leaves waiting as the only reason for a switch between threads.
    """
    order: list[str] = []
    learning = threading.Event()

    def on_step(age: int) -> None:
        order.append(f"act {age}")
        if age > 0:
            assert learning.wait(timeout=30), "learning did not run while the step waited"
            learning.clear()

    def on_learn() -> None:
        order.append("learn")
        learning.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    try:
        horde = SpyHorde(toy_questions(), on_learn)
        with toy_life(ToyBody(on_step=on_step), horde, worker=Worker()) as life:
            life.run(4)
    finally:
        sys.setswitchinterval(interval)

    assert order == ["act 0", "act 1", "learn", "act 2", "learn", "act 3", "learn", "learn"]


@pytest.mark.parametrize(
    ("n_demons", "is_physical", "kind"),
    [
        (FEW_DEMONS, False, type(None)),
        (FEW_DEMONS + 1, False, Worker),
        (1, True, Worker),
    ],
)
def test_few_demons_of_a_simulated_robot_learn_without_a_thread(
    n_demons: int, is_physical: bool, kind: type[Worker | None]
) -> None:
    worker = worker_for(n_demons, is_physical=is_physical)
    assert type(worker) is kind
    if worker is not None:
        worker.close()


@pytest.mark.parametrize(
    ("stop_options", "runs_elsewhere"), [({}, False), ({"port": "/dev/robot"}, True)]
)
def test_a_life_of_a_physical_robot_learns_in_a_thread(
    stop_options: dict[str, str], runs_elsewhere: bool
) -> None:
    """A physical robot is one that another process can stop."""
    threads: set[int] = set()
    body = ToyBody()
    body.metadata = {**body.metadata, "stop_options": stop_options}
    horde = SpyHorde(toy_questions(), lambda: threads.add(threading.get_ident()))
    with toy_life(body, horde) as life:
        life.run(4)
    assert bool(threads - {threading.get_ident()}) == runs_elsewhere


def test_an_error_in_learning_is_raised_by_run() -> None:
    def on_learn() -> None:
        raise ArithmeticError("no such weight")

    n_threads = threading.active_count()
    with pytest.raises(ArithmeticError, match="no such weight"):
        live(10, ToyBody(), SpyHorde(toy_questions(), on_learn))

    assert threading.active_count() == n_threads


def test_an_error_of_the_body_ends_the_life_with_its_record_written() -> None:
    def on_step(age: int) -> None:
        if age == 5:
            raise ConnectionError("unplugged")

    recorder = Recorder(3)
    horde = SpyHorde(toy_questions())
    with pytest.raises(ConnectionError):
        live(10, ToyBody(on_step=on_step), horde, recorder=recorder)

    assert [call[1] for call in horde.learned] == [0, 1, 2, 3, 4]
    assert recorder.stream().rows["step"].tolist() == [0, 1, 2, 3, 4, 5]


class Unplugged(ToyBody):
    """Each reset but the first fails."""

    def __init__(self, error: type[BaseException], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.error = error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.age:
            raise self.error
        return super().reset(seed=seed, options=options)


class InterruptedRecorder(Recorder):
    """Writing the row of step 5 is interrupted, after or before the row was taken."""

    def __init__(self, *, is_taken: bool) -> None:
        super().__init__(3)
        self._is_taken = is_taken
        self._is_interrupted = False

    def write(self, row: Row) -> None:
        is_due = row.step == 5 and not self._is_interrupted
        if self._is_taken or not is_due:
            super().write(row)
        if is_due:
            self._is_interrupted = True
            raise KeyboardInterrupt


def check_record_of_failed_life(body: ToyBody, recorder: Recorder, **settings: Any) -> None:
    """Live until an error, and check that the record has each of ages 0 to 5 once, and teaches what the life did."""
    questions = toy_questions()
    interface = Interface.of(ToyBody())
    horde = horde_of(questions, interface)
    with (
        pytest.raises((ConnectionError, KeyboardInterrupt)),
        toy_life(body, horde, recorder=recorder, **settings) as life,
    ):
        life.run(100)
    stream = recorder.stream()
    assert [age_of(observation) for observation in stream.rows["observation"]] == [*range(6)]
    of_record = horde_of(questions, interface)
    student = relearn(stream, of_record, interface)
    assert student.learning_steps == life.student.learning_steps
    np.testing.assert_array_equal(of_record.weights()[0], horde.weights()[0])


@pytest.mark.parametrize("error", [ConnectionError, KeyboardInterrupt])
@pytest.mark.parametrize("before", ["episode", "drive"])
def test_a_life_whose_reset_fails_has_each_row_once(
    before: str, error: type[BaseException]
) -> None:
    """After the end of an episode, and in the drive after an excursion: the last row came twice, the second as END."""
    if before == "episode":
        check_record_of_failed_life(Unplugged(error, faults={5: {"terminated": 1}}), Recorder(3))
    else:
        check_record_of_failed_life(Unplugged(error), Recorder(3), excursions=ALWAYS)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_row_whose_writing_is_interrupted_is_in_the_record_once(is_taken: bool) -> None:
    """Closing would learn once more that the last action leads from the last observation to itself."""
    check_record_of_failed_life(ToyBody(), InterruptedRecorder(is_taken=is_taken))


def test_a_row_whose_observer_is_interrupted_is_in_the_record_once() -> None:
    def interrupt(event: StepEvent) -> None:
        if event.row.step == 5:
            raise KeyboardInterrupt

    check_record_of_failed_life(ToyBody(), Recorder(3), observers=[interrupt])


def test_a_stop_ends_the_life_after_the_current_step() -> None:
    def observe(event: StepEvent) -> None:
        if event.row.step == 6:
            event.life.stop()

    life = live(1000, ToyBody(), SpyHorde(toy_questions()), observers=[observe])

    assert life.steps == 7
    assert life.student.learning_steps == 7


def test_observers_see_each_step_with_its_predictions() -> None:
    """The spy's prediction at age k after k updates is 1001 k."""
    seen: list[tuple[int, float]] = []

    def observe(event: StepEvent) -> None:
        seen.append((age_of(event.row.observation), float(event.life.student.predictions[0])))

    live(5, ToyBody(), SpyHorde(toy_questions()), observers=[observe])

    assert seen == [(k, 1001.0 * k) for k in range(6)]


def test_an_observer_added_by_another_is_called_before_the_next_step_too() -> None:
    steps: list[int] = []

    def add_at_2(event: StepEvent) -> None:
        if event.row.step == 2:
            event.life.observers.append(BeforeStep(lambda life: steps.append(life.steps)))

    live(5, ToyBody(), SpyHorde(toy_questions()), observers=[add_at_2])

    assert steps == [3, 4]


# ---- counting --------------------------------------------------------------------------------------------------------


def test_faults_are_counted() -> None:
    """Late by 40 ms is jitter, by 60 ms a missed deadline."""
    faults = {
        3: {"gap": 1, "crc_errors": 2},
        4: {"overrun_s": 0.04},
        5: {"overrun_s": 0.06},
        6: {"clipped": 3},
    }
    faults |= {7: {"applied": 0, "sensor_age_s": 0.008}}
    life = live(10, ToyBody(faults), SpyHorde(toy_questions()))

    assert (
        life.counts.gaps,
        life.counts.deadlines_missed,
        life.counts.crc_errors,
        life.counts.n_clipped,
    ) == (1, 1, 2, 3)
    assert life.counts.n_not_applied == 1
    assert life.counts.overrun_s.summary_ms() == pytest.approx(
        {"p50": 50.0, "p99": 59.8, "max": 60.0}
    )
    assert life.counts.sensor_age_s.summary_ms() == pytest.approx(
        {"p50": 8.0, "p99": 8.0, "max": 8.0}
    )


def test_the_gap_after_a_drive_is_no_fault_and_its_checksum_errors_count() -> None:
    """Each of the drive's frames has one; the last one's stand in the info of the reset, where this body has none."""
    life = live(9, ToyBody(), SpyHorde(toy_questions()), excursions=ALWAYS)

    assert (life.counts.gaps, life.counts.crc_errors) == (0, 3)


def test_losses_of_the_link_are_summed_over_steps_and_drives() -> None:
    """`info` has those of one step; without them the sums are None."""

    class Far(ToyBody):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            answer = super().reset(seed=seed, options=options)
            for frame in self.manoeuvre_frames:
                frame.extras |= {"link_losses": 0, "s_without_link": 0.1}
            return answer

    lost = {"link_losses": 1, "s_without_link": 0.05}
    faults = {k: {"link_losses": 0, "s_without_link": 0.0} for k in range(20)} | {3: lost, 12: lost}
    # An excursion of 5 steps, a drive of 4: of its frames three, the last one's stand in the info.
    life = live(9, Far(faults), SpyHorde(toy_questions()), excursions=ALWAYS)
    assert life.counts.link_losses == 1
    assert life.counts.s_without_link == pytest.approx(0.05 + 3 * 0.1)
    life = live(9, ToyBody(), SpyHorde(toy_questions()))
    assert (life.counts.link_losses, life.counts.s_without_link) == (None, None)


@pytest.mark.parametrize(
    ("fault", "begins"), [({"gap": 1}, 0), ({"stale": 1}, 3), ({"applied": 0}, 3)]
)
def test_no_excursion_begins_at_a_stale_frame_or_after_an_action_not_applied(
    fault: Mapping[str, int], begins: int
) -> None:
    """At ages 0 to 2 the fault lasts; an excursion would begin at each step, and may begin after a gap."""
    recorder = Recorder(3)
    body = ToyBody(dict.fromkeys(range(3), fault))
    live(8, body, SpyHorde(toy_questions()), excursions=ExcursionConfig(1.0, 50), recorder=recorder)
    phases = recorder.stream().rows["phase"].tolist()
    assert phases.index(Phase.EXCURSION) == begins


def test_no_applied_action_for_a_minute_ends_the_life(caplog: pytest.LogCaptureFixture) -> None:
    """`obeyed` is 0 from age 100 on: 600 steps later the life ends with its record."""
    disobeys = {k: {"applied": 0, "obeyed": 0} for k in range(100, 1000)}
    recorder = Recorder(3)
    horde = SpyHorde(toy_questions())
    sentence = r"ends after 699 steps, 60 s .*`obeyed` = 0"
    with pytest.raises(BodyDisobeys, match=sentence):
        live(1000, ToyBody(disobeys), horde, recorder=recorder)
    assert len(horde.learned) == 99
    assert len(recorder.stream()) == 700


def test_a_body_that_pauses_for_a_minute_is_logged_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Heat or a safety stop: logged after a minute; the shorter pause is not."""
    pauses = {k: {"applied": 0, "obeyed": 1} for k in [*range(100, 900), *range(1000, 1599)]}
    life = live(2000, ToyBody(pauses), SpyHorde(toy_questions()))
    assert life.steps == 2000
    messages = [r.message for r in caplog.records if r.name == "horde_agent.life.robot_stream"]
    assert messages == ["no action was applied for 60 s; learning was paused"]


def test_a_robot_that_drives_in_every_reset_counts_those_steps_within_the_run() -> None:
    """It drives four steps before the first one and four after the truncation at age 10."""

    class Robot(ToyBody):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return super().reset(seed=seed, options=options or {"manoeuvre": "centre"})

    body = Robot({10: {"truncated": 1}})
    recorder = Recorder(3)
    life = live(8, body, SpyHorde(toy_questions()), recorder=recorder)

    assert body.drives == [0, 10]
    assert life.steps == 4 + 8
    assert recorder.stream().rows["step"].tolist() == [1, 2, 3, *range(4, 10), 10, 11, 12]


@pytest.mark.parametrize("tells", [True, False])
def test_the_frames_of_a_drive_are_recorded_for_the_pictures(tells: bool) -> None:
    """Excursion at ages 0..4, drive at 5..8 to the observation of age 9, at which the next excursion begins."""
    recorder = Recorder(3)
    body = ToyBody(tells_observations=tells)
    live(10, body, SpyHorde(toy_questions()), excursions=ALWAYS, recorder=recorder)
    rows = recorder.stream().rows

    assert rows["step"].tolist() == list(range(11))
    assert rows["phase"].tolist() == [1] * 5 + [2] * 4 + [1] + [3]
    assert rows["pose"][:, 0].tolist() == [0.0] * 6 + [0.5] * 3 + [0.0] * 2
    assert bool(np.isnan(rows["observation"][6]).all()) is not tells
    assert rows["flags"][9] == Flag.GAP


# ---- on each physics engine ------------------------------------------------------------------------------------------


def final_errors(physics: str, seed: int, n_steps: int) -> np.ndarray:
    """Return the logarithm of each question's NMSRE at the end of a life."""
    env = gymnasium.make("horde_env:CritterbotPen-v0", physics=physics)
    face = Interface.of(env)
    posed = excursions(face)
    horde = horde_of(posed, face, "deferred")
    with Life(env, horde, StickyRandom(5), np.random.default_rng(seed), interface=face) as life:
        life.run(n_steps)
    env.close()
    return np.log(life.student.errors.nmsre())


@pytest.mark.sim
@pytest.mark.slow
def test_three_lives_on_each_engine_end_with_the_same_errors() -> None:
    """Six lives of half an hour, split into two groups of three: the split by engine is not the most different one.

    The difference is that of each question's mean log NMSRE, in the mean over questions. There are
    ten splits, and if the engines differed, the split by engine would have the largest difference.
    Its median difference over all questions is below 0.1, a tenth of the error.
    """
    pytest.importorskip("pybullet")
    lives = np.array(
        [
            final_errors(physics, seed, 20_000)
            for physics in ("planar", "bullet")
            for seed in range(3)
        ]
    )
    scored = np.isfinite(lives).all(axis=0)
    assert scored.mean() > 0.95
    apart = {}
    for one in itertools.combinations(range(6), 3):
        if 0 in one:
            remainder = [k for k in range(6) if k not in one]
            difference = lives[list(one)][:, scored].mean(axis=0) - lives[remainder][
                :, scored
            ].mean(axis=0)
            apart[one] = np.abs(difference).mean(), abs(np.median(difference))
    by_engine = apart.pop((0, 1, 2))
    assert by_engine[0] < max(mean for mean, _ in apart.values())
    assert by_engine[1] < 0.1
