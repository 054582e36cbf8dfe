"""Load a workload: a name from models/, a path to a model file, or the same description as a mapping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from numbers import Real
from pathlib import Path

import yaml

from poseidon_sim.errors import InputError, UnreadableFileError, unknown_name
from poseidon_sim.workload.entry import Entry
from poseidon_sim.workload.layer import ELEMENT_BYTES, Workload
from poseidon_sim.workload.shapes import infer_layers
from poseidon_sim.workload.transformer import transformer_description

_STRUCTURE_KEYS = frozenset(("input", "layers", "blocks", "defaults", "transformer", "parameters", "notes"))
_OVERRIDES = frozenset(
    (
        "name",
        "sample",
        "source",
        "single_gpu_throughput",
        "single_gpu_batch_size",
        "issue_time",
        "batch_size",
        "precision",
        "optimizer",
        "sequence_length",
    )
)
_KEYS = _STRUCTURE_KEYS | _OVERRIDES
OPTIMIZER_BYTES = {"sgd": 0.0, "momentum": 4.0, "adam": 8.0}
_SUFFIXES = (".yaml", ".yml", ".json")

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML without its C library
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]


class _StrictLoader(_BaseLoader):
    """YAML without silence: a key given twice is an error, not the last one wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        """Build a mapping after looking for keys given twice."""
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep=deep)


def load_model(model: str | os.PathLike[str] | Mapping[str, object], /, **overrides: object) -> Workload:
    """Return the workload of a named network, a model file or an inline description.

    Parameters
    ----------
    model : a name such as "vgg19" (see `list_models`; "VGG-19" is the same), a path that ends in .yaml, .yml
        or .json, or a mapping with `layers` or `transformer`.
    **overrides : model-level keys that replace those of the description: name, sample, source, batch_size,
        single_gpu_throughput (samples/s), single_gpu_batch_size (samples a pass at which it was measured), issue_time, precision,
        optimizer, sequence_length. None leaves a key as it is.

    Raises
    ------
    UnknownNameError : no such model.
    UnreadableFileError : the file is missing or is not YAML.
    InputError : anything else that is wrong with the description.

    Examples
    --------
    >>> load_model("vgg19").parameters
    143667240
    >>> load_model("vgg19", precision="fp16").gradient_bytes
    287334480.0
    >>> architecture = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 100}
    >>> load_model({"transformer": architecture}, sequence_length=16).sample
    'sequence'
    """
    changes = {key: value for key, value in overrides.items() if value is not None}
    Entry(changes, "load_model").check_keys(_OVERRIDES)
    if isinstance(model, Mapping):
        return _workload(model, changes, "model")
    path = os.fspath(model) if isinstance(model, str | os.PathLike) else ""
    if not isinstance(path, str) or not path.strip():
        raise InputError(f"model={model!r} must be a name, a path or a mapping with layers")
    if isinstance(model, os.PathLike) or path.lower().endswith(_SUFFIXES) or "/" in path or os.sep in path:
        return _workload(_read(Path(path)), changes, f"model {Path(path).stem!r}")
    for key, value in changes.items():
        if not isinstance(value, str | Real):
            raise InputError(f"{key}={value!r} must be text or a number")
    return _load_named(_canonical(path), tuple(sorted(changes.items())))


def list_models() -> tuple[str, ...]:
    """Return the names of the models that come with the package, sorted; nothing is parsed.

    Examples
    --------
    >>> "resnet50" in list_models()
    True
    """
    return tuple(sorted(path.stem for path in _models_folder().glob("*.yaml")))


def _models_folder() -> Path:
    """Return where model files lie: inside an installed package, or beside it in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_models"
    return installed if installed.is_dir() else package.parent / "models"


@lru_cache(maxsize=256)
def _canonical(name: str) -> str:
    """Return the known name that differs at most in case and punctuation."""
    plain = _plain(name)
    for known in list_models():
        if _plain(known) == plain:
            return known
    raise unknown_name("model", name, list_models())


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@lru_cache(maxsize=256, typed=True)
def _load_named(name: str, changes: tuple[tuple[str, object], ...]) -> Workload:
    return _workload(_read(_models_folder() / f"{name}.yaml"), dict(changes), f"model {name!r}")


def read_yaml(text: str, what: str) -> object:
    """Parse YAML strictly; a key given twice, and anything that is not YAML, is an UnreadableFileError with its line."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise UnreadableFileError(f"cannot parse {what}{where}: {problem}") from error


