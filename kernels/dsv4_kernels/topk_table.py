"""The top-k kernels' tuned configurations: data alone, one list a card, chosen by k."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TopKConfig:
    """`max_k`: the largest k it serves. Rows up to `direct` entries long are selected from without narrowing.

    Longer ones are narrowed by `splits` programs, each of which reads `step` entries at a time, takes the maxima of
    `groups` groups and has room for `above_room` candidates above the floor and `tie_room` equal to it. With `wide` they
    read four entries at once where the scores' width is a multiple of four. `pdl`: each launch overlaps the one before it.

    With `room` (at least 1.25 `max_k`) rows are gathered from instead, by `topk_gather_kernels`: up to 16 times `room` entries
    are selected from without narrowing, and of longer rows that many entries of the groups that `room` can list. The first pass
    takes `chunk` groups at a time, in about `programs` programs for all rows together. `narrow_warps` are its warps,
    `floor_warps` the list's.
    """

    max_k: int
    direct: int
    splits: int
    groups: int
    tie_room: int
    floor_warps: int
    narrow_warps: int
    select_warps: int
    step: int = 4096
    wide: bool = False
    pdl: bool = False
    room: int = 0
    chunk: int = 512
    programs: int = 512

    def __post_init__(self) -> None:
        """Raise ValueError for sizes with which a kernel would write out of bounds or miss a score."""
        tiles = ("max_k", "direct", "splits", "groups", "tie_room", "step", "chunk", *(["room"] if self.room else []))
        odd = {name: size for name in tiles if (size := getattr(self, name)) < 1 or size & (size - 1)}
        if odd:
            raise ValueError(f"{odd} must be powers of two: each is the width of a tile")
        if self.room and 4 * self.room < 5 * self.max_k:
            raise ValueError(
                f"room {self.room} must be at least 1.25 max_k ({self.max_k}): so many groups can be listed"
            )
        if self.room and self.direct > self.held:
            raise ValueError(f"direct {self.direct} is more than the {self.held} entries that one program holds")
        if self.programs < 1:
            raise ValueError(f"programs is {self.programs}: at least one must read")
        if self.splits * self.groups < self.max_k:
            raise ValueError(f"{self.splits} splits of {self.groups} groups have fewer maxima than max_k {self.max_k}")
        if self.splits > self.direct:
            raise ValueError(f"direct {self.direct} leaves {self.splits} splits no room for candidates")
        if not self.groups <= self.step < 1 << 16:
            raise ValueError(f"step {self.step} must hold {self.groups} groups, and be counted in 16 bits")

    @property
    def held(self) -> int:
        """Entries that one program of the gathering selection holds."""
        return 16 * self.room

    def chunks_of(self, limit: int) -> int:
        """Chunks of groups of sixteen that cover ``limit`` entries."""
        return -(-limit // (16 * self.chunk))

    def programs_of(self, rows: int, limit: int) -> int:
        """Programs of the first pass for each of ``rows`` rows: not more for longer ones, so that time follows lengths."""
        return max(1, min(self.chunks_of(limit), self.programs // rows))

    @property
    def above_room(self) -> int:
        return self.direct // self.splits


_ALL = (
    TopKConfig(
        max_k=512, direct=4096, splits=16, groups=128, tie_room=128, floor_warps=4, narrow_warps=8, select_warps=8
    ),
    TopKConfig(
        max_k=2048, direct=8192, splits=16, groups=256, tie_room=256, floor_warps=4, narrow_warps=8, select_warps=16
    ),
)
TABLE: dict[str, tuple[TopKConfig, ...]] = {
    "sm_90": _ALL,
    "sm_120": _ALL,
    # Under the interpreter a program costs tens of milliseconds: few of them, and narrowing of short rows already.
    "interpreter": (
        TopKConfig(
            max_k=512,
            direct=1024,
            splits=4,
            groups=256,
            tie_room=256,
            floor_warps=4,
            narrow_warps=4,
            select_warps=4,
            wide=True,
        ),
        *_ALL[1:],
    ),
}


def choose(card: str, topk: int) -> TopKConfig:
    """Return the first configuration of `card` that serves `topk`; raise ValueError if there is none."""
    for config in TABLE[card]:
        if 1 <= topk <= config.max_k:
            return config
    raise ValueError(f"topk is {topk}; the kernel takes 1 to {TABLE[card][-1].max_k}")
