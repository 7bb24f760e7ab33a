"""A tuner chooses what is right, fits and is faster by more than noise, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from dsv4_kernels.sparse_mla_table import TABLE

from perfgate.kernelbench.tuning import Candidate, best, candidates, varied


@dataclass(frozen=True)
class Tile:
    width: int
    warps: int


@dataclass(frozen=True)
class Row:
    max_rows: int
    tile: Tile


NOW = Row(8, Tile(64, 4))


def timed(width, **times):
    return Candidate(Row(8, Tile(width, 4)), "", times)


def test_a_nested_field_is_varied_and_the_rest_stays():
    assert varied(NOW, "tile.warps", 8) == Row(8, Tile(64, 8))
    assert varied(NOW, "max_rows", 16) == Row(16, Tile(64, 4))
    with pytest.raises(AttributeError, match="wraps"):
        varied(NOW, "tile.wraps", 8)


def test_candidates_are_every_combination_once_the_present_row_first():
    found = candidates(NOW, {"tile.width": [32, 64], "tile.warps": [4, 8]})
    assert found[0] == NOW
    assert len(found) == 4 == len({(row.tile.width, row.tile.warps) for row in found})


def test_a_combination_that_makes_no_row_is_left_out():
    row = TABLE["sm_90"][-2]
    assert row.config.kernel == "hopper"
    found = candidates(row, {"config.block_n": [32, 64], "min_tiles": [1, 2]})
    assert [(one.config.block_n, one.min_tiles) for one in found] == [(64, 2), (64, 1)]


def test_the_fastest_over_all_shapes_wins():
    # 128 gains 40 % on one shape and loses 50 % on the other; 32 gains 10 % on both.
    tried = [timed(64, a=10.0, b=10.0), timed(128, a=6.0, b=15.0), timed(32, a=9.0, b=9.0)]
    assert best(tried).row.tile.width == 32


def test_a_gain_within_noise_does_not_displace_the_present_row():
    assert best([timed(64, a=10.0), timed(32, a=9.9)]).row.tile.width == 64
    assert best([timed(64, a=10.0), timed(32, a=9.7)]).row.tile.width == 32


def test_what_was_refused_or_not_timed_on_every_shape_is_not_chosen():
    refused = Candidate(Row(8, Tile(32, 4)), "101,377 bytes of shared memory", {"a": 1.0, "b": 1.0})
    half = timed(16, a=1.0)
    assert best([timed(64, a=10.0, b=10.0), refused, half]).row.tile.width == 64


def test_a_present_row_that_no_longer_fits_is_displaced_whatever_it_took():
    tried = [Candidate(NOW, "does not compile"), timed(32, a=12.0), timed(16, a=11.0)]
    assert best(tried).row.tile.width == 16


def test_nothing_to_choose_from_is_an_error():
    with pytest.raises(ValueError, match="no configuration"):
        best([Candidate(NOW, "does not compile")])
