"""Loading by name, by path and inline; overrides; what goes wrong and how it is said."""

import time

import pytest

from poseidon_sim.errors import InputError, UnknownNameError, UnreadableFileError
from poseidon_sim.workload.load import list_models, load_model

MLP = {"name": "mlp", "layers": [{"name": "fc1", "kind": "linear", "shape": [8, 4]}]}


@pytest.mark.parametrize(
    ("alias", "name"), [("resnet-50", "resnet50"), ("VGG-19", "vgg19"), ("inceptionv3", "inception-v3")]
)
def test_a_name_may_differ_in_case_and_punctuation(alias, name):
    assert load_model(alias) is load_model(name)


def test_an_unknown_model_names_the_nearest_known_one():
    with pytest.raises(UnknownNameError, match="did you mean 'vgg19'"):
        load_model("vgg91")


def test_overrides_replace_model_level_keys_and_none_leaves_them():
    model = load_model("vgg19", precision="fp16", batch_size=8, single_gpu_throughput="35.5", optimizer=None)
    assert (model.precision, model.element_bytes, model.batch_size) == ("fp16", 2, 8)
    assert model.single_gpu_throughput == 35.5
    assert model.gradient_bytes == load_model("vgg19").gradient_bytes / 2


def test_the_optimizer_sets_the_bytes_of_its_state():
    assert load_model("vgg19").optimizer_bytes == 4.0
    assert load_model("vgg19", optimizer="adam").optimizer_bytes == 8.0
    assert load_model("vgg19", optimizer="sgd").optimizer_bytes == 0.0


def test_a_sequence_length_scales_the_work_of_a_transformer_and_not_its_parameters():
    short, usual = load_model("gpt2-small", sequence_length=128), load_model("gpt2-small")
    assert short.parameters == usual.parameters
    assert short.layer("output").forward_flops == usual.layer("output").forward_flops / 8


def test_a_mapping_a_file_and_a_name_give_the_same_model(tmp_path):
    path = tmp_path / "mlp.yaml"
    path.write_text("layers:\n  - {name: fc1, kind: linear, shape: [8, 4]}\n", encoding="utf-8")
    assert load_model(path) == load_model(str(path)) == load_model(MLP)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": []}, "at least one layer"),
        ({"layers": None}, "at least one layer"),
        ({"transformer": {}}, "either layers"),
        ({"parameters": 33}, "parameters=33 but its layers have 32"),
        ({"precision": "fp4"}, "must be one of fp32"),
        ({"batch_size": 0}, "batch_size=0 must be a whole number"),
        ({"batch_size": True}, "batch_size=True must be a whole number"),
        ({"single_gpu_throughput": -1}, "must be a number above 0"),
        ({"single_gpu_throughput": float("nan")}, "must be a number above 0"),
        ({"optimizer": "sdg"}, "must be one of sgd"),
        ({"batchsize": 3}, "did you mean 'batch_size'"),
        ({"blocks": [1]}, "must be a mapping"),
        ({"defaults": {"conv": 3}}, "must map kinds to mappings"),
        ({"name": False}, "put the text in quotes"),
        ({"notes": "x"}, "must be a list of sentences"),
        ({"input": [0]}, r"input\[0\]=0"),
    ],
)
def test_a_wrong_model_level_key_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        load_model({**MLP, **changes})


@pytest.mark.parametrize("model", ["", " ", 3, None, ["vgg19"]])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(InputError):
        load_model(model)


def test_an_unknown_override_names_the_nearest_key():
    with pytest.raises(InputError, match="unknown key 'batch'; did you mean 'batch_size'"):
        load_model("vgg19", batch=3)


def test_a_missing_file_is_unreadable(tmp_path):
    with pytest.raises(UnreadableFileError, match="No such file"):
        load_model(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers:\n\t- x\n", "line 2"),
        ("name: a\nname: b\n", "line 2: the key 'name' is given twice"),
        ("a: !!python/object:os.system {}", "line 1"),
    ],
)
def test_a_file_that_is_not_yaml_is_unreadable_and_names_the_line(tmp_path, text, message):
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableFileError, match=message):
        load_model(path)


def test_a_file_that_is_not_text_is_unreadable(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UnreadableFileError):
        load_model(path)


def test_a_yaml_file_without_a_mapping_is_refused(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text("- 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="must hold a mapping"):
        load_model(path)


def test_a_file_that_contains_itself_is_refused(tmp_path):
    path = tmp_path / "loop.yaml"
    path.write_text(
        "blocks: {b: [{name: x, kind: conv, channels: $c, kernel: &k [*k]}]}\n"
        "layers: [{name: y, block: b, c: 3}]\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="contains itself"):
        load_model(path)


def seconds_to_load(name):
    """Return the best of three loads, each with a batch size of its own so that nothing is cached."""
    times = []
    for batch_size in (1001, 1002, 1003):
        start = time.perf_counter()
        load_model(name, batch_size=batch_size)
        times.append(time.perf_counter() - start)
    return min(times)


def test_vgg19_loads_in_ten_milliseconds_and_resnet152_in_sixty():
    """Bounds with room for a busy machine: about 2 ms and 15 ms on an idle one."""
    assert seconds_to_load("vgg19") < 0.010
    assert seconds_to_load("resnet152") < 0.060


def test_every_listed_model_loads_and_has_a_source():
    for name in list_models():
        model = load_model(name)
        assert model.name == name
        assert model.source
        assert model.batch_size
