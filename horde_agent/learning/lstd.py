"""LSTD on the readings: a second answer to each question, solved for instead of learned step by step.

    v(s) = own + q (l - own),   l = w.z(x)
    z(x) = (1, u, sqrt(2) cos(R u + p)),   u = (x - centre) / unit, within [-10, 10]
    (C0 - gamma C1 + P) w = c,   C0 = sum e_t z_t',   C1 = sum e_t z_{t+1}',   c = sum e_t c_{t+1}
    e_t = z_t + kappa e_{t-1}

own is what `learning.readout` makes of weights and offset, x are all readings, and the sums are over the
transitions by the policy's action, or over all for the behaviour. e is a trace, which begins again after a gap
and after another action than the policy's. Whatever was before a state, the mean TD error of the true values is
0 there, so that every kappa finds values that z can express; of others, a larger one finds a better
approximation, with more noise. With kappa = gamma lambda this is LSTD(lambda). Here one kappa, 0.9, serves every
continuation, so that the matrices of a policy do so, too, and every reading.

z has the readings and random Fourier features. R is normal with deviation s_j / (1.25 sqrt(n)) for reading j of
n, and p uniform, so that z.z' approximates a Gaussian kernel that is 1.25 sqrt(n) units wide. s is the
autocorrelation of a reading from one step to the next, scaled so that its mean square is 1: noise says nothing
about later readings. Centre, unit (the deviation) and s are those of the first 1,024 transitions, after which
the sums begin. Readings are scaled to [0, 1], and a unit is at least 0.1: what has hardly changed so far may
change later. A missing reading counts as its mean. P is a ridge of 10 samples. l is bounded by what returns of
the readings so far can be.

Weights of tiles represent places and details, and follow a changing world; l is smooth, has little noise
early, and has other errors. A prediction is a mean of both, with the share

    q = 0.75 n / (n + 1,000) (2 - r), its last factor in [0, 1],   r = sum delta_l^2 / sum delta_own^2

for n transitions of the policy in the latest solution. delta are the TD errors of l and of the weights in
the latest 128 to 256 steps that were sampled: the last ones before a gap, and each 64th. Where l is the
worse one, as for a question without noise, it loses its share. A TD error is no error of the value: of
readings that persist and are noisy a correct l has the larger ones, and is left out although it is right.
Transitions are added 512 at a time. A policy and continuation are solved for again once the policy has half as
many transitions more; after which eighth of the 512 steps depends on them alone, so that shards solve for the
same bits.

Source: Bradtke & Barto (1996), LSTD, with features as instruments; Boyan (2002), LSTD(lambda); Rahimi & Recht
(2007), random Fourier features; Breiman (1996), stacked regressions. Sums without pi(a)/b: states count as often
as the policy's action was taken in them. Features, kappa and share were chosen on recorded lives.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from horde_agent.gvf import GVF, Channel, Reward
from horde_agent.kernels import checks
from horde_agent.kernels import lstd as kernels
from horde_agent.kernels.vectors import bind, pack
from horde_agent.learning.stored import DEMON, NEWCOMER, Earlier, Field, Fields, Stored
from horde_agent.learning.values import Cumulants, Observation, identity, number
from horde_agent.policies import Behaviour, ConstantAction
from horde_agent.saving import State
from horde_agent.types import Bools, Floats, Integers, Reals

N_RANDOM = 192
"""Random features by default, of a Horde with enough questions that LSTD can answer."""
FEWEST_QUESTIONS = 300
MOST_SYSTEMS = 32
"""Policies and continuations, each a system of equations, of a Horde that has LSTD by default."""
N_MEASURED = 1_024
"""Transitions from which centre, unit and weight of a reading are measured."""
DECAY = 0.9
"""kappa."""
N_QUEUED = 512
"""Transitions that are added to the sums together."""
N_TURNS = 8
"""Parts of a queue, after one of which a policy and continuation are solved for."""
BATCH = N_QUEUED // N_TURNS
"""Learning steps of a part."""
FIRST_SOLUTION = 512
"""Transitions of a policy in its first solution, at least."""
GROWTH = 3 / 2
"""Transitions of a policy in a solution over those in the one before it."""
MOST_TRANSITIONS = 1 << 18
"""Transitions of a policy that its sums reach back, at most: 7.3 hours at 10 Hz."""
RIDGE = 10.0
"""Samples of each feature with the mean as the return."""
RIDGE_OF_ONE = 0.01
WIDTH = 1.25
LEAST_UNIT = 0.1
LARGEST_SHARE = 0.75
HALF_SHARE_AT = 1_000
WORST_RATIO = 2.0
"""Ratio of the squared TD errors, r, from which on l has no share."""
FEWEST_SAMPLES = 8
MOST_SAMPLES = 256
MOST_READINGS = 256
"""A state with more of them has no l: the matrices would be too large."""

OWN = 0
SOLVED = 1
"""Rows of the sums of squared TD errors."""

POLICY_ASKED = "policy that is solved for"


class Pair(NamedTuple):
    """A policy and a continuation: one system of equations."""

    policy: int  # among those that are solved for
    gamma: float
    turn: int  # in 0..N_TURNS - 1
    demons: Integers  # with questions about it, (k,)


class LSTD(Stored):
    """The solutions for the demons with these questions, and their shares.

    Args:
        questions: The questions.
        cumulants: Their cumulants.
        n_random: Number of random features.

    Attributes:
        is_asked: Mask of the demons that are solved for, shape (n_demons,): about a reading or the reward,
            a constant action or the behaviour, with a constant continuation below 1 and no outcome.
        share: q of each demon, shape (n_demons,).
    """

    FIELDS: ClassVar[Fields] = {
        "n_seen": Field(),
        "n_queued": Field(),
        "n_since": Field(),
        "n_measured": Field(),
        "total": Field(),
        "squares": Field(),
        "n_products": Field(),
        "products": Field(),
        "centre": Field(),
        "unit": Field(),
        "lowest": Field(),
        "highest": Field(),
        "projection": Field(),
        "phase": Field(),
        "left": Field(),
        "reached": Field(),
        "action": Field(),
        "goes_on": Field(),
        "follows": Field(),
        "follows_next": Field(),
        "here": Field(),
        "processed": Field(),
        "C0": Field(POLICY_ASKED),
        "C1": Field(POLICY_ASKED),
        "c": Field(POLICY_ASKED),
        "ends": Field(POLICY_ASKED),
        "squared": Field(POLICY_ASKED),
        "trace": Field(POLICY_ASKED),
        "n_made": Field(POLICY_ASKED),
        "weights": Field(DEMON, at=1, diverged=0.0),
        "least": Field(DEMON, diverged=0.0),
        "most": Field(DEMON, diverged=0.0),
        "solved_at": Field(DEMON, diverged=0.0),
        "is_sound": Field(DEMON, diverged=0.0),
        "share": Field(DEMON, diverged=0.0),
        "errors": Field(DEMON, at=1),
        "n_samples": Field(DEMON),
    }

    def __init__(self, questions: Sequence[GVF], cumulants: Cumulants, n_random: int) -> None:
        self._n_random = n_random
        self._has_reward = cumulants.has_reward
        self._n_channels = cumulants.n_channels
        self._channel = cumulants.channel
        self.is_asked = are_asked(questions)
        demons_asked = np.flatnonzero(self.is_asked)
        questions_asked = [questions[i] for i in demons_asked.tolist()]
        policies = [question.target_policy for question in questions_asked]
        policy_of, firsts = number([identity(policy) for policy in policies])
        self._actions = [_action_of(policies[k]) for k in firsts]
        self._policies = [identity(policies[k]) for k in firsts]
        self._gamma = np.zeros(len(questions))
        gammas: list[Any] = [question.continuation for question in questions_asked]
        self._gamma[demons_asked] = gammas
        keys = list(zip(policy_of.tolist(), self._gamma[demons_asked].tolist(), strict=True))
        pair_of, firsts = number(keys)
        self._pairs: list[Pair] = []
        for k, first in enumerate(firsts):
            policy, gamma = keys[first]
            turn = zlib.crc32(f"{self._actions[policy]} {gamma}".encode()) % N_TURNS
            self._pairs.append(Pair(policy, gamma, turn, demons_asked[pair_of == k]))
        n_demons = len(questions)
        self.solved_at = np.zeros(n_demons, dtype=np.int64)
        self.is_sound = np.ones(n_demons, dtype=bool)
        self.share = np.zeros(n_demons)
        self.errors = np.zeros((2, n_demons))
        self.n_samples = np.zeros(n_demons, dtype=np.int64)
        self.least = np.zeros(n_demons)
        self.most = np.zeros(n_demons)
        self._whole = np.ones(n_demons)
        self._single = np.zeros(n_demons, dtype=np.float32)
        self._processed_values: Floats | None = None
        self._start(0)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except addresses."""
        return vars(self) | {
            "_mix": None,
            "_values": None,
            "_write_features": None,
        }

    def _start(self, n_readings: int) -> None:
        """Begin without transitions and solutions, with states of `n_readings` readings."""
        n = n_readings
        n_cumulants = n + 1  # the last one is the reward
        d = 1 + n + self._n_random
        n_policies = len(self._policies)
        rng = np.random.default_rng(n)
        self.n_seen = 0
        self.n_queued = 0
        self.n_since = 0
        self.n_measured = np.zeros(n_cumulants)
        self.total = np.zeros(n_cumulants)
        self.squares = np.zeros(n_cumulants)
        self.n_products = np.zeros(n)
        self.products = np.zeros(n)
        self.centre = np.zeros(n_cumulants)
        self.unit = np.ones(n_cumulants)
        self.lowest = np.full(n_cumulants, np.inf)
        self.highest = np.full(n_cumulants, -np.inf)
        projection = rng.normal(size=(n, self._n_random)) / (WIDTH * np.sqrt(max(n, 1)))
        self.projection = projection.astype(np.float32)
        self.phase = rng.uniform(0.0, 2.0 * np.pi, self._n_random).astype(np.float32)
        self.left = np.zeros((N_QUEUED, n))
        self.reached = np.zeros((N_QUEUED, n_cumulants))
        self.action = np.zeros(N_QUEUED, dtype=np.int64)
        self.goes_on = np.zeros(N_QUEUED)
        self.follows = np.zeros(N_QUEUED, dtype=bool)
        self.follows_next = False
        self.here = np.zeros(n)
        self.processed = np.zeros(n)
        self.C0 = np.zeros((n_policies, d, d))
        self.C1 = np.zeros((n_policies, d, d))
        self.c = np.zeros((n_policies, d, n_cumulants))
        self.ends = np.zeros((n_policies, d))
        self.squared = np.zeros((n_policies, d))
        self.trace = np.zeros((n_policies, d))
        self.n_made = np.zeros(n_policies, dtype=np.int64)
        self.weights = np.zeros((d, self.share.size), dtype=np.float32)
        self.solved_at[:] = 0
        self.least[:] = 0.0
        self.most[:] = 0.0
        self.share[:] = 0.0
        self.errors[:] = 0.0
        self.n_samples[:] = 0
        self._unbind()

    def _unbind(self) -> None:
        """Forget addresses and values of arrays that were replaced, or have another size."""
        self._mix: Any = None
        self._values: Any = None
        self._write_features: Any = None
        self._has_shares = bool(self.share.any())
        self._processed_values = None
        # Place of each demon's cumulant among the readings and the reward; the first, if it is not asked
        self._target = np.where(self.is_asked, self._channel, 0)
        if self._has_reward:
            self._target[self._channel == self._n_channels] = self.here.size

    def _arrays(self, share: Floats) -> kernels.LSTDArrays:
        """Return the arrays of the kernels, with these shares, (n_demons,)."""
        return kernels.LSTDArrays(
            centre=self.centre,
            unit=self.unit,
            projection=self.projection,
            phase=self.phase,
            weights=self.weights,
            least=self.least,
            most=self.most,
            share=share,
            features=np.zeros(self.weights.shape[0], dtype=np.float32),
            single=self._single,
        )

    def restart(self) -> None:
        """Begin again, as for weights that were set."""
        readings = self.here
        self._start(readings.size)
        self.join(readings)

    # ---- states and transitions ------------------------------------------------------------------

    def join(self, observation: Observation) -> None:
        """Set the readings of the current state, (n_readings,); another number of them begins again."""
        n = observation.size
        if n > MOST_READINGS:
            n = 0
        if n != self.here.size:
            self._start(n)
        self.here[:] = observation[:n]

    def begin(self) -> None:
        """Note that the current state does not follow from the latest transition."""
        self.follows_next = False

    def mark_processed(self) -> None:
        """Note that the engine has processed everything up to the current state."""
        self.processed[:] = self.here
        self._processed_values = None

    @property
    def is_due(self) -> bool:
        """True if a part of the queue has just been filled: `add` comes next."""
        return self.n_queued > 0 and self.n_queued % BATCH == 0

    def note(
        self, observation: Observation, action: int, reward: float, *, terminated: bool
    ) -> None:
        """Queue the transition from the current state by `action` to one with these readings, (n_readings,)."""
        if observation.size != self.here.size:
            self.join(observation)
            return
        known_reward = np.nan
        if math.isfinite(reward):
            known_reward = reward
        k = self.n_queued
        self.left[k] = self.here
        self.reached[k, :-1] = observation
        self.reached[k, -1] = known_reward
        self.here[:] = observation
        self.action[k] = action
        self.goes_on[k] = not terminated
        self.follows[k] = self.follows_next
        self.n_queued = k + 1
        self.follows_next = True
        self.n_since += 1

    @property
    def is_measured(self) -> bool:
        """True if the sums have begun: TD errors are compared from then on, in all shards at the same steps."""
        return self.n_seen >= N_MEASURED

    @property
    def is_solved_for(self) -> bool:
        """True if a demon has a solution."""
        return bool(self.solved_at.any())

    def add(self) -> None:
        """Add the transitions of a full queue to the sums, and solve for what is due after each part of it."""
        self.n_seen += BATCH
        if self.n_queued == N_QUEUED:
            if self.n_seen <= N_MEASURED:
                self._measure()
            else:
                self._sum()
            self.n_queued = 0
        turn = self.n_seen // BATCH % N_TURNS
        for pair in self._pairs:
            if pair.turn == turn:
                self._solve(pair)
        self._set_shares()
        self._processed_values = None

    def _measure(self) -> None:
        """Measure centre, unit and weight of each reading from the queued transitions, too."""
        is_there = ~np.isnan(self.reached)
        readings = np.where(is_there, self.reached, 0.0)
        self.n_measured += is_there.sum(axis=0)
        self.total += readings.sum(axis=0)
        self._extend()
        is_known = is_there[:, :-1] & ~np.isnan(self.left)
        self.n_products += is_known.sum(axis=0)
        counts = np.maximum(self.n_measured, 1.0)
        self.centre[:] = self.total / counts
        # Squares of readings near the largest float are infinite
        with np.errstate(over="ignore", invalid="ignore"):
            self.squares += (readings**2).sum(axis=0)
            product = self.left * self.reached[:, :-1]
            self.products += np.where(is_known, product, 0.0).sum(axis=0)
            variance = self.squares / counts - self.centre**2
            has_deviation = (variance > 1e-12 * self.centre**2) & np.isfinite(variance)
        deviation = np.sqrt(np.where(has_deviation, variance, 0.0))
        self.unit[:] = np.maximum(deviation, LEAST_UNIT)
        if self.n_seen == N_MEASURED:
            self._weigh(deviation[:-1])

    def _weigh(self, deviation: Floats) -> None:
        """Weigh the readings in the random features by their autocorrelations, given deviations, (n_readings,).

        A reading that never changed has the weight of one that persists.
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            covariance = self.products / self.n_products - self.centre[:-1] ** 2
            weight = np.clip(covariance / deviation**2, 0.0, 1.0)
        weight[(deviation == 0.0) | np.isnan(weight)] = 1.0
        mean_square = (weight**2).sum() / max(weight.size, 1)
        if mean_square > 0.0:
            scale = weight / np.sqrt(mean_square)
            self.projection *= scale[:, None].astype(np.float32)

    def _extend(self) -> None:
        """Extend the range of the readings so far by those of the queued transitions."""
        self.lowest[:] = np.fmin(self.lowest, np.fmin.reduce(self.reached))
        self.highest[:] = np.fmax(self.highest, np.fmax.reduce(self.reached))

    def features(self, readings: Floats) -> Reals:
        """Return z of readings, (n, n_readings) or more columns, float32, shape (n, d)."""
        out = np.empty((len(readings), self.weights.shape[0]), dtype=np.float32)
        inputs = (readings, out)
        if self._write_features is None:
            self._write_features = bind(
                kernels.write_features, pack(self._arrays(self.share)), like=inputs
            )
        self._write_features(*inputs)
        return out

    def _sum(self) -> None:
        """Add the queued transitions to the sums."""
        self._extend()
        z_t = self.features(self.left)
        z_tp1 = np.empty_like(z_t)
        z_tp1[:-1] = z_t[1:]
        is_last = np.append(~self.follows[1:], True)
        z_tp1[is_last] = self.features(self.reached[is_last])
        z_tp1[self.goes_on == 0.0] = 0.0
        is_there = ~np.isnan(self.reached)
        with np.errstate(over="ignore", invalid="ignore"):
            from_centre = np.where(is_there, self.reached - self.centre, 0.0)
            cumulants = from_centre.astype(np.float32)
        rows = np.empty((2, z_t.shape[1]), dtype=np.float32)
        for k, action in enumerate(self._actions):
            by_policy = np.ones(N_QUEUED, dtype=bool)
            if action != checks.ON_POLICY:
                by_policy = self.action == action
            e = np.empty((int(by_policy.sum()), z_t.shape[1]), dtype=np.float32)
            kernels.write_traces(z_t, by_policy, self.follows, DECAY, self.trace[k], e)
            if not len(e):
                continue
            if self.squared[k, 0] >= MOST_TRANSITIONS:
                for sums in (self.C0, self.C1, self.c, self.ends, self.squared):
                    sums[k] *= 0.5
            z = z_t[by_policy]
            kernels.add_products(e, z, rows, self.C0[k])
            kernels.add_products(e, z_tp1[by_policy], rows, self.C1[k])
            kernels.add_products(e, cumulants[by_policy], rows, self.c[k])
            self.ends[k] += e[self.goes_on[by_policy] == 0.0].sum(axis=0)
            self.squared[k] += (z**2).sum(axis=0)
            self.n_made[k] += len(e)

    # ---- solutions and shares --------------------------------------------------------------------

    def _solve(self, pair: Pair) -> None:
        """Solve for the weights of all cumulants at a policy and a continuation, and write those that are due.

        The equations are those of values less their mean m / (1 - gamma), m being the mean cumulant.
        """
        n_made = int(self.n_made[pair.policy])
        due_at = np.maximum(GROWTH * self.solved_at[pair.demons], FIRST_SOLUTION)
        demons = pair.demons[self.is_sound[pair.demons] & (n_made >= due_at)]
        if not demons.size:
            return
        C0 = self.C0[pair.policy]
        gamma = pair.gamma
        from_centre = self.c[pair.policy, 0] / C0[0, 0]
        mean = self.centre + from_centre
        with np.errstate(invalid="ignore"):  # a signal beyond float32
            sides = self.c[pair.policy] - np.outer(C0[:, 0], from_centre)
            sides -= gamma / (1.0 - gamma) * np.outer(self.ends[pair.policy], mean)
        squared = self.squared[pair.policy]
        penalty = RIDGE * squared / squared[0]
        penalty[0] = RIDGE_OF_ONE
        d = len(C0)
        system = np.empty((d, d + sides.shape[1]))
        np.multiply(-gamma, self.C1[pair.policy], out=system[:, :d])
        system[:, :d] += C0
        system[np.arange(d), np.arange(d)] += penalty
        system[:, d:] = sides
        solution = np.empty_like(sides)
        pivot_rows = np.empty((kernels.N_PIVOTS, system.shape[1]))
        kernels.solve(system, pivot_rows, np.empty((2, system.shape[1])), solution)
        solution[0] += mean / (1.0 - gamma)
        target = self._target[demons]
        with np.errstate(over="ignore"):
            weights = solution[:, target].astype(np.float32)
        # A signal that was always missing has no bounds, and one may be beyond float32
        has_bounds = self.lowest[target] <= self.highest[target]
        is_solved = has_bounds & np.isfinite(weights).all(axis=0)
        longest = np.array([1.0, 1.0 / (1.0 - gamma)])[:, None]
        least = (longest * self.lowest[target]).min(axis=0)
        most = (longest * self.highest[target]).max(axis=0)
        self.weights[:, demons] = np.where(is_solved, weights, 0.0)
        self.least[demons] = np.where(is_solved, least, 0.0)
        self.most[demons] = np.where(is_solved, most, 0.0)
        self.solved_at[demons] = np.where(is_solved, n_made, 0)

    def values(self, observation: Observation) -> Floats:
        """Return l of each demon at a state with these readings, (n_readings,), shape (n_demons,)."""
        values = np.zeros(self.share.size)
        inputs = (observation, values)
        if self._values is None:
            self._values = bind(kernels.mix, pack(self._arrays(self._whole)), like=inputs)
        self._values(*inputs)
        return values

    def compare(self, td_error: Floats, learned: Bools) -> None:
        """Compare the TD errors of the weights and of l in the latest transition.

        Args:
            td_error: Those of the weights, shape (n_demons,).
            learned: Mask of the demons that learned from it, shape (n_demons,).
        """
        self.n_since = 0
        k = self.n_queued - 1  # the last row, -1, if it has just been added to the sums
        delta = self.values(self.reached[k, :-1].copy())
        delta *= self._gamma
        delta *= self.goes_on[k]
        delta += self.reached[k, self._target]
        delta -= self.values(self.left[k].copy())
        counts = learned & (self.solved_at > 0)
        with np.errstate(over="ignore"):
            of_weights = td_error.astype(np.float64) ** 2
            of_solution = delta**2
            counts &= np.isfinite(of_weights + of_solution)
        np.add(self.errors[OWN], of_weights, out=self.errors[OWN], where=counts)
        np.add(self.errors[SOLVED], of_solution, out=self.errors[SOLVED], where=counts)
        self.n_samples += counts
        is_full = self.n_samples >= MOST_SAMPLES
        if is_full.any():
            self.errors[:, is_full] *= 0.5
            self.n_samples[is_full] //= 2

    def _set_shares(self) -> None:
        largest = LARGEST_SHARE * self.solved_at / (self.solved_at + HALF_SHARE_AT)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.errors[SOLVED] / self.errors[OWN]
        ratio[(self.n_samples < FEWEST_SAMPLES) | np.isnan(ratio)] = 1.0
        self.share[:] = largest * np.clip(WORST_RATIO - ratio, 0.0, 1.0)
        self._has_shares = bool(self.share.any())

    # ---- predictions -----------------------------------------------------------------------------

    def mix_here(self, own: Floats) -> None:
        """Move predictions at the current state, (n_demons,), toward l by the shares."""
        self.mix_at(own, self.here)

    def mix_at(self, own: Floats, observation: Observation) -> None:
        """Move predictions, (n_demons,), at a state with these readings, (n_readings,), toward l by the shares.

        Raises:
            ValueError: If the states so far had another number of readings.
        """
        n = self.here.size
        if observation.size != n and n > 0:
            raise ValueError(
                f"observation must have {n} readings, as those of the stream, not {observation.size}"
            )
        if not self._has_shares:
            return
        inputs = (observation, own)
        if self._mix is None:
            self._mix = bind(kernels.mix, pack(self._arrays(self.share)), like=inputs)
        self._mix(*inputs)

    def mix_processed(self, own: Floats) -> None:
        """Move predictions at the latest state that the engine has processed, (n_demons,), toward l by the shares."""
        if not self._has_shares:
            return
        if self._processed_values is None:
            self._processed_values = self.values(self.processed)
        moves = self._processed_values - own
        moves *= self.share
        own += moves

    # ---- other demons, several Hordes ------------------------------------------------------------

    def carry_over(self, before: Self, earlier: Earlier) -> None:
        """Continue what remains of the demons and policies before."""
        source = np.full(len(self._policies), NEWCOMER)
        for k, policy in enumerate(self._policies):
            if policy in before._policies:
                source[k] = before._policies.index(policy)
        self._start(before.here.size)
        super().carry_over(before, {**earlier, POLICY_ASKED: source})
        self._unbind()

    def restore(self, state: State) -> None:
        """Restore what `state` returned of such a part with the same demons."""
        super().restore(state)
        self._unbind()

    def merge(self, others: Sequence[Self]) -> None:
        """Give several Hordes of the same demons the sums and solutions of the first one's stream."""
        state = self.state()
        for other in others:
            readings = other.here.copy()
            other.restore(state)
            other.join(readings)
            other.begin()
            other.mark_processed()


