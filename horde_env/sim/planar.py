"""The planar engine: one rigid body in the plane under forces, among fixed obstacles. SI units.

A step of dt is semi-implicit Euler: velocities from forces, then from contacts, then the pose from
the velocities. With d the vector from the body's origin to its centre of mass, in the world, and
omega the yaw rate, Newton and Euler give

    m (a + alpha x d - omega^2 d) = F        I_c alpha = torque - d x F        (x: the cross product in the plane)

A contact acts along its normal n (from the obstacle to the body) at the lever r from the centre of
mass. Its impulses are found by projected Gauss-Seidel over all contacts: lambda_n >= 0 such that
the body at most touches by the end of the step, or rebounds with a share of the speed of a hit;
|lambda_t| <= mu lambda_n against sliding (Coulomb). A remaining overlap shrinks by the share
RELEASE per step, which avoids a rebound.

Source: Catto (2005), Iterative dynamics with temporal coherence; PyBullet uses the same scheme, and
    the poses agree.
An obstacle is a box: a row (centre x, y, half size x, y).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from horde_env._jit import RecordFields, kernel
from horde_env.backend import Floats, Ints, State

Box = tuple[float, float, float, float, float]  # centre x, y, size x, y, height; metres

# Multiplied by the body's own, which its URDF holds
WALL_FRICTION = 0.5
WALL_RESTITUTION = 1.0
ITERATIONS = 10
RELEASE = 0.2  # share of an overlap that is removed per step
NEAR_M = 0.02  # largest gap of a contact
HIT_SPEED = 0.2  # m/s: a slower hit does not bounce
MOST_CONTACTS = 24

Facing = tuple[float, float]  # cosine and sine of the heading

# Numbers of `motion`, the state that a step changes.
X = 0  # m
Y = 1  # m
HEADING = 2  # rad
VX = 3  # m/s
VY = 4  # m/s
YAW_RATE = 5  # rad/s
IMPULSE = 6  # normal impulse of all contacts in the last step, N s
N_MOTION = 7

# Numbers of `inertia`.
MASS = 0  # kg
INERTIA = 1  # about the centre of mass, kg m^2
CENTROID_X = 2  # of the centre of mass, m
CENTROID_Y = 3  # of the centre of mass, m
FRICTION = 4  # coefficient
RESTITUTION = 5  # share of a hit's speed
REACH = 6  # distance of the farthest point from the origin, m
N_INERTIA = 7

# Columns of `contacts`.
NX = 0  # unit normal, from the obstacle to the body
NY = 1
RX = 2  # lever from the centre of mass, m
RY = 3
GAP = 4  # m
ALONG = 5  # impulse along the normal, N s
ACROSS = 6  # impulse across it, N s
TARGET = 7  # normal speed at the end of the step, m/s
N_COLUMNS = 8

# Columns of `obstacles`.
BOX_X = 0  # of its centre, m
BOX_Y = 1  # of its centre, m
BOX_HALF_X = 2  # half its size, m
BOX_HALF_Y = 3

# Columns of `pieces`.
FIRST_CORNER = 0
N_CORNERS = 1


class Shape(NamedTuple):
    """A body (see `Hull`) and the obstacles around it, for `step`."""

    inertia: Floats
    corners: Floats
    pieces: Ints
    radii: Floats
    obstacles: Floats  # boxes, (n_obstacles, 4)


NO_SHAPE = Shape(
    inertia=np.zeros(N_INERTIA),
    corners=np.zeros((0, 2)),
    pieces=np.zeros((0, 2), dtype=np.int64),
    radii=np.zeros(0),
    obstacles=np.zeros((0, 4)),
)
"""For kernels that another engine calls."""


class Motion(NamedTuple):
    """Pose and velocity of a body: world frame, SI; the heading is not wrapped."""

    x: float
    y: float
    heading: float
    vx: float
    vy: float
    yaw_rate: float


@kernel
def facing(heading: float) -> Facing:
    """Return cosine and sine of a heading, computed once for all kernels that need them."""
    return math.cos(heading), math.sin(heading)


@kernel
def append_contact(
    contacts: Floats, n: int, nx: float, ny: float, rx: float, ry: float, gap: float
) -> int:
    """Append a contact to the first `n` if it is near and there is room; return the new number."""
    if gap >= NEAR_M or n >= contacts.shape[0]:
        return n
    row = contacts[n]
    row[NX] = nx
    row[NY] = ny
    row[RX] = rx
    row[RY] = ry
    row[GAP] = gap
    return n + 1


@kernel
def corner_on_box(box: Floats, x: float, y: float) -> tuple[float, float, float]:
    """Return the direction from a box to a point, and the distance between them, negative inside."""
    dx = x - box[BOX_X]
    dy = y - box[BOX_Y]
    out_x = abs(dx) - box[BOX_HALF_X]
    out_y = abs(dy) - box[BOX_HALF_Y]
    sign_x = math.copysign(1.0, dx)
    sign_y = math.copysign(1.0, dy)
    if out_y <= 0.0 and out_x > out_y:  # in front of a face, or inside: the nearest face
        return sign_x, 0.0, out_x
    if out_x <= 0.0:
        return 0.0, sign_y, out_y
    distance = math.hypot(out_x, out_y)
    return sign_x * out_x / distance, sign_y * out_y / distance, distance


@kernel
def is_beyond(box: Floats, x: float, y: float, most: float) -> bool:
    """Return whether a point is farther than `most` from a box along x or y, which needs no root."""
    return bool(
        abs(x - box[BOX_X]) - box[BOX_HALF_X] > most or abs(y - box[BOX_Y]) - box[BOX_HALF_Y] > most
    )


@kernel
def corner_on_piece(
    corners: Floats, first: int, n: int, x: float, y: float
) -> tuple[float, float, float]:
    """Return the outward normal of the polygon's edge in front of a point, and its distance; inf if there is none."""
    gap = -math.inf
    nx = 0.0
    ny = 0.0
    along = 0.0
    for k in range(n):
        a = first + k
        b = first + (k + 1) % n
        ex = corners[b, 0] - corners[a, 0]
        ey = corners[b, 1] - corners[a, 1]
        length = math.hypot(ex, ey)
        out = ((x - corners[a, 0]) * ey - (y - corners[a, 1]) * ex) / length
        if out > gap:
            gap = out
            nx = ey / length
            ny = -ex / length
            along = ((x - corners[a, 0]) * ex + (y - corners[a, 1]) * ey) / (length * length)
    if gap > 0.0 and (along < 0.0 or along > 1.0):
        return nx, ny, math.inf
    return nx, ny, gap


