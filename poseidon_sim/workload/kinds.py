"""The kinds of layers: from a layer's own keys and the shapes it reads to parameters, FLOPs and output shape.

A shape is (channels, height, width) for images, (positions, features) for sequences and (features,) for
vectors and for sequences of token numbers. A multiply-add is 2 FLOP. Cheap elementwise kinds count a few FLOP
per element; what they cost on a GPU is the memory they touch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from poseidon_sim.workload.entry import Entry, Shape
from poseidon_sim.workload.layer import Heads


class Inferred(NamedTuple):
    """What the geometry of one layer implies, per sample; `output` is None where it is not known."""

    output: Shape | None
    tensors: tuple[int, ...] = ()
    forward_flops: float = 0.0
    factor_shape: tuple[int, int] | None = None
    factor_rows: float = 1.0
    gradient_products: int = 1
    saved_flops: float = 1.0
    heads: Heads | None = None


Rule = Callable[[Entry, tuple[Shape, ...]], Inferred]


class Kind(NamedTuple):
    """One kind of layer: its own keys, those that settle its geometry, and the rule."""

    infer: Rule | None
    keys: frozenset[str] = frozenset()
    settled_by: frozenset[str] = frozenset()
    advice: str = ""


def _one(entry: Entry, shapes: tuple[Shape, ...], num_axes: int, what: str) -> Shape:
    """Return the only input of a layer, which must have the given number of axes."""
    if len(shapes) != 1:
        raise entry.error(
            f"reads from {len(shapes)} layers but takes one; join them with concat or add first"
        )
    if len(shapes[0]) != num_axes:
        raise entry.error(f"needs {what} but reads the shape {list(shapes[0])}")
    return shapes[0]


def linear(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Weights M x N on every vector read; an image is flattened, a sequence taken position by position.

    With `experts` there are so many of the weights, and every position goes through one of them.
    """
    shape = shapes[0] if len(shapes) == 1 else _one(entry, shapes, 1, "one vector")
    if "shape" in entry:
        if len(entry.shape("shape")) != 2:
            raise entry.error(f"shape={entry.values['shape']!r} of a linear layer must be [inputs, outputs]")
        num_inputs, num_outputs = entry.shape("shape")
        rows = shape[0] if len(shape) == 2 and shape[1] == num_inputs else 1
        if rows * num_inputs != prod(shape):
            raise entry.error(f"shape says {num_inputs} inputs but it reads the shape {list(shape)}")
    else:
        num_outputs = entry.count("outputs")
        rows, num_inputs = shape if len(shape) == 2 else (1, prod(shape))
    tied, experts = "tied" in entry, entry.count("experts", 1)
    bias = (experts * num_outputs,) if entry.flag("bias", False) else ()
    return Inferred(
        output=(rows, num_outputs) if len(shape) == 2 and rows == shape[0] else (num_outputs,),
        tensors=bias if tied else (experts * num_inputs * num_outputs, *bias),
        forward_flops=2.0 * rows * num_inputs * num_outputs,
        factor_shape=None if tied or experts > 1 else (num_inputs, num_outputs),
        factor_rows=float(rows),
        gradient_products=2 if tied else 1,
    )


