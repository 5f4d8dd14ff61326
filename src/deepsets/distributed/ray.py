"""The engine for clusters: Ray Data, with the model loaded once in each actor."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..train import keep_memory


class Ray:
    """Does the parts of a work on a Ray cluster: the one at `address`, one that is there, or one for this run alone.

    All machines must see the tables, the model folder and the output under the same paths. An actor or a machine that
    is lost is replaced by Ray, and what it had in hand is done again.
    """

    def __init__(self, workers: int | None, address: str | None) -> None:
        try:
            import ray
            import ray.data
        except ImportError:
            raise ImportError("the engine ray needs Ray: pip install 'deepsets[ray]'.") from None
        self.ray, self.workers, self.address = ray, workers, address
        self._mine = False

    def __enter__(self) -> Ray:
        if not self.ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if self.address is None:
                options |= {"include_dashboard": False, "num_cpus": self.workers}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.ray.init(address=self.address, **options)
            self._mine = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._mine:
            self.ray.shutdown()

    def run(self, worker: Any, args: tuple[Any, ...], items: Sequence[Any], few: bool = False) -> Iterator[Any]:
        """Answers of `worker(*args)(item)` for all items."""
        data = self.ray.data
        count = min(len(items), self.workers or max(1, int(self.ray.cluster_resources().get("CPU", 1))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            data.DataContext.get_current().enable_progress_bars = False
            work = data.from_items([{"item": pickle.dumps(item)} for item in items], override_num_blocks=len(items))
            done = work.map_batches(
                _Actor,
                fn_constructor_args=(worker, args),
                batch_size=1,
                compute=data.ActorPoolStrategy(size=count),
                num_cpus=1,
            )
            for row in done.iter_rows():
                answer = pickle.loads(row["answer"])
                if isinstance(answer, Exception):
                    raise answer
                yield answer


class _Actor:
    """Holds a worker; what the user can mend travels back as a value, not as a trace through the cluster."""

    def __init__(self, worker: Any, args: tuple[Any, ...]) -> None:
        torch.set_num_threads(1)
        keep_memory()
        self.do, self.error = None, None
        try:
            self.do = worker(*args)
        except (ValueError, OSError) as error:
            self.error = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"answer": [pickle.dumps(self._answer(pickle.loads(item))) for item in batch["item"]]}

    def _answer(self, item: Any) -> Any:
        if self.do is None:
            return self.error
        try:
            return self.do(item)
        except (ValueError, OSError) as error:
            return error
