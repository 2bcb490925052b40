"""Compiled query encoding beside the plain modules: the same vectors, but for rounded weights."""

import copy
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

pytest.importorskip("numba")
from numba import njit

from glassrank.deadline import Deadline, LateError, ending
from glassrank.errors import InputError
from glassrank.nn.configs import distance_kinds
from glassrank.nn.cpu import amx, barrier, few_rows, row_integers
from glassrank.nn.cpu.block_layout import in_whole_numbers
from glassrank.nn.cpu.query_encoders import ContextualQueryOnCPU, EncoderOnCPU, arrays_of
from glassrank.nn.cpu.row_integers import bytes_of, integers_of
from glassrank.nn.cpu.row_products import Way, multiply, ways
from glassrank.nn.cpu.simd import pointer
from glassrank.nn.cpu.text_encoders import BERTRows
from glassrank.nn.threads import apart, lead, one_thread
from glassrank.nn.transformer import (
    Activation,
    ContextualConfig,
    ContextualLayers,
    Encoder,
    EncoderConfig,
)

ALL: tuple[Way, ...] = ("tiles", "integers", "floats")
WAYS = [
    pytest.param(
        way, marks=pytest.mark.skipif(way not in ways(), reason=f"this processor has no {way}")
    )
    for way in ALL
]
every_way = pytest.mark.parametrize("way", WAYS)
SMALL = EncoderConfig(vocabulary=50, size=40, layers=3, heads=4, feed_forward=72, positions=80)
TK = ContextualConfig(layers=2, heads=10, attention_size=32, per_head=True, feed_forward=300)


