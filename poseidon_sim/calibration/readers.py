"""Readers of nccl-tests, OSU micro-benchmarks, perftest (ib_write_bw) and iperf3, told apart by what is in the file.

Units differ by tool: nccl-tests and OSU print GB/s and MB/s of 10^9 and 10^6 bytes, perftest MiB/s unless asked for Gb/s,
iperf3 bits per second. Of nccl-tests the out-of-place figures are taken, of iperf3 what the receiver got.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poseidon_sim.errors import InputError, UnreadableFileError

MAX_BYTES = 50_000_000
#: what mpirun puts before each line of a process
_TAG = re.compile(r"^\[\d+(,\d+)?\](<std\w+>)?:?\s*")
_OPERATIONS = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "alltoall": "all-to-all",
    "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "send-receive", "allreduce": "all-reduce", "allgather": "all-gather",
    "bcast": "broadcast",
}  # fmt: skip
_KNOWN = "nccl-tests (text or -J), OSU micro-benchmarks, ib_write_bw (text or --out_json), iperf3 -J"


@dataclass(frozen=True)
class Measurement:
    """One figure of a log.

    `time` is seconds of one operation on `size` bytes (per rank), `bandwidth` bytes/s of a stream; one of them may be None.
    `ranks` and `nodes` are 0 when the log does not tell. `where` is file:line, `flows` how many streams
    share `bandwidth` (iperf3 -P).
    """

    tool: str
    operation: str
    size: float
    time: float | None
    bandwidth: float | None
    ranks: int
    nodes: int
    where: str
    flows: int = 1


def read_measurements(path: str | Path) -> list[Measurement]:
    """Read one log.

    Raises
    ------
    UnreadableFileError : missing, too large, not text, or of no known tool. InputError : a line of it makes no sense.
    """
    text = _text(path)
    name = str(path)
    stripped = text.lstrip()
    if stripped.startswith("{"):
        found = list(_from_json(stripped, name))
    elif "algbw" in text:
        found = list(_nccl_text(text, name))
    elif "# OSU MPI" in text:
        found = list(_osu(text, name))
    elif "BW average[" in text:
        found = list(_perftest(text, name))
    else:
        raise UnreadableFileError(f"{name}: is not the output of a tool we know; give one of {_KNOWN}")
    if not found:
        raise InputError(f"{name}: holds no measurement (cut short?); run the benchmark again and keep its whole output")
    return found


def _text(path: str | Path) -> str:
    try:
        size = Path(path).stat().st_size
        if size > MAX_BYTES:
            raise UnreadableFileError(f"{path}: {size / 1e6:.0f} MB are too large for a benchmark's log; give the log alone")
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{path}: is not text (byte {error.start}); give the tool's text or JSON output") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(f"{path}: cannot be read ({reason}); give the path of a benchmark's log") from None


def _number(text: str, where: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {what}={text!r} is not a number; the line is damaged, run the benchmark again") from None
    if not 0 <= value < 1e18:
        raise InputError(f"{where}: {what}={text} must be a number from 0 on; the line is damaged, run the benchmark again")
    return value


def _nccl_text(text: str, name: str) -> Iterator[Measurement]:
    ranks: dict[int, str] = {}
    operation, columns = "all-reduce", 0
    for index, raw in enumerate(text.splitlines(), 1):
        line = _TAG.sub("", raw).strip()
        where = f"{name}:{index}"
        if started := re.search(r"test starting: (\w+?)_perf", line):
            operation = _OPERATIONS.get(started[1], started[1])
        if rank := re.match(r"#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)", line):
            ranks[int(rank[1])] = rank[2]
        if "algbw" in line:
            columns = line.replace("#wrong", "wrong").split().index("algbw")
        if not line or not line[0].isdigit():
            continue
        fields = line.split()
        time_at = 5 if len(fields) >= 13 else 4  # older builds have no root column
        if len(fields) < time_at + 3 or not columns:
            raise InputError(f"{where}: has {len(fields)} columns, a line of nccl-tests has 12 or 13; the log is cut or mixed")
        size, micros = _number(fields[0], where, "size"), _number(fields[time_at], where, "time")
        if size > 0 and micros > 0:
            yield Measurement("nccl-tests", operation, size, micros * 1e-6, None, len(ranks), len(set(ranks.values())), where)


def _osu(text: str, name: str) -> Iterator[Measurement]:
    title, quantity = "", ""
    for index, raw in enumerate(text.splitlines(), 1):
        line = _TAG.sub("", raw).strip()
        where = f"{name}:{index}"
        if line.startswith("#"):
            if found := re.match(r"# OSU MPI\S*\s+(.+?)\s+Test", line):
                title = found[1].lower()
            if line.startswith("# Size"):
                quantity = "bandwidth" if "MB/s" in line else "time"
            continue
        if not line or not line[0].isdigit():
            continue
        fields = line.split()
        if len(fields) < 2 or not quantity:
            raise InputError(f"{where}: a line of OSU has a size and a figure under a '# Size' header; the log is cut or mixed")
        size, figure = _number(fields[0], where, "size"), _number(fields[1], where, quantity)
        word = title.split()[0] if title else ""
        operation = _OPERATIONS.get(word, "point-to-point")
        if quantity == "time" and figure > 0:
            yield Measurement("osu", operation, size, figure * 1e-6, None, 0 if operation != "point-to-point" else 2, 0, where)
        elif quantity == "bandwidth" and figure > 0:
            yield Measurement("osu", "stream", size, None, figure * 1e6, 2, 2, where)


def _perftest(text: str, name: str) -> Iterator[Measurement]:
    scale = 0.0
    for index, raw in enumerate(text.splitlines(), 1):
        line, where = raw.strip(), f"{name}:{index}"
        if "BW average[" in line:
            unit = line.split("BW average[", 1)[1].split("]")[0].lower()
            scales = {"gb/sec": 1e9 / 8, "mib/sec": 2.0**20, "mb/sec": 1e6}
            if unit not in scales:
                raise InputError(f"{where}: the unit {unit!r} is none of Gb/sec, MiB/sec, MB/sec; is this ib_write_bw's output?")
            scale = scales[unit]
        elif scale and line[:1].isdigit():
            fields = line.split()
            if len(fields) < 4:
                raise InputError(f"{where}: has {len(fields)} columns, a line of ib_write_bw has 5; the log is cut")
            rate = _number(fields[3], where, "BW average") * scale
            yield Measurement("perftest", "stream", _number(fields[0], where, "#bytes"), None, rate, 2, 2, where)


def _from_json(text: str, name: str) -> Iterator[Measurement]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{name}: is not JSON ({error}); the file is cut or damaged, run the benchmark again") from None
    kinds: list[tuple[bool, Callable[[Any, str], Iterator[Measurement]]]] = [
        ("error" in document or "end" in document, _iperf3),
        (isinstance(document.get("results"), list), _nccl_json),
        (isinstance(document.get("results"), dict), _perftest_json),
    ]
    for fits, reader in kinds:
        if fits:
            try:
                yield from reader(document, name)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise InputError(f"{name}: lacks {error} where the tool writes it; the file is cut or of another version") from None
            return
    raise UnreadableFileError(f"{name}: is not the output of a tool we know; give one of {_KNOWN}")


def _iperf3(document: Any, name: str) -> Iterator[Measurement]:
    if "error" in document:
        raise InputError(f"{name}: iperf3 failed: {document['error']}; run it again")
    end = document["end"]
    total = end.get("sum_received") or end["sum"]
    rate = _number(str(total["bits_per_second"]), name, "end.sum_received.bits_per_second") / 8
    if rate > 0:
        flows = document.get("start", {}).get("test_start", {}).get("num_streams", 1)
        if isinstance(flows, bool) or not isinstance(flows, int) or not 1 <= flows <= 10_000:
            raise InputError(f"{name}: start.test_start.num_streams={flows!r} must be a number of streams; the file is damaged")
        yield Measurement("iperf3", "stream", 0.0, None, rate, 2, 2, name, flows)


def _nccl_json(document: Any, name: str) -> Iterator[Measurement]:
    devices = document.get("devices", [])
    nodes = len({each["hostname"] for each in devices})
    ranks = len(devices)
    started = re.search(r"(\w+?)_perf", " ".join(map(str, document.get("args", [])[:1])))
    operation = _OPERATIONS.get(started[1], started[1]) if started else "all-reduce"
    for index, row in enumerate(document["results"]):
        where = f"{name}: results[{index}]"
        size, micros = _number(str(row["size"]), where, "size"), _number(str(row["out_of_place"]["time"]), where, "time")
        if size > 0 and micros > 0:
            yield Measurement("nccl-tests", operation, size, micros * 1e-6, None, ranks, nodes, where)


def _perftest_json(document: Any, name: str) -> Iterator[Measurement]:
    results = document["results"]
    size, messages = (_number(str(results[key]), name, key) for key in ("MsgSize", "MsgRate"))
    rate = messages * 1e6 * size  # the unit of BW_average is written nowhere, that of MsgRate is always millions
    if rate > 0:
        yield Measurement("perftest", "stream", size, None, rate, 2, 2, name)
