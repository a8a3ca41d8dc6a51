"""Families of questions, policies x time scales x sensors, from functions and from question files.

Source: White, Modayil & Sutton (2012), sections 5 and 6; Modayil, White & Sutton (2014) for
    `nexting`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, Channel, Feature, Reward, StateFunction, TDError, variance_of
from horde_agent.interface import Interface
from horde_agent.learning.values import identity
from horde_agent.options.option import ALWAYS, Option, StopAt, StopForSubtask, Subtask
from horde_agent.policies import (
    Among,
    Behaviour,
    ConstantAction,
    Gaussian,
    Gibbs,
    Greedy,
    Policy,
    Uniform,
)
from horde_agent.processes import available_memory
from horde_agent.record.kinds import QUESTIONS
from horde_agent.refusals import BadInput, real_number, whole_number
from horde_agent.tiles import check_keys
from horde_agent.toml import read_toml
from horde_agent.types import RNGLike, generator

PAPER_GAMMAS = (0.0, 0.5, 0.8)
PAPER_LAMBDA = 0.9
VALUE_GAMMAS = (0.0, 0.8, 0.95, 0.99)
"""Time scales of `values`."""
REWARD = "reward"
"""What names and tables of questions call the reward."""
BEHAVIOUR = "behaviour"
UNIFORM = "uniform"
MOST_QUESTIONS = 1_000_000
"""Of a question file, in which a typing error is more likely than more; Python has no such limit."""
MOST_GAMMAS = 1_000
"""Of a family."""
CONTROL_FAMILY = "control"
"""Family of the questions of `[[control]]` tables."""
MODEL_FAMILY = "model"
"""Family of the questions of an option's model."""
_BYTES_OF_A_FEATURE = 2 * 4  # theta and w in float32
_OPTION_KEYS = ("name", "policy", "gamma", "stops", "features", "lam", "algorithm")
_CONTROL_KEYS = ("name", "gamma", "channel", "reward", "lam", "tested", "algorithm", "offset")
_FAMILY_KEYS = (
    "policies",
    "gammas",
    "channels",
    "groups",
    "reward",
    "lam",
    "tested",
    "algorithm",
    "offset",
    "variance",
)


def family(
    interface: Interface,
    policies: Mapping[str, Policy],
    gammas: Sequence[float],
    channels: Sequence[int | str],
    lam: float = PAPER_LAMBDA,
    *,
    tested: bool = True,
    family_name: str = "",
) -> list[GVF]:
    """Return a question for each policy, then gamma, then channel, named "policy/g0.8/channel".

    Args:
        interface: Interface of the robot.
        policies: Target policies by name.
        gammas: Continuations, each in [0, 1).
        channels: Cumulants: indices in the observation, or names.
        lam: Trace decay.
        tested: True if test excursions follow the policies.
        family_name: What tables call the family.

    Raises:
        ValueError: If gamma is not in [0, 1), lambda not in [0, 1], or there is no such channel.

    Examples:
        >>> import gymnasium
        >>> from horde_agent import Interface, questions
        >>> walk = Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))
        >>> [question.name for question in questions.family(walk, {"any": Uniform(2)}, [0.5], ["state"])]
        ['any/g0.5/state']
    """
    places = [interface.index(c) if isinstance(c, str) else c for c in channels]
    return [
        GVF(
            f"{name}/g{gamma:g}/{interface.names[i]}",
            policy,
            Channel(i),
            gamma,
            lam=lam,
            tested=tested,
            family=family_name,
            policy_name=name,
        )
        for name, policy in policies.items()
        for gamma in gammas
        for i in places
    ]


def excursions(
    interface: Interface, gammas: Sequence[float] = PAPER_GAMMAS, lam: float = PAPER_LAMBDA
) -> list[GVF]:
    """Return the paper's first experiment: a constant-action policy per action, every time scale, every sensor.

    On the Critterbot 5 x 3 x 53 = 795 questions, ordered policy, gamma, sensor.

    Examples:
        >>> import gymnasium
        >>> from horde_agent import Interface, questions
        >>> walk = Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))
        >>> asked = questions.excursions(walk)
        >>> len(asked), asked[0].name, asked[-1].name
        (6, 'left/g0/reward', 'right/g0.8/reward')
    """
    n = len(interface.actions)
    policies = {name: ConstantAction(action, n) for action, name in enumerate(interface.actions)}
    return family(interface, policies, gammas, interface.sensors, lam, family_name="excursions")


