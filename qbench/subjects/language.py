"""Language models: which inputs of a decoder's graph hold what it keeps, windows of text scored
token by token, and greedy text.

    logits(t) = decoder(token 0 … t)              of a graph without a cache: one run for a window
    logits, cache' = decoder(tokens, cache)       of one with it: ``past`` in, ``present`` out

    ln p(t + 1) = logits(t)[token t + 1] − ln Σ exp logits(t)

Of a window of L tokens those behind the first L/2 + 1 are scored, as llama.cpp does it
(``metrics.window_context``). Of each the k most probable tokens are kept with their probability,
and the least probability of all: what is compared lies within proven bounds of the whole
distribution (``metrics/token_streams.py``), and memory grows with k, not with the vocabulary.

Names of inputs differ between exporters. Integers are tokens, except a mask (``…mask…``, all ones
here, as windows of one length run together) and places (``position…``). A cache is found by its
names, too (``graph/decoder_cache.py``). What an encoder made of a document (``…encoder…``) is
the same in every run of a window, and comes with its sample.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import cache_slot, int_attribute, is_mover
from qbench.metrics import (
    PADDING,
    AnswerKind,
    Answers,
    IntegerAnswers,
    TokenStreams,
    stored_streams,
    window_context,
)
from qbench.subjects.dataset import Array
from qbench.subjects.samples import BATCH, Samples
from qbench.subjects.subject import Runner
from qbench.subjects.tasks import GRAPH, runner_named

_FREE = -1
"""In the shape of a value of the cache: the axis of samples, and that of tokens."""
_ENCODER = "encoder"
"""In the name of an input: an encoder made it of the document."""
_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
_LOOKUPS = {"Gather": "axis", "GatherBlockQuantized": "gather_axis"}
"""Operator → its attribute of the axis of the table that indices run along; 0 where it has none."""
_BLOCK = 1 << 20
"""Logits that are ranked at once."""


@dataclass(frozen=True, slots=True)
class CachedValue:
    """A key or value of the cache of a decoder.

    Args:
        past, present: names of the input and of the output.
        shape: of the input; −1: the axis of samples, and that of tokens.
        axis: that of tokens.
        dtype: numpy's name of its type.
    """

    past: str
    present: str
    shape: tuple[int, ...]
    axis: int
    dtype: str

    def nothing(self, rows: int) -> Array:
        """The value before the first token."""
        sizes = [rows if size == _FREE else size for size in self.shape]
        sizes[self.axis] = 0
        return np.zeros(sizes, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderForm:
    """The inputs and outputs of a decoder's graph.

    Args:
        tokens: the input of token ids (n, t).
        logits: the output (n, t, words), or (n, words) of one that takes one token a run.
        mask: the input (n, s + t) of ones; None: it has none.
        positions: the input (n, t) of places; None: it has none.
        cache: values from run to run; empty: it has no cache.
        given: the inputs that a sample holds, such as the states of an encoder; each run of a
            window takes them as they are.
        one_token: whether a run takes one token alone.
        dtypes: numpy's types of the inputs of whole numbers that are not int64, by name.
        words: tokens of the vocabulary; None: the graph does not say it.
    """

    tokens: str
    logits: str
    words: int | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    mask: str | None = None
    positions: str | None = None
    cache: tuple[CachedValue, ...] = ()
    given: tuple[str, ...] = ()
    one_token: bool = False

    @property
    def name(self) -> str:
        """What a task's name says of it."""
        given = f", {len(self.given)} given" if self.given else ""
        return f"{self.tokens} → {self.logits}, {len(self.cache)} kept{given}"


