"""Stored: what a part of a Horde or engine stores, declared once as fields.

Saving, the move to other demons, divergence and streams follow from the declaration.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from horde_agent.saving import State, inner, nested, text, untext
from horde_agent.types import Integers

NEWCOMER = -1
"""In place of the earlier index of what is new."""

# What an array has a number for
DEMON = "demon"
GROUP = "trace group"
POLICY = "policy"
CUMULANT = "cumulant with an offset that follows its reading"

Earlier = Mapping[str, Integers]
"""By axis: the index that each demon, group, ... had among the earlier ones, or NEWCOMER; shape (n,) each."""


_OF_STATES = ("active", "bits", "changed", "class_bits", "n_active", "n_changed", "tiles", "_tiles")
"""Ends of names of what depends on the features of present and past states."""
_ROWS = ("theta", "w", "m", "average")
"""Ends of names of weights in rows, of features that were ever active."""
_OF_READINGS = "lstd/"
"""Beginning of names of what does not depend on the features."""


class Field(NamedTuple):
    """How an attribute is saved, carried over to other demons, and cleared.

    Attributes:
        axis: What the array has a number for; "" for a number or an array that belongs to all demons.
        at: Number of this axis in the array's shape.
        diverged: Value for a demon that diverged; None if nothing changes.
        of_stream: True if each stream of experience has its own.
        is_carried: False if it follows from the new questions, or is written before it is read.
        is_optional: True if snapshots of an earlier version lack it: it is then as in a new part.
        is_saved: False if it follows from the demons, is saved in part, or is scratch.
        merge: What several Hordes that learn one thing have of their arrays, such as `np.mean`; None
            if each keeps its own.
    """

    axis: str = ""
    at: int = 0
    diverged: float | None = None
    of_stream: bool = False
    is_carried: bool = True
    is_optional: bool = False
    is_saved: bool = True
    merge: Callable[..., Any] | None = None


Fields = Mapping[str, Field]


class Streams:
    """The arrays of the streams that are not selected.

    Attributes:
        selected: Number of the selected stream.
        others: The arrays of each stream that was selected before, by name.
    """

    def __init__(self) -> None:
        self.selected = 0
        self.others: dict[int, State] = {}

    def exchange(self, stream: int, arrays: State) -> State:
        """Select another stream: keep copies of the arrays of the selected one, and return those of the other.

        The result is empty if that stream was never selected.
        """
        self.others[self.selected] = copies(arrays)
        self.selected = stream
        return self.others.pop(stream, {})


class Stored:
    """A part of a Horde or an engine, with the attributes that later learning depends on in `FIELDS`.

    Its numbers and texts by name may be replaced, and so may arrays of another shape. Other arrays are
    overwritten, since kernels hold their addresses.

    Attributes:
        FIELDS: The attributes by name; "arrays/c" is the attribute c of the attribute `arrays`.
        streams: Those of the other streams, in a part with fields `of_stream`.
    """

    FIELDS: ClassVar[Fields]
    streams: Streams | None = None

    def _put(self, name: str, value: NDArray[Any]) -> None:
        """Set a field to what `state` returned of it."""
        current = _read(self, name)
        if isinstance(current, dict):
            setattr(self, name, untext(value))
        elif not isinstance(current, np.ndarray):
            setattr(self, name, value.tolist())
        elif "/" in name or current.shape == value.shape:
            current[...] = value
        else:
            setattr(self, name, np.array(value))

    # ---- streams ---------------------------------------------------------------------------------

    def of_stream(self) -> State:
        """Return the arrays that belong to the selected stream, by name, not copied."""
        return {name: _read(self, name) for name, field in self.FIELDS.items() if field.of_stream}

    # ---- state -----------------------------------------------------------------------------------

    def state(self) -> State:
        """Return copies of everything that later learning depends on, by name."""
        saved: State = {}
        for name, field in self.FIELDS.items():
            if field.is_saved:
                value = _read(self, name)
                if isinstance(value, dict):
                    saved[name] = text(value)
                else:
                    saved[name] = np.array(value)
        if self.streams is not None:
            saved |= streams_state(self.streams.selected, self.streams.others)
        return saved

    def restore(self, state: State) -> None:
        """Restore what `state` returned of such a part with the same demons."""
        for name, field in self.FIELDS.items():
            if field.is_saved and (name in state or not field.is_optional):
                self._put(name, state[name])
        if self.streams is not None:
            self.streams.selected, self.streams.others = restored_streams(state)

    # ---- other demons ----------------------------------------------------------------------------

    def carry_over(self, before: Self, earlier: Earlier) -> None:
        """Continue what remaining demons, groups, ... have `before`; new ones keep what this new part has."""
        for name, field in self.FIELDS.items():
            if not field.is_carried:
                continue
            value = _read(before, name)
            if field.axis:
                _carry(_read(self, name), value, field, earlier)
            elif isinstance(value, np.ndarray):
                self._put(name, value)
            else:
                setattr(self, name, value)
        if self.streams is not None and before.streams is not None:
            self.streams.selected = before.streams.selected
            self.streams.others = {
                number: self._carried_stream(arrays, earlier)
                for number, arrays in before.streams.others.items()
            }

    def _carried_stream(self, before: State, earlier: Earlier) -> State:
        """Return the arrays of a stream for the present demons."""
        arrays = dict(before)
        for name, array in self.of_stream().items():
            field = self.FIELDS[name]
            if field.axis:
                arrays[name] = np.zeros_like(array)
                _carry(arrays[name], before[name], field, earlier)
        return arrays

    def merge(self, others: Sequence[Self]) -> None:
        """Give several parts of the same demons, each with a stream of its own, what they have in common."""
        for name, field in self.FIELDS.items():
            if field.merge is not None:
                arrays = [_read(part, name) for part in (self, *others)]
                merged = field.merge(arrays, axis=0)
                for array in arrays:
                    array[...] = merged

    def mark_diverged(self, demon: int) -> None:
        """Set what a demon has learned to the values of one that diverged, in all streams; others do not change."""
        other_streams: list[State] = []
        if self.streams is not None:
            other_streams.extend(self.streams.others.values())
        for name, field in self.FIELDS.items():
            if field.diverged is None:
                continue
            arrays = [_read(self, name)]
            arrays.extend(
                arrays_by_name[name] for arrays_by_name in other_streams if name in arrays_by_name
            )
            for array in arrays:
                if array.size:
                    self._of_demon(array, field, demon)[...] = field.diverged

    def _of_demon(self, array: NDArray[Any], field: Field, demon: int) -> NDArray[Any]:
        """Return a view of a demon's numbers in an array."""
        return np.moveaxis(array, field.at, 0)[demon : demon + 1]