def values(
    interface: Interface,
    policies: Mapping[str, Policy] | None = None,
    gammas: Sequence[float] = VALUE_GAMMAS,
    lam: float = PAPER_LAMBDA,
    *,
    tested: bool = True,
    family_name: str = "values",
) -> list[GVF]:
    """Return the value functions of the reward: a question for each policy, then gamma, named "policy/g0.8/reward".

    Args:
        interface: Interface of the robot.
        policies: Target policies by name; when None the behaviour itself, the uniform policy, and
            for each action the policy that always takes it.
        gammas: Continuations, each in [0, 1).
        lam: Trace decay.
        tested: True if test excursions follow the policies.
        family_name: What tables call the family.

    Raises:
        ValueError: If gamma is not in [0, 1), or lambda not in [0, 1].

    Source: Sutton & Barto (2018), section 3.5; Sutton et al. (2011), Horde: values as one of many
        questions.

    Examples:
        >>> import gymnasium
        >>> from horde_agent import Interface, questions
        >>> walk = Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))
        >>> [question.name for question in questions.values(walk, gammas=[0.8])]
        ['behaviour/g0.8/reward', 'uniform/g0.8/reward', 'left/g0.8/reward', 'right/g0.8/reward']
    """
    if policies is None:
        n = len(interface.actions)
        policies = {BEHAVIOUR: Behaviour(), UNIFORM: Uniform(n)}
        for action, name in enumerate(interface.actions):
            policies[name] = ConstantAction(action, n)
    questions = []
    for name, policy in policies.items():
        for gamma in gammas:
            question = GVF(
                f"{name}/g{gamma:g}/{REWARD}",
                policy,
                Reward(),
                gamma,
                lam=lam,
                tested=tested,
                family=family_name,
                policy_name=name,
            )
            questions.append(question)
    return questions


def nexting(
    interface: Interface, gammas: Sequence[float] = PAPER_GAMMAS, lam: float = PAPER_LAMBDA
) -> list[GVF]:
    """Return on-policy questions about every sensor: the future under the behaviour policy (rho = 1).

    Examples:
        >>> import gymnasium
        >>> from horde_agent import Interface, questions
        >>> walk = Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))
        >>> [question.name for question in questions.nexting(walk, gammas=[0.5, 0.9])]
        ['behaviour/g0.5/reward', 'behaviour/g0.9/reward']
    """
    behaviour = {"behaviour": Behaviour()}
    return family(interface, behaviour, gammas, interface.sensors, lam, family_name="nexting")


def policies(
    interface: Interface, rng: RNGLike, n: int = 1_000, lam: float = PAPER_LAMBDA
) -> list[GVF]:
    """Return the paper's last experiment: n questions, each about another random Gibbs policy.

    Time scale from {0, .5, .8, .95} and sensor are drawn at random; names
    "gibbs_0007/g0.8/light_0". No test excursions follow these policies: there are too many (section
    6).

    Raises:
        ValueError: If `n` is not a whole number of at least 1, or `rng` is not what
            `numpy.random.default_rng` takes.

    Examples:
        >>> import gymnasium
        >>> from horde_agent import Interface, questions
        >>> walk = Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))
        >>> [question.name for question in questions.policies(walk, rng=0, n=2)]
        ['gibbs_0000/g0.8/reward', 'gibbs_0001/g0.8/reward']
    """
    n = whole_number("n", n, 1)
    rng = generator(rng)
    sensors = interface.sensors
    questions = []
    for i in range(n):
        policy = Gibbs.random(rng, len(interface.actions), interface.coder.n_features)
        gamma = float(rng.choice([0.0, 0.5, 0.8, 0.95]))
        channel = sensors[int(rng.integers(len(sensors)))]
        questions += family(
            interface,
            {f"gibbs_{i:04d}": policy},
            [gamma],
            [channel],
            lam,
            tested=False,
            family_name="policies",
        )
    return questions


