import hashlib
import io
import pickle
import random
import zipfile
from collections import OrderedDict
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dial import DialError, backbones
from dial.backbones import _weights


def network(classes: int = 2) -> nn.Module:
    layers = {"body": nn.Linear(3, 4), "norm": nn.BatchNorm1d(4), "head": nn.Linear(4, classes)}
    return nn.Sequential(OrderedDict(layers))


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("executed"),)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_reads_back_what_was_saved(tmp_path: Path, suffix: str) -> None:
    state, file = network().state_dict(), tmp_path / f"weights{suffix}"
    save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    read = _weights.read(file)
    assert read.keys() == state.keys()
    assert all(torch.equal(read[name], state[name]) for name in state)


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_finds_the_tensors_of_a_checkpoint_of_parallel_training(tmp_path: Path, key: str) -> None:
    state = network().state_dict()
    nested = {key: {f"module.{n}": t for n, t in state.items()}, "epoch": 3}
    torch.save(nested, tmp_path / "last.pth")
    assert _weights.read(tmp_path / "last.pth").keys() == state.keys()


def test_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"body.weight": Harmful()}, "harmful.pth")
    Path("plain.pth").write_bytes(pickle.dumps(Harmful(), protocol=2))
    for name in ("harmful.pth", "plain.pth"):
        with pytest.raises(DialError, match=f"nothing that has to be executed, in {name}"):
            _weights.read(Path(name))
    assert not Path("executed").exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"damaged{suffix}"
    file.write_bytes(b"no tensors at all")
    with pytest.raises(DialError, match=r"in .*damaged.*get the file again"):
        _weights.read(file)