def decoder_form(
    model: ir.Model, title: str = "the decoder", *, given: Sequence[str] = ()
) -> DecoderForm:
    """What the inputs and outputs of ``model`` are.

    Args:
        title: of the model in errors.
        given: inputs that samples hold, in addition to those with ``encoder`` in their names.

    Raises:
        InputError: no input of tokens, no logits, an input that no decoder has, or a cache whose
            past and present do not match.
    """
    graph, doing = model.graph, f"Reading the inputs of '{title}' as those of a language model"
    inputs = {
        str(value.name): value for value in graph.inputs if value.name not in graph.initializers
    }
    held = tuple(name for name in inputs if name in given or _ENCODER in name.lower())
    inputs = {name: value for name, value in inputs.items() if name not in held}
    outputs = [value for value in graph.outputs if _ENCODER not in str(value.name).lower()]
    whole = [name for name, value in inputs.items() if value.dtype in _INTEGERS]
    mask = next((name for name in whole if "mask" in name.lower()), None)
    positions = next((name for name in whole if "position" in name.lower()), None)
    tokens = [name for name in whole if name not in (mask, positions)]
    if len(tokens) != 1:
        raise InputError(
            doing,
            found=f"{len(tokens)} inputs of whole numbers that are no mask or position "
            f"({', '.join(tokens) or 'none'})",
            expected="one: the ids of tokens (n, t)",
            remedy="Export the decoder alone, with input_ids (n, t).",
        )
    past = {name: value for name, value in inputs.items() if name not in whole}
    cache = _cached_values(past, outputs, doing)
    presents = {one.present for one in cache}
    logits = [value for value in outputs if value.name not in presents]
    named = next((one for one in logits if one.name == "logits"), logits[0] if logits else None)
    if named is None or (named.shape is not None and len(named.shape) not in (2, 3)):
        raise InputError(
            doing,
            found="no output 'logits' of shape (n, t, words)",
            expected="the scores of all tokens as an output",
            remedy="Export the decoder with its head.",
        )
    ids = inputs[tokens[0]]
    return DecoderForm(
        tokens=tokens[0],
        logits=str(named.name),
        dtypes={name: "int32" for name in whole if inputs[name].dtype == ir.DataType.INT32},
        mask=mask,
        positions=positions,
        cache=cache,
        given=held,
        one_token=(named.shape is not None and len(named.shape) == 2)
        or (ids.shape is not None and ids.shape[-1] == 1),
        words=_words(ids, named),
    )


def _words(tokens: ir.Value, logits: ir.Value) -> int | None:
    """The size of the axis of the table along which ``tokens`` are looked up, else the scores of
    one token; None: neither has a fixed size.
    """
    moved = [tokens]
    for value in moved:
        for use in value.uses():
            node = use.node
            if use.idx == 1 and node.op_type in _LOOKUPS and node.inputs[0] is not None:
                axis = int_attribute(node, _LOOKUPS[node.op_type], 0)
                size = _sizes(node.inputs[0])[axis:][:1]
                if size and size[0] != _FREE:
                    return size[0]
            elif use.idx == 0 and (node.op_type == "Cast" or is_mover(node)):
                moved.append(node.outputs[0])
    scores = _sizes(logits)[-1:]
    return scores[0] if scores and scores[0] != _FREE else None


def holds_past(model: ir.Model, names: Collection[str]) -> bool:
    """Whether arrays called ``names`` hold a value of the past that the decoder ``model`` takes."""
    return is_decoder(model) and not _named_past(model).isdisjoint(names)


def is_decoder(model: ir.Model) -> bool:
    """Whether the graph takes tokens and keeps values from run to run."""
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    has_tokens = any(value.dtype in _INTEGERS for value in inputs)
    return has_tokens and bool(_named_past(model))


def _named_past(model: ir.Model) -> set[str]:
    """The inputs that are of a past by their names."""
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    named = {str(value.name) for value in inputs if cache_slot(value) is not None}
    return {name for name in named if "past" in name}


def _cached_values(
    inputs: Mapping[str, ir.Value], outputs: Sequence[ir.Value], doing: str
) -> tuple[CachedValue, ...]:
    """The inputs that hold the past, each with its output."""
    strange = [name for name, value in inputs.items() if cache_slot(value) is None]
    if strange:
        raise InputError(
            doing,
            found=f"the input '{strange[0]}', which is no token, mask, position or past",
            expected="inputs named as a decoder's: input_ids, past_key_values.0.key, …",
            remedy="Export the decoder alone, or name the inputs that samples hold: "
            "decoder_form(model, given=…).",
        )
    past = {slot: value for value in inputs.values() if (slot := cache_slot(value)) is not None}
    if len(past) < len(inputs):
        raise InputError(
            doing,
            found="two inputs for the key or the value of one layer",
            expected="one of each, and 'encoder' in the names of those that an encoder makes",
            remedy="Name the inputs that samples hold: decoder_form(model, given=…).",
        )
    present = {slot: value for value in outputs if (slot := cache_slot(value)) is not None}
    for slots, others, words in (
        (past, present, ("input", "past", "output", "present")),
        (present, past, ("output", "present", "input", "past")),
    ):
        alone = [value.name for slot, value in slots.items() if slot not in others]
        if alone:
            raise InputError(
                doing,
                found=f"the {words[0]} '{alone[0]}', which has no {words[2]}",
                expected=f"for each {words[1]} the {words[3]} of the same number, key or value",
                remedy="Export past and present of every layer, or none of them.",
            )
    return tuple(_pair(value, present[slot], doing) for slot, value in past.items())


