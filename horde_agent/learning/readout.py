"""Readout: what a prediction is, made of the numbers that an engine learns.

    v(s) = (1 - q) (o(s) + theta_bar.phi(s) + d) + q l(s)

o is the demon's offset, which may follow a reading (`offsets`, `readings`); theta_bar are the averaged
weights, and d is their shift (`averages`); without averages, and until a demon's first one, it is o(s)
+ theta.phi(s). l is the answer of LSTD on the readings (`lstd`), and its share q is 0 without it. Engines
compute theta.phi and theta_bar.phi, and nothing of the others. The signals have from here what an offset
changes in them: the reference that is subtracted from a cumulant, and the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.kernels import checks
from horde_agent.kernels import offsets as offset_kernels
from horde_agent.kernels import readings as reading_kernels
from horde_agent.kernels.checks import SignalArrays
from horde_agent.kernels.vectors import bind, pack
from horde_agent.learning.averages import WeightAverages
from horde_agent.learning.engine import Engine, max_finite
from horde_agent.learning.lstd import LSTD
from horde_agent.learning.offsets import Offsets, Slots
from horde_agent.learning.readings import ReadingOffsets
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.stored import DEMON, NEWCOMER, Earlier, Stored
from horde_agent.learning.values import Cumulants, Observation
from horde_agent.types import Bools, Floats, Integers, Reals, Tiles


class Readout:
    """The readout of the demons with these questions.

    Args:
        questions: The questions.
        cumulants: Their cumulants.
        cohort: As in `SignalMaker`.
        config: Options of the Horde: `offset`, `average`, `lstd` and `dtype`.
        is_deferred: True if steps are queued: predictions are then those of the latest processed
            step.

    Attributes:
        slots: The cumulants that the engine receives.
        offsets: The demons' offsets.
        following: Their additions to predictions; some follow a reading.
        averages: When averages move and by how much, and the shifts; None without averages.
        lstd: The solutions that predictions are mixed with; None without a question for them.
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        cumulants: Cumulants,
        cohort: Integers,
        config: LearnerConfig,
        *,
        is_deferred: bool = False,
    ) -> None:
        channel = cumulants.channel
        self._is_deferred = is_deferred
        self.offsets = Offsets(questions, config.offset, cohort, max_finite(np.dtype(config.dtype)))
        self.slots = Slots(channel, np.arange(len(questions)))
        if cumulants.is_read_off:
            self.slots = self.offsets.slots(questions, channel)
        is_observed = (channel != checks.NO_CHANNEL) & (channel < cumulants.n_channels)
        self.following = ReadingOffsets(
            follows=self.offsets.may_follow & is_observed,
            has_offset=self.offsets.has_offset,
            cumulant=self.slots.cumulant,
            channel=channel,
            gamma=self.offsets.arrays.gamma,
        )
        self.averages: WeightAverages | None = None
        if config.average > 0.0:
            self.averages = WeightAverages(config.average, len(questions))
        self.lstd: LSTD | None = None
        if config.lstd:
            lstd = LSTD(questions, cumulants, config.lstd)
            if lstd.is_asked.any():
                self.lstd = lstd
        self._is_theta_alone = not self.offsets.is_on and self.averages is None
        self._none = np.zeros(len(questions))
        self._has_average: Bools = np.zeros(len(questions), dtype=bool)
        self._shift = self._none
        if self.averages is not None:
            self._has_average = self.averages.has_average
            self._shift = self.averages.shift
        self._signals: SignalArrays | None = None
        self._read: Any = None
        self._write: Any = None
        self._add: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return vars(self) | {"_read": None, "_write": None, "_add": None}

    # ---- what offsets change in the signals ------------------------------------------------------

    def attach(self, signals: SignalArrays) -> None:
        """Write references and outcomes into these arrays from now on."""
        self._signals = signals
        self.write_references()

    def write_references(self) -> None:
        """Write references, outcomes and additions to predictions from the offsets, if there are any."""
        if not self.offsets.is_on:
            return
        if self._write is None:
            self._write = bind(
                offset_kernels.write,
                pack(self.offsets.arrays),
                pack(self._signals),
                pack(self.following.arrays),
                like=(False,),
            )
        self._write(self.offsets.at_end)

    def read(self, channels: Observation, *, is_first: bool, is_last: bool) -> None:
        """Move the offsets by a reading, (n_channels,), from `Cumulants.channels`; see `kernels.offsets.read`."""
        inputs = (channels, is_first, is_last)
        if self._read is None:
            self._read = bind(
                offset_kernels.read, pack(self.offsets.arrays), pack(self._signals), like=inputs
            )
        self.offsets.note(self._read(*inputs))

    def move(self, channels: Observation, *, terminated: bool) -> None:
        """Move the offsets by a transition, given `channels` as in `read`, (n_channels,), and write what changes."""
        if self.offsets.is_moving:
            self.read(channels, is_first=False, is_last=terminated)
        self.offsets.at_end = terminated
        self.write_references()

    # ---- predictions -----------------------------------------------------------------------------

    def mark_processed(self) -> None:
        """Note that the engine has processed everything up to the current state."""
        following = self.following
        following.added_processed[:] = following.arrays.added
        if self.lstd is not None:
            self.lstd.mark_processed()

    def latest(self, engine: Engine, n_waiting: int) -> Floats:
        """Return the predictions at the latest processed step, (n_demons,); `n_waiting` later ones are queued."""
        is_behind = self._is_deferred and n_waiting > 0
        if self._is_deferred and not is_behind:
            self.mark_processed()
        added = self.following.arrays.added
        if is_behind:
            added = self.following.added_processed
        predictions = self._added_up(engine.latest, engine.latest_averaged, added)
        if self.lstd is not None and is_behind:
            self.lstd.mix_processed(predictions)
        elif self.lstd is not None:
            self.lstd.mix_here(predictions)
        return predictions

    def elsewhere(self, engine: Engine, tiles: Tiles, observation: Observation | None) -> Floats:
        """Return the predictions at a state, (n_active,) and (n_channels,), of shape (n_demons,).

        Raises:
            ValueError: If the observation is missing, and an offset follows the reading or LSTD answers.
        """
        added = self.following.arrays.added
        if observation is not None:
            added = self.following.added_at(observation)
        elif self.following.is_on or self.lstd is not None:
            raise ValueError(
                "predict needs the observation, too, as predictions depend on the readings: "
                "predict(tiles, observation)"
            )
        latest = averaged = self._none
        if not self._has_average.all():
            latest = engine.predict(tiles)
        if self._has_average.any():
            averaged = engine.predict(tiles, "average")
        predictions = self._added_up(latest, averaged, added)
        if self.lstd is not None and observation is not None:
            self.lstd.mix_at(predictions, observation)
        return predictions

    def of_demon(self, engine: Engine, demon: int, observation: Observation, tiles: Tiles) -> float:
        """Return one demon's prediction at a state, (n_channels,) and (n_active,)."""
        added = self.following.added_to(demon, observation)
        if self._has_average[demon]:
            averaged = engine.predict_one(demon, tiles, "average")
            prediction = averaged + float(self._shift[demon]) + added
        else:
            prediction = engine.predict_one(demon, tiles) + added
        lstd = self.lstd
        if lstd is None or lstd.share[demon] == 0.0:
            return prediction
        # LSTD begins again at a state of another number of readings, which comes before that here
        if observation.size != lstd.here.size:
            return prediction
        predictions = np.full(lstd.share.size, prediction)
        lstd.mix_at(predictions, observation)
        return float(predictions[demon])

    def _added_up(self, latest: Floats, averaged: Floats, added: Floats) -> Floats:
        """Return predictions, (n_demons,), in a new array; `added` is as in `ReadingArrays`."""
        if self._is_theta_alone:
            return latest.copy()
        predictions = np.empty(latest.size)
        arguments = (
            latest,
            averaged,
            self._has_average,
            self._shift,
            added,
            self.following.place,
            predictions,
        )
        if self._add is None:
            self._add = bind(reading_kernels.add_up, like=arguments)
        self._add(*arguments)
        return predictions

    # ---- averaged weights ------------------------------------------------------------------------

    def move_averages(self, engine: Engine, n_steps: int, *, is_last: bool) -> None:
        """Move averages and shifts toward the weights of learning step `n_steps`."""
        averages = self.averages
        if averages is None:
            return
        if n_steps >= averages.next_at:
            engine.move_averages(averages.advance(n_steps))
        if n_steps >= averages.sample_at and not is_last:
            averages.sample(engine.latest - engine.latest_averaged, n_steps)

    def restart(self, n_steps: int) -> None:
        """Begin averages and LSTD again at learning step `n_steps`, as for weights that were set."""
        if self.averages is not None:
            self.averages.restart(n_steps)
        if self.lstd is not None:
            self.lstd.restart()

    def averaged_weights(self, engine: Engine, demons: Integers | None) -> Reals:
        """Return a copy of the weights that predictions are read from, (n, n_features), of demons (n,) or all."""
        if self.averages is None:
            return engine.rows("theta", demons=demons)[0]
        (averaged,) = engine.rows("average", demons=demons)
        is_empty = ~self._has_average
        if demons is not None:
            is_empty = is_empty[demons]
        if is_empty.any():
            averaged[is_empty] = engine.rows("theta", demons=demons)[0][is_empty]
        return averaged

    @property
    def shifts(self) -> Floats:
        """Shift of each demon, d, shape (n_demons,); 0 without averages."""
        return self._shift.copy()

    # ---- parts, demons, several Hordes -----------------------------------------------------------

    @property
    def parts(self) -> dict[str, Stored]:
        """What is stored, by name."""
        parts: dict[str, Stored] = {"following": self.following}
        if self.offsets.is_on:
            parts["offsets"] = self.offsets
        if self.averages is not None:
            parts["averages"] = self.averages
        if self.lstd is not None:
            parts["lstd"] = self.lstd
        return parts

    def select_stream(self, stream: int, observation: Observation | None) -> None:
        """Continue with another stream at a state with this observation, (n_channels,), or without a state."""
        self.following.select_stream(stream)
        if self.lstd is not None and observation is not None:
            self.lstd.join(observation)
            self.lstd.begin()
        self.mark_processed()

    def set_offsets(self, values: Floats, reading_sums: Floats) -> None:
        """Set offsets, (n_demons,), and sums of `ReadingOffsets`, (2, n_demons), where they are not NaN."""
        self.offsets.set(values, self.slots.cumulant)
        self.following.set_sums(reading_sums)
        self.write_references()

    def carry_over(self, before: Readout, earlier: Earlier, n_steps: int) -> None:
        """Continue what remaining demons have `before`, at learning step `n_steps`."""
        if self.averages is not None and before.averages is not None:
            self.averages.carry_over(before.averages, earlier)
            self.averages.born_at[earlier[DEMON] == NEWCOMER] = n_steps
        self.offsets.carry_over(before.offsets, earlier)
        self.following.carry_over(before.following, earlier)
        if self.lstd is not None and before.lstd is not None:
            self.lstd.carry_over(before.lstd, earlier)
        self.write_references()
        self.mark_processed()

    def copy_estimates_from(self, other: Readout) -> None:
        """Copy the offsets and averages of the same demons, which learn from another stream."""
        alike = {DEMON: np.arange(self.offsets.has_offset.size)}
        if self.offsets.is_on:
            self.offsets.carry_over(other.offsets, alike)
            self.following.copy_estimates_from(other.following)
            self.write_references()
        if self.averages is not None and other.averages is not None:
            self.averages.carry_over(other.averages, alike)
        if self.lstd is not None and other.lstd is not None:
            self.lstd.restore(other.lstd.state())
