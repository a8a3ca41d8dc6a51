"""LearnerConfig: the learning rules and options of both engines."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from horde_agent.gvf import GVF, MEAN, READING, ActionValues, AutomaticOffset, reading
from horde_agent.kernels import rules
from horde_agent.learning.engine import DROP_BELOW, max_finite
from horde_agent.policies import Gaussian, Greedy
from horde_agent.refusals import InvalidArgument, check_one_of, is_in, real_number, whole_number

TRACE_RULES = tuple(rules.TRACE_RULES)
W_RULES = ("every-step", "importance-weighted")
DTYPES = ("float32", "float64")
ENGINES = ("auto", "span", "plain")
# Steps of a trace in addition to pending ones; longer traces need the plain engine
LARGEST_TAIL = 1_000
MOST_RANDOM_FEATURES = 2_048
STEP_SIZE_WITH_OFFSET = 0.5
"""Factor of the default step size with an offset, since the remainder is small, or with rarity."""
# The rule's default: this object alone, so that a NaN from a user's arithmetic is refused
_OF_RULE = float("nan")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """Options of the learning algorithm; by default those of `horde learn`, and of its `--paper` in `paper`.

    Attributes:
        step_size: Primary step size; alpha = step_size / number of active tiles. By default half of
            the rule's, 0.05 for most, and all of it without an offset and `rarity`.
        secondary_ratio: alpha_w / alpha. By default the rule's, 0.001 for "gtd".
        trace_rule: lambda_{t+1}. "clipped": lambda min(1, 1/rho_t). "plain": lambda, as in the
            paper's pseudo-code; the trace may have infinite variance. "capped": as "plain", but
            entries of phi + gamma lambda e are at most 1, before rho. "tree-backup": lambda b(a_t).
            "abtd": min(psi b(a_t), 1, 1/rho_t).
        w_rule: "every-step": w -= alpha_w (phi.w) phi on every step, as in the paper's pseudo-code.
            "importance-weighted": this term is multiplied by rho.
        dtype: "float32" or "float64".
        mspbe_tau: Time constant of the online MSPBE estimates, in learning steps; above 1.
        vector_mspbe: True to compute the vector estimate (a third number per weight).
        check_every: Learning steps between two checks of a weight against its bound in the plain
            engine; the span engine checks each weight that it writes.
        engine: "span", the fast engine, "plain", the reference, which supports all rules, or
            "auto": the fast engine if it supports the rule.
        algorithm: The update rule: the name of its file in `kernels/rules`, or "module:name" for
            one of another module; "tdrc:beta=0.5" also sets parameters.
        parameters: Parameters of the update rule and of the trace rule (`c_bar`, `psi`) by name,
            such as {"beta": 0.5}; others have their defaults.
        offset: What each demon adds to theta.phi, in the unit of its answer: a number; "mean", the
            answer that would be right if all states were alike, estimated from the first 500
            transitions; or "reading", that and a share of the reading's deviation from it, for
            questions about a channel (`learning.offsets`). 0: none.
        average: Learning steps that the averages of the weights reach back (`learning.averages`);
            predictions are read from these, while learning goes on from the latest weights. 0: none.
        rarity: True: features that are seldom active have larger step sizes (`learning.rarity`), with
            the rules and trace rules that the fast engine supports, on either engine. By default on
            with these.
        lstd: Number of random features of LSTD on the readings, which predictions about readings and the
            reward are mixed with (`learning.lstd`). 0: none. None: 192 if the Horde has at least 300
            questions that it can answer, of at most 32 pairs of a policy and a continuation, else 0;
            a Horde's `config` has the number.

    Raises:
        ValueError: If a value is out of range, or the update rule does not use it; the message
            names it.

    Source: White, Modayil & Sutton (2012), section 5, https://arxiv.org/abs/1206.6262: ratio 0.001,
        step size 0.1 over the active tiles. Other rules: `kernels/rules`.

    Examples:
        >>> config = LearnerConfig(trace_rule="plain", step_size=0.05)
        >>> config.step_size, config.w_rule
        (0.05, 'every-step')
        >>> LearnerConfig(algorithm="tdrc").secondary_ratio
        1.0
        >>> LearnerConfig().step_size, LearnerConfig.paper().step_size
        (0.05, 0.1)
    """

    step_size: float = _OF_RULE
    secondary_ratio: float = _OF_RULE
    trace_rule: Literal["clipped", "capped", "plain", "tree-backup", "abtd"] = "clipped"
    w_rule: Literal["every-step", "importance-weighted"] = "every-step"
    dtype: Literal["float32", "float64"] = "float32"
    mspbe_tau: float = 10_000.0
    vector_mspbe: bool = True
    check_every: int = 1_000
    engine: Literal["auto", "span", "plain"] = "auto"
    algorithm: str = "gtd"
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    offset: float | AutomaticOffset = READING
    average: float = 10_000.0  # 17 minutes at 10 Hz
    rarity: bool | None = None
    lstd: int | None = None

    @classmethod
    def paper(cls, **settings: Any) -> LearnerConfig:
        """Return the options of White, Modayil & Sutton (2012), with `settings` by name in place of some.

        No offset, no averages, no rarity and no LSTD, so that the step size is the rule's.
        """
        return cls(**{"offset": 0.0, "average": 0.0, "rarity": False, "lstd": 0, **settings})

    def __post_init__(self) -> None:
        for name, choices in (
            ("trace_rule", TRACE_RULES),
            ("w_rule", W_RULES),
            ("dtype", DTYPES),
            ("engine", ENGINES),
        ):
            check_one_of(name.replace("_", " "), getattr(self, name), choices)
        rule = self._split_algorithm()
        self._check_use(rule)
        check_offset(self.offset, self.dtype)
        trace_rule = rule.TRACE_RULE or self.trace_rule
        if self.rarity is None:
            object.__setattr__(self, "rarity", has_fast_engine(rule.name, trace_rule))
        step_size = default_step_size(rule, self.offset, rarity=bool(self.rarity))
        for name, default in (("step_size", step_size), ("secondary_ratio", rule.SECONDARY_RATIO)):
            if getattr(self, name) is _OF_RULE:
                object.__setattr__(self, name, default)
        for name, range_of, must in (
            ("step_size", "(0, inf)", "a positive number"),
            ("secondary_ratio", "[0, inf)", "a number that is not negative"),
            ("mspbe_tau", "(1, inf)", "above 1 step"),
            ("check_every", "[1, inf)", "at least 1 step"),
            ("average", "[1, inf)", "at least 1 learning step, or 0 for none"),
        ):
            value = getattr(self, name)
            is_off = name == "average" and value == 0.0
            if not is_in(range_of, value) and not is_off:
                raise InvalidArgument(name, f"must be {must}, not {value!r}")
        if self.lstd is not None:
            n_random = whole_number("lstd", self.lstd, 0)
            if n_random > MOST_RANDOM_FEATURES:
                raise InvalidArgument(
                    "lstd",
                    f"must be at most {MOST_RANDOM_FEATURES:,}, not {n_random:,}: time and memory grow with its square",
                )
            object.__setattr__(self, "lstd", n_random)
        self._check_rule(rule)

    def _split_algorithm(self) -> rules.Rule:
        """Move parameters written in `algorithm` to `parameters`, and return the update rule."""
        name, written = parse_algorithm(str(self.algorithm))
        rule = rules.rule(name)
        for key in written:
            if key in self.parameters:
                raise ValueError(
                    f"algorithm {self.algorithm!r}: parameters gives {key!r} too; give it once"
                )
        object.__setattr__(self, "algorithm", rule.name)
        if written:
            object.__setattr__(self, "parameters", {**self.parameters, **written})
        return rule

    def _check_use(self, rule: rules.Rule) -> None:
        """Raise ValueError if a setting differs from its default although the update rule does not use it."""
        ratio = self.secondary_ratio
        if "w" not in rule.vectors and ratio not in (_OF_RULE, rule.SECONDARY_RATIO):
            raise ValueError(
                f"algorithm {rule.name!r} has no secondary weights, so that secondary_ratio = {ratio!r} has no effect: "
                "omit it"
            )
        if rule.IGNORES_STEP_SIZE and self.step_size not in (_OF_RULE, rule.STEP_SIZE):
            raise ValueError(
                f"algorithm {rule.name!r} computes its own step size, so that step_size = {self.step_size!r} has no "
                f"effect: omit it, or set {', '.join(rule.parameters._fields)}"
            )

    def _check_rule(self, rule: rules.Rule) -> None:
        """Check the rule's parameters and the options that it supports; log a warning about unsafe parameters."""
        name = f"algorithm {rule.name!r}"
        if rule.TRACE_RULE and self.trace_rule != rule.TRACE_RULE:
            if self.trace_rule != "clipped":
                raise ValueError(
                    f"{name} has the trace rule {rule.TRACE_RULE!r}, not {self.trace_rule!r}: omit trace_rule"
                )
            object.__setattr__(self, "trace_rule", rule.TRACE_RULE)
        if self.trace_rule == "capped" and not rule.CAN_CAP:
            raise ValueError(
                f'{name} does not support trace_rule="capped": choose "clipped" or "plain"'
            )
        if self.w_rule == "importance-weighted" and not _can_weight(rule):
            raise ValueError(
                f'{name} does not support w_rule="importance-weighted": choose "every-step"'
            )
        if self.engine == "span" and self.needs_plain_engine:
            raise ValueError(
                f'{name} with trace rule {self.trace_rule!r} does not fit engine="span": omit engine, or choose "plain"'
            )
        if self.rarity and not has_fast_engine(rule.name, self.trace_rule):
            raise InvalidArgument(
                "rarity",
                f"needs the fast engine, which does not support {name} with trace rule {self.trace_rule!r}: omit it",
            )
        self._warn_of(rule, "secondary_ratio", self.secondary_ratio)
        bound = rules.TRACE_RULES[self.trace_rule]
        owners = dict.fromkeys(rule.parameters._fields, rule) | (
            {bound[1]: rules.rule(bound[0])} if bound else {}
        )
        for key, value in self.parameters.items():
            if key not in owners:
                choices = "it has none"
                if owners:
                    choices = f"it has {', '.join(owners)}"
                raise ValueError(
                    f"{name} with trace rule {self.trace_rule!r} has no parameter {key!r}: {choices}"
                )
            interval = owners[key].RANGES.get(key, "(-inf, inf)")
            if not is_in(interval, value):
                raise ValueError(f"{name}: parameter {key} must be in {interval}, not {value!r}")
            self._warn_of(owners[key], key, value)
        if self.trace_bound > getattr(self.rule_parameters, "rho_bar", math.inf):
            raise ValueError(
                f"{name}: c_bar must be at most rho_bar, not {self.trace_bound:g}: lower c_bar"
            )

    def _warn_of(self, owner: rules.Rule, key: str, value: float) -> None:
        """Log a warning, once per process, if a setting is outside the safe interval that the rule states."""
        safe, warning = owner.WARNS.get(key, ("[-inf, inf]", ""))
        if not is_in(safe, value):
            warn_once(f"algorithm {self.algorithm!r} with {key} = {value:g} {warning}")

    @property
    def rule_parameters(self) -> Any:
        """The parameters of the update rule, a NamedTuple of its file."""
        kind = rules.rule(self.algorithm).parameters
        return kind(
            **{key: float(value) for key, value in self.parameters.items() if key in kind._fields}
        )

    @property
    def trace_bound(self) -> float:
        """The parameter c_bar or psi of the trace rule; 1 if it has none."""
        bound = rules.TRACE_RULES[self.trace_rule]
        if bound is None:
            return 1.0
        default = getattr(rules.rule(bound[0]).parameters(), bound[1])
        return float(self.parameters.get(bound[1], default))

    @property
    def needs_plain_engine(self) -> bool:
        """True if the plain engine is chosen or required: the span engine supports neither "capped" nor some rules."""
        return self.engine == "plain" or not has_fast_engine(self.algorithm, self.trace_rule)

    @property
    def cuts_trace_by_b(self) -> bool:
        """True if the trace rule needs b(a), the probability of the action that was taken."""
        return self.trace_rule in ("tree-backup", "abtd")

    @property
    def bounds_trace(self) -> bool:
        """True if the trace rule keeps the factors of a trace at or below gamma lambda, so that its tail can end."""
        return self.cuts_trace_by_b or (self.trace_rule == "clipped" and self.trace_bound <= 1.0)


