"""Update rules, one file each, selected by file name (`LearnerConfig.algorithm`).

A rule is a module with

    a NamedTuple of its parameters with their defaults, the module's only class; kernels are compiled once for each
    RANGES: the range of each parameter, such as "(0, 1]"
    WEIGHTS, TRACES: names of its vectors in addition to theta; a gap clears the traces. "e" is the trace of the
        MSPBE estimates, "w" the secondary weights, "beta" the logarithm of a step size per weight over alpha
    NUMBERS, TRACE_NUMBERS: names of its numbers per demon; a gap clears those of the trace
    learn(rule, i, demons, step): an `inner_kernel` that updates demon i in place from a transition
    plain_gain(rule, i, demons, step): an `inner_kernel` that returns the rule's `gain` from full vectors, where it is
        not that of TD(lambda)
    SPAN: names of the numbers that it stores of each step on the span engine, besides c and d: "h", "q", "source",
        "w_factor"; without it the rule is for the plain engine only
    scan_decay, scan_term, changes, trace_source, gain, decay_factor, lane_step, add_step, flush_coefficients: its
        arithmetic on the span engine, where it is not that of TD(lambda): see `kernels/lanes.py`

and, if it differs from the default in `_DEFAULTS`, any of the other names there. To add a rule, copy `gtd.py` to a new
file in this folder; no registration is needed. A class or a file elsewhere with these names is a rule, too, written as
`module:name`: `kernels/own_rules.py`.

Three of the published off-policy rules are TD(lambda) with another lambda_{t+1}, made by a *trace rule*, which any
rule can use: see `kernels/trace_rules.py`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from numba import prange
from numba.extending import overload

from horde_agent.kernels import own_rules
from horde_agent.kernels._jit import INLINED_OPTIONS, INNER_OPTIONS, inner_kernel, outer_kernel
from horde_agent.kernels.plain import Demons, Phi, Step, record_gain, skip, step_fraction
from horde_agent.types import Bools

ALIASES = {"tdc": "gtd"}
FINDS_POLICIES = "greedy_gq"  # the default rule of questions that find policies

# Trace rules, and the rule and parameter that bounds each one's lambda_{t+1}.
TRACE_RULES = {
    "clipped": ("vtrace", "c_bar"),
    "capped": None,
    "plain": None,
    "tree-backup": None,
    "abtd": ("abtd", "psi"),
}


_DEFAULTS: dict[str, Any] = {
    "TRACE_RULE": "",  # the trace rule that it prescribes
    "STEP_SIZE": 0.1,  # default step_size and secondary_ratio
    "SECONDARY_RATIO": 0.001,
    "CAN_CAP": False,  # can have the trace rule "capped"
    "CAN_WEIGHT": True,  # can have the w rule "importance-weighted"
    "FINDS_POLICY": False,  # learns action values: `kernels/control.py`
    "WARNS": {},  # of parameters, and of secondary_ratio: {name: ("(0, 1]", "what happens outside: remedy")}
    "TIMES_RHO": "",  # a parameter whose product with the largest ratio is safe up to 1
    "RANGES": {},
    "SPAN": None,
    "IGNORES_STEP_SIZE": False,
    "RESTS": True,  # its numbers do not change where rho = 0
    "HAS_INTEREST": False,  # uses the question's interest
    "WEIGHTS": (),
    "TRACES": ("e",),
    "NUMBERS": (),
    "TRACE_NUMBERS": (),
}


class Rule:
    """A rule's definition, with defaults for missing names.

    Args:
        name: The name of its file, or `module:name`.
        definition: The module, or a class, with its names.
        parameters: The NamedTuple class of its parameters.
    """

    def __init__(self, name: str, definition: Any, parameters: Any) -> None:
        self.name = name
        self.parameters = parameters
        self._definition = definition

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._definition, name):
            return getattr(self._definition, name)
        if name in (*SPAN_KERNELS, "plain_gain"):
            return getattr(rule("td"), name)
        return _DEFAULTS[name]

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of its vectors in addition to theta."""
        return (*self.WEIGHTS, *self.TRACES)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of its numbers per demon."""
        return (*self.NUMBERS, *self.TRACE_NUMBERS)


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all rules."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def is_in_package(name: str) -> bool:
    """Return whether a rule of this name, or with this alias, is in this folder."""
    return ALIASES.get(name, name) in names()


@functools.cache
def rule(name: str) -> Rule:
    """Return a rule by its name or alias.

    Raises:
        ValueError: If there is no rule of this name.
    """
    name = ALIASES.get(name, name)
    if ":" in name:
        definition, parameters = own_rules.load(name)
        update_rule = Rule(name, definition, parameters)
    elif name in names():
        module = importlib.import_module(f"{__name__}.{name}")
        update_rule = Rule(name, module, own_rules.parameters_in(module, module.__name__))
    else:
        raise ValueError(
            f"algorithm must be one of {', '.join(names())}, or module:name, not {name!r}"
        )
    _RULES[update_rule.parameters] = update_rule
    return update_rule


_RULES: dict[type, Rule] = {}
"""The rule of each class of parameters."""


def _kernel_of(parameters: type, name: str) -> Any:
    """Return a rule's kernel of this name."""
    if (
        parameters not in _RULES
    ):  # no rule was named in this process: a kernel is called with parameters alone
        for of_package in names():
            rule(of_package)
    return getattr(_RULES[parameters], name)