def garbage() -> dict[str, bytes]:
    """Contents that are no tensors, and real ones that were cut or changed."""
    real, legacy, archive, wrong = (io.BytesIO() for _ in range(4))
    torch.save(network().state_dict(), real)
    torch.save(network().state_dict(), legacy, _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/readme", "no data.pkl")
    with zipfile.ZipFile(wrong, "w") as file:
        file.writestr("archive/data.pkl", "junk")
    noise = random.Random(0)
    contents = {
        "four bytes": b"junk",
        "one byte": b"j",
        "empty": b"",
        "text": b"no tensors, but some words\n" * 9,
        "zeros": bytes(64),
        "pickle": pickle.dumps(Harmful()),
        "number": pickle.dumps(3, protocol=2),
        "zip without data.pkl": archive.getvalue(),
        "zip with wrong data.pkl": wrong.getvalue(),
        "real without its end": real.getvalue()[:-9],
        "half of a real one": real.getvalue()[: len(real.getvalue()) // 2],
        "legacy without its end": legacy.getvalue()[:-9],
    }
    contents |= {f"noise {n}": noise.randbytes(n) for n in (*range(1, 40), 300)}
    cuts = range(0, len(legacy.getvalue()) - 9, 41)
    return contents | {f"legacy up to {n}": legacy.getvalue()[:n] for n in cuts}


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_garbage_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in garbage().values():
        Path(f"junk{suffix}").write_bytes(content)
        with pytest.raises(DialError, match=r"in junk\."):
            _weights.read(Path(f"junk{suffix}"))
    Path("folder.pth").mkdir()
    with pytest.raises(DialError, match=r"a file of weights, .*, got folder\.pth"):
        _weights.read(Path("folder.pth"))
    assert not Path("executed").exists()


def test_a_file_that_is_not_there_or_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"nowhere.pth, which does not exist"):
        _weights.read(tmp_path / "nowhere.pth")
    (tmp_path / "weights.txt").write_text("")
    with pytest.raises(DialError, match=r"\.pth or \.safetensors, got .*weights\.txt"):
        _weights.read(tmp_path / "weights.txt")
    torch.save({"epoch": 3}, tmp_path / "numbers.pth")
    with pytest.raises(DialError, match=r"tensors by name .*a dict of other things"):
        _weights.read(tmp_path / "numbers.pth")


def test_the_checksum_in_a_name_is_checked(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pth")
    content = (tmp_path / "weights.pth").read_bytes()
    right = tmp_path / f"net-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    right.write_bytes(content)
    assert _weights.read(right)
    wrong = tmp_path / "net-00000000.pth"
    wrong.write_bytes(content)
    with pytest.raises(DialError, match=r"begins with 00000000.*the file is damaged"):
        _weights.read(wrong)


def test_all_that_does_not_fit_is_in_one_message() -> None:
    state = network().state_dict()
    del state["norm.running_mean"], state["norm.num_batches_tracked"]
    state["tail.weight"] = torch.zeros(1)
    state["body.weight"] = torch.zeros(4, 5)
    wanted = (
        r"in some.pth the 9 tensors.*1 missing \(norm\.running_mean\); 1 surplus \(tail\.weight\); "
        r"1 misshapen \(body\.weight \(4, 5\) for \(4, 3\)\)"
    )
    net = network()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(DialError, match=wanted):
        _weights.load(net, state, classifier="head", source="some.pth")
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_a_classifier_of_other_classes_stays_new() -> None:
    net, public = network(classes=5), network(classes=2)
    head = net.state_dict()["head.weight"].clone()
    assert _weights.load(net, public.state_dict(), classifier="head", source="file")
    assert torch.equal(net.state_dict()["head.weight"], head)
    assert torch.equal(net.state_dict()["body.weight"], public.state_dict()["body.weight"])
    same = network(classes=2)
    assert not _weights.load(same, public.state_dict(), classifier="head", source="file")
    assert torch.equal(same.state_dict()["head.weight"], public.state_dict()["head.weight"])


def test_a_classifier_of_other_features_is_an_error() -> None:
    state = network().state_dict() | {"head.weight": torch.zeros(5, 7)}
    with pytest.raises(DialError, match=r"misshapen \(head\.weight \(5, 7\) for \(2, 4\)\)"):
        _weights.load(network(), state, classifier="head", source="file")


def test_fetches_into_torchs_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str | None]] = []

    def download(url: str, path: str, checksum: str | None, progress: bool) -> None:
        calls.append((url, checksum))
        Path(path).write_bytes(b"")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    for _ in range(2):
        path = _weights.fetch("https://example.org/net-0123abcd.pth", backbone="net")
    assert path == tmp_path / "checkpoints" / "net-0123abcd.pth"
    assert calls == [("https://example.org/net-0123abcd.pth", "0123abcd")]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("alexnet", "alexnet-owt-7be5be79.pth"),
        ("inception_bn", "bn_inception-52deb4733.pth"),
        ("timm:resnet10t", "resnet10t.c3_in1k.safetensors"),
        ("torchvision:squeezenet1_1", "squeezenet1_1-b8a52dc0.pth"),
    ],
)
def test_without_internet_the_error_says_which_file_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    def download(*_: object, **__: object) -> None:
        raise URLError("Name or service not known")

    import dial

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    place = tmp_path / "checkpoints" / file
    wanted = rf"weights of {name}, {file}, got no download .*not known.*get http\S+ .*{place}, or"
    with pytest.raises(DialError, match=wanted + r".*--weights FILE.*--weights none"):
        dial.build(name)


def test_network_weights_are_random_where_none_are_asked_for() -> None:
    net = network()
    before = net.state_dict()["body.weight"].clone()
    started = _weights.start(net, "none", classifier="head", public=lambda: Path("missing.pth"))
    assert started == {"pretrained": False, "new": ()}
    assert torch.equal(net.state_dict()["body.weight"], before)


def test_a_new_classifier_starts_small() -> None:
    """timm's own start gives logits that fine-tuning does not survive."""
    classifier = backbones.create("efficientnet_lite0", num_classes=31).network.classifier
    assert 0.008 < float(classifier.weight.detach().std()) < 0.012
    assert not classifier.bias.detach().any()