def has_fast_engine(algorithm: str, trace_rule: str) -> bool:
    """Return whether the span engine supports an update rule, as `parse_algorithm` reads it, with a trace rule."""
    name, _ = parse_algorithm(algorithm)
    return trace_rule != "capped" and rules.rule(name).SPAN is not None


def _can_weight(rule: rules.Rule) -> bool:
    """Return whether a rule has w and supports the w rule "importance-weighted"."""
    return "w" in rule.vectors and bool(rule.CAN_WEIGHT)


def check_offset(offset: Any, dtype: str) -> None:
    """Raise ValueError if an offset is neither "mean" nor "reading" nor a finite number that the dtype can hold."""
    if offset in (MEAN, READING):
        return
    largest = max_finite(np.dtype(dtype))
    invalid = InvalidArgument(
        "offset",
        f'must be "{MEAN}", "{READING}" or a number of at most {largest:.3g}, as much as {dtype} can hold, '
        f"not {offset!r}",
    )
    try:
        number = real_number("offset", offset)
    except InvalidArgument:
        raise invalid from None
    if not abs(number) <= largest:
        raise invalid


def default_step_size(rule: rules.Rule, offset: float | str, *, rarity: bool) -> float:
    """Return the primary step size that goes with an update rule: half of the rule's with an offset or with rarity."""
    is_alone = offset == 0.0 and not rarity
    if is_alone or rule.IGNORES_STEP_SIZE:
        return float(rule.STEP_SIZE)
    return float(rule.STEP_SIZE) * STEP_SIZE_WITH_OFFSET


