"""Processes that share the work of one program, as torchrun starts them.

All processes run the same program on the same data. Each computes a part of every batch. They
exchange sums, so that all have the same numbers after each step.
"""

import atexit
import os
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Self, TypeVar, final

from preferl.errors import ConfigError, PreferlError
from preferl.reading import reading

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")

VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets for each process."""


def launched() -> tuple[int, int]:
    """Return this process's rank and the number of processes; `(0, 1)` without torchrun.

    It loads no torch.

    Raises:
        ConfigError: these environment variables are not numbers.
    """
    if not all(name in os.environ for name in VARIABLES):
        return 0, 1
    with reading("torchrun's RANK and WORLD_SIZE", expected="numbers", error=ConfigError):
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


@final
class World:
    """The processes that torchrun started, and their exchanges; by default one process alone.

    All processes have to make the same calls in the same order, since each waits for the others. A
    process alone waits for nobody, and computes the same numbers as a program without a `World`.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        seconds: time spent in exchanges so far, including waits for slower processes.

    >>> World().part(10), World(1, 3).part(10), World(1, 3).own("abcdef")
    (slice(0, 10, None), slice(3, 6, None), 'be')
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.seconds = 0.0

    @classmethod
    def join(cls) -> Self:
        """Join the processes that torchrun started with this one; without torchrun, stay alone.

        Processes communicate by gloo on processors and by NCCL on GPUs. From now on, `"cuda"` is
        the GPU with this process's number on its machine.

        Raises:
            ConfigError: the other processes cannot be reached, or there is no such GPU.
        """
        import torch
        from torch import distributed

        if launched()[1] == 1 and not _is_joined():
            return cls()
        if not _is_joined():
            has_gpu = torch.cuda.is_available()
            expected = "processes that can be reached"
            fix = "Start all of them by torchrun."
            with reading("torchrun", expected=expected, fix=fix, error=ConfigError):
                if has_gpu:
                    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
                distributed.init_process_group("cpu:gloo,cuda:nccl" if has_gpu else "gloo")
            # If a process leaves its group open, threads of the group sometimes abort the process
            # when it ends, and the other processes too.
            atexit.register(_leave)
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """Return this process's share of `count` rows as a slice; it may be empty."""
        low, high = (count * rank // self.size for rank in (self.rank, self.rank + 1))
        return slice(low, high)

    def own(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return this process's share of pieces of work: every `size`-th."""
        return items[self.rank :: self.size]

    def sum(self, tensor: "Tensor") -> "Tensor":
        """Sum a tensor over all processes, in place; each gets the same result to the last bit.

        Raises:
            PreferlError: another process has ended.
        """
        if self.size == 1:
            return tensor
        from torch import distributed

        began = time.perf_counter()
        try:
            distributed.all_reduce(tensor)
        except RuntimeError as error:  # all kinds of connections raise it
            raise PreferlError(
                "exchange of processes: expected an answer from all processes, got none from one "
                "of them. See the messages of the others, and begin again."
            ) from error
        self.seconds += time.perf_counter() - began
        return tensor

    def merge(self, tensor: "Tensor") -> "Tensor":
        """Merge tensors of which each process computed a part and has zeros in the others.

        Bytes are added to zeros, so that no bit changes, not even the sign of a zero.
        """
        if self.size == 1:
            return tensor
        import torch

        merged = tensor.contiguous()
        self.sum(merged.view(-1).view(torch.uint8))
        return merged

    def mean(self, value: "Tensor", count: "Tensor | int") -> "Tensor":
        """Combine the processes' means `value`, each over its `count` numbers, into one mean.

        The gradient is that of this process's part times `size`. Its average over the processes is
        the gradient of the mean.
        """
        if self.size == 1:
            return value
        own = value * (count / self.sum(value.new_tensor(float(count))))
        total = self.sum(own.detach().clone())
        scaled = own * self.size
        return scaled + (total - scaled).detach()

    def sum_gradients(self, parameters: Iterable["Tensor"]) -> None:
        """Sum gradients over all processes at once; a parameter without a gradient keeps none."""
        if self.size == 1:
            return
        import torch

        own = [parameter for parameter in parameters if parameter.requires_grad]
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        has = own[0].new_tensor([float(p.grad is not None) for p in own])
        flat = self.sum(torch.cat([*(gradient.flatten() for gradient in found), has]))
        *sums, counts = flat.split([*(p.numel() for p in own), len(own)])
        for parameter, total, count in zip(own, sums, counts.tolist(), strict=True):
            parameter.grad = total.view_as(parameter).to(parameter.dtype) if count else None

    def decide(self, choice: bool) -> bool:
        """Return the first process's choice in all processes. They wait for one another."""
        import torch

        return bool(self.sum(torch.tensor(int(choice and (self.is_first or self.size == 1)))))

    def require_same(self, what: str, content: Iterable[bytes]) -> None:
        """Raise `ConfigError` in all processes unless this content is the same in each."""
        if self.size == 1:
            return
        import torch

        digest = blake2b(digest_size=16)
        for part in content:
            digest.update(part)
        every = torch.zeros(self.size, 16, dtype=torch.uint8)
        every[self.rank] = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
        if not bool((self.sum(every) == every[0]).all()):
            raise ConfigError(
                f"{what}: expected the same in all {self.size} processes, got differences. Give "
                "each process the same data, settings and seed."
            )


ALONE: Final = World()
"""One process that shares its work with nobody."""


def _is_joined() -> bool:
    from torch import distributed

    return bool(distributed.is_available() and distributed.is_initialized())


def _leave() -> None:
    from torch import distributed

    if _is_joined():
        distributed.destroy_process_group()
