"""One vLLM engine that generates groups, can be interrupted at any token, and reloads weights in place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bidirl.core.cluster import RolloutReport
from bidirl.core.errors import WorkerError
from bidirl.core.groups import Group, Sample
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.process import last_error_line
from bidirl.runtime.ray.random_stream import sample_key
from bidirl.runtime.ray.usage import UsageLogger, UsageMeter
from bidirl.runtime.ray.weights import BYTES_PER_ELEMENT, Weights, probe_tokens

_SHUTDOWN_SECONDS = 0.5
_ABORT_AGAIN_SECONDS = 0.01


@dataclass(slots=True)
class _Call:
    """One ``generate`` call in progress."""

    interrupted: bool = False
    request_ids: set[str] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class RolloutEngine:
    """Built and used on one event loop. ``version`` is the one that a probe confirmed to be loaded."""

    def __init__(self, config: RayConfig, name: str, num_devices: int) -> None:
        self._config = config
        self._name = name
        self._num_devices = num_devices
        self._meter = UsageMeter()
        self._calls: dict[int, _Call] = {}
        self._early: set[int] = set()
        self._counter = 0
        self._engine: Any = None
        self._stop_token_ids = stop_token_ids(config.model)
        self._vocabulary_size = 0
        self._file: Path | None = None
        self._weight_bytes = 0
        self.version = -1

    @property
    def num_active(self) -> int:
        """Requests that the engine works on."""
        return self._meter.active

    async def start(self) -> tuple[int, ...]:
        """Start the engine with the model directory's weights; returns the ids of vLLM's processes."""
        from vllm.v1.engine.async_llm import AsyncLLM

        with self._naming_errors("start"):
            args = _engine_args(self._config, self._num_devices)
            logger = UsageLogger(self._meter)
            self._engine = AsyncLLM.from_engine_args(args, stat_loggers=[lambda *_: logger])
            self._vocabulary_size = self._engine.model_config.get_vocab_size()
            on_cpu = self._config.accelerator == "cpu"
            return tuple(await self._engine.collective_rpc("bidirl_prepare", args=(on_cpu,)))

    async def generate(self, call_id: int, group: Group) -> RolloutReport:
        """Generate until every sample has ended or the call is interrupted. Tokens carry ``version``.

        Raises:
            WorkerError: if no weights are confirmed, or the engine failed.
        """
        if self.version < 0:
            raise WorkerError(f"{self._name}: generate was called while no weights were confirmed")
        call = self._calls[call_id] = _Call(interrupted=call_id in self._early)
        self._early.discard(call_id)
        try:
            samples = await asyncio.gather(*(self._sample(group, i, call) for i in range(len(group.samples))))
        finally:
            del self._calls[call_id]
            call.ended.set()
        stopped = any(not sample.finished for sample in samples)
        result = replace(group, samples=tuple(samples), num_interruptions=group.num_interruptions + stopped)
        return RolloutReport(result, self._meter.usage, self._meter.busy_seconds)

    async def interrupt(self, call_ids: Sequence[int]) -> None:
        """Make these calls return with what they have, those too that were overtaken and have not arrived yet."""
        self._early |= {call_id for call_id in call_ids if call_id not in self._calls}
        calls = [self._calls[call_id] for call_id in call_ids if call_id in self._calls]
        for call in calls:
            call.interrupted = True
        ended = asyncio.gather(*(call.ended.wait() for call in calls))
        while not ended.done():
            # vLLM ignores an abort of a request that it is still registering, so ask again until all have returned.
            await self._engine.abort([request_id for call in calls for request_id in sorted(call.request_ids)])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ABORT_AGAIN_SECONDS):
                    await asyncio.shield(ended)

    async def load_weights(self, weights: Weights) -> int:
        """Replace the weights and confirm their version by the probe. Groups still running are interrupted first.

        Raises:
            WorkerError: if the probe's log-probs are not the trainers'; ``version`` is then -1.
        """
        await self.interrupt(list(self._calls))
        self.version = -1
        layout = weights.layout
        self._weight_bytes = layout.num_parameters * BYTES_PER_ELEMENT[self._config.rollout_dtype]
        path = await asyncio.to_thread(self._write, weights)
        with self._naming_errors("load_weights"):
            await self._engine.collective_rpc(
                "bidirl_load", args=(str(path), layout.dtype, dict(layout.shapes), dict(layout.aliases))
            )
            await self.check_probe(weights)
        self.version = weights.version
        return self.version

    async def check_probe(self, weights: Weights) -> float:
        """Mean absolute difference of the probe's log-probs to the trainers', in nats.

        Raises:
            WorkerError: if it is above the tolerance.
        """
        difference = weights.probe_difference(await self._probe())
        if not difference <= self._config.tolerance:
            raise WorkerError(
                f"{self._name}: after loading version {weights.version} the probe's log-probs differ from the "
                f"trainer's by {difference:.4g} nats on average (ray.probe_tolerance allows "
                f"{self._config.tolerance:g}): the engine does not hold these weights"
            )
        return difference

    @property
    def weight_bytes(self) -> int:
        """Size of the weights as the engine holds them, roughly (one device's share)."""
        return self._weight_bytes // self._num_devices

    async def sleep(self, level: int) -> None:
        """Free the device memory (CUDA only)."""
        await self._engine.sleep(level)

    async def wake(self) -> None:
        """Take the device memory back (CUDA only)."""
        await self._engine.wake_up()

    async def close(self) -> None:
        """Stop vLLM's processes."""
        if self._engine is not None:
            self._engine.shutdown(timeout=_SHUTDOWN_SECONDS)
            self._engine = None
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    async def _sample(self, group: Group, index: int, call: _Call) -> Sample:
        sample = group.samples[index]
        if sample.finished or call.interrupted:
            return sample
        prefix = [] if sample.token_ids is None else sample.token_ids.tolist()
        prompt_ids = [] if group.prompt.token_ids is None else group.prompt.token_ids.tolist()
        context = len(prompt_ids) + len(prefix)
        budget = min(self._config.max_response_tokens - len(prefix), self._config.max_model_len - context)
        if budget <= 0:
            return replace(sample, finish_reason="length")
        self._counter += 1
        request_id = f"{group.group_id}-{index}-{self._counter}"
        params = self._sampling_params(
            max_tokens=budget,
            stop_token_ids=self._stop_token_ids,
            logprobs=0,
            extra_args={
                "bidirl_key": sample_key(self._config.seed, group.group_id, index),
                "bidirl_start": len(prefix),
            },
        )
        call.request_ids.add(request_id)
        version = self.version
        try:
            output = await self._run(prompt_ids + prefix, params, request_id)
        finally:
            call.request_ids.discard(request_id)
        if output is None:
            return sample
        generated = np.asarray(output.token_ids, np.int32)
        reason = {"stop": "stop", "length": "length"}.get(output.finish_reason)
        if reason is None and len(generated):
            self._meter.aborted(context, len(generated))
        logprobs = np.asarray(output.logprobs.logprobs if len(generated) else [], np.float32)
        result = sample.extended(version, len(generated), generated, logprobs, reason)
        result.check()
        return result

    async def _run(self, token_ids: list[int], params: Any, request_id: str) -> Any:
        """The final output of one request; ``None`` if it was aborted before its first token."""
        final = None
        self._meter.enter()
        try:
            with self._naming_errors("generate"):
                prompt = {"prompt_token_ids": token_ids}
                async for output in self._engine.generate(prompt, params, request_id):
                    final = output
        finally:
            self._meter.leave()
        return None if final is None or not final.outputs else final.outputs[0]

    async def _probe(self) -> Any:
        params = self._sampling_params(max_tokens=1, prompt_logprobs=0)
        self._counter += 1
        token_ids = probe_tokens(self._vocabulary_size).tolist()
        final = None
        async for output in self._engine.generate({"prompt_token_ids": token_ids}, params, f"probe-{self._counter}"):
            final = output
        if final is None:
            raise WorkerError(f"{self._name}: the probe returned nothing")
        entries = list(final.prompt_logprobs)[1:]
        return np.array([entry[t].logprob for entry, t in zip(entries, token_ids[1:], strict=True)], np.float32)

    @contextlib.contextmanager
    def _naming_errors(self, verb: str) -> Iterator[None]:
        """Turn any failure of vLLM into one line with its cause."""
        try:
            yield
        except WorkerError:
            raise
        except Exception as error:
            cause = last_error_line() or f"{type(error).__name__}: {error}"
            raise WorkerError(f"{self._name}: the rollout engine failed in {verb}: {cause}") from error

    def _sampling_params(self, **settings: Any) -> Any:
        """Greedy to vLLM; the stream sampler decides what the maximum is."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0.0,
            detokenize=False,
            flat_logprobs="prompt_logprobs" not in settings,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **settings,
        )

    def _write(self, weights: Weights) -> Path:
        """Put the weights where vLLM's own process can map them."""
        if self._file is None:
            folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
            handle, name = tempfile.mkstemp(prefix="bidirl-weights-", dir=folder)
            os.close(handle)
            self._file = Path(name)
        with self._file.open("r+b") as file:
            weights.data.tofile(file)
        return self._file


def stop_token_ids(model: str) -> list[int]:
    """End-of-sequence tokens of a model directory (``generation_config.json`` before ``config.json``)."""
    for name in ("generation_config.json", "config.json"):
        path = Path(model) / name
        if path.is_file():
            values: Mapping[str, Any] = json.loads(path.read_text())
            found = values.get("eos_token_id")
            if found is not None:
                return list(found) if isinstance(found, list) else [int(found)]
    return []


def _engine_args(config: RayConfig, num_devices: int) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    cuda = config.accelerator == "cuda"
    return AsyncEngineArgs(
        model=config.model,
        skip_tokenizer_init=True,
        dtype=config.rollout_dtype,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=max(2048, config.max_model_len),
        tensor_parallel_size=num_devices if cuda else 1,
        kv_cache_memory_bytes=int(config.kv_cache_gib * 2**30),
        distributed_executor_backend=None if cuda else "uni",
        enforce_eager=not cuda,
        # The cache would keep keys and values of old weights, and would change the bits of a resumed prefix.
        enable_prefix_caching=False,
        # The stream sampler needs to know every token before the next step.
        async_scheduling=False,
        enable_sleep_mode=cuda,
        generation_config="vllm",
        logprobs_mode="raw_logprobs",
        logits_processors=["bidirl.runtime.ray.stream_sampler:StreamSampler"],
        worker_extension_cls="bidirl.runtime.ray.worker_extension.WeightReceiver",
        seed=config.seed,
    )
