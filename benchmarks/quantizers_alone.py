"""Files of quantizers in ONNX Runtime alone, as they are and without the scales between other
operators: whether a loss is the file's, and which of its scales cause it.

    python benchmarks/quantizers_alone.py magika --data magika_files --count 234 FILE.onnx …

Nothing of qbench computes here: it gives the samples, as the network is fed them. In the second run
a pair of QuantizeLinear and DequantizeLinear stays beside an operator with weights (Conv,
ConvTranspose, Gemm, MatMul) and goes between others, such as the parts of a LayerNorm.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from qbench.cli.options import choose_cache, read_samples

WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
Feeds = list[dict[str, npt.NDArray[Any]]]


def without_others(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    """``model`` without the pairs that no weighted operator reads or writes, and how many of them
    stood behind each kind of operator.
    """
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    makers = {name: node for node in changed.graph.node for name in node.output}
    readers = defaultdict[str, list[onnx.NodeProto]](list)
    for node in changed.graph.node:
        for name in node.input:
            readers[name].append(node)
    renamed, gone = dict[str, str](), defaultdict[str, int](int)
    for node in changed.graph.node:
        quantize = makers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if quantize is None or quantize.op_type != "QuantizeLinear":
            continue
        source = quantize.input[0]
        maker = makers[source].op_type if source in makers else "input"
        if WEIGHTED & {maker, *(one.op_type for one in readers[node.output[0]])}:
            continue
        renamed[node.output[0]] = source
        gone[maker] += 1
    for node in changed.graph.node:
        for place, name in enumerate(node.input):
            kept = name
            while kept in renamed:
                kept = renamed[kept]
            node.input[place] = kept
    return changed, dict(gone)


def right(model: onnx.ModelProto, feeds: Feeds, labels: list[set[int]]) -> float:
    """The share of ``feeds`` that ONNX Runtime answers right, by one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    scores = np.concatenate([session.run(None, one)[0] for one in feeds])
    answers = scores.argmax(axis=1)
    return float(np.mean([int(one) in known for one, known in zip(answers, labels, strict=True)]))


def shown(gone: Mapping[str, int]) -> str:
    """``24 Mul, 11 Add``: the most first."""
    most = sorted(gone.items(), key=lambda one: -one[1])
    return ", ".join(f"{count} {kind}" for kind, count in most)


def main() -> None:
    """A line for each file."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    made.add_argument("model")
    made.add_argument("--data", required=True)
    made.add_argument("--count", type=int, required=True, help="of samples")
    made.add_argument("files", nargs="+")
    given = made.parse_args()
    _, samples = read_samples(given.model, given.data, given.count, choose_cache(None))
    feeds = [dict(one) for one in samples.batches()]
    labels = [set(np.ravel(one).tolist()) for one in samples.whole_labels or ()]
    for file in given.files:
        whole = onnx.load(file)
        less, gone = without_others(whole)
        before, after = (right(one, feeds, labels) for one in (whole, less))
        size = Path(file).stat().st_size
        print(f"{file} ({size:,} bytes): {before:.1%}; {after:.1%} without {shown(gone)}")


if __name__ == "__main__":
    main()