@functools.cache
def warn_once(text: str) -> None:
    """Log a warning; a Horde creates several copies of its options."""
    _log.warning(text)


def parse_algorithm(text: str) -> tuple[str, dict[str, float]]:
    """Return the name and the parameters of an update rule, written as "tdrc" or "tdrc:beta=0.5,...".

    A rule of another module is written as "module:name" or "module:name:beta=0.5,...".

    Raises:
        ValueError: If a parameter is not written as name=number, or is there twice.
    """
    name, colon, settings = text.partition(":")
    if "=" not in settings.partition(":")[0] and not rules.is_in_package(name):
        rule_name, colon, settings = settings.partition(":")
        if rule_name:
            name = f"{name}:{rule_name}"
    parameters: dict[str, float] = {}
    if not colon:
        return name, parameters
    for part in settings.split(","):
        key, _, value = part.partition("=")
        key = key.strip()
        try:
            number = float(value)
        except ValueError:
            raise ValueError(
                f"algorithm {text!r}: parameters are written as name=number, not {part!r}"
            ) from None
        if key in parameters:
            raise ValueError(f"algorithm {text!r} gives {key!r} twice: give it once")
        parameters[key] = number
    return name, parameters


def with_parameters(config: LearnerConfig) -> str:
    """Return what `parse_algorithm` reads as the config's update rule."""
    return _written(config.algorithm, config.parameters)