@kernel
def find_contacts(motion: Floats, towards: Facing, shape: Shape, contacts: Floats) -> int:
    """Write present and imminent contacts into rows of `contacts`; return their number.

    Two convex shapes in the plane touch at a corner of either: of the body at a box, or of a box at
    a polygon of the body.
    """
    inertia = shape.inertia
    corners = shape.corners
    c, s = towards
    n = 0
    px = motion[X]
    py = motion[Y]
    reach = inertia[REACH] + NEAR_M
    dx = c * inertia[CENTROID_X] - s * inertia[CENTROID_Y]
    dy = s * inertia[CENTROID_X] + c * inertia[CENTROID_Y]
    for o in range(shape.obstacles.shape[0]):
        box = shape.obstacles[o]
        if is_beyond(box, px, py, reach) or corner_on_box(box, px, py)[2] > reach:
            continue
        for piece in range(shape.pieces.shape[0]):
            first = shape.pieces[piece, FIRST_CORNER]
            n_corners = shape.pieces[piece, N_CORNERS]
            radius = shape.radii[piece]
            for k in range(first, first + n_corners):
                x = c * corners[k, 0] - s * corners[k, 1]
                y = s * corners[k, 0] + c * corners[k, 1]
                if is_beyond(box, px + x, py + y, radius + NEAR_M):
                    continue
                nx, ny, gap = corner_on_box(box, px + x, py + y)
                n = append_contact(
                    contacts, n, nx, ny, x - radius * nx - dx, y - radius * ny - dy, gap - radius
                )
            if n_corners < 3:
                continue
            for k in range(4):
                side_x = 1.0 if k & 1 else -1.0
                side_y = 1.0 if k & 2 else -1.0
                x = box[BOX_X] + box[BOX_HALF_X] * side_x - px
                y = box[BOX_Y] + box[BOX_HALF_Y] * side_y - py
                if x * x + y * y > reach * reach:
                    continue
                ex, ey, gap = corner_on_piece(
                    corners, first, n_corners, c * x + s * y, c * y - s * x
                )
                # Opposite to the edge's normal, in the world
                nx = s * ey - c * ex
                ny = -s * ex - c * ey
                n = append_contact(contacts, n, nx, ny, x - dx, y - dy, gap)
    return n