def model_of(
    option: Option,
    features: Sequence[int],
    *,
    n_features: int = 0,
    lam: float = PAPER_LAMBDA,
    algorithm: str | None = None,
) -> list[GVF]:
    """Return all questions of an option's model: the reward, "name/reward", then each feature, "name/feature_3".

    They have one policy, continuation and trace decay, and so one trace. Their offset is 0, as a model
    is linear; no test excursion follows the option, whose end no excursion waits for.

    Args:
        option: The option.
        features: The features at the stop that are predicted, all for a full model.
        n_features: Number of features of the Horde; by default the highest of `features`, and 1.
        lam: Trace decay.
        algorithm: Update rule of the demons; None is that of the Horde.

    Raises:
        ValueError: If no feature is named, one is named twice, the option does not fit `n_features`,
            or the weights of so many demons need more memory than there is.

    Source: `options.option`.

    Examples:
        >>> from horde_agent.options.option import Option, StopAt
        >>> option = Option("ahead", ConstantAction(0, n_actions=5), StopAt((7,)), gamma=0.9)
        >>> [question.name for question in model_of(option, [3, 7], n_features=9)]
        ['ahead/reward', 'ahead/feature_3', 'ahead/feature_7']
    """
    predicted = [whole_number("feature of a model", feature, 0) for feature in features]
    if not predicted or len(set(predicted)) < len(predicted):
        raise ValueError(
            f"option {option.name!r}: the features of its model must be different, and at least one"
        )
    if n_features and max(predicted) >= n_features:
        raise ValueError(
            f"option {option.name!r}: its model is to predict feature {max(predicted):,}, and there are "
            f"{n_features:,}"
        )
    if n_features:
        option.check(option.target_policy.n_actions, n_features)
    _check_memory(option.name, len(predicted) + 1, max(n_features, max(predicted) + 1))
    questions = [
        GVF(
            f"{option.name}/{REWARD}",
            option.target_policy,
            Reward(),
            option.continuation,
            lam=lam,
            tested=False,
            algorithm=algorithm,
            offset=0.0,
            family=MODEL_FAMILY,
            policy_name=option.name,
        )
    ]
    factor = option.paid_at_stop()
    for feature in predicted:
        question = replace(
            questions[0],
            name=f"{option.name}/feature_{feature}",
            cumulant=0.0,
            outcome=Feature(feature, factor),
        )
        questions.append(question)
    return questions


def _check_memory(name: str, n_demons: int, n_features: int) -> None:
    """Raise ValueError if the weights of an option's model are larger than the free memory."""
    needed = n_demons * n_features * _BYTES_OF_A_FEATURE
    available = available_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"option {name!r}: its model is {n_demons:,} demons of {n_features:,} features, whose weights need "
            f"{needed / 1e9:,.1f} GB, and {available / 1e9:,.1f} GB of memory are free: predict fewer features"
        )


def control_of(
    name: str,
    subtask: Subtask,
    n_actions: int,
    gamma: float = 0.99,
    *,
    lam: float = PAPER_LAMBDA,
    algorithm: str | None = None,
) -> GVF:
    """Return the control question that finds the option for a subtask; `options.option.found` returns that option.

        q(s, a) = E[R + gamma max(z(s'), max_a' q(s', a'))]

    Stopping is one more choice: the continuation is 0 where the value z of stopping is at least that
    of the best action by the weights of the time, and the outcome pays gamma z there.

    Args:
        name: Its name, and the option's.
        subtask: The subtask.
        n_actions: Number of actions.
        gamma: Discount, in [0, 1).
        lam: Trace decay.
        algorithm: Update rule of the demon, one that finds policies; None is the default of those.

    Raises:
        ValueError: If an argument is out of its range.

    Source: Sutton et al. (2023), Reward-respecting subtasks, section 3.
    """
    stops = StopForSubtask(subtask, of=name)
    option = Option(name, Greedy(n_actions, of=name), stops, gamma, subtask)
    return GVF(
        name,
        option.target_policy,
        Reward(),
        option.continuation,
        outcome=option.paid_at_stop(subtask),
        lam=lam,
        tested=False,
        algorithm=algorithm,
        offset=0.0,
        family=CONTROL_FAMILY,
    )