def one_spelling(algorithm: str) -> str:
    """Return an update rule with its parameters in one spelling: "gtd" for "tdc", "tdrc:beta=0.5" for "tdrc:beta=.50".

    Raises:
        ValueError: If there is no such rule, or it is not written as `parse_algorithm` expects.
    """
    name, parameters = parse_algorithm(algorithm)
    return _written(rules.rule(name).name, parameters)


def _written(name: str, parameters: Mapping[str, float]) -> str:
    """Return a rule and its parameters in one word, each number with as few digits as identify it."""
    if not parameters:
        return name
    settings = []
    for key, value in sorted(parameters.items()):
        number = f"{value:g}"
        if float(number) != value:
            number = repr(float(value))
        settings.append(f"{key}={number}")
    return f"{name}:{','.join(settings)}"


def config_of(config: LearnerConfig, algorithm: str) -> LearnerConfig:
    """Return how the demons of an update rule, for example "tdrc:beta=0.5", learn in a Horde with these options.

    A rule that is not the Horde's has its default step sizes, and the Horde's options that it
    supports.
    """
    name, parameters = parse_algorithm(algorithm)
    definition = rules.rule(name)
    if one_spelling(algorithm) == with_parameters(config):
        return config
    trace_rule = definition.TRACE_RULE or config.trace_rule
    if trace_rule == "capped":
        trace_rule = "clipped"
    rarity = bool(config.rarity) and definition.SPAN is not None
    return replace(
        config,
        algorithm=definition.name,
        parameters=parameters,
        step_size=default_step_size(definition, config.offset, rarity=rarity),
        secondary_ratio=definition.SECONDARY_RATIO,
        trace_rule=trace_rule,
        w_rule=config.w_rule if _can_weight(definition) else "every-step",
        rarity=rarity,
    )