@kernel
def speed_at(velocity: tuple[float, float, float], row: Floats) -> tuple[float, float]:
    """Return the velocity of the body's point at a contact along the normal, and across (to its left), m/s."""
    vx = velocity[0] - velocity[2] * row[RY]
    vy = velocity[1] + velocity[2] * row[RX]
    return row[NX] * vx + row[NY] * vy, row[NX] * vy - row[NY] * vx


@kernel
def apply_impulse(
    velocity: tuple[float, float, float], inertia: Floats, row: Floats, px: float, py: float
) -> tuple[float, float, float]:
    """Return velocity of the centre of mass and yaw rate after an impulse (px, py) at a contact."""
    turn = (row[RX] * py - row[RY] * px) / inertia[INERTIA]
    return velocity[0] + px / inertia[MASS], velocity[1] + py / inertia[MASS], velocity[2] + turn


@kernel
def set_targets(
    velocity: tuple[float, float, float], inertia: Floats, contacts: Floats, n: int, dt: float
) -> None:
    """Write each contact's target of the normal speed at the end of the step, and clear its impulses."""
    for i in range(n):
        row = contacts[i]
        speed, _ = speed_at(velocity, row)
        bounce = 0.0
        if speed < -HIT_SPEED:
            bounce = -inertia[RESTITUTION] * speed
        gap = row[GAP]
        if gap <= 0.0:
            gap = RELEASE * gap
        row[TARGET] = bounce - gap / dt
        row[ALONG] = 0.0
        row[ACROSS] = 0.0


@kernel
def resolve(
    velocity: tuple[float, float, float], inertia: Floats, contacts: Floats, n: int
) -> tuple[float, float, float]:
    """Return the velocity after `n` contacts: projected Gauss-Seidel, all normals, then all frictions."""
    per_mass = 1.0 / inertia[MASS]
    per_inertia = 1.0 / inertia[INERTIA]
    mu = inertia[FRICTION]
    for _ in range(ITERATIONS):
        is_settled = True
        for i in range(n):
            row = contacts[i]
            speed, _ = speed_at(velocity, row)
            # No load, and the body leaves: no impulse
            if row[ALONG] == 0.0 and speed >= row[TARGET]:
                continue
            turn = row[RX] * row[NY] - row[RY] * row[NX]
            impulse = row[ALONG] + (row[TARGET] - speed) / (per_mass + per_inertia * turn * turn)
            impulse = max(impulse, 0.0)
            change = impulse - row[ALONG]
            row[ALONG] = impulse
            if change != 0.0:
                is_settled = False
                velocity = apply_impulse(velocity, inertia, row, change * row[NX], change * row[NY])
        for i in range(n):
            row = contacts[i]
            if row[ALONG] == 0.0 and row[ACROSS] == 0.0:  # no load, no friction
                continue
            _, slip = speed_at(velocity, row)
            turn = row[RX] * row[NX] + row[RY] * row[NY]
            most = mu * row[ALONG]
            sticking = row[ACROSS] - slip / (per_mass + per_inertia * turn * turn)
            impulse = min(max(sticking, -most), most)
            change = impulse - row[ACROSS]
            row[ACROSS] = impulse
            if change != 0.0:
                is_settled = False
                velocity = apply_impulse(
                    velocity, inertia, row, -change * row[NY], change * row[NX]
                )
        if is_settled:  # as are all further iterations; most contacts are near, but do not touch
            break
    return velocity


