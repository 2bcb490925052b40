"""BERT's encoder for documents on a CPU is the plain one, rounded."""

import pytest
import torch

from glassrank.errors import InputError
from glassrank.nn.cpu.doc_encoders import DocsEncoderOnCPU, packs
from glassrank.nn.transformer import Activation, Encoder, EncoderConfig


def encoder(**settings: object) -> Encoder:
    torch.manual_seed(0)
    config = EncoderConfig(50, 64, 2, 2, 96, 40, dropout=0.0, **settings)  # type: ignore[arg-type]
    made = Encoder(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def texts(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(1, 50, (len(lengths), max(lengths)))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).float()
    return ids * mask.long(), mask


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("lengths", [(5,), (7, 7, 7), (1, 33, 16, 17, 40), (3, 0, 4)])
def test_it_computes_what_the_plain_one_does(
    activation: Activation, lengths: tuple[int, ...]
) -> None:
    plain = encoder(activation=activation)
    ids, mask = texts(*lengths)
    with torch.no_grad():
        wanted = plain(ids, mask) * mask[..., None]
    exact = DocsEncoderOnCPU(plain, torch.float32)(ids, mask)
    torch.testing.assert_close(exact, wanted, rtol=1e-4, atol=1e-4)
    rounded = DocsEncoderOnCPU(plain)(ids, mask).float()
    assert (rounded - wanted).norm() / wanted.norm() < 0.02
    assert not rounded[mask == 0].any()


def test_a_text_is_the_same_beside_others() -> None:
    fast = DocsEncoderOnCPU(encoder())
    ids, mask = texts(12, 30, 9)
    together = fast(ids, mask)
    alone = fast(ids[:1, :12], mask[:1, :12])
    torch.testing.assert_close(together[0, :12], alone[0], rtol=0.02, atol=0.02)


def test_what_it_cannot_do_is_left_to_the_plain_one() -> None:
    for settings in ({"distances": 32}, {"activation": "gelu_tanh"}):
        plain = encoder(**settings)
        assert not packs(plain)
        with pytest.raises(InputError, match="use the plain one"):
            DocsEncoderOnCPU(plain)
    with pytest.raises(InputError, match="longer than the 40"):
        DocsEncoderOnCPU(encoder())(*texts(41))
