"""stream_module: weights of a PyTorch module stay encoded in host memory, and are decoded as its layers need them."""

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native
from cohort_gnn.ibp.profile import fit
from cohort_gnn.ibp.rows import decode, encode

MAX_ROW_BYTES = 65536
ALIGNMENT = 256  # in bytes, of each weight in a buffer; at least the alignment of torch's own memory
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
NEVER_CALLED = (nn.ParameterList, nn.ParameterDict)


@dataclass(frozen=True)
class StreamStats:
    """The weights of a streamed module, and how often they were decoded.

    Attributes:
        layers: number of layers: modules whose weights are decoded together.
        weight_bytes: bytes of the streamed weights when they are decoded.
        stored_bytes: bytes of the streamed weights as they are stored, encoded.
        kept_bytes: bytes of the other parameters and of module buffers, which stay on the device.
        staging_bytes: bytes on the device for the weights of layers in use and of the next layers.
        decoded: how often a layer was decoded.
        waits: how often a layer was called before its decoding had begun.
    """

    layers: int
    weight_bytes: int
    stored_bytes: int
    kept_bytes: int
    staging_bytes: int
    decoded: int
    waits: int

    @property
    def saved(self) -> float:
        """The share of the weights' bytes that encoding saves."""
        return 1 - self.stored_bytes / self.weight_bytes if self.weight_bytes else 0.0


@dataclass(eq=False)
class Weight:
    """An encoded parameter.

    Attributes:
        shape, order: shape of the decoded parameter in the order of its memory, and which of these each dimension is.
        missing: empty tensor, of shape [0], that is the parameter's data while its layer is not being called.
        num_rows: number of rows that the weight is encoded as.
        nbytes, stored_bytes: bytes of the decoded, and of the encoded weight.
        rows: the encoded rows; if the device is a GPU, in page-locked memory (_native.StreamedRows).
        at, staged_at: offsets in bytes of the decoded weight in Buffer.decoded, of the encoded one in Buffer.encoded.
    """

    parameter: nn.Parameter
    shape: torch.Size
    order: list[int]
    missing: Tensor
    num_rows: int
    nbytes: int
    stored_bytes: int
    rows: Any
    at: int = 0
    staged_at: int = 0


@dataclass(eq=False)
class Layer:
    """A module whose weights are decoded together; `buffer` has the decoded weights; None: they are not decoded."""

    module: nn.Module
    weights: list[Weight] = field(default_factory=list)
    buffer: "Buffer | None" = None


@dataclass(eq=False)
class Buffer:
    """Room for the weights of a layer.

    Attributes:
        decoded, encoded: uint8 arrays on the device.
        layer: the layer whose weights are in the buffer.
        in_use: whether this layer is being called.
        copied, ready, free: events on a GPU: the encoded weights have been copied; the weights are decoded; the last
            layer that used the buffer has ended.
    """

    decoded: Tensor
    encoded: Tensor
    layer: Layer | None = None
    in_use: bool = False
    copied: Any = None
    ready: Any = None
    free: Any = None


def _uncompiled(method):
    """The method, which is no part of a compiled module: other memory would take the place of the buffers. Torch's
    compiler is imported by whoever compiles, which takes seconds."""

    @functools.wraps(method)
    def call(*arguments):
        called = torch.compiler.disable(method) if "torch._dynamo" in sys.modules else method
        return called(*arguments)

    return call