def _window(
    entry: Entry, size: int, axis: int, kernel: int, stride: int, dilation: int, ceil_mode: bool
) -> int:
    """Return how many positions a window takes along one axis (0 is height)."""
    extent = dilation * (kernel - 1) + 1
    padding = entry.values.get("padding", 0)
    if padding == "same":
        return -(-size // stride)
    pad = 0 if padding == "valid" else entry.pair("padding", 0, least=0)[axis]
    free = size + 2 * pad - extent
    if free < 0:
        raise entry.error(f"its kernel spans {extent} positions but the padded input has {size + 2 * pad}")
    if not ceil_mode:
        return free // stride + 1
    count = -(-free // stride) + 1
    return (
        count - 1 if (count - 1) * stride >= size + pad else count
    )  # as Caffe: no window starts in the padding


def conv(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """A convolution over an image; `shape` is [outputs, inputs / groups, kernel height, kernel width]."""
    channels, height, width = _one(entry, shapes, 3, "an image (channels, height, width)")
    groups = entry.count("groups", 1)
    outputs, kernel = _conv_kernel(entry, channels, groups)
    if channels % groups or outputs % groups:
        raise entry.error(f"groups={groups} must divide its {channels} inputs and {outputs} outputs")
    stride, dilation = entry.pair("stride", 1), entry.pair("dilation", 1)
    rows = _window(entry, height, 0, kernel[0], stride[0], dilation[0], False)
    columns = _window(entry, width, 1, kernel[1], stride[1], dilation[1], False)
    weights = outputs * (channels // groups) * kernel[0] * kernel[1]
    return Inferred(
        output=(outputs, rows, columns),
        tensors=(weights, outputs) if entry.flag("bias", False) else (weights,),
        forward_flops=2.0 * weights * rows * columns,
        saved_flops=WINOGRAD if (kernel, stride, dilation, groups) == ((3, 3), (1, 1), (1, 1), 1) else 1.0,
    )


#: Lavin and Gray, CVPR'16: F(2x2, 3x3) does a 3x3 convolution of stride 1 with 2.25 times fewer multiplications
WINOGRAD = 2.25


def _conv_kernel(entry: Entry, channels: int, groups: int) -> tuple[int, tuple[int, int]]:
    """Return (outputs, kernel) from `shape` or from `channels` and `kernel`."""
    if "shape" not in entry:
        return entry.count("channels"), entry.pair("kernel")
    shape = entry.shape("shape")
    if len(shape) != 4:
        raise entry.error(
            "shape of a conv layer must be [outputs, inputs / groups, kernel height, kernel width]"
        )
    if shape[1] * groups != channels:
        raise entry.error(f"shape says {shape[1] * groups} inputs but it reads {channels} channels")
    return shape[0], (shape[2], shape[3])


def pool(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Maximum or mean over windows of an image; the stride is the kernel unless given."""
    channels, height, width = _one(entry, shapes, 3, "an image (channels, height, width)")
    kernel = entry.pair("kernel")
    stride = entry.pair("stride") if "stride" in entry else kernel
    ceil_mode = entry.flag("ceil_mode", False)
    rows = _window(entry, height, 0, kernel[0], stride[0], 1, ceil_mode)
    columns = _window(entry, width, 1, kernel[1], stride[1], 1, ceil_mode)
    output = (channels, rows, columns)
    return Inferred(output, forward_flops=float(prod(output) * kernel[0] * kernel[1]))


def global_pool(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """The mean of every channel of an image."""
    shape = _one(entry, shapes, 3, "an image (channels, height, width)")
    return Inferred((shape[0],), forward_flops=float(prod(shape)))


_NORM_TENSORS = {"batch": 2, "layer": 2, "rms": 1, "local": 0, "conditional": 4}


def norm(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Normalise: batch and layer norms have a scale and a shift per feature, an RMS norm only a scale.

    A local response norm (AlexNet, GoogLeNet) has no parameters; a conditional one (Poseidon-PDE) makes scale
    and shift linear functions of time, two vectors each.
    """
    shape = shapes[0] if len(shapes) == 1 else _one(entry, shapes, 1, "one input")
    features = shape[-1] if len(shape) == 2 else shape[0]
    num_tensors = _NORM_TENSORS[entry.choice("type", tuple(_NORM_TENSORS), "batch")]
    return Inferred(shape, (features,) * num_tensors, 4.0 * prod(shape))


def same_shape(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """An elementwise function, one FLOP per element."""
    shape = shapes[0] if len(shapes) == 1 else _one(entry, shapes, 1, "one input")
    return Inferred(shape, forward_flops=float(prod(shape)))


def combine(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """The sum or product, element by element, of inputs of one shape."""
    if len(shapes) < 2 or len(set(shapes)) > 1:
        raise entry.error(
            f"needs two or more inputs of one shape but reads {[list(each) for each in shapes]}"
        )
    return Inferred(shapes[0], forward_flops=float((len(shapes) - 1) * prod(shapes[0])))


def concat(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Inputs joined along channels (images) or features (sequences and vectors)."""
    axis = 1 if len(shapes[0]) == 2 else 0
    rests = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(rests) > 1:
        raise entry.error(
            f"can only join shapes that differ in channels, not {[list(each) for each in shapes]}"
        )
    joined = list(shapes[0])
    joined[axis] = sum(shape[axis] for shape in shapes)
    return Inferred(tuple(joined))


def flatten(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Any shape as one vector."""
    shape = shapes[0] if len(shapes) == 1 else _one(entry, shapes, 1, "one input")
    return Inferred((prod(shape),))


def reshape(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """The same elements in the shape `to`."""
    shape = entry.shape("to")
    if len(shapes) != 1 or prod(shape) != prod(shapes[0]):
        raise entry.error(f"cannot turn {[list(each) for each in shapes]} into {list(shape)}")
    return Inferred(shape)


def select(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """One position of a sequence, as BERT's pooler reads the first."""
    return Inferred((_one(entry, shapes, 2, "a sequence (positions, features)")[1],))


def embedding(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """A table of `vocabulary` rows looked up once per position; its gradient is taken as dense."""
    (positions,) = _one(entry, shapes, 1, "a sequence of token numbers")
    outputs = entry.count("outputs")
    return Inferred((positions, outputs), (entry.count("vocabulary") * outputs,))


def lstm(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """One LSTM layer over a sequence: four gates on input and state, one bias per gate."""
    positions, features = _one(entry, shapes, 2, "a sequence (positions, features)")
    hidden = entry.count("outputs")
    gates = 4 * hidden
    per_position = 2.0 * gates * (features + hidden) + 9.0 * hidden
    return Inferred((positions, hidden), (features * gates, hidden * gates, gates), positions * per_position)


def attention(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Scores, softmax and weighted sum, fused: reads [q, k, v] or one layer that holds all three.

    With `window` a position sees only that many positions. Causal masks are not taken off the count; a fused kernel skips
    what they hide.
    """
    heads = entry.count("heads")
    key_value_heads = entry.count("key_value_heads", heads)
    widths = [shape[-1] for shape in shapes]
    one_length = all(len(shape) == 2 for shape in shapes) and len({shape[0] for shape in shapes}) == 1
    if not one_length or len(shapes) not in (1, 3):
        raise entry.error(
            f"reads {[list(each) for each in shapes]}; needs [q, k, v] or one sequence that holds them"
        )
    hidden, rest = divmod(sum(widths) * heads, heads + 2 * key_value_heads)
    if rest or hidden % heads or (len(widths) == 3 and widths[0] != hidden):
        parts = f"{heads} heads of q and {key_value_heads} of k and v"
        raise entry.error(f"its {sum(widths)} inputs do not split into {parts}")
    positions = shapes[0][0]
    seen = min(entry.count("window", positions), positions)
    fused = entry.flag("fused", False) if "fused" in entry else None
    shape = Heads(hidden // heads, entry.flag("causal", False), fused)
    flops = 4.0 * positions * seen * hidden
    return Inferred((positions, hidden), forward_flops=flops, gradient_products=2, heads=shape)


def dispatch(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """Every position once for each of the `active` experts that a router chose for it."""
    positions, features = _one(entry, shapes, 2, "a sequence (positions, features)")
    return Inferred((entry.count("active") * positions, features))


def collect(entry: Entry, shapes: tuple[Shape, ...]) -> Inferred:
    """The weighted sum of what the `active` experts of a position made of it."""
    rows, features = _one(entry, shapes, 2, "a sequence (positions, features)")
    if rows % entry.count("active"):
        raise entry.error(f"active={entry.count('active')} does not divide the {rows} positions it reads")
    return Inferred((rows // entry.count("active"), features), forward_flops=2.0 * rows * features)


_LINEAR_ADVICE = "shape: [inputs, outputs]"
_CONV_ADVICE = "channels and kernel (and the model's input: [channels, height, width])"


def _kind(infer: Rule | None, keys: str = "", settled_by: str = "", advice: str = "") -> Kind:
    return Kind(infer, frozenset(keys.split()), frozenset(settled_by.split()), advice)


KINDS: dict[str, Kind] = {
    "linear": _kind(linear, "shape outputs bias tied experts", "shape outputs", _LINEAR_ADVICE),
    "conv": _kind(
        conv,
        "shape channels kernel stride padding dilation groups bias",
        "shape channels kernel",
        _CONV_ADVICE,
    ),
    "pool": _kind(pool, "kernel stride padding ceil_mode", "kernel", "kernel"),
    "global-pool": _kind(global_pool),
    "norm": _kind(norm, "type"),
    "activation": _kind(same_shape),
    "dropout": _kind(same_shape),
    "add": _kind(combine),
    "multiply": _kind(combine),
    "concat": _kind(concat),
    "flatten": _kind(flatten),
    "reshape": _kind(reshape, "to", "to", "to: [...]"),
    "select": _kind(select),
    "embedding": _kind(embedding, "vocabulary outputs", "vocabulary outputs", "vocabulary and outputs"),
    "lstm": _kind(lstm, "outputs", "outputs", "outputs"),
    "attention": _kind(attention, "heads key_value_heads window causal fused", "heads", "heads"),
    "dispatch": _kind(dispatch, "active", "active", "active"),
    "collect": _kind(collect, "active", "active", "active"),
    "other": _kind(None),
}
PARAMETRISED = frozenset({"linear", "conv", "embedding", "lstm"})
