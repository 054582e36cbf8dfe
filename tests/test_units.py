"""Quantities at the border: what is read, what is refused, and what the refusal says."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poseidon_sim import units
from poseidon_sim.errors import UnitError

PARSERS = [
    units.parse_rate,
    units.parse_size,
    units.parse_time,
    units.parse_flops,
    units.parse_share,
    units.parse_money,
]
EXAMPLES = {
    units.parse_rate: "40 Gbit/s",
    units.parse_size: "64 MiB",
    units.parse_time: "5 us",
    units.parse_flops: "6.14 TFLOP/s",
    units.parse_share: "94 %",
    units.parse_money: "3.06 USD/h",
}


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_rate, "40 Gbit/s", 5e9),
        (units.parse_rate, "40Gbit/s", 5e9),
        (units.parse_rate, "40 Gbps", 5e9),
        (units.parse_rate, "10 Gb/s", 1.25e9),
        (units.parse_rate, "12 GB/s", 12e9),
        (units.parse_rate, "3 GiB/s", 3 * 2**30),
        (units.parse_rate, "3 Gibit/s", 3 * 2**30 / 8),
        (units.parse_rate, "100 Mbit/s", 12.5e6),
        (units.parse_rate, " 1e3 kB/s ", 1e6),
        (units.parse_size, "64 MiB", 64 * 2**20),
        (units.parse_size, "2 MB", 2e6),
        (units.parse_size, "25MB", 25e6),
        (units.parse_size, "80 Mbit", 10e6),
        (units.parse_time, "5 us", 5e-6),
        (units.parse_time, "5 µs", 5e-6),
        (units.parse_time, "3 ms", 3e-3),
        (units.parse_time, "2 s", 2.0),
        (units.parse_time, "1.5 min", 90.0),
        (units.parse_time, ".5 h", 1800.0),
        (units.parse_flops, "6.14 TFLOP/s", 6.14e12),
        (units.parse_flops, "6.14 TFLOPS", 6.14e12),
        (units.parse_share, 0.94, 0.94),
        (units.parse_share, "94 %", 0.94),
        (units.parse_share, 1, 1.0),
        (units.parse_money, "3.06 USD/h", 3.06),
    ],
)
def test_a_quantity_with_its_unit_becomes_a_plain_si_number(parse, text, value):
    assert parse(text, "key") == pytest.approx(value, rel=1e-15)
    assert type(parse(text, "key")) is float


def test_whole_figures_come_out_exactly():
    """3 ms is 0.003 and not 0.003 plus a rounding error, so that equal inputs give equal bits."""
    assert units.parse_time("3 ms", "t") == 0.003
    assert units.parse_time("7 us", "t") == 7e-6
    assert units.parse_rate("10 Gbit/s", "r") == 1.25e9


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "40 GB",
            'network="40 GB" is a size, not a rate; write "40 GB/s" or, for a network link, '
            '"40 Gbit/s" (= 5 GB/s)',
        ),
        ("40 Gbit", 'network="40 Gbit" is a size, not a rate; write "40 Gbit/s" (= 5 GB/s)'),
        (40, 'network=40 has no unit; write for example "40 Gbit/s" or "40 GB/s"'),
        ("40", 'network="40" has no unit; write for example "40 Gbit/s" or "40 GB/s"'),
        (
            "40 gbps",
            'network="40 gbps": "gbps" is not a unit of a rate; did you mean "40 Gbps" or "40 GBps"?',
        ),
        ("0 GB/s", 'network="0 GB/s" must be above zero; write for example "40 Gbit/s" or "12 GB/s"'),
        (None, 'network=None is empty; write for example "40 Gbit/s" or "12 GB/s"'),
    ],
)
def test_a_message_says_what_was_given_the_rule_and_what_to_write(value, message):
    with pytest.raises(UnitError) as caught:
        units.parse_rate(value, "network")
    assert str(caught.value) == message


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "value", [True, False, None, "", "  ", [], {}, math.nan, math.inf, -1, "-1 s", "nan s", b"1 s"]
)
def test_what_is_no_quantity_is_refused_by_every_parser(parse, value):
    with pytest.raises(UnitError, match="key"):
        parse(value, "key")


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("other", PARSERS)
def test_a_unit_of_another_dimension_is_refused(parse, other):
    if parse is not other:
        with pytest.raises(UnitError):
            parse(EXAMPLES[other], "key")


def test_zero_is_allowed_only_where_it_means_something():
    assert units.parse_time("0 s", "latency", allow_zero=True) == 0.0
    assert units.parse_size("0 B", "size", allow_zero=True) == 0.0
    assert units.parse_share(0, "share", allow_zero=True) == 0.0
    for parse, zero in (
        (units.parse_time, "0 s"),
        (units.parse_rate, "0 GB/s"),
        (units.parse_flops, "0 FLOP/s"),
        (units.parse_share, 0),
    ):
        with pytest.raises(UnitError):
            parse(zero, "key")


def test_a_share_above_one_names_the_percentage():
    with pytest.raises(UnitError, match=r'0\.94 or "94 %"'):
        units.parse_share(94, "efficiency")


@given(st.floats(1e-2, 9e17))
def test_a_formatted_rate_reads_back_to_four_figures(value):
    assert units.parse_rate(units.format_rate(value), "r") == pytest.approx(value, rel=5.1e-4)
    assert units.parse_rate(units.format_rate(value, bits=True), "r") == pytest.approx(value, rel=5.1e-4)


@given(st.floats(1e-2, 9e17))
def test_a_formatted_size_reads_back_to_four_figures(value):
    assert units.parse_size(units.format_size(value), "s") == pytest.approx(value, rel=5.1e-4)


@given(st.floats(1e-12, 9e8))
def test_a_formatted_time_reads_back_to_four_figures(value):
    assert units.parse_time(units.format_time(value), "t") == pytest.approx(value, rel=5.1e-4)


@given(st.floats(1e-2, 1e5), st.sampled_from(["k", "M", "G", "T"]))
def test_a_byte_is_eight_bits_under_every_prefix(number, prefix):
    in_bytes = units.parse_rate(f"{number!r} {prefix}B/s", "r")
    assert in_bytes == pytest.approx(8 * units.parse_rate(f"{number!r} {prefix}bit/s", "r"), rel=1e-14)


@given(
    st.one_of(
        st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.binary(), st.lists(st.text())
    )
)
def test_garbage_never_raises_anything_but_a_unit_error(value):
    for parse in PARSERS:
        with contextlib.suppress(UnitError):
            assert parse(value, "key") >= 0.0


@given(
    st.from_regex(r"\A[+-]?[0-9]{1,400}(\.[0-9]*)?(e[0-9]{1,3})? ?[KMGTi]{0,2}(b|B|bit|s|FLOP/s|%)(/s)?\Z")
)
def test_what_looks_like_a_quantity_is_a_finite_number_or_a_unit_error(text):
    for parse in PARSERS:
        with contextlib.suppress(UnitError):
            assert math.isfinite(parse(text, "key"))


@pytest.mark.parametrize(
    ("parse", "text"),
    [(units.parse_rate, "1e-300 Gbit/s"), (units.parse_rate, "1e30 GB/s"), (units.parse_size, "1e300 MB"), (units.parse_time, "1e30 s"), (units.parse_flops, "1e40 FLOP/s")],
)
def test_a_figure_beyond_any_cluster_is_a_slip_of_the_pen(parse, text):
    with pytest.raises(UnitError, match=r"is too (large|small) to be a"):
        parse(text, "key")
