"""A profiled model is a model file; every moment of an iteration belongs to one layer; mistakes get one clear message."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import poseidon_sim as ps
from poseidon_sim import cli
from poseidon_sim.calibration import profile as profiling
from poseidon_sim.calibration.loading import load_callable
from poseidon_sim.calibration.model_file import MeasuredLayer, Profile, layer_keys

NETS = '''
import torch
from torch import nn

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
    def forward(self, x):
        return self.relu(self.norm(self.conv(self.relu(x))) + x)

class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.pool, self.fc = nn.Conv2d(3, 4, 3, stride=2), Residual(), nn.AdaptiveAvgPool2d(1), nn.Linear(4, 10)
        self.unused = nn.Linear(5, 5)
    def forward(self, x):
        return self.fc(self.pool(self.block(self.stem(x))).flatten(1))

class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(50, 8), nn.Parameter(torch.zeros(6, 8))
        self.enc, self.head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 50, bias=False)
        self.head.weight = self.emb.weight
    def forward(self, ids):
        return {"logits": self.head(self.enc(self.emb(ids) + self.pos))}

def mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(inplace=True), nn.Identity(), nn.Linear(16, 4))

def cnn(batch_size):
    return Cnn(), torch.randn(batch_size, 3, 17, 17)

def lm():
    return Lm(), {"ids": torch.randint(0, 50, (1, 6))}

def wrong_inputs():
    return mlp(), torch.randn(1, 13)

def three_samples():
    return mlp(), torch.randn(3, 12)

def nothing():
    return 5

def fails():
    raise RuntimeError("no weights here")

def images():
    return nn.Sequential(nn.Conv2d(3, 4, 3))
'''


@pytest.fixture
def nets(tmp_path: Path) -> str:
    (tmp_path / "nets_to_profile.py").write_text(NETS)
    return str(tmp_path / "nets_to_profile.py")


def simulated(path: Path) -> ps.Run:
    return ps.simulate(ps.load_scenario({"model": str(path), "cluster": {"nodes": 4, "network": "1 Gbit/s"}, "strategy": "poseidon"}))


def test_a_printed_profile_is_a_model_file_that_simulates(tmp_path: Path) -> None:
    layers = (
        MeasuredLayer("0", {"kind": "linear", "shape": [784, 100], "bias": True}, 1e-3, 2e-3),
        MeasuredLayer("no", {"kind": "other", "parameters": 7}, 0.0, 3e-3),
    )
    profile = Profile("net: a", layers, 16, "bf16", "image", 'a "quoted" source', 6e-3, 0.0, ("a note: with a colon",))
    (tmp_path / "net.yaml").write_text(f"{profile}\n")
    workload = ps.load_model(tmp_path / "net.yaml")
    assert workload.name == "net: a" and workload.batch_size == 16 and workload.element_bytes == 2
    assert [(x.name, x.parameters, x.forward_time, x.backward_time) for x in workload.layers] == [("0", 78500, 1e-3, 2e-3), ("no", 7, 0, 3e-3)]
    assert simulated(tmp_path / "net.yaml").step_time >= profile.layer_time == 6e-3


def module(name: str, **values: object) -> Any:
    return type(name, (), values)()


def test_a_layer_gets_its_kind_only_where_that_accounts_for_all_its_parameters() -> None:
    linear = module("Linear", in_features=8, out_features=4, bias=object())
    assert layer_keys(linear, (8,), (4,), 36) == {"kind": "linear", "shape": [8, 4], "bias": True}
    assert layer_keys(linear, (5, 8), (5, 4), 36)["input"] == [5, 8]
    assert layer_keys(linear, (8,), (4,), 4) == {"kind": "other", "parameters": 4}  # its weights belong to another layer
    conv = module("Conv2d", out_channels=6, kernel_size=(3, 3), stride=(2, 2), padding="valid", dilation=(1, 1), groups=1, bias=None)
    assert layer_keys(conv, (3, 9, 9), (6, 4, 4), 162)["kind"] == "conv"
    assert layer_keys(conv, (3, 9, 9), (6, 5, 5), 162) == {"kind": "other", "parameters": 162}  # not the output it gave
    assert layer_keys(module("LayerNorm"), (5, 8), (5, 8), 16) == {"kind": "norm", "type": "layer", "input": [5, 8]}
    assert layer_keys(module("SomethingNew"), (5, 8), (5, 8), 0) == {"kind": "other"}


def test_without_torch_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ps.InputError, match="pip install torch"):
        ps.profile_model("anything:at_all", 8)


@pytest.mark.parametrize(
    ("target", "words"),
    [("nets", "MODULE:CALLABLE"), (":x", "MODULE:CALLABLE"), ("no_such_module_here:f", "cannot be imported"), ("math:sqrrt", "did you mean 'sqrt'"),
     ("math:pi", "is a float"), ("none.py:f", "no such file")],
)  # fmt: skip
def test_a_target_that_cannot_be_called_is_named(target: str, words: str) -> None:
    with pytest.raises((ps.InputError, ps.UnreadableFileError), match=words):
        load_callable(target)


@pytest.mark.parametrize(("net", "parameters", "num_layers"), [("mlp", 276, 4), ("cnn", 112 + 144 + 8 + 50, 6), ("lm", 400 + 48 + 600, 11)])
def test_a_profiled_model_has_its_parameters_and_simulates(nets: str, net: str, parameters: int, num_layers: int, tmp_path: Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    pytest.importorskip("torch")
    out = tmp_path / "model.yaml"
    assert cli.run(["profile", f"{nets}:{net}", "--batch-size", "4", "--repeats", "3", "--device", "cpu", "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    workload = ps.load_model(out)
    assert workload.parameters == parameters and len(workload.layers) == num_layers == len(document["layers"])
    assert all((x.forward_time or 0) >= 0 and (x.backward_time or 0) >= 0 for x in workload.layers)
    # layers this small may cost less than a hook: then the hook's own cost, taken off, leaves nothing
    assert document["layer_time_s"] >= 0 and document["iteration_time_s"] > 0 and document["notes"]
    assert simulated(out).step_time >= 0 and yaml.safe_load(out.read_text())["batch_size"] == 4


def test_shared_loose_and_unused_parameters_are_counted_once_or_named(nets: str) -> None:
    pytest.importorskip("torch")
    lm = ps.profile_model(f"{nets}:lm", 2, device="cpu", repeats=3, warmup=1)
    keys = {layer.name: dict(layer.keys) for layer in lm.layers}
    assert keys["own"] == {"kind": "other", "parameters": 48} and keys["head"] == {"kind": "other"} and keys["emb"]["kind"] == "embedding"
    assert keys["enc.self_attn"] == {"kind": "other", "parameters": 4 * 64 + 4 * 8}
    cnn = ps.profile_model(f"{nets}:cnn", 2, device="cpu", repeats=3, warmup=1)
    assert any("30 parameters get no gradient" in note for note in cnn.notes)


class Ticks:
    """A clock that moves by `tick` whenever it is read, and when a test says so."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def stamp(self) -> float:
        self.now += self.tick
        return self.now

    def between(self, start: float, stop: float) -> float:
        return stop - start

    def settle(self) -> None:
        pass