@kernel
def step(
    motion: Floats,
    contacts: Floats,
    towards: Facing,
    shape_fields: RecordFields,
    force: tuple[float, float, float],
    dt: float,
) -> None:
    """Move the body by one step of `dt` seconds among its obstacles.

    `motion`, shape (N_MOTION,), changes in place; `contacts` is scratch, shape (MOST_CONTACTS,
    N_COLUMNS); `towards` is `facing` of the heading; `shape_fields` are those of `Shape`. `force` is
    (Fx, Fy) of the world, N, at the body's origin, and the torque about it, N m.
    """
    shape = Shape(*shape_fields)
    inertia = shape.inertia
    c, s = towards
    dx = c * inertia[CENTROID_X] - s * inertia[CENTROID_Y]
    dy = s * inertia[CENTROID_X] + c * inertia[CENTROID_Y]
    omega = motion[YAW_RATE]
    turned = omega + dt * (force[2] - dx * force[1] + dy * force[0]) / inertia[INERTIA]
    ux = motion[VX] - omega * dy + dt * (force[0] / inertia[MASS] + omega * omega * dx)
    uy = motion[VY] + omega * dx + dt * (force[1] / inertia[MASS] + omega * omega * dy)
    n = find_contacts(motion, towards, shape, contacts)
    motion[IMPULSE] = 0.0
    if n > 0:
        set_targets((ux, uy, turned), inertia, contacts, n, dt)
        ux, uy, turned = resolve((ux, uy, turned), inertia, contacts, n)
        for i in range(n):
            motion[IMPULSE] += contacts[i, ALONG]
    motion[VX] = ux + turned * dy
    motion[VY] = uy - turned * dx
    motion[YAW_RATE] = turned
    motion[X] += dt * motion[VX]
    motion[Y] += dt * motion[VY]
    motion[HEADING] += dt * turned


class Hull(NamedTuple):
    """A rigid body in the plane, in its own frame (x forward, y left), for `step`.

    Attributes:
        inertia: Its mass, inertia about the centre of mass, centre of mass, own friction and
            restitution, and the distance of its farthest point from the origin; shape (N_INERTIA,).
        corners: Corners of its convex pieces one after the other, each counter-clockwise, metres,
            shape (n_corners, 2); a disc has one, its centre.
        pieces: First corner, number of corners of each piece, shape (n_pieces, 2).
        radii: Margin around a piece: the radius of a disc, 0 for a polygon; shape (n_pieces,).
    """

    inertia: Floats
    corners: Floats
    pieces: Ints
    radii: Floats


def load_hull(urdf: Path, link: str = "body") -> Hull:
    """Return the hull of one link of a URDF file.

    Raises:
        ValueError: If the link is missing, or has shapes other than spheres and Wavefront meshes.
    """
    link_element = ElementTree.parse(urdf).getroot().find(f"link[@name='{link}']")
    if link_element is None:
        raise ValueError(f"{urdf} has no link {link!r}")
    outlines = []
    margins = []
    for shape in link_element.iterfind("collision"):
        at = _numbers(shape.find("origin"), "xyz", "0 0 0")[:2]
        sphere = shape.find("geometry/sphere")
        mesh = shape.find("geometry/mesh")
        if sphere is not None:
            outlines.append(at.reshape(1, 2))
            margins.append(float(sphere.get("radius", "nan")))
        elif mesh is not None:
            outlines.append(at + convex(_seen_from_above(urdf.parent / mesh.get("filename", ""))))
            margins.append(0.0)
        else:
            raise ValueError(
                f"{urdf}: a collision shape of the link {link!r} is neither a sphere nor a mesh"
            )
    first = np.cumsum([0, *map(len, outlines)])
    corners = np.concatenate(outlines)
    radii = np.array(margins)
    reach = np.linalg.norm(corners, axis=1) + np.repeat(radii, np.diff(first))
    inertia = np.array(
        [
            *_numbers(link_element.find("inertial/mass"), "value", "nan"),
            *_numbers(link_element.find("inertial/inertia"), "izz", "nan"),
            *_numbers(link_element.find("inertial/origin"), "xyz", "0 0 0")[:2],
            *_numbers(link_element.find("contact/lateral_friction"), "value", "0.5"),
            *_numbers(link_element.find("contact/restitution"), "value", "0"),
            reach.max(),
        ]
    )
    return Hull(inertia, corners, np.column_stack([first[:-1], np.diff(first)]), radii)