# ---- columns of tables -----------------------------------------------------------------------------------------------


class QuestionColumns(NamedTuple):
    """What a question is about, in the columns of questions.csv and in facts.json.

    Attributes:
        family: The family of questions to which it belongs; "" if it was made alone.
        policy: Name of the target policy; "" if unknown.
        gamma: The continuation; NaN for a function, or if unknown.
        channel: Name of the channel that is its cumulant, or "reward"; "" for any other cumulant.
    """

    family: str
    policy: str
    gamma: float
    channel: str

    @property
    def group(self) -> str:
        """What tables and the live page call the questions about this policy and time scale.

        Examples:
            >>> QuestionColumns("excursions", "forward", 0.8, "light_0").group
            'forward/g0.8'
        """
        if math.isnan(self.gamma):
            return self.policy
        return f"{self.policy}/g{self.gamma:g}"


def question_columns(questions: Sequence[GVF], interface: Interface) -> list[QuestionColumns]:
    """Return the columns of each question, from what it asks and not from its name.

    A policy without a `GVF.policy_name` is called by its action, or by its kind; different policies
    of one kind are numbered.
    """
    names: dict[Hashable, str] = {}
    rows = []
    for question in questions:
        gamma = math.nan
        if not callable(question.continuation):
            gamma = float(question.continuation)
        channel = ""
        cumulant = question.cumulant
        if isinstance(cumulant, Channel):
            channel = str(cumulant.index)
            if not isinstance(cumulant.index, str):
                channel = interface.names[cumulant.index]
        if isinstance(cumulant, Reward):
            channel = REWARD
        policy_name = question.policy_name
        if not policy_name:
            key = identity(question.target_policy)
            if key not in names:
                kind = _policy_kind(question.target_policy, interface.actions)
                names[key] = unused_name(kind, names.values())
            policy_name = names[key]
        rows.append(
            QuestionColumns(
                family=question.family, policy=policy_name, gamma=gamma, channel=channel
            )
        )
    return rows


def _policy_kind(policy: Policy, actions: Sequence[str]) -> str:
    if isinstance(policy, ConstantAction):
        return actions[policy.action]
    if isinstance(policy, Behaviour):
        return "behaviour"
    if isinstance(policy, Uniform):
        return "uniform"
    if isinstance(policy, Greedy):
        return f"greedy:{policy.of}"
    if isinstance(policy, Among):
        return _policy_kind(policy.policy, actions)
    return type(policy).__name__


def with_further_features(questions: Sequence[GVF], n_features: int) -> list[GVF]:
    """Return questions for a coder of another number of features, of which the first are the same.

    Only Gibbs policies depend on it; they do not depend on further features.
    """
    further = []
    for question in questions:
        policy = question.target_policy
        if isinstance(policy, Gibbs) and policy.n_features != n_features:
            action, feature = np.divmod(policy.index, policy.n_features)
            index = action * n_features + feature
            policy = Gibbs(policy.n_actions, n_features, index, policy.value)
            question = replace(question, target_policy=policy)
        further.append(question)
    return further


def with_further_actions(questions: Sequence[GVF], n_actions: int) -> list[GVF]:
    """Return questions that were asked of a body which has `n_actions` now, the further ones last.

    Their target policies never take these, but for policies that a question finds, which choose among all.
    """
    widened: dict[Hashable, Policy] = {}
    further = []
    for question in questions:
        policy = question.target_policy
        if policy.n_actions not in (0, n_actions) and not isinstance(policy, Gaussian):
            key = identity(policy)
            if key not in widened:
                widened[key] = _with_further_actions(policy, n_actions)
            question = replace(question, target_policy=widened[key])
        further.append(question)
    return further


