"""Hull: the body's shape in the plane from a robot's URDF, for the planar engine.

Both engines read the same file. From above, a link's sphere is a disc and its mesh a convex polygon; the mass of the
joints above the link is negligible.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hull:
    """A rigid body in the plane, in its own frame (x forward, y left), metres.

    Attributes:
        mass_kg: Mass.
        inertia_kg_m2: About the centre of mass.
        centroid_m: Centre of mass.
        friction: Coulomb's coefficient of its surface, to be multiplied by the other surface's.
        restitution: Share of the normal speed after a hit, likewise.
        corners_m: Corners of its convex pieces one after the other, each counter-clockwise, shape (n_corners, 2); a
            disc has one, its centre.
        pieces: First corner, number of corners of each piece, shape (n_pieces, 2).
        radii_m: Margin around a piece: the radius of a disc, 0 for a polygon; shape (n_pieces,).
        reach_m: Distance of the farthest point from the origin.
    """

    mass_kg: float
    inertia_kg_m2: float
    centroid_m: tuple[float, float]
    friction: float
    restitution: float
    corners_m: Floats
    pieces: NDArray[np.int64]
    radii_m: Floats
    reach_m: float


def load_hull(urdf: Path, link: str = "body") -> Hull:
    """Return the hull of one link of a URDF file.

    Raises:
        ValueError: If the link is missing, or has shapes other than spheres and Wavefront meshes.
    """
    found = ElementTree.parse(urdf).getroot().find(f"link[@name='{link}']")
    if found is None:
        raise ValueError(f"{urdf} has no link {link!r}")
    outlines, radii = [], []
    for shape in found.iterfind("collision"):
        at = _numbers(shape.find("origin"), "xyz", "0 0 0")[:2]
        sphere, mesh = shape.find("geometry/sphere"), shape.find("geometry/mesh")
        if sphere is not None:
            outlines.append(at.reshape(1, 2))
            radii.append(float(sphere.get("radius", "nan")))
        elif mesh is not None:
            outlines.append(at + convex(_seen_from_above(urdf.parent / mesh.get("filename", ""))))
            radii.append(0.0)
        else:
            raise ValueError(f"{urdf}: a collision shape of the link {link!r} is neither a sphere nor a mesh")
    first = np.cumsum([0, *map(len, outlines)])
    corners, radii_m = np.concatenate(outlines), np.array(radii)
    reach = np.linalg.norm(corners, axis=1) + np.repeat(radii_m, np.diff(first))
    centroid = _numbers(found.find("inertial/origin"), "xyz", "0 0 0")
    return Hull(
        mass_kg=float(_numbers(found.find("inertial/mass"), "value", "nan")[0]),
        inertia_kg_m2=float(_numbers(found.find("inertial/inertia"), "izz", "nan")[0]),
        centroid_m=(float(centroid[0]), float(centroid[1])),
        friction=float(_numbers(found.find("contact/lateral_friction"), "value", "0.5")[0]),
        restitution=float(_numbers(found.find("contact/restitution"), "value", "0")[0]),
        corners_m=corners,
        pieces=np.column_stack([first[:-1], np.diff(first)]),
        radii_m=radii_m,
        reach_m=float(reach.max()),
    )


def convex(points: Floats) -> Floats:
    """Return the corners of the convex hull of points in the plane, shape (n, 2), counter-clockwise.

    Source: Andrew (1979), the monotone chain.

    >>> convex(np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.3], [1.0, 1.0], [0.0, 1.0]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    """
    ordered = sorted({(float(x), float(y)) for x, y in points})
    lower, upper = _chain(ordered), _chain(ordered[::-1])
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
    return np.array([[float(word) for word in line.split()[1:3]] for line in lines if line.startswith("v ")])


def _numbers(element: ElementTree.Element | None, attribute: str, default: str) -> Floats:
    """Return the numbers of an attribute, or those of `default` without one."""
    text = default if element is None else element.get(attribute, default)
    return np.array([float(word) for word in text.split()])