def step_sizes_of(config: LearnerConfig, algorithm: str, n_active: int) -> tuple[float, float]:
    """Return alpha and alpha_w of an update rule in a Horde with these options and number of active tiles."""
    rule_config = config_of(config, algorithm)
    alpha = rule_config.step_size / n_active
    return alpha, rule_config.secondary_ratio * alpha


def rules_of(questions: Sequence[GVF], config: LearnerConfig) -> tuple[str, ...]:
    """Return the update rule of each question, with its parameters, in one spelling."""
    default = with_parameters(config)
    return tuple(default if q.algorithm is None else one_spelling(q.algorithm) for q in questions)


def with_rules(
    questions: Sequence[GVF], config: LearnerConfig, action_values: ActionValues
) -> tuple[GVF, ...]:
    """Return a Horde's questions, with an update rule for each policy to be found, and `action_values` for found ones.

    Raises:
        ValueError: If no question finds a policy that another is about, or a question's update rule
            does not fit.
    """
    control_names = [q.name for q in questions if q.finds_policy]
    return tuple(_with_rule(q, control_names, config, action_values) for q in questions)


def _with_rule(
    q: GVF, found: Sequence[str], config: LearnerConfig, action_values: ActionValues
) -> GVF:
    policy = q.target_policy
    algorithm = q.algorithm
    continuation = reading(q.continuation, action_values)
    outcome = reading(q.outcome, action_values)
    if continuation is not q.continuation or outcome is not q.outcome:
        q = replace(q, continuation=continuation, outcome=outcome)
    if isinstance(policy, Greedy):
        if policy.of not in found:
            choices = "add GVF(NAME, Greedy(n_actions), ...)"
            if found:
                choices = f"there are {', '.join(found)}"
            raise ValueError(
                f"question {q.name!r}: no question finds the policy {policy.of!r}: {choices}"
            )
        if q.finds_policy and algorithm is None and not rules.rule(config.algorithm).FINDS_POLICY:
            algorithm = rules.FINDS_POLICIES
        q = replace(q, target_policy=replace(policy, values=action_values), algorithm=algorithm)
    try:
        if q.offset is not None:
            check_offset(q.offset, config.dtype)
        learner = config
        if algorithm is not None:
            learner = config_of(config, algorithm)
    except ValueError as error:
        raise ValueError(f"question {q.name!r}: {error}") from None
    definition = rules.rule(learner.algorithm)
    if learner.cuts_trace_by_b and isinstance(policy, Gaussian):
        raise ValueError(
            f"question {q.name!r}: the trace rule {learner.trace_rule!r} multiplies the trace by the probability b of "
            'the action, and a Gaussian policy belongs to data with a density: choose the trace rule "clipped"'
        )
    if q.finds_policy != definition.FINDS_POLICY:
        remedy = "needs the target policy Greedy(n_actions)"
        if q.finds_policy:
            remedy = "finds no policies: omit it"
        raise ValueError(f"question {q.name!r}: algorithm {definition.name!r} {remedy}")
    if q.interest != 1.0 and not definition.HAS_INTEREST:
        raise ValueError(
            f"question {q.name!r}: algorithm {definition.name!r} uses no interest: omit it, or set algorithm"
        )
    return q


def trace_length(config: LearnerConfig, decay: float) -> int:
    """Return the length in steps of a trace whose gamma lambda is at most `decay`; above LARGEST_TAIL if unknown."""
    drop_below = 0.0
    if config.bounds_trace:
        drop_below = DROP_BELOW[config.dtype]
    if decay <= 0.0:
        return 0
    if decay >= 1.0 or drop_below <= 0.0:
        return LARGEST_TAIL + 1
    return int(np.ceil(np.log(drop_below * (1.0 - decay)) / np.log(decay)))


def is_too_long(config: LearnerConfig, decay: float) -> bool:
    """Return whether traces of this largest gamma lambda, below 1, are longer than the span engine stores.

    With 1 that depends on the states: the engine changes to plain when a trace becomes too long.
    """
    return config.bounds_trace and decay < 1.0 and trace_length(config, decay) > LARGEST_TAIL


DEFAULT_CONFIG = LearnerConfig()
PAPER_CONFIG = LearnerConfig.paper()