def compile_kernels() -> None:
    """Compile what an LSTD needs, by a small one: a robot should not wait for it after two minutes of its life."""
    question = GVF("light", Behaviour(), Channel(0), continuation=0.5)
    small = LSTD([question], Cumulants([question], n_features=1), n_random=1)
    small.join(np.zeros(1))
    is_asked = np.ones(1, dtype=bool)
    while not small.is_solved_for:
        small.note(np.zeros(1), action=0, reward=np.nan, terminated=False)
        if small.is_due:
            small.add()
    small.compare(np.zeros(1), is_asked)


def n_random_features(requested: int | None, questions: Sequence[GVF]) -> int:
    """Return the number of random features of a Horde with these questions, as in `LearnerConfig.lstd`.

    What LSTD costs in a step hardly depends on the number of questions: about a quarter of a step of
    800, and more than the whole step of a few. A policy and continuation is solved for in some 4 ms
    at once; of a few hundred of them several would be late in real time.
    """
    if requested is not None:
        return requested
    questions_asked = [
        question
        for question, is_asked in zip(questions, are_asked(questions), strict=True)
        if is_asked
    ]
    systems = {
        (identity(question.target_policy), question.continuation) for question in questions_asked
    }
    if len(questions_asked) >= FEWEST_QUESTIONS and len(systems) <= MOST_SYSTEMS:
        return N_RANDOM
    return 0


def are_asked(questions: Sequence[GVF]) -> Bools:
    """Return which questions LSTD on the readings can answer, shape (n_questions,)."""
    return np.array(
        [
            isinstance(question.cumulant, Channel | Reward)
            and isinstance(question.target_policy, Behaviour | ConstantAction)
            and not callable(question.continuation)
            and question.continuation < 1.0
            and not callable(question.outcome)
            and question.outcome == 0.0
            for question in questions
        ],
        dtype=bool,
    )


def _action_of(policy: Behaviour | ConstantAction | Any) -> int:
    """Return a constant policy's action, or `checks.ON_POLICY`."""
    if isinstance(policy, ConstantAction):
        return int(policy.action)
    return checks.ON_POLICY