def _pair(past: ir.Value, present: ir.Value, doing: str) -> CachedValue:
    before, after = _sizes(past), _sizes(present)
    free = [axis for axis, size in enumerate(before[1:], 1) if size == _FREE]
    fits = not after or (
        len(before) == len(after)
        and all(a == b or _FREE in (a, b) for a, b in zip(before, after, strict=True))
    )
    if not fits or len(free) != 1 or past.dtype != (present.dtype or past.dtype):
        raise InputError(
            doing,
            found=f"'{past.name}' of {_shown(past)} and '{present.name}' of {_shown(present)}",
            expected="one type, and one shape but for the number of tokens, which is a free axis",
            remedy="Export both with a free axis of tokens, (n, heads, tokens, numbers).",
        )
    dtype = (past.dtype or ir.DataType.FLOAT).numpy().name
    return CachedValue(str(past.name), str(present.name), before, free[0], dtype)


def _sizes(value: ir.Value) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else _FREE for size in value.shape or ())


def _shown(value: ir.Value) -> str:
    sizes = ", ".join(str(getattr(size, "value", size)) for size in value.shape or ())
    return f"({sizes}) {value.dtype.name.lower() if value.dtype else 'of no type'}"


class _Text:
    """Rows of tokens that a decoder reads run by run."""

    def __init__(
        self,
        runner: Runner,
        form: DecoderForm,
        ids: Sequence[str],
        given: Mapping[str, Array],
        doing: str,
    ) -> None:
        self._runner, self._form, self._ids, self._doing = runner, form, ids, doing
        self._given = given
        self._is_single = False
        self._past = {one.past: one.nothing(len(ids)) for one in form.cache}
        self._read: Array = np.zeros((len(ids), 0), np.int64)

    def read(self, tokens: Array) -> Array:
        """The logits (n, t, words) behind each of the next ``tokens`` (n, t)."""
        if self._form.one_token and tokens.shape[1] > 1:
            steps = [self._run(tokens[:, step : step + 1]) for step in range(tokens.shape[1])]
            return np.concatenate(steps, axis=1)
        return self._run(tokens)

    def _run(self, tokens: Array) -> Array:
        form, before = self._form, self._read.shape[1]
        self._read = np.concatenate([self._read, tokens], axis=1)
        given = tokens if form.cache else self._read
        first = before if form.cache else 0
        feeds: dict[str, Array] = {form.tokens: given}
        if form.mask is not None:
            feeds[form.mask] = np.ones(self._read.shape, np.int64)
        if form.positions is not None:
            places = np.arange(first, self._read.shape[1])
            feeds[form.positions] = np.tile(places, (len(tokens), 1))
        feeds = {name: one.astype(form.dtypes.get(name, "int64")) for name, one in feeds.items()}
        outputs = self._answered({**feeds, **self._given, **self._past})
        self._past = {one.past: self._output(outputs, one.present) for one in form.cache}
        logits = self._output(outputs, form.logits)
        logits = logits[:, None] if logits.ndim == 2 else logits
        if logits.shape[:2] != given.shape:
            raise InputError(
                self._doing,
                found=f"'{form.logits}' of shape {logits.shape} behind {given.shape[1]} tokens",
                expected=f"({len(tokens)}, {given.shape[1]}, words)",
                remedy="Export the decoder with the scores behind every token.",
            )
        logits = logits[:, -tokens.shape[1] :]
        finite = np.isfinite(logits).all(axis=(1, 2))
        if not finite.all():
            raise InputError(
                f"{self._doing}, sample '{self._ids[int(np.argmin(finite))]}'",
                found=f"NaN or Inf in output '{form.logits}'",
                expected="finite numbers",
                remedy="Look for a kernel or a scale that overflows.",
            )
        return logits

    def _answered(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """What the graph gives for ``feeds``, text by text where its engine takes no several texts:
        ONNX Runtime's GroupQueryAttention, behind a past.
        """
        rows = len(self._ids)
        if not self._is_single:
            try:
                return self._runner.run(feeds)
            except InputError:
                self._is_single = rows > 1
                if rows == 1:
                    raise
        each = [
            self._runner.run({name: one[row : row + 1] for name, one in feeds.items()})
            for row in range(rows)
        ]
        return {name: np.concatenate([one[name] for one in each]) for name in each[0]}

    def _output(self, outputs: Mapping[str, Array], name: str) -> Array:
        if name not in outputs:
            raise InputError(
                self._doing,
                found=f"the outputs {sorted(outputs)}",
                expected=f"one called '{name}'",
                remedy="Keep the outputs of the graph that the task was made for.",
            )
        return np.asarray(outputs[name])


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """Samples of one length, in one run.

    Args:
        places: of the samples. ids: their names.
        tokens: (n, t).
        given: what the samples hold for each run, by input.
    """

    places: list[int]
    ids: list[str]
    tokens: Array
    given: Mapping[str, Array]


def _windows(
    samples: Samples, form: DecoderForm, sequence: str, length: str, batch: int
) -> Iterator[_Windows]:
    """Batches of samples of one length, shortest first, of the size of the batches of ``samples``.

    Each batch is read again: what an encoder made is large, and who follows the batches of
    ``samples`` sees those that run.
    """
    tokens, lengths = [], []
    for feeds in samples.batches(batch):
        if sequence not in feeds:
            raise InputError(
                f"Reading the tokens of '{samples.data}'",
                found=f"the arrays {sorted(feeds)}",
                expected=f"windows of token ids as '{sequence}', (n, t)",
                remedy="Cut the text into tokens by the tokenizer of the model, and store the ids.",
            )
        _require_whole_numbers(feeds[sequence], sequence, samples.data)
        tokens.append(np.asarray(feeds[sequence], np.int64))
        whole = np.full(len(tokens[-1]), tokens[-1].shape[1])
        lengths.append(np.asarray(feeds.get(length, whole)).reshape(-1))
    rows, ends = np.concatenate(tokens), np.concatenate(lengths)
    size = samples.batch_size(batch)
    for one in np.unique(ends):
        places = np.flatnonzero(ends == one)
        for start in range(0, len(places), size):
            chosen = places[start : start + size].tolist()
            ids = [samples.ids[place] for place in chosen]
            given = _given_values(samples, form, chosen)
            yield _Windows(chosen, ids, rows[chosen, : int(one)], given)


def _given_values(samples: Samples, form: DecoderForm, places: list[int]) -> dict[str, Array]:
    (feeds,) = samples.picked(places).batches(len(places))
    missing = [name for name in form.given if name not in feeds]
    if missing:
        raise InputError(
            f"Reading what an encoder made of '{samples.data}'",
            found=f"the arrays {sorted(feeds)}",
            expected=f"one called '{missing[0]}' with a row for each sample, as the decoder takes "
            "it in every run",
            remedy="Run the encoder over the documents, and store what it gives with the tokens.",
        )
    return {name: feeds[name] for name in form.given}


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalLanguageModel:
    """One graph that predicts the next token; the second half of each window is scored, or what is
    behind its first ``context`` tokens.

    Args:
        form: of its graph; ``decoder_form`` reads it.
        k: how many tokens are kept of each distribution.
        run_tokens: of a graph with a cache: how many tokens of the scored half are read in one run,
            behind one run of the half in front of them; 0: a window is one run.
        sequence, length: feeds of the samples: token ids, and how many count (all, where it is
            missing).
        batch: windows in one run.
        context: how many tokens of a window are not scored; None: those of its first half, and one.
    """

    form: DecoderForm
    k: int = 32
    run_tokens: int = 32
    sequence: str = "input_ids"
    length: str = "length"
    batch: int = BATCH
    context: int | None = None

    def __post_init__(self) -> None:
        if min(self.k, self.batch, self.run_tokens + 1) < 1:
            raise ValueError("k and batch are 1 at least, and run_tokens is not below 0")
        if self.context is not None and self.context < 1:
            raise ValueError("context is 1 at least, as nothing predicts the first token")

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """None: what is right comes with the text."""
        return ()

    @property
    def usual_comparisons(self) -> tuple[str, ...]:
        """Perplexity, divergence and equal first choices."""
        return ("token_perplexity", "token_kl", "token_top1")

    @property
    def name(self) -> str:
        """Every setting in one line."""
        scored = "second half" if self.context is None else f"behind {self.context} tokens"
        return (
            f"causal_lm({self.form.name}, {self.sequence}, {scored}, k={self.k}, "
            f"run_tokens={self.run_tokens}, batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The scored tokens of every window.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named); a window has fewer than three tokens; or a token is not in the vocabulary.
        """
        runner, doing = runner_named(runners, GRAPH, self.name), f"Scoring '{samples.data}'"
        parts: dict[int, tuple[Array, ...]] = {}
        words = 0
        for each in _windows(samples, self.form, self.sequence, self.length, self.batch):
            tokens, ids = each.tokens, each.ids
            first = self._first(tokens.shape[1])
            _require_window(tokens, max(3, first + 1), ids[0], doing)
            _require_all_known(each, self.form, doing)
            rows: list[list[tuple[Array, ...]]] = [[] for _ in ids]
            text = _Text(runner, self.form, ids, each.given, doing)
            for start, logits in self._logits(text, tokens):
                words = logits.shape[2]
                skipped = max(first - 1 - start, 0)
                came = tokens[:, start + 1 + skipped : start + 1 + logits.shape[1]]
                for row, (scores, right) in enumerate(zip(logits[:, skipped:], came, strict=True)):
                    _require_known(right, words, ids[row], doing)
                    rows[row].append(_listed(scores, right, self.k))
            for place, found in zip(each.places, rows, strict=True):
                parts[place] = tuple(np.concatenate(one) for one in zip(*found, strict=True))
        ordered = [parts[place] for place in range(len(samples))]
        realised, top, logprobs, floor = (np.concatenate(one) for one in zip(*ordered, strict=True))
        lengths = np.array([len(one[0]) for one in ordered], np.int64)
        return TokenStreams(lengths, realised, top, logprobs, floor, words)

    def _first(self, length: int) -> int:
        """The place of the first token that is scored, of a window of ``length`` tokens."""
        return window_context(length) if self.context is None else self.context

    def _logits(self, text: _Text, tokens: Array) -> Iterator[tuple[int, Array]]:
        """The place of the first token of each run, and the logits behind its tokens; the last
        token of a window has no next one and is not read.
        """
        last, context = tokens.shape[1] - 1, self._first(tokens.shape[1]) - 1
        if not self.form.cache or not self.run_tokens:
            yield 0, text.read(tokens[:, :last])
            return
        if context:
            text.read(tokens[:, :context])
        for start in range(context, last, self.run_tokens):
            yield start, text.read(tokens[:, start : min(start + self.run_tokens, last)])

    def restored(self, arrays: Mapping[str, Array]) -> TokenStreams:
        """The streams whose arrays these are.

        Raises:
            ValueError: they are not those of streams.
        """
        return stored_streams(arrays)


def causal_lm(model: ir.Model, title: str = "the decoder") -> CausalLanguageModel:
    """The task of a decoder's graph.

    Raises:
        InputError: its inputs and outputs are not those of one (``decoder_form``).
    """
    form = decoder_form(model, title)
    return CausalLanguageModel(form=form, sequence=form.tokens)


def _require_window(tokens: Array, least: int, sample: str, doing: str) -> None:
    if tokens.shape[1] < least:
        raise InputError(
            f"{doing}, sample '{sample}'",
            found=f"a window of {tokens.shape[1]} tokens",
            expected=f"{least} at least, as those behind the context are scored",
            remedy="Cut the text into longer windows; llama.cpp takes 512 tokens.",
        )


def _require_whole_numbers(tokens: Array, sequence: str, data: str) -> None:
    if not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(
            f"Reading the tokens of '{data}'",
            found=f"numbers of {tokens.dtype} in '{sequence}'",
            expected="whole numbers, the ids of tokens",
            remedy="Cut the text into tokens by the tokenizer of the model, and store the ids.",
        )


def _require_all_known(windows: _Windows, form: DecoderForm, doing: str) -> None:
    """Check every token before an engine reads it: one counts −1 from the end, another reads what
    is behind the table.
    """
    for row, sample in zip(windows.tokens, windows.ids, strict=True):
        _require_known(row, form.words, sample, doing)


def _require_known(tokens: Array, words: int | None, sample: str, doing: str) -> None:
    """Check that ``tokens`` are in a vocabulary of ``words``; None: its size is not known yet."""
    outside = tokens < 0
    known = "0 on"
    if words is not None:
        outside |= tokens >= words
        known = f"0 to {words - 1}, as the model has {words}"
    if outside.any():
        raise InputError(
            f"{doing}, sample '{sample}'",
            found=f"token {tokens[int(np.argmax(outside))]}",
            expected=f"tokens from {known}",
            remedy="Cut the text into tokens by the tokenizer of this model.",
        )


def _listed(logits: Array, came: Array, k: int) -> tuple[Array, ...]:
    """Of ``logits`` (t, words) and the tokens (t,) that came: their log-probability (t,), the k
    best tokens and theirs (t, k), and the least of all (t,), as float32 holds them.
    """
    found = []
    step = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(logits), step):
        wide = logits[start : start + step].astype(np.float64)
        wide -= wide.max(axis=1, keepdims=True)
        wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
        right = np.take_along_axis(wide, came[start : start + step, None], axis=1)[:, 0]
        count = min(k, wide.shape[1])
        best: npt.NDArray[np.intp]
        best = np.sort(np.argpartition(-wide, count - 1, axis=1)[:, :count], axis=1)
        shares = np.take_along_axis(wide, best, axis=1)
        # stable: equal ones by rising id
        order = np.argsort(-shares, axis=1, kind="stable")
        shares = np.take_along_axis(shares, order, axis=1)
        # the floor has to stay one when it is rounded
        least = np.nextafter(wide.min(axis=1).astype(np.float32), np.float32(-np.inf))
        top = np.take_along_axis(best, order, axis=1).astype(np.int64)
        found.append((_short(right), top, _short(shares), least.astype(np.float64)))
    return tuple(np.concatenate(one) for one in zip(*found, strict=True))


def _short(values: Array) -> Array:
    """``values`` as float32 holds them; stored answers have four bytes for each."""
    return np.asarray(np.minimum(values, 0.0).astype(np.float32).astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyText:
    """One graph that continues the first half of each window with its most probable tokens.

    Args:
        form, sequence, length, batch: as of ``CausalLanguageModel``.
        limit: tokens of an answer.
        end: the token that ends one and is no part of it; None: there is none.
    """

    form: DecoderForm
    limit: int = 64
    end: int | None = None
    sequence: str = "input_ids"
    length: str = "length"
    batch: int = BATCH

    def __post_init__(self) -> None:
        if min(self.limit, self.batch) < 1:
            raise ValueError("limit and batch are 1 at least")

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """None: the text of a model is not right or wrong."""
        return ()

    @property
    def usual_comparisons(self) -> tuple[str, ...]:
        """How long the text is that of fp32, and which is so to its end."""
        return ("same_start", "agreement")

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return (
            f"greedy text({self.form.name}, {self.sequence}, limit={self.limit}, end={self.end}, "
            f"batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The tokens that continue each window, (n, limit) int32 padded with ``PADDING``; the
        lowest id among equal logits.

        Raises:
            InputError: as of ``CausalLanguageModel.answer``.
        """
        runner, doing = runner_named(runners, GRAPH, self.name), f"Continuing '{samples.data}'"
        answers = np.full((len(samples), self.limit), PADDING, np.int32)
        for each in _windows(samples, self.form, self.sequence, self.length, self.batch):
            tokens, places = each.tokens, each.places
            _require_window(tokens, 3, each.ids[0], doing)
            _require_all_known(each, self.form, doing)
            text = _Text(runner, self.form, each.ids, each.given, doing)
            given = tokens[:, : window_context(tokens.shape[1]) - 1]
            running = np.ones(len(places), np.bool_)
            for step in range(self.limit):
                # the first of equals, which is the lowest id
                best = text.read(given)[:, -1].argmax(axis=1)
                running &= best != (PADDING if self.end is None else self.end)
                answers[np.array(places)[running], step] = best[running]
                if not running.any():
                    break
                given = best[:, None].astype(np.int64)
        return IntegerAnswers(answers, kind=AnswerKind.SEQUENCE)