def _read(part: Stored, name: str) -> Any:
    """Return the value of a field."""
    return operator.attrgetter(name.replace("/", "."))(part)


def _carry(into: NDArray[Any], before: NDArray[Any], field: Field, earlier: Earlier) -> None:
    """Write the numbers of what remains into an array of what there is now."""
    if not into.size:
        return
    index = earlier[field.axis]
    stays = index != NEWCOMER
    np.moveaxis(into, field.at, 0)[stays] = np.moveaxis(before, field.at, 0)[index[stays]]


def copies(arrays: State) -> State:
    """Return copies of arrays by name."""
    return {name: np.array(array) for name, array in arrays.items()}


def fill(arrays: State, values: State) -> None:
    """Overwrite arrays by those of the same names, all in `values`; by 0 if it is empty."""
    for name, array in arrays.items():
        if values:
            array[...] = values[name]
        else:
            array[...] = 0


def streams_state(selected: int, others: Mapping[int, State]) -> State:
    """Return the number of the selected stream and copies of the states of the others; nothing if there are none."""
    if not others:
        return {}
    states = {f"stream{k}": copies(of_stream) for k, of_stream in others.items()}
    return {"stream": np.array(selected), **nested(**states)}


def restored_streams(state: State) -> tuple[int, dict[int, State]]:
    """Return the arguments of `streams_state` from a state that contains its result."""
    numbers = {int(found[1]) for found in map(re.compile(r"stream(\d+)/").match, state) if found}
    states = {k: copies(inner(state, f"stream{k}")) for k in sorted(numbers)}
    return int(state.get("stream", 0)), states


def with_further_features(learned: State, new: State, n_former: int) -> State:
    """Return the state of a Horde of more features, which has not begun, with what another one has learned.

    Args:
        learned: State of the other one, whose `n_former` features are the first of the new one; its engine
            has no traces.
        new: That of the new one.
        n_former: Number of features of the other one.
    """
    state: State = {}
    for name, array in new.items():
        former = learned.get(name)
        last = name.rpartition("/")[2]
        if former is None or last in _OF_STATES:
            state[name] = array
            continue
        is_of_rows = former.ndim == 1 and last in _ROWS
        is_as_before = former.shape == array.shape or name.startswith(_OF_READINGS)
        if is_of_rows or is_as_before:
            state[name] = former
        else:  # a block of all features, or one for each action
            shape = (*former.shape[:-1], former.shape[-1] // n_former)
            wider = array.reshape(*shape, -1).copy()
            wider[..., :n_former] = former.reshape(*shape, n_former)
            state[name] = wider.reshape(array.shape)
    return state