class WeightStream:
    """Decodes the weights of layers before they are called. `stream_module` makes it.

    The order of the layers is learned in the first pass. On a GPU, copies to the device, decoding and the layers run on
    three streams. Arguments as for `stream_module`; `kept_bytes` as in StreamStats.
    """

    def __init__(self, layers: list[Layer], device: torch.device, ahead: int, max_sms: int, kept_bytes: int):
        self._layers, self._device, self._max_sms, self._kept_bytes = layers, device, max_sms, kept_bytes
        self._on_gpu = device.type == "cuda"
        self._ahead = ahead if self._on_gpu else 0
        self._order: list[Layer] = []
        self._position = -1  # of the layer that was called last, in the order
        self._is_whole = False  # the order is a whole pass: its first layer follows its last layer
        self._decoded = self._waits = 0
        weights = [_placed(layer.weights) for layer in layers]
        sizes = [max((placed[i] for placed in weights), default=0) for i in range(2)]
        num_buffers = min(self._ahead + 1, len(layers)) if layers else 0
        empty = [[torch.empty(size, dtype=torch.uint8, device=device) for size in sizes] for _ in range(num_buffers)]
        self._buffers = [Buffer(*tensors) for tensors in empty]
        if self._on_gpu and layers:
            self._prepare_gpu()
        for layer in layers:
            begin, end = (functools.partial(hook, layer) for hook in (self._begin, self._end))
            layer.module.register_forward_pre_hook(begin, prepend=True)  # others may use the weights
            layer.module.register_forward_hook(end, always_call=True)

    def _prepare_gpu(self) -> None:
        num_rows = max(weight.num_rows for layer in self._layers for weight in layer.weights)
        with torch.cuda.device(self._device):
            self._copies, self._decodes = torch.cuda.Stream(), torch.cuda.Stream()
            self._gather = _native.Gather(num_rows)
            self._all_rows = torch.arange(num_rows, device=self._device)
            for buffer in self._buffers:
                buffer.copied, buffer.ready, buffer.free = (torch.cuda.Event() for _ in range(3))
            torch.cuda.current_stream().synchronize()  # the streams read the ids

    def stats(self) -> StreamStats:
        """Sizes, and counts since stream_module() made this stream."""
        weights = [weight for layer in self._layers for weight in layer.weights]
        decoded, stored = (sum(getattr(weight, name) for weight in weights) for name in ("nbytes", "stored_bytes"))
        staging = sum(buffer.decoded.numel() + buffer.encoded.numel() for buffer in self._buffers)
        return StreamStats(len(self._layers), decoded, stored, self._kept_bytes, staging, self._decoded, self._waits)

    @_uncompiled
    def _begin(self, layer: Layer, module: nn.Module, arguments) -> None:
        if module.training or torch.is_grad_enabled():
            actual = "a module in training" if module.training else "gradients"
            hint = "streamed weights are for inference: call eval(), and the module under torch.no_grad()"
            raise CohortError("stream_module", "a module in eval mode, without gradients", actual, hint)
        self._demand_kind(layer)
        self._follow(layer)
        if layer.buffer is None:
            self._waits += 1
        buffer = layer.buffer or self._decode(layer, [layer])
        if buffer is None:
            raise CohortError("stream_module", "layers that are called one after the other", "nested calls")
        buffer.in_use = True
        if self._on_gpu:
            torch.cuda.current_stream(self._device).wait_event(buffer.ready)
        for weight in layer.weights:
            weight.parameter.data = _view(buffer.decoded, weight)
        self._decode_ahead(layer)

    @_uncompiled
    def _end(self, layer: Layer, module: nn.Module, arguments, output):
        kept = output if layer.buffer is None else _outside(output, layer.buffer)
        self._release(layer)
        return kept

    def _release(self, layer: Layer) -> None:
        for weight in layer.weights:
            weight.parameter.data = weight.missing
        if layer.buffer is not None and layer.buffer.in_use:
            layer.buffer.in_use = False
            if self._on_gpu:
                layer.buffer.free.record(torch.cuda.current_stream(self._device))

    @_uncompiled
    def release_all(self, module: nn.Module, arguments) -> None:
        """Before a call of the whole module: no layer is in use, also where an interrupt has ended the last call."""
        for layer in self._layers:
            self._demand_kind(layer)
            self._release(layer)

    def _demand_kind(self, layer: Layer) -> None:
        """Raises an error if the module was converted or moved, which encoded weights are not."""
        for weight in layer.weights:
            parameter, kept = weight.parameter, weight.missing
            if (parameter.dtype, parameter.device) != (kept.dtype, kept.device):
                expected, actual = (f"weights of {data.dtype} on {data.device}" for data in (kept, parameter))
                raise CohortError("stream_module", expected, actual, "convert and move modules before stream_module()")

    def _follow(self, layer: Layer) -> None:
        """Notes that the layer is called. If the last pass called another one here, forgets the rest of the order."""
        following = self._position + 1
        if following < len(self._order) and self._order[following] is layer:
            self._position = following
        elif self._order and self._order[0] is layer:  # a new pass
            del self._order[following:]
            self._position, self._is_whole = 0, True
        else:
            self._order[following:] = [layer]
            self._position, self._is_whole = following, False

    def _decode_ahead(self, layer: Layer) -> None:
        coming = (self._order[self._position + 1 :] + (self._order if self._is_whole else []))[: self._ahead]
        for next_layer in coming:
            if next_layer.buffer is None:
                self._decode(next_layer, [layer, *coming])

    def _decode(self, layer: Layer, wanted: list[Layer]) -> Buffer | None:
        """Decodes to a buffer that is not in use and has no wanted layer, and returns it; None: there is none."""
        buffers = (candidate for candidate in self._buffers if not candidate.in_use and candidate.layer not in wanted)
        buffer = next(buffers, None)
        if buffer is None:
            return None
        if buffer.layer is not None:
            buffer.layer.buffer = None
        buffer.layer, layer.buffer = layer, buffer
        self._decoded += 1
        if self._on_gpu:
            self._decode_on_gpu(layer, buffer)
        else:
            for weight in layer.weights:
                decode(weight.rows, out=_flat(buffer.decoded, weight).view(weight.num_rows, -1))
        return buffer

    def _decode_on_gpu(self, layer: Layer, buffer: Buffer) -> None:
        with torch.cuda.device(self._device):
            self._copies.wait_event(buffer.ready)  # the encoded weights of the buffer's last layer are decoded
            for weight in layer.weights:
                weight.rows.copy(buffer.encoded.data_ptr() + weight.staged_at, self._copies.cuda_stream)
            buffer.copied.record(self._copies)
            self._decodes.wait_event(buffer.copied)
            self._decodes.wait_event(buffer.free)
            for weight in layer.weights:
                addresses = buffer.encoded.data_ptr() + weight.staged_at, self._all_rows.data_ptr()
                to = buffer.decoded.data_ptr() + weight.at
                weight.rows.decode(self._gather, *addresses, to, self._decodes.cuda_stream, self._max_sms)
            buffer.ready.record(self._decodes)