def trained(module: nn.Module, seed: int = 0, by: float = 0.05) -> Any:
    """With weights as large as those of trained models: of fresh ones mistakes would not show.
    Rounded to bfloat16 where they are multiplied, so that rounding them once more changes
    nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=generator))
        for part in module.modules():
            if isinstance(part, nn.Linear):
                part.weight.copy_(part.weight.bfloat16())
    return module.eval()


def text(length: int, seed: int = 0, vocabulary: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (1, length), generator=generator), torch.ones(1, length)


def check(found: Tensor, plain: nn.Module, given: tuple[Tensor, Tensor], way: Way) -> None:
    """No further from the plain module than that is in PyTorch's bfloat16, which rounds rows as
    tiles do, and what it adds up besides. Floats round nothing but the weights, which were rounded
    beforehand; integers round both, to a tenth of that."""
    expected = plain(*given)
    short = copy.deepcopy(plain).bfloat16()
    first = given[0].bfloat16() if given[0].is_floating_point() else given[0]
    usual = (short(first, given[1].bfloat16()).float() - expected).pow(2).mean().sqrt()
    assert found.dtype == torch.float32 and found.shape == expected.shape
    off = (found - expected).pow(2).mean().sqrt()
    assert off <= {"tiles": 1.2, "integers": 0.15, "floats": 0.02}[way] * usual + 1e-5


@pytest.fixture(scope="module", params=WAYS)
def small(request: pytest.FixtureRequest) -> Iterator[tuple[Encoder, EncoderOnCPU, Way]]:
    encoder = trained(Encoder(SMALL))
    yield encoder, EncoderOnCPU(encoder, way=request.param), request.param


@torch.no_grad()
@pytest.mark.parametrize("length", range(1, 81))
def test_same_rows_for_every_length(small: tuple[Encoder, EncoderOnCPU, Way], length: int) -> None:
    encoder, fast, way = small
    ids, mask = text(length, length)
    check(fast(ids, mask), encoder, (ids, mask), way)


@every_way
@settings(max_examples=15, deadline=None)
@given(
    layers=st.integers(0, 4),
    heads=st.integers(1, 5),
    channels=st.integers(1, 40),
    feed_forward=st.integers(1, 150),
    activation=st.sampled_from(["gelu", "gelu_tanh", "relu"]),
    epsilon=st.sampled_from([1e-12, 1e-5]),
    length=st.integers(1, 64),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@example(2, 12, 32, 1536, "gelu", 1e-12, 12, 2, 0)
@example(1, 12, 64, 3072, "gelu", 1e-12, 33, 2, 0)
@torch.no_grad()
@pytest.mark.long
def test_same_rows_for_every_size(
    way: Way,
    layers: int,
    heads: int,
    channels: int,
    feed_forward: int,
    activation: Activation,
    epsilon: float,
    length: int,
    threads: int,
    seed: int,
) -> None:
    assume(heads * channels >= 16)  # norms of fewer values may divide by next to nothing
    config = EncoderConfig(
        50, heads * channels, layers, heads, feed_forward, 64,
        activation=activation, epsilon=epsilon,
    )  # fmt: skip
    encoder = trained(Encoder(config), seed)
    ids, mask = text(length, seed)
    fast = EncoderOnCPU(encoder, way=way, threads=threads)
    check(fast(ids, mask), encoder, (ids, mask), way)


@every_way
@pytest.mark.parametrize(("size", "heads"), [(64, 2), (128, 2)])  # as wide as a tile, and wider
def test_distances_count_as_in_the_plain_encoder(way: Way, size: int, heads: int) -> None:
    config = EncoderConfig(50, size, 2, heads, 64, 180, distances=32)
    plain = trained(Encoder(config))
    with torch.no_grad():
        plain.distances.bias.weight.normal_(generator=torch.Generator().manual_seed(1))
    fast = EncoderOnCPU(plain, way=way)
    for length in (1, 5, 17, 33, 180):
        given = text(length)
        check(fast(*given), plain, given, way)


def test_kinds_of_distances_are_those_of_t5_and_mpnet() -> None:
    """As their code has it: in float32, from a distance of its logarithm."""
    back = 511 - torch.arange(1023)
    far = (back.abs().clamp(min=1).float() / 8).log() / math.log(128 / 8) * 8
    kinds = torch.where(back.abs() < 8, back.abs(), (8 + far.long()).clamp(max=15))
    assert np.array_equal(distance_kinds(512, 32), (kinds + 16 * (back < 0)).numpy())


@every_way
@settings(max_examples=15, deadline=None)
@given(
    config=st.builds(
        ContextualConfig,
        layers=st.integers(1, 3),
        heads=st.integers(1, 4),
        attention_size=st.integers(1, 36),
        per_head=st.just(True),
        feed_forward=st.integers(1, 80),
    ),
    size=st.integers(16, 90),
    length=st.integers(0, 64),
    padding=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@example(TK, 300, 30, 0, 0)
@example(TK, 300, 1, 0, 0)
@torch.no_grad()
def test_same_words_as_the_plain_contextual_layers(
    way: Way, config: ContextualConfig, size: int, length: int, padding: int, seed: int
) -> None:
    layers = trained(ContextualLayers(size, config), seed)
    generator = torch.Generator().manual_seed(seed)
    words = torch.randn(1, length + padding, size, generator=generator)
    mask = (torch.arange(length + padding) < length).float()[None]
    if length:
        found = ContextualQueryOnCPU(layers, way=way)(words, mask)
        check(found[:, :length], layers, (words[:, :length], mask[:, :length]), way)
        assert not found[:, length:].any()
    else:
        assert not ContextualQueryOnCPU(layers, way=way)(words, mask).any()


@every_way
@torch.no_grad()
def test_weights_are_rounded_to_16_bits_and_no_further(way: Way) -> None:
    encoder = Encoder(EncoderConfig(vocabulary=50, size=96, layers=6, heads=6, feed_forward=384))
    for parameter in encoder.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    ids, mask = text(12)
    expected, found = encoder.eval()(ids, mask), EncoderOnCPU(encoder, way=way)(ids, mask)
    rounded = copy.deepcopy(encoder).bfloat16()(ids, mask).float()
    off, usual = ((x - expected).pow(2).mean().sqrt() for x in (found, rounded))
    assert off < 0.6 * usual  # PyTorch's bfloat16 rounds every step


@torch.no_grad()
def test_what_stands_in_padding_does_not_matter(small: tuple[Encoder, EncoderOnCPU, Way]) -> None:
    _, fast, _ = small
    ids, mask = text(7)
    wider = torch.cat([ids, torch.tensor([[9, 9]])], 1)
    found = fast(wider, torch.cat([mask, torch.zeros(1, 2)], 1))
    assert found.shape == (1, 9, 40) and not found[:, 7:].any()
    assert torch.equal(found[:, :7], fast(ids, mask))
    assert fast(ids[:, :0], mask[:, :0]).shape == (1, 0, 40)


@every_way
def test_results_do_not_depend_on_who_comes(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares are the same, and so is the order in which they are added."""
    encoder = trained(Encoder(SMALL))
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    fast = EncoderOnCPU(encoder, way=way, threads=3)
    batch = text(20)
    together = [fast(*batch) for _ in range(50)]
    monkeypatch.setattr(few_rows, "lead", lambda work, invited: work(True))
    alone = fast(*batch)
    assert all(torch.equal(found, alone) for found in together)


