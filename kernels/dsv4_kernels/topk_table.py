"""The top-k kernels' tuned configurations: data alone, one list a card, chosen by k."""

from __future__ import annotations

from dataclasses import dataclass, replace

RUN = 4  # as topk_select's: entries that lie together in a group


@dataclass(frozen=True)
class TopKConfig:
    """`max_k`: the largest k it serves.

    A group of a row's entries is `runs` runs of four neighbours. One program holds `room` groups: so many entries (`held`) are
    selected from at once, and of longer rows the entries of as many groups, those with the largest maxima. `direct`: a smaller
    number of entries that short rows are held as.

    The first pass takes `chunk` groups at a time, in about `programs` programs of `read_warps` for all rows together;
    `list_warps` are the second's. The third has `select_warps` where rows may be longer than what is held, and `held_warps`
    where none can be. `pdl`: each launch overlaps the one before it.
    """

    max_k: int
    room: int
    runs: int
    direct: int
    chunk: int
    programs: int
    read_warps: int
    list_warps: int
    select_warps: int
    held_warps: int
    pdl: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for sizes with which a kernel would write out of bounds or miss a score."""
        tiles = ("max_k", "room", "runs", "direct", "chunk")
        odd = {name: size for name in tiles if (size := getattr(self, name)) < 1 or size & (size - 1)}
        if odd:
            raise ValueError(f"{odd} must be powers of two: each is the width of a tile")
        if 4 * self.room < 5 * self.max_k:
            raise ValueError(
                f"room {self.room} must be at least 1.25 max_k ({self.max_k}): so many groups can be listed"
            )
        if self.direct > self.held:
            raise ValueError(f"direct {self.direct} is more than the {self.held} entries that one program holds")
        if self.programs < 1:
            raise ValueError(f"programs is {self.programs}: at least one must read")

    @property
    def held(self) -> int:
        """Entries that one program holds."""
        return RUN * self.runs * self.room

    def chunks_of(self, limit: int) -> int:
        """Chunks of groups that cover ``limit`` entries."""
        return -(-limit // (RUN * self.runs * self.chunk))

    def programs_of(self, rows: int, limit: int) -> int:
        """Programs of the first pass for each of ``rows`` rows: not more for longer ones, so that time follows lengths."""
        return max(1, min(self.chunks_of(limit), self.programs // rows))

    def gather_warps(self, listed: bool) -> int:
        """Warps of the third pass, where rows may be longer than what is held, or can't."""
        return self.select_warps if listed else self.held_warps


_V4 = TopKConfig(
    max_k=512,
    room=1024,
    runs=4,
    direct=4096,
    chunk=128,
    programs=2048,
    read_warps=4,
    list_warps=8,
    select_warps=16,
    held_warps=8,
    pdl=True,
)
# Larger k: smaller groups, so that a program holds as many entries.
_MORE = (
    replace(_V4, max_k=1024, room=2048, runs=2, list_warps=16, held_warps=16),
    replace(_V4, max_k=2048, room=4096, runs=1, list_warps=16, held_warps=16),
)
TABLE: dict[str, tuple[TopKConfig, ...]] = {
    "sm_90": (_V4, *_MORE),
    # As Hopper's, which was timed. Launches that overlap have run on no such card.
    "sm_120": tuple(replace(config, pdl=False) for config in (_V4, *_MORE)),
    # Under the interpreter a program costs tens of milliseconds: few of them, and lists of short rows already.
    "interpreter": (replace(_V4, runs=1, direct=1024, chunk=64, programs=8), *_MORE),
}


def choose(card: str, topk: int) -> TopKConfig:
    """Return the first configuration of `card` that serves `topk`; raise ValueError if there is none."""
    for config in TABLE[card]:
        if 1 <= topk <= config.max_k:
            return config
    raise ValueError(f"topk is {topk}; the kernel takes 1 to {TABLE[card][-1].max_k}")