def stream_module(
    module: nn.Module,
    device: torch.device | str | int = "cuda",
    *,
    layers: Iterable[nn.Module] | None = None,
    ahead: int = 1,
    max_sms: int = 48,
    codec: str = "auto",
    min_bytes: int = 65536,
) -> nn.Module:
    """Keeps the weights of a module encoded in host memory, for inference; results are bit-identical.

    While a layer is called, its decoded weights are in a buffer on the device, and the weights of the next layers are
    copied and decoded. At most `ahead` + 1 layers have weights on the device at the same time.

    Args:
        module: a module in eval mode, which is changed in place. If its parameters do not fit on the device, they must
            not be on the device yet.
        device: where the module runs. On a CPU, layers are decoded when they are called.
        layers: submodules whose weights are decoded together, none inside another. None: the members of each
            ModuleList, Sequential and ModuleDict that is not inside another member, and the modules beside these; a
            ParameterList or ParameterDict beside these stays on the device.
        ahead: number of layers that are decoded before they are called.
        max_sms: number of SMs that decode.
        codec: as for `fit`, but not planes.
        min_bytes: smaller weights stay on the device. So do parameters of one dimension, parameters of dtypes other
            than float32, float16 and bfloat16, and parameters that several layers share.

    Returns:
        The module. ``module.weight_stream.stats()`` has sizes and counts. Its ``state_dict()`` and
        ``load_state_dict()`` are errors, and so are those of a part with streamed weights.

    Raises:
        CohortError: a module in training mode or with streamed weights, layers inside others, or codec planes.
    """
    layers = None if layers is None else list(layers)
    for submodule in (module, *(layers or ())):
        if not isinstance(submodule, nn.Module):
            hint = 'layers are modules: module.get_submodule("NAME")'
            raise CohortError(
                "stream_module", "a torch.nn.Module", f"{type(submodule).__name__} {submodule!r}"[:80], hint
            )
    if module.training:
        raise CohortError("stream_module", "a module in eval mode", "a module in training mode", "call eval() first")
    if any("weight_stream" in vars(submodule) for submodule in module.modules()):
        raise CohortError("stream_module", "a module with its weights", "a module whose weights are streamed already")
    if codec == "planes":
        raise CohortError("stream_module: codec", "a codec whose rows are one plane", codec)
    if ahead < 0:
        raise CohortError("stream_module: ahead", "0 or more", str(ahead))
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if where.type == "cuda":
        if not _native.with_cuda:
            raise CohortError("stream_module", "a build with CUDA", "a build without CUDA", 'use device="cpu"')
        if not torch.cuda.is_available():
            raise CohortError("stream_module: device", "a GPU that torch can use", "no GPU", 'use device="cpu"')
        where = torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
    chosen = _layers_of(module) if layers is None else layers
    all_layers = [Layer(submodule) for submodule in chosen if next(submodule.parameters(), None) is not None]
    _check_apart(all_layers)
    streamed_of = _streamed(all_layers, module, min_bytes)
    if any(parameter.is_meta for parameters in streamed_of for parameter in parameters):
        raise CohortError("stream_module", "weights", "parameters on the device meta", "load the weights first")
    for layer, parameters in zip(all_layers, streamed_of, strict=True):
        layer.weights = [_encoded(parameter, where, codec) for parameter in parameters]
    module.to(where)
    kept = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    all_layers = [layer for layer in all_layers if layer.weights]
    module.weight_stream = WeightStream(all_layers, where, ahead, max_sms, kept)
    module.register_forward_pre_hook(module.weight_stream.release_all, prepend=True)
    streamed = {id(weight.parameter) for layer in all_layers for weight in layer.weights}
    for submodule in module.modules():
        if submodule is module or any(id(own) in streamed for own in submodule.parameters(recurse=False)):
            submodule.register_state_dict_pre_hook(_refuse_state_dict)
            submodule.register_load_state_dict_pre_hook(_refuse_state_dict)
    return module


