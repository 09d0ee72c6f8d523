"""Models of devices, and the measurement that a perfect instrument would make of them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from zvault.core.tuning.measurement import (
    LARGEST_MERGED,
    BandwidthKnee,
    MeasuredPoint,
    choose_next_point,
    find_knee,
    index_points,
)


@dataclass(frozen=True)
class Model:
    """A device: so many requests side by side, each ``latency`` seconds and its bytes at ``rate``."""

    slots: int
    latency: float
    rate: float

    def point(self, size: int, depth: int) -> MeasuredPoint:
        """What a perfect measurement would say."""
        alone = self.latency + size / self.rate
        busy = min(depth, self.slots)
        return MeasuredPoint(size, depth, busy * size / alone, alone * depth / busy)


def search(model: Model, largest: int = LARGEST_MERGED) -> tuple[list[MeasuredPoint], BandwidthKnee]:
    points: list[MeasuredPoint] = []
    while (place := choose_next_point(index_points(points), largest)) is not None:
        points.append(model.point(*place))
        assert len(points) < 30, "it does not end"
    return points, find_knee(index_points(points), largest)


HDD, SSD, S3 = Model(4, 0.035, 60e6), Model(16, 0.002, 100e6), Model(32, 0.030, 10e6)
SMR = Model(2, 0.080, 30e6)
MODELS = st.builds(
    Model,
    slots=st.integers(1, 64),
    latency=st.floats(0.0001, 0.5),
    rate=st.floats(1e6, 1e9),
)