def _with_further_actions(policy: Policy, n_actions: int) -> Policy:
    if isinstance(policy, ConstantAction | Greedy):
        return replace(policy, n_actions=n_actions)
    return Among(policy, n_actions)


def unused_name(name: str, used: Collection[str]) -> str:
    """Return the name, with " 2", " 3", ... appended if it is in use."""
    candidate = name
    number = 1
    while candidate in used:
        number += 1
        candidate = f"{name} {number}"
    return candidate


def from_file(path: str | Path, interface: Interface) -> list[GVF]:
    """Return the questions of a TOML file.

    Each `[[family]]` table has `policies` (action names, "uniform", "behaviour", "greedy:NAME") and
    `gammas`, and may have `channels`, `groups`, `reward = true` (the union of what is named; every
    sensor if nothing is), `lam` (0.9), `tested` (true), `algorithm`, `offset` and `variance`
    (false; true adds a question about the variance of each one's return). Each `[[control]]` table
    is a question that finds a policy: `name`, `gamma`, and `channel` or `reward = true`, and it may
    have `lam`, `tested`, `algorithm` and `offset`. Each `[[option]]` table asks the model of an option:
    `name`, `policy` and `gamma`, and it may have `stops` (features of which one is active where it
    stops; by default it stops after each step), `features` (those predicted, by default all), `lam`
    and `algorithm`. `feeding_back` reads its `[[feedback]]` tables;
    docs/questions.md describes every field. A file asks at most `MOST_QUESTIONS` questions.

    Raises:
        ValueError: If the file is missing or not TOML, has an unknown key, sensor, group or policy,
            or a number is out of its range. The message is one sentence with the file, the error
            and the choices.

    Examples:
        >>> import tempfile
        >>> import gymnasium
        >>> from horde_agent import Interface, questions
        >>> walk = Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))
        >>> text = "[[family]]; policies = ['left']; gammas = [0.9]".replace("; ", chr(10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "mine.toml")
        ...     size = path.write_text(text)
        ...     asked = questions.from_file(path, walk)
        >>> [question.name for question in asked]
        ['left/g0.9/reward']
    """
    path = Path(path)
    table = _read(path)
    families = table.get("family", [])
    controls = table.get("control", [])
    models = table.get("option", [])
    if not all(
        isinstance(tables, list) and all(isinstance(t, dict) for t in tables)
        for tables in (families, controls, models)
    ):
        raise ValueError(
            f"{path}: family, control and option must be [[family]], [[control]] and [[option]] tables"
        )
    if not families and not controls and not models:
        raise ValueError(
            f"{path}: a question file needs at least one [[family]], [[control]] or [[option]] table"
        )
    try:
        questions = [_control(entry, number, interface) for number, entry in enumerate(controls, 1)]
        base_names = [question.name for question in questions]
        for number, entry in enumerate(families, 1):
            questions += _family(entry, number, interface, base_names)
            if len(questions) > MOST_QUESTIONS:
                raise ValueError(f"it asks more than {MOST_QUESTIONS:,} questions")
        for option in _options_in(models, interface, base_names):
            questions += option
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    counts = Counter(gvf.name for gvf in questions)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(f"{path}: the question {repeated[0]!r} is there twice")
    return questions


