"""From "module:callable" to a torch model with inputs of the wanted batch on its device."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poseidon_sim.calibration.torch_parts import tensors_in
from poseidon_sim.errors import InputError, UnreadableFileError, nearest

_PRECISIONS = {"torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16"}


@dataclass(frozen=True)
class Built:
    """A model ready to run: on its device, in training mode, with inputs of `batch_size` samples."""

    name: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: Any
    batch_size: int
    precision: str
    sample: str

    def run(self) -> Any:
        """Run the forward pass."""
        return self.module(*self.args, **self.kwargs)


def build(
    torch: Any, model: str | Callable[..., Any], batch_size: int, input_shape: tuple[int, ...] | None, device: str
) -> Built:
    """Call what builds the model and bring it and its inputs to the device."""
    maker = load_callable(model) if isinstance(model, str) else model
    label = model if isinstance(model, str) else getattr(model, "__name__", "model")
    made = _called(maker, label, batch_size)
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, torch.nn.Module):
        given = type(module).__name__
        raise InputError(f"{label} returns {given}; it must return a torch.nn.Module, or (module, example inputs)")
    place = _device(torch, device)
    if inputs is None:
        inputs = _made_up(torch, module, label, batch_size, input_shape)
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (inputs, {})
    args = tuple(args) if isinstance(args, list | tuple) else (args,)
    args, kwargs = (_on(torch, value, place, batch_size, label) for value in (args, kwargs))
    module = module.to(place).train()
    first = next(tensors_in([args, kwargs]), None)
    if first is None:
        raise InputError(f"{label}: its example inputs hold no tensor; return a tensor, a tuple of tensors or a mapping")
    sample = "image" if first.dim() == 4 else "sequence" if first.dim() == 3 or not first.is_floating_point() else "sample"
    name = type(module).__name__.lower() if type(module).__name__ != "Sequential" else label.rpartition(":")[2]
    return Built(name, module, args, kwargs, place, batch_size, _precision(module, label), sample)


def load_callable(target: str) -> Callable[..., Any]:
    """Import "package.module:name" or "file.py:name"; the present folder is searched first.

    >>> load_callable("math:sqrt")(4.0)
    2.0
    """
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise InputError(f"{target!r} must be MODULE:CALLABLE, for example my_package.models:build or models.py:build")
    module = _module(where)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            close = nearest(part, [n for n in dir(found) if not n.startswith("_")])
            raise InputError(f"{target}: {where} has no {part!r}" + (f"; did you mean {close!r}?" if close else ""))
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{target}: {name} is a {type(found).__name__}; give a function or class that returns the model")
    return found  # type: ignore[no-any-return]


def _module(where: str) -> Any:
    if where.endswith(".py"):
        if not Path(where).is_file():
            raise UnreadableFileError(f"{where}: no such file; give the path of a Python file, or the name of a module")
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        run: Callable[[], Any] = lambda: spec.loader.exec_module(module)  # type: ignore[union-attr] # noqa: E731
        folder = str(Path(where).resolve().parent)
    else:
        module, folder = None, str(Path.cwd())
        run = lambda: importlib.import_module(where)  # noqa: E731
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return run() or module
    except Exception as error:
        text = f"{where}: cannot be imported ({type(error).__name__}: {error})"
        raise InputError(f"{text}; run where `import` of it works") from error


def _called(maker: Callable[..., Any], label: str, batch_size: int) -> Any:
    """Call it, with the batch size where it takes one."""
    try:
        takes = "batch_size" in inspect.signature(maker).parameters
    except (TypeError, ValueError):
        takes = False
    try:
        return maker(batch_size=batch_size) if takes else maker()
    except Exception as error:
        text = f"{label}: {type(error).__name__}: {error}"
        raise InputError(f"{text}; it is called without arguments (or with batch_size) and returns the model") from error


def _device(torch: Any, device: str) -> Any:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise InputError(f"device={device!r} must be auto, cpu, cuda or cuda:0")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if int(index or 0) >= count:
        raise InputError(f"device={device!r}, but torch sees {count} GPUs here; give cpu, or run where the GPU is")
    if kind == "cuda":
        torch.cuda.set_device(int(index or 0))
    return torch.device(device)


def _made_up(torch: Any, module: Any, label: str, batch_size: int, shape: tuple[int, ...] | None) -> Any:
    """Draw inputs when none are given: of the stated shape, or what a first Linear reads."""
    first: Any = next((m for m in module.modules() if not any(True for _ in m.children())), None)
    if shape is None and type(first).__name__ == "Linear":
        shape = (first.in_features,)
    if shape is None:
        text = f"{label} returns no example inputs"
        raise InputError(f"{text}; return (model, inputs), or give the shape of one sample, for example --input 3,224,224")
    kind = next((p.dtype for p in module.parameters()), torch.float32)
    return torch.randn(batch_size, *shape, dtype=kind)


def _on(torch: Any, value: Any, device: Any, batch_size: int, label: str) -> Any:
    """Bring inputs to the device; one sample is repeated to the batch."""
    if isinstance(value, Mapping):
        return {key: _on(torch, each, device, batch_size, label) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on(torch, each, device, batch_size, label) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() and value.shape[0] not in (1, batch_size):
        text = f"{label}: its example inputs hold {value.shape[0]} samples, but batch_size={batch_size}"
        raise InputError(f"{text}; return inputs of one sample or of the batch (a parameter batch_size gets it)")
    if value.dim() and value.shape[0] != batch_size:
        value = value.repeat(batch_size, *[1] * (value.dim() - 1))
    return value.to(device)


def _precision(module: Any, label: str) -> str:
    """Return the precision that most trainable elements have."""
    elements: dict[str, int] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            elements[str(parameter.dtype)] = elements.get(str(parameter.dtype), 0) + parameter.numel()
    if not elements:
        raise InputError(f"{label}: the model has no trainable parameters; there is no gradient to synchronise")
    most = max(elements, key=lambda name: elements[name])
    if most not in _PRECISIONS:
        raise InputError(f"{label}: its parameters are {most}; profile it in one of {', '.join(_PRECISIONS)}")
    return _PRECISIONS[most]