def _layers_of(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that are layers by default, see stream_module()."""
    children = list(module.children())
    if not children:
        yield module
    for child in (submodule for submodule in children if not isinstance(submodule, NEVER_CALLED)):
        is_member = isinstance(module, CONTAINERS) and not isinstance(child, CONTAINERS)
        if is_member or not any(isinstance(submodule, CONTAINERS) for submodule in child.modules()):
            yield child
        else:
            yield from _layers_of(child)


def _check_apart(layers: list[Layer]) -> None:
    users = Counter(id(submodule) for layer in layers for submodule in layer.module.modules())
    for layer in layers:
        if users[id(layer.module)] > 1:
            actual = f"a {type(layer.module).__name__} that is inside another, or twice"
            raise CohortError("stream_module: layers", "modules, none inside another", actual, "pass layers=")


def _streamed(layers: list[Layer], module: nn.Module, min_bytes: int) -> list[list[nn.Parameter]]:
    """For each layer, the parameters that are encoded."""
    own = [list({id(parameter): parameter for parameter in layer.module.parameters()}.values()) for layer in layers]
    users = Counter(id(parameter) for parameters in own for parameter in parameters)
    in_layers = {id(submodule) for layer in layers for submodule in layer.module.modules()}
    for outside in (submodule for submodule in module.modules() if id(submodule) not in in_layers):
        users.update(id(parameter) for parameter in outside.parameters(recurse=False))

    def is_streamed(parameter: nn.Parameter) -> bool:
        good = parameter.dim() >= 2 and parameter.dtype in DTYPES and parameter.nbytes >= max(min_bytes, 1)
        return good and users[id(parameter)] == 1 and _columns(_by_address(parameter)[0]) > 1

    return [[parameter for parameter in parameters if is_streamed(parameter)] for parameters in own]


def _by_address(parameter: Tensor) -> tuple[Tensor, list[int]]:
    """(the parameter with its dimensions in the order of its memory, by which torch chooses how it multiplies; where
    each dimension is)"""
    dims = sorted(range(parameter.dim()), key=parameter.stride, reverse=True)
    return parameter.detach().permute(dims), [dims.index(dim) for dim in range(len(dims))]


def _columns(values: Tensor) -> int:
    """The columns of a weight's encoded rows: its rows, by the first dimension, are cut into equal parts so long."""
    width = values.numel() // values.shape[0]
    most = MAX_ROW_BYTES // values.element_size()
    return next(width // parts for parts in range(-(-width // most), width + 1) if width % parts == 0)


def _encoded(parameter: nn.Parameter, device: torch.device, codec: str) -> Weight:
    stored, order = _by_address(parameter)
    values = stored.cpu().reshape(-1, _columns(stored)).contiguous()
    rows: Any = encode(values, fit(values, codec), layout="packed")
    sizes = len(values), values.nbytes, rows.stored_bytes
    if device.type == "cuda":
        with torch.cuda.device(device):
            rows = _native.StreamedRows(rows._native)
    missing = torch.empty(0, dtype=parameter.dtype, device=device)
    weight = Weight(parameter, stored.shape, order, missing, *sizes, rows)
    parameter.data = missing
    return weight


def _placed(weights: list[Weight]) -> tuple[int, int]:
    """Gives the weights of a layer their places in buffers; returns the bytes of decoded, and of encoded weights."""
    at = staged_at = 0
    for weight in weights:
        weight.at, weight.staged_at = at, staged_at
        at += _aligned(weight.nbytes)
        staged_at += _aligned(getattr(weight.rows, "staging_bytes", 0))  # those of a CPU are not staged
    return at, staged_at


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _outside(output, buffer: Buffer):
    """What a layer returns; tensors in the buffer, which other weights will overwrite, are copied."""
    memory = buffer.decoded.untyped_storage().data_ptr()

    def copied(value):
        strided = isinstance(value, Tensor) and value.layout == torch.strided
        return value.clone() if strided and value.untyped_storage().data_ptr() == memory else value

    return _pytree.tree_map(copied, output)


def _flat(buffer: Tensor, weight: Weight) -> Tensor:
    return buffer[weight.at : weight.at + weight.nbytes].view(weight.missing.dtype)


def _view(buffer: Tensor, weight: Weight) -> Tensor:
    return _flat(buffer, weight).view(weight.shape).permute(weight.order)


def _refuse_state_dict(module: nn.Module, *arguments) -> None:
    hint = "save the state_dict before stream_module(), and load it into a module before stream_module()"
    raise CohortError("state_dict", "a module with its weights", "a module whose weights are streamed", hint)
