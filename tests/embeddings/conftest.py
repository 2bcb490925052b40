"""Makes small stores fast to write, and small models fast to run."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def without_waiting() -> Iterator[None]:
    """Nothing here needs to survive a power cut, nor is large enough for several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield
    torch.set_num_threads(threads)