def convex(points: Floats) -> Floats:
    """Return the corners of the convex hull of points in the plane, shape (n, 2), counter-clockwise.

    Source: Andrew (1979), the monotone chain.

    >>> convex(np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.3], [1.0, 1.0], [0.0, 1.0]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    """
    ordered = sorted({(float(x), float(y)) for x, y in points})
    lower = _chain(ordered)
    upper = _chain(ordered[::-1])
    return np.array(lower[:-1] + upper[:-1])


def _chain(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of the chain that has left turns only."""
    chain: list[tuple[float, float]] = []
    for x, y in ordered:
        while len(chain) > 1:
            (ax, ay), (bx, by) = chain[-2:]
            if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0.0:
                break
            chain.pop()
        chain.append((x, y))
    return chain


def _seen_from_above(mesh: Path) -> Floats:
    """Return x and y of the vertices of a Wavefront mesh, shape (n, 2)."""
    lines = mesh.read_text(encoding="utf-8").splitlines()
    return np.array(
        [[float(word) for word in line.split()[1:3]] for line in lines if line.startswith("v ")]
    )


def _numbers(element: ElementTree.Element | None, attribute: str, default: str) -> Floats:
    """Return the numbers of an attribute, or those of `default` without one."""
    text = default
    if element is not None:
        text = element.get(attribute, default)
    return np.array([float(word) for word in text.split()])


class PlanarBody:
    """A hull that slides and turns among fixed boxes. Its state is its motion.

    Attributes:
        shape: Body and obstacles for `step`.
        state: Pose and velocity, shape (N_MOTION,), changed in place.
        contacts: Scratch of `step`, shape (MOST_CONTACTS, N_COLUMNS).

    Args:
        hull: The body's shape and inertia.
        boxes: Obstacles: (centre x, centre y, size x, size y, height) in metres.
        tick_s: Time of one step, seconds.
    """

    is_restorable = True

    def __init__(self, hull: Hull, boxes: Sequence[Box], *, tick_s: float) -> None:
        inertia = hull.inertia.copy()
        inertia[FRICTION] *= WALL_FRICTION
        inertia[RESTITUTION] *= WALL_RESTITUTION
        rows = [(x, y, size_x / 2, size_y / 2) for x, y, size_x, size_y, _ in boxes]
        obstacles = np.array(rows, dtype=np.float64).reshape(-1, 4)
        self.shape = Shape(
            inertia=inertia,
            corners=hull.corners,
            pieces=hull.pieces,
            radii=hull.radii,
            obstacles=obstacles,
        )
        self._unloaded = inertia[[MASS, INERTIA]].copy()
        self._tick_s = tick_s
        self.state = np.zeros(N_MOTION)
        self.contacts = np.zeros((MOST_CONTACTS, N_COLUMNS))

    def load(self, factor: float) -> None:
        """Multiply the mass and the moment of inertia that the body's file has."""
        self.shape.inertia[[MASS, INERTIA]] = factor * self._unloaded

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose."""
        self.state[:] = 0.0
        self.state[:VX] = x, y, heading

    def save(self) -> State:
        """Return the body's state: its motion."""
        return {"motion": self.state.copy()}

    def restore(self, state: State) -> None:
        """Restore a state from `save`, in this or another process."""
        self.state[:] = state["motion"]

    def step(self, force: Sequence[float]) -> Motion:
        """Apply (Fx N, Fy N, torque N m) of the world frame for one tick and return the motion at its end."""
        fx, fy, torque = map(float, force)
        towards = facing(self.state[HEADING])
        shape_fields = tuple(self.shape)
        step(self.state, self.contacts, towards, shape_fields, (fx, fy, torque), self._tick_s)
        return self.motion

    @property
    def motion(self) -> Motion:
        """The body's pose and velocity."""
        return Motion(*self.state[:IMPULSE].tolist())

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""
        return float(self.state[IMPULSE])

    def close(self) -> None:
        """Do nothing: the body is arrays."""