def _by_rule(name: str, options: Any) -> Any:
    """Return a function that calls a rule's kernel of this name, the rule being that of the first argument."""

    def call(parameters: Any, *arguments: Any) -> Any:
        return _kernel_of(type(parameters), name)(parameters, *arguments)

    @overload(call, jit_options=options, strict=False)
    def _compiled(parameters: Any, *arguments: Any) -> Any:  # noqa: ARG001
        kernel = _kernel_of(parameters.instance_class, name)
        return getattr(kernel, "py_func", kernel)

    return call


learn = _by_rule("learn", INNER_OPTIONS)
plain_gain = _by_rule("plain_gain", INNER_OPTIONS)
SPAN_KERNELS = (
    "scan_decay",
    "scan_term",
    "changes",
    "trace_source",
    "gain",
    "decay_factor",
    "lane_step",
    "add_step",
    "flush_coefficients",
)
scan_decay = _by_rule("scan_decay", INLINED_OPTIONS)
scan_term = _by_rule("scan_term", INLINED_OPTIONS)
changes = _by_rule("changes", INLINED_OPTIONS)
trace_source = _by_rule("trace_source", INLINED_OPTIONS)
gain = _by_rule("gain", INLINED_OPTIONS)
decay_factor = _by_rule("decay_factor", INLINED_OPTIONS)
lane_step = _by_rule("lane_step", INLINED_OPTIONS)
add_step = _by_rule("add_step", INLINED_OPTIONS)
flush_coefficients = _by_rule("flush_coefficients", INLINED_OPTIONS)


@inner_kernel
def _learn_one(
    parameters: Any, i: int, demons: Demons, phi_t: Phi, phi_tp1: Phi, signals: Any
) -> None:
    """Call `learn` with the parts of a step: numba's parallel loops take no nested tuple.

    Both step sizes are bounded for this step: `plain.step_fraction`, 1 if S is 1.
    """
    step = Step(phi_t, phi_tp1, *signals)
    record_gain(i, demons, plain_gain(parameters, i, demons, step))
    fraction = step_fraction(i, demons)
    alpha = demons.alpha[i]
    alpha_w = demons.alpha_w[i]
    demons.alpha[i] = fraction * alpha
    demons.alpha_w[i] = fraction * alpha_w
    learn(parameters, i, demons, step)
    demons.alpha[i] = alpha
    demons.alpha_w[i] = alpha_w
    weighted = step.rho[i] * demons.td_error[i]
    demons.error_sum[i] += weighted
    demons.error_square[i] += weighted * demons.td_error[i]


@outer_kernel
def learn_all(
    parameters: Any, demons: Demons, phi_t: Phi, phi_tp1: Phi, skips: Bools, signals: Any
) -> None:
    """Update every demon, or skip its step; demons share only phi, so their order is free.

    `signals` are the other fields of `Step`, and `skips`, (n_demons,), says which demons skip it.
    """
    for i in prange(demons.theta.shape[0]):
        if skips[i]:
            skip(i, demons)
        else:
            _learn_one(parameters, i, demons, phi_t, phi_tp1, signals)