@pytest.mark.parametrize("net", ["mlp", "cnn", "lm"])
def test_layers_fill_the_iteration_without_gaps_and_without_the_hooks_cost(nets: str, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # a clock on which only reading it takes time: an iteration without hooks takes 2 s (3 readings), and so must all layers together
    pytest.importorskip("torch")
    monkeypatch.setattr(profiling, "clock_of", lambda *_: Ticks(1.0))
    found = ps.profile_model(f"{nets}:{net}", 2, device="cpu", repeats=3, warmup=1)
    assert found.iteration_time == 2.0 and found.hook_time == 1.0 and found.layer_time == pytest.approx(2.0)


def test_every_layer_gets_the_time_that_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    # three layers that take 1, 2, 3 s forward and 10, 20, 30 s backward on a clock that only they move
    torch = pytest.importorskip("torch")
    clock = Ticks(0.0)
    monkeypatch.setattr(profiling, "clock_of", lambda *_: clock)

    class Slow(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any, seconds: float) -> Any:
            ctx.seconds = seconds
            clock.now += seconds
            return x * weight

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            clock.now += 10 * ctx.seconds
            return gradient, gradient.sum(), None

    class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.weight, self.seconds = torch.nn.Parameter(torch.ones(())), seconds

        def forward(self, x: Any) -> Any:
            return Slow.apply(x, self.weight, self.seconds)

    def build() -> Any:
        return torch.nn.Sequential(Layer(1.0), Layer(2.0), torch.nn.Identity(), Layer(3.0)), torch.ones(1, 5)

    found = ps.profile_model(build, 2, device="cpu", repeats=3, warmup=1)
    assert [(x.forward_time, x.backward_time) for x in found.layers] == [(1.0, 10.0), (2.0, 20.0), (0.0, 0.0), (3.0, 30.0)]
    assert found.iteration_time == 66.0 and found.hook_time == 0.0


MISTAKES = [
    ("wrong_inputs", {}, "when run on inputs of shape"),
    ("three_samples", {}, "hold 3 samples, but batch_size=4"),
    ("nothing", {}, "returns int"),
    ("fails", {}, "no weights here"),
    ("images", {}, "--input 3,224,224"),
    ("mlp", {"device": "tpu"}, "must be auto, cpu, cuda"),
    ("mlp", {"repeats": 1}, "at least 3"),
]


@pytest.mark.parametrize(("net", "options", "words"), MISTAKES, ids=[f"{m[0]} {m[2]}" for m in MISTAKES])
def test_a_model_that_cannot_be_measured_gets_one_clear_message(nets: str, net: str, options: dict[str, Any], words: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ps.InputError, match=words):
        ps.profile_model(f"{nets}:{net}", 4, **{"device": "cpu", **options})


def test_the_shape_of_a_sample_can_be_given(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    arguments = ["profile", f"{nets}:images", "--batch-size", "2", "--repeats", "3", "--device", "cpu", "--input"]
    assert cli.run([*arguments, "3,8,8"]) == 0 and "kind: conv" in capsys.readouterr().out
    assert cli.run([*arguments, "3,x"]) == 2 and "--input 3,x" in capsys.readouterr().err


def test_what_is_no_module_is_not_taken_for_one() -> None:
    assert layer_keys(SimpleNamespace(), (), (), 0) == {"kind": "other"}