def _read(path: Path) -> Mapping[str, object]:
    """Parse a model file; a mapping must come out."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UnreadableFileError(f"cannot read the model file {str(path)!r}: {reason}") from error
    description = read_yaml(text, f"the model file {str(path)!r}")
    if not isinstance(description, Mapping):
        raise InputError(f"the model file {str(path)!r} must hold a mapping with name and layers")
    return {"name": path.stem, **description}


def _workload(written: Mapping[str, object], changes: Mapping[str, object], label: str) -> Workload:
    """Build the workload a description stands for."""
    entry = Entry({**written, **changes}, label)
    entry.check_keys(_KEYS)
    if ("layers" in entry) == ("transformer" in entry):
        raise entry.error("give either layers: [...] or transformer: {layers: ..., hidden: ..., ...}")
    sequence_length = entry.count("sequence_length") if "sequence_length" in entry else None
    layers, blocks = _structure(entry, sequence_length)
    workload = Workload(
        name=entry.text("name", "model"),
        layers=infer_layers(
            layers,
            input_shape=entry.shape("input") if "input" in entry else None,
            sequence_length=sequence_length,
            blocks=blocks,
            defaults=_mapping(entry, "defaults"),  # type: ignore[arg-type]
        ),
        sample=entry.text("sample", "image" if sequence_length is None else "sequence"),
        source=entry.text("source") if "source" in entry else "",
        single_gpu_throughput=entry.number("single_gpu_throughput")
        if "single_gpu_throughput" in entry
        else None,
        single_gpu_batch_size=entry.count("single_gpu_batch_size") if "single_gpu_batch_size" in entry else None,
        issue_time=entry.time("issue_time"),
        batch_size=entry.count("batch_size") if "batch_size" in entry else None,
        precision=entry.choice("precision", tuple(ELEMENT_BYTES), "fp32"),
        element_bytes=ELEMENT_BYTES[entry.choice("precision", tuple(ELEMENT_BYTES), "fp32")],
        optimizer_bytes=OPTIMIZER_BYTES[entry.choice("optimizer", tuple(OPTIMIZER_BYTES), "momentum")],
        notes=_notes(entry),
    )
    if workload.single_gpu_batch_size and workload.single_gpu_throughput is None and not workload.has_times:
        raise entry.error(f"single_gpu_batch_size={workload.single_gpu_batch_size} needs single_gpu_throughput, or times of layers")
    if "parameters" in entry and entry.count("parameters") != workload.parameters:
        stated = entry.count("parameters")
        raise entry.error(
            f"parameters={stated} but its layers have {workload.parameters}; correct one of them"
        )
    return workload


def _structure(entry: Entry, sequence_length: int | None) -> tuple[object, Mapping[str, object]]:
    """Return (layers, blocks) as written, or as the numbers of a transformer spell them out."""
    if "transformer" not in entry:
        return entry.values["layers"], _mapping(entry, "blocks")
    if sequence_length is None:
        raise entry.error("a transformer needs sequence_length: positions per sample, for example 1024")
    for key in ("input", "blocks", "defaults"):
        if key in entry:
            raise entry.error(f"{key} has no effect on a transformer; drop it")
    return transformer_description(_mapping(entry, "transformer"), sequence_length)


def _mapping(entry: Entry, key: str) -> Mapping[str, object]:
    value = entry.values.get(key, {})
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise entry.error(f"{key}={value!r} must be a mapping from names")
    if key == "defaults" and not all(isinstance(each, Mapping) for each in value.values()):
        raise entry.error(f"{key}={value!r} must map kinds to mappings, for example {{conv: {{kernel: 3}}}}")
    return value


def _notes(entry: Entry) -> tuple[str, ...]:
    notes = entry.values.get("notes", [])
    if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
        raise entry.error("notes must be a list of sentences")
    return tuple(notes)
