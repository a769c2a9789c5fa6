"""Updates that a GPU replays as a recorded graph."""

from collections.abc import Callable
from typing import Any, Final, final

import torch
from torch import Tensor

Update = Callable[[Any], dict[str, Tensor]]
"""Makes an update from a batch of tensors, in nested tuples, and returns its metrics."""

WARM_UP: Final = 3
"""Updates before the recording; libraries choose kernels and allocate memory in them."""


@final
class RecordedUpdate:
    """An update that is recorded as a CUDA graph and then replayed.

    An update launches some hundred kernels. A CPU takes longer to launch them than a GPU takes to
    run them, but a graph is launched only once. The first updates are made as usual, and recording
    changes no number. Metrics are valid until the next call.

    Args:
        update: changes tensors in place, and never copies a number from the device. Random numbers
            come with the batch, or from the device's global generator.
        device: a GPU.
    """

    def __init__(self, update: Update, device: torch.device) -> None:
        self._update = update
        self._left = WARM_UP
        self._stream = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Make one update."""
        if self._left:
            self._left -= 1
            return self._aside(batch)
        graph = self._graph
        if graph is None:
            graph = self._graph = self._record(batch)
        else:
            _mapped(Tensor.copy_, self._batch, batch)
        graph.replay()
        return self._metrics

    def _aside(self, batch: Any) -> dict[str, Tensor]:
        """Make an update on the stream that records, instead of the usual stream."""
        usual = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(usual)
        with torch.cuda.stream(self._stream):
            metrics = self._updated(batch)
        usual.wait_stream(self._stream)
        return metrics

    def _record(self, batch: Any) -> torch.cuda.CUDAGraph:
        """Record an update from a copy of a batch, into which later batches are copied."""
        self._batch = _mapped(Tensor.clone, batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self._metrics = self._updated(self._batch)
        return graph

    def _updated(self, batch: Any) -> dict[str, Tensor]:
        """Make an update, and drop its gradients, which belong to this stream only."""
        return {name: metric.detach() for name, metric in self._update(batch).items()}


def _mapped(function: Callable[..., object], *batches: Any) -> Any:
    """Apply a function to the matching tensors of batches; return a batch of the same structure."""
    first = batches[0]
    if isinstance(first, Tensor):
        return function(*batches)
    if not isinstance(first, tuple):
        return first
    parts = (_mapped(function, *parts) for parts in zip(*batches, strict=True))
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