def feeding_back(path: str | Path, interface: Interface, questions: Sequence[GVF]) -> Interface:
    """Return the interface with feedback of the predictions in a question file's `[[feedback]]` tables, if any.

    Each has `questions` (names or patterns), `intervals` and `tilings`, and may have `neighbour`
    and `range`.

    Args:
        path: The file.
        interface: Interface of the robot.
        questions: The questions of the file, from `from_file`.

    Raises:
        ValueError: If a table is invalid; the message is one sentence with the file and the error.
    """
    tables = _read(Path(path)).get("feedback", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{path}: feedback must be [[feedback]] tables")
    try:
        if tables:
            return interface.feeding_back(questions, tables)
        return interface
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        table = QUESTIONS.read_table(read_toml(path), path)
    except BadInput:
        raise
    except OSError as error:
        raise ValueError(f"{path}: cannot read the question file: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None
    unknown = sorted(set(table) - {"family", "control", "option", "feedback"})
    if unknown:
        raise ValueError(
            f"{path}: unknown key {unknown[0]!r}; a question file holds [[family]], [[control]], [[option]] and "
            "[[feedback]] tables"
        )
    return table


def _control(entry: Mapping[str, Any], number: int, interface: Interface) -> GVF:
    where = f"[[control]] number {number}"
    check_keys(entry, where, _CONTROL_KEYS, _CONTROL_KEYS[:2])
    channels = {channel.name: i for i, channel in enumerate(interface.channels)}
    asks_reward = _asks_reward(entry, where)
    if asks_reward == ("channel" in entry):
        raise ValueError(f"{where}: it needs a channel or reward = true, and not both")
    cumulant: Channel | Reward = Reward()
    if not asks_reward:
        cumulant = Channel(channels[_known(where, "sensor", entry["channel"], channels)])
    try:
        gamma = real_number("gamma", entry["gamma"])
        policy = Greedy(len(interface.actions))
        options = _options(entry)
        return GVF(entry["name"], policy, cumulant, gamma, family=CONTROL_FAMILY, **options)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _named_policies(interface: Interface, found: Sequence[str]) -> dict[str, Policy]:
    """Return what the tables call the policies of a robot's actions; `found` are the control questions."""
    n_actions = len(interface.actions)
    known: dict[str, Policy] = {
        name: ConstantAction(action, n_actions) for action, name in enumerate(interface.actions)
    }
    known[UNIFORM] = Uniform(n_actions)
    for name in found:
        known[f"greedy:{name}"] = Greedy(n_actions, name)
    return known


def _options_in(
    entries: Sequence[Mapping[str, Any]], interface: Interface, found: Sequence[str]
) -> list[list[GVF]]:
    """Return the models of the options of `[[option]]` tables."""
    policies_by_name = _named_policies(interface, found)
    n_features = interface.coder.n_features
    models = []
    n_demons = 0
    for number, entry in enumerate(entries, 1):
        where = f"[[option]] number {number}"
        check_keys(entry, where, _OPTION_KEYS, _OPTION_KEYS[:3])
        policy = policies_by_name[_known(where, "policy", entry["policy"], policies_by_name)]
        features: Sequence[int] = range(n_features)
        if "features" in entry:
            features = _list(entry, where, "features")
        stop_features: Sequence[int] = ()
        if "stops" in entry:
            stop_features = _list(entry, where, "stops")
        try:
            stops: float | StateFunction = ALWAYS
            if stop_features:
                stops = StopAt(tuple(stop_features))
            option = Option(entry["name"], policy, stops, real_number("gamma", entry["gamma"]))
            n_demons += len(features) + 1
            _check_memory(option.name, n_demons, n_features)
            lam = real_number("lam", entry.get("lam", PAPER_LAMBDA))
            model = model_of(
                option,
                features,
                n_features=n_features,
                lam=lam,
                algorithm=entry.get("algorithm"),
            )
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        models.append(model)
    return models


def _family(
    entry: Mapping[str, Any], number: int, interface: Interface, found: Sequence[str]
) -> list[GVF]:
    where = f"[[family]] number {number}"
    check_keys(entry, where, _FAMILY_KEYS, _FAMILY_KEYS[:2])
    known: dict[str, Policy] = {**_named_policies(interface, found), BEHAVIOUR: Behaviour()}
    chosen = {
        _known(where, "policy", name, known): known[name]
        for name in _list(entry, where, "policies")
    }
    gammas = _list(entry, where, "gammas")
    if len(gammas) > MOST_GAMMAS:
        raise ValueError(
            f"{where}: gammas has {len(gammas):,} numbers, expected at most {MOST_GAMMAS:,}"
        )
    asks_reward = _asks_reward(entry, where)
    channels: list[int] = []
    if not asks_reward or "channels" in entry or "groups" in entry:
        channels = _chosen_channels(entry, where, interface)
    family_name = f"family {number}"
    n_questions = len(chosen) * len(gammas) * (len(channels) + asks_reward)
    if n_questions > MOST_QUESTIONS:
        raise ValueError(
            f"{where}: {len(chosen):,} policies, {len(gammas):,} gammas and {len(channels):,} channels are "
            f"{n_questions:,} questions, expected at most {MOST_QUESTIONS:,}"
        )
    try:
        gammas = [real_number("each of gammas", gamma) for gamma in gammas]
        options = _options(entry)
        questions = family(interface, chosen, gammas, channels, family_name=family_name)
        if asks_reward:
            questions += values(interface, chosen, gammas, family_name=family_name)
        questions = [replace(question, **options) for question in questions]
        if _flag(entry, "variance", default=False):
            questions += [variance_of(question) for question in questions]
        return questions
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def variance_questions(questions: Sequence[GVF]) -> dict[int, int]:
    """Return which questions have one about the variance of their return: index of the one to that of the other.

    A question about a TD error is about a variance if it has the other's policy and gamma^2, as
    `gvf.variance_of` gives it.
    """
    numbers = {question.name: number for number, question in enumerate(questions)}
    variances: dict[int, int] = {}
    for number, question in enumerate(questions):
        cumulant = question.cumulant
        if not isinstance(cumulant, TDError) or cumulant.name not in numbers:
            continue
        subject = questions[numbers[cumulant.name]]
        gamma = subject.continuation
        if callable(gamma) or callable(question.continuation):
            continue
        is_squared = math.isclose(question.continuation, gamma**2)
        if is_squared and identity(question.target_policy) == identity(subject.target_policy):
            variances[numbers[cumulant.name]] = number
    return variances


def _asks_reward(entry: Mapping[str, Any], where: str) -> bool:
    """Return whether a table asks for the reward."""
    asks_reward = entry.get("reward", False)
    if not isinstance(asks_reward, bool):
        raise ValueError(f"{where}: reward must be true or false, not {asks_reward!r}")
    return asks_reward


def _options(entry: Mapping[str, Any]) -> dict[str, Any]:
    tested = _flag(entry, "tested", default=True)
    lam = real_number("lam", entry.get("lam", PAPER_LAMBDA))
    return {
        "lam": lam,
        "tested": tested,
        "algorithm": entry.get("algorithm"),
        "offset": entry.get("offset"),
    }


def _flag(entry: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, not {value!r}")
    return value


def _chosen_channels(entry: Mapping[str, Any], where: str, interface: Interface) -> list[int]:
    """Return the indices of the channels of a table, in the order of the observation."""
    if "channels" not in entry and "groups" not in entry:
        return list(interface.sensors)
    names = {channel.name: i for i, channel in enumerate(interface.channels)}
    groups = {channel.group: i for i, channel in enumerate(interface.channels)}
    chosen, asked_groups = (
        _list(entry, where, key) if key in entry else [] for key in ("channels", "groups")
    )
    wanted = {names[_known(where, "sensor", name, names)] for name in chosen}
    wanted_groups = {_known(where, "group", name, groups) for name in asked_groups}
    return [i for i, c in enumerate(interface.channels) if i in wanted or c.group in wanted_groups]


def _list(entry: Mapping[str, Any], where: str, key: str) -> list[Any]:
    values = entry[key]
    if not isinstance(values, list) or not values:
        raise ValueError(f"{where}: {key} must be a list that is not empty, not {values!r}")
    twice = next((value for k, value in enumerate(values) if value in values[:k]), None)
    if twice is not None:
        raise ValueError(f"{where}: {key} holds {twice!r} twice")
    return values


def _known(where: str, kind: str, name: object, choices: Mapping[str, object]) -> str:
    if not isinstance(name, str) or name not in choices:
        raise ValueError(
            f"{where} names the unknown {kind} {name!r}; there are {', '.join(choices)}"
        )
    return name