def test_one_that_joins_and_then_never_works_is_not_waited_for() -> None:
    """As if the machine had taken its processor away: it enters, and does nothing more."""
    encoder = trained(Encoder(SMALL))
    fast = EncoderOnCPU(encoder, threads=2)
    rows, batch = fast._rows, text(20)
    expected = fast(*batch)
    seen: list[np.ndarray] = []

    def lead(work: Any, invited: int) -> Any:
        cells = dict(zip(work.__code__.co_freevars, work.__closure__, strict=True))
        met = cells["job"].cell_contents[5]
        met[0] = invited  # they came
        seen.append(met)
        return work(True)

    before = few_rows.lead
    few_rows.lead = lead
    try:
        rows._alone, rows._next_alone = 0, few_rows._FIRST_ALONE
        assert torch.equal(fast(*batch), expected)
    finally:
        few_rows.lead = before
    if rows._shares > 1:
        assert min(seen[0][[barrier._PROGRESS, barrier._ARRIVED]]) >= barrier._DISMISSED
        assert rows._alone == few_rows._FIRST_ALONE


@pytest.mark.parametrize(
    ("came", "apart"),
    [(0, [2, 4, 8, 16, 20, 20]), (1, [1] * 79)],  # dismissed, and woken too late or never
)
def test_after_one_that_did_not_go_on_texts_are_encoded_alone(
    came: int, apart: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    fast = EncoderOnCPU(trained(Encoder(SMALL)), threads=2)
    asked: list[int] = []

    def lead(work: Any, invited: int) -> Any:
        asked.append(invited)
        return came if invited else work(True)

    monkeypatch.setattr(few_rows, "lead", lead)
    fast._rows._alone, fast._rows._next_alone = 0, few_rows._FIRST_ALONE
    for _ in range(80):
        fast(*text(5))
    assert np.diff(np.flatnonzero(asked)).tolist() == apart  # the longer, the oftener it was so


@every_way
def test_one_that_comes_late_joins_at_a_later_block(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes over the leader's rows as they are by then."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    config = EncoderConfig(vocabulary=50, size=384, layers=4, heads=12, feed_forward=1536)
    fast = EncoderOnCPU(trained(Encoder(config)), threads=2, way=way)
    batch = text(80)
    monkeypatch.setattr(few_rows, "lead", lambda work, invited: work(True))
    expected, came = fast(*batch), set()

    def lead(work: Any, invited: int) -> Any:
        cells = dict(zip(work.__code__.co_freevars, work.__closure__, strict=True))
        met = cells["job"].cell_contents[5]

        def late() -> None:
            while met[barrier._PROGRESS] < 3 * barrier._STEP:  # the second block has begun
                pass
            work(False)

        other = threading.Thread(target=late)
        other.start()
        came.add(work(True))
        other.join(timeout=60)
        return 1

    monkeypatch.setattr(few_rows, "lead", lead)
    for _ in range(200):  # a busy machine may need more than one attempt
        fast._rows._alone = 0
        assert torch.equal(fast(*batch), expected)
        if 2 in came:
            break
    assert 2 in came


def test_a_model_that_is_loaded_by_one_thread_encodes_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folders are read by one thread, whose steps are short."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(few_rows, "_WORTH", 100)
    monkeypatch.setattr(few_rows, "_FEWEST_WEIGHTS", dict.fromkeys(ALL, 100))
    torch.set_num_threads(2)
    with one_thread():
        fast = EncoderOnCPU(trained(Encoder(SMALL)))
    assert fast._rows._shares == 2


def test_many_callers_at_once() -> None:
    encoder = trained(Encoder(SMALL))
    fast = EncoderOnCPU(encoder, threads=2)
    texts = [text(1 + 7 * number, number) for number in range(6)]
    expected = [fast(*one) for one in texts]
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(40):
            if not torch.equal(fast(*texts[number]), expected[number]):
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
        assert not caller.is_alive()
    assert not wrong


@pytest.mark.parametrize(
    ("ids", "mask", "problem"),
    [
        ([[1, 50]], [[1, 1]], "between 0 and 49"),
        ([[-1, 3]], [[1, 1]], "between 0 and 49"),
        ([[1] * 81], [[1] * 81], "81 pieces is longer than the 80"),
        ([[1], [2]], [[1], [1]], "one text at a time"),
        ([[1, 2]], [[1]], "one text at a time"),
        ([[1, 2]], [[0, 1]], "1 for a text's first words"),
    ],
)
def test_what_cannot_be_read_is_refused(
    small: tuple[Encoder, EncoderOnCPU, Way], ids: list[Any], mask: list[Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        small[1](torch.tensor(ids), torch.tensor(mask, dtype=torch.float32))


def test_words_of_another_size_are_refused() -> None:
    layers = trained(ContextualLayers(24, ContextualConfig(heads=2, attention_size=8)))
    with pytest.raises(InputError, match="24 float32"):
        ContextualQueryOnCPU(layers)(torch.zeros(1, 3, 25), torch.ones(1, 3))


def test_the_way_is_what_the_processor_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = trained(Encoder(SMALL))
    usable = (amx.usable(), row_integers.usable(), True)
    assert EncoderOnCPU(encoder)._rows.way == ALL[usable.index(True)]
    monkeypatch.setattr(amx, "usable", lambda: False)
    monkeypatch.setattr(row_integers, "usable", lambda: False)
    assert EncoderOnCPU(encoder)._rows.way == "floats"
    with pytest.raises(InputError, match="this processor has no tiles"):
        EncoderOnCPU(encoder, way="tiles")
    with pytest.raises(InputError, match="this processor has no integers"):
        EncoderOnCPU(encoder, way="integers")


def in_bytes(weight: Any) -> Any:
    """(N, K) as a file with 8 bits has them."""
    scales = np.maximum(np.abs(weight).max(1), 1e-12).astype(np.float32) / np.float32(127)
    return np.rint(weight / scales[:, None]).astype(np.int8) * scales[:, None]


def test_weights_of_8_bits_are_known_by_their_values() -> None:
    """As they were, with a scale of each output; others are not taken for such."""
    drawn = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32)
    drawn[7] = 0
    drawn *= 10.0 ** np.linspace(-6, 6, 64)[:, None]
    weight = in_bytes(drawn.astype(np.float32))
    found = bytes_of(weight)
    assert found is not None and found[0].dtype == np.int8 and not found[0][7].any()
    np.testing.assert_allclose(found[0] * found[1][:, None], weight, rtol=1e-6)
    assert bytes_of(drawn.astype(np.float32)) is None
    weight[3, 5] += 0.01 * np.abs(weight[3]).max()
    assert bytes_of(weight) is None


@pytest.mark.skipif(not row_integers.usable(), reason="this processor has no integers")
@pytest.mark.parametrize("threads", [1, 2])
def test_an_encoder_of_8_bits_is_the_plain_one(threads: int) -> None:
    """Its weights are taken as they are: nothing is rounded but rows."""
    encoder = trained(Encoder(SMALL))
    with torch.no_grad():
        for part in encoder.modules():
            if isinstance(part, nn.Linear):
                part.weight.copy_(torch.from_numpy(in_bytes(part.weight.numpy())))
    fast = EncoderOnCPU(encoder, threads=threads, way="integers")
    assert fast._rows._blocks.weights.dtype == np.int8
    given = text(21)
    with torch.no_grad():
        torch.testing.assert_close(fast(*given), encoder(*given), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_weights_begin_where_a_line_of_the_cache_does(way: Way) -> None:
    """Else each load of them would be of two lines."""
    weights = EncoderOnCPU(trained(Encoder(SMALL)), way=way)._rows._blocks.weights
    assert weights.ctypes.data % 64 == 0


@pytest.mark.parametrize("inputs", [32, 384, 4096])
def test_no_sum_of_whole_numbers_passes_31_bits(inputs: int) -> None:
    """Nor do whole numbers pass 16 bits, of what is spread evenly or stands in one place."""
    even, one = np.full(inputs, 0.3, np.float32), np.zeros(inputs, np.float32)
    one[3] = -1e4
    drawn = np.random.default_rng(0).normal(size=inputs).astype(np.float32)
    numbers, scales = integers_of(np.stack([even, -even, one, drawn, 0 * one]))
    products = numbers.astype(np.int64) @ numbers.astype(np.int64).T
    assert np.abs(products).max() < 2**31
    assert np.abs(numbers.astype(np.int64)).max() <= 32_767 and not numbers[4].any()
    np.testing.assert_allclose(numbers[3] * scales[3], drawn, atol=0.51 * scales[3])
    assert scales[3] < 1.1e-3 * (inputs / 384) ** 0.5 * np.sqrt((drawn**2).mean()) / 2


@njit
def _product(rows: Any, count: int, weights: Any, bias: Any, panel: Any, out: Any) -> int:
    """Of the first `count` rows; where the next weights would begin."""
    at = multiply(
        pointer(rows), count, rows.shape[1], pointer(weights), 0, pointer(bias), len(bias),
        pointer(panel), pointer(out),
    )  # fmt: skip
    return int(at)


@pytest.mark.skipif(not row_integers.usable(), reason="this processor has no integers")
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 12, 13, 31])
def test_products_of_whole_numbers_are_those_of_their_numbers(count: int, bits: int) -> None:
    """To the last digits of float32, since sums of integers are exact: rows that are large, small,
    zero, and of one number alone."""
    rng = np.random.default_rng(count)
    inputs, outputs = 96, 64
    rows = rng.normal(size=(32, inputs)).astype(np.float32) * 10.0 ** rng.integers(-4, 4, (32, 1))
    rows = rows.astype(np.float32)
    rows[0] = 0
    rows[min(3, count - 1), 1:] = 0
    weight = rng.normal(size=(outputs, inputs)).astype(np.float32)
    weight[5] = 0
    if bits == 8:
        weight = in_bytes(weight)
    numbers, scales = integers_of(weight) if bits == 16 else bytes_of(weight) or pytest.fail()
    bias = rng.normal(size=outputs).astype(np.float32)
    panel = np.zeros(row_integers.panel_size(32, inputs), np.float32)
    out = np.full((32, outputs), np.nan, np.float32)
    packed = in_whole_numbers(numbers, scales)
    assert packed.itemsize * 8 == bits

    assert _product(rows, count, packed, bias, panel, out) == len(packed)
    whole_rows, row_scales = integers_of(rows[:count])
    sums = whole_rows.astype(np.int64) @ numbers.T.astype(np.int64)
    wanted = sums * row_scales[:, None].astype(float) * scales + bias
    sizes = np.linalg.norm(rows[:count], axis=1)[:, None] * np.linalg.norm(weight, axis=1) + 1
    assert (np.abs(out[:count] - wanted) <= 2e-4 * sizes).all()
    plain = rows[:count].astype(float) @ weight.T + bias
    assert (np.abs(out[:count] - plain) <= 5e-4 * sizes).all()


def test_tiny_numbers_are_as_before_for_everyone_else(
    small: tuple[Encoder, EncoderOnCPU, Way],
) -> None:
    small[1](*text(5))
    assert np.float32(1e-30) * np.float32(1e-10) > 0


def test_threads_share_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is much to do, and not while each thread has documents of its own."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(few_rows, "_FEWEST_WEIGHTS", dict.fromkeys(ALL, 1))
    invited: list[int] = []

    def noting(work: Callable[[bool], int], others: int) -> int:
        invited.append(others)
        return lead(work, others)

    monkeypatch.setattr(few_rows, "lead", noting)
    torch.set_num_threads(2)
    rows = BERTRows(SMALL, arrays_of(trained(Encoder(SMALL))), way="floats")
    lengths = np.array([30, 3, 41])
    ids = np.random.default_rng(0).integers(0, 50, lengths.sum())
    invited.clear()
    plain = rows(ids, lengths)
    monkeypatch.setattr(few_rows, "_WORTH", 1)
    shared = rows(ids, lengths)
    with one_thread():
        apart = rows(ids, lengths)
    assert invited == [0, 1, 0]
    np.testing.assert_array_equal(shared, plain)
    np.testing.assert_array_equal(apart, plain)


@every_way
def test_texts_one_after_another_are_as_each_alone(way: Way) -> None:
    """Long ones, which attend by tiles, beside short ones, which do not."""
    encoder = trained(Encoder(SMALL))
    rows = BERTRows(SMALL, arrays_of(encoder), way=way)
    lengths = np.array([3, 40, 0, 31, 32, 80, 1, 65])
    ids = np.random.default_rng(0).integers(0, 50, lengths.sum())
    together = rows(ids, lengths)
    for text_ids, alone in zip(
        np.split(ids, np.cumsum(lengths)[:-1]),
        np.split(together, np.cumsum(lengths)[:-1]),
        strict=True,
    ):
        np.testing.assert_array_equal(rows(text_ids), alone)
    with pytest.raises(InputError, match="not those of texts of these lengths"):
        rows(ids, lengths[1:])


@pytest.mark.parametrize("threads", [1, 2])
def test_what_must_end_is_stopped_after_a_block(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what comes next is as if nothing had been."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    rows = BERTRows(SMALL, arrays_of(trained(Encoder(SMALL))), threads=threads)
    ids = np.random.default_rng(0).integers(0, 50, 70)
    expected = rows(ids)
    gave: list[int] = []

    def noting(work: Callable[[bool], int], others: int) -> int:
        gave.append(lead(work, others))
        return gave[-1]

    monkeypatch.setattr(few_rows, "lead", noting)
    for _ in range(20):
        with ending(Deadline.after(0.0)), pytest.raises(LateError, match="to encode a text"):
            rows(ids)
        np.testing.assert_array_equal(rows(ids), expected)
    assert gave[::2] == [-1] * 20  # of six blocks, the first was done
    with ending(Deadline.after(60_000.0)):
        np.testing.assert_array_equal(rows(ids), expected)


def test_one_that_comes_after_all_has_ended_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another came and did nothing, so that the leader was alone when its time was up: it has said
    twice that nobody need go on."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    rows = BERTRows(SMALL, arrays_of(trained(Encoder(SMALL))), threads=3)
    waits: list[bool] = []

    def busy(work: Callable[[bool], int], others: int) -> int:
        cells = dict(zip(work.__code__.co_freevars, work.__closure__ or (), strict=True))
        cells["job"].cell_contents[5][barrier._JOINED] = 1
        gave = work(True)
        late = threading.Thread(target=work, args=(False,), daemon=True)
        late.start()
        late.join(timeout=20)
        waits.append(late.is_alive())
        return gave

    monkeypatch.setattr(few_rows, "lead", busy)
    with ending(Deadline.after(0.0)), pytest.raises(LateError):
        rows(np.arange(30))
    assert waits == [False]


def test_threads_that_work_apart_know_when_to_end() -> None:
    rows = BERTRows(SMALL, arrays_of(trained(Encoder(SMALL))))
    texts = [np.arange(9), np.arange(30)]
    with ending(Deadline.after(0.0)), pytest.raises(LateError):
        apart(rows, texts)
    for found, one in zip(apart(rows, texts), texts, strict=True):
        np.testing.assert_array_equal(found, rows(one))


@njit(nogil=True)
def _waits(counters: Any) -> Any:
    began = barrier.clock()
    came = barrier._wait_some_time(pointer(counters), 0, 1, 10**12)
    return came, barrier.clock() - began


def test_a_leader_waits_for_a_limited_time_and_in_little_memory() -> None:
    """However long its own work took, as when it was interrupted."""
    _waits(barrier.counters())  # compiles
    told: list[tuple[bool, int]] = []
    before = threading.stack_size(1 << 18)
    try:
        waiting = threading.Thread(target=lambda: told.append(_waits(barrier.counters())))
        waiting.start()
        waiting.join()
    finally:
        threading.stack_size(before)
    (came, nanoseconds), *_ = told
    assert not came and nanoseconds >= barrier._LONGEST
