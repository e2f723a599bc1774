"""ibp.stream_module: the results of the module that has all of its weights, bit for bit."""

import copy

import pytest

from cohort_gnn import CohortError, ibp

torch = pytest.importorskip("torch")
nn = torch.nn

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class Language(nn.Module):
    """A small transformer: embeddings, blocks, an output layer and parameters of its own."""

    def __init__(self, tied: bool = False):
        super().__init__()
        self.tokens = nn.Embedding(500, 64)
        self.places = nn.Parameter(torch.randn(1, 16, 64))
        block = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 5)
        self.scores = nn.Linear(64, 500)
        if tied:
            self.scores.weight = self.tokens.weight

    def forward(self, ids):
        return self.scores(self.blocks(self.tokens(ids) + self.places[:, : ids.shape[1]]))


def language(dtype=torch.float32, tied: bool = False) -> Language:
    torch.manual_seed(1)
    model = Language(tied).eval()
    for parameter in model.parameters():  # the blocks are copies of one
        nn.init.normal_(parameter, std=0.05)
    return model.to(dtype)


@torch.no_grad()
def check(model, inputs, device: str, passes: int = 3, **options):
    """The streamed module, whose results are those of the model."""
    streamed = ibp.stream_module(copy.deepcopy(model), device, **{"min_bytes": 1} | options)
    model = model.to(device)
    for number in range(passes):
        given = torch.roll(inputs, number, 0).to(device)
        assert torch.equal(streamed(given), model(given)), f"pass {number}"
    return streamed


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ahead", [0, 1, 2, 9])
def test_a_transformer_gives_the_same_bits(dtype, device, ahead):
    ids = torch.randint(500, (4, 16), generator=torch.Generator().manual_seed(2))
    streamed = check(language(dtype), ids, device, ahead=ahead)
    stats = streamed.weight_stream.stats()
    assert stats.layers == 7 and stats.kept_bytes < 0.1 * stats.weight_bytes
    assert 0.02 < stats.saved < 0.4
    if device == "cpu" or ahead == 0:
        assert stats.decoded == stats.waits == 3 * 7
        assert stats.staging_bytes < 0.5 * stats.weight_bytes
    elif ahead < 7:  # in the first pass the order is not known, and not that another pass follows
        assert stats.waits == 8 and stats.decoded == 3 * 7 + ahead


@pytest.mark.parametrize("device", DEVICES)
def test_shared_weights_stay_on_the_device(device):
    ids = torch.randint(500, (4, 16))
    stats = check(language(tied=True), ids, device).weight_stream.stats()
    assert stats.layers == 5 and stats.kept_bytes > 500 * 64 * 4


@pytest.mark.parametrize("device", DEVICES)
def test_convolutions_wide_rows_and_layers_that_are_called_again(device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3)
            self.wide = nn.Linear(8 * 30 * 90, 24, bias=False)  # rows of 84 KiB
            self.again = nn.Linear(24, 24)
            self.norm = nn.BatchNorm1d(24)

        def forward(self, x):
            x = self.again(self.wide(self.first(x).flatten(1)).relu())
            return self.norm(self.again(x) + self.again(x.relu()))

    torch.manual_seed(0)
    stats = check(Model().eval(), torch.randn(5, 3, 32, 92), device).weight_stream.stats()
    assert stats.layers == 3, "norms have no weights of two dimensions"


@pytest.mark.parametrize("device", DEVICES)
def test_weights_keep_their_order_in_memory(device):
    """By which torch chooses how it multiplies, which rounds in another way."""
    torch.manual_seed(0)
    transposed = nn.Sequential(nn.Linear(256, 192), nn.ReLU(), nn.Linear(192, 256)).eval()
    for layer in (transposed[0], transposed[2]):
        layer.weight.data = layer.weight.data.t().contiguous().t()
    check(transposed, torch.randn(5, 256), device)
    convolutions = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 8, (3, 1))).eval()
    convolutions.to(memory_format=torch.channels_last)
    streamed = check(convolutions, torch.randn(5, 3, 9, 9), device)
    with torch.no_grad():
        assert streamed(torch.randn(2, 3, 9, 9, device=device)).is_contiguous(memory_format=torch.channels_last)


def test_a_module_that_was_converted_later_is_refused():
    streamed = ibp.stream_module(nn.Sequential(nn.Linear(8, 8)).eval(), "cpu", min_bytes=1).half()
    for called in (streamed, streamed[0]):
        with torch.no_grad(), pytest.raises(CohortError, match=r"weights of torch.float32 on cpu, found .*float16"):
            called(torch.zeros(2, 8).half())


@pytest.mark.parametrize("compiled_first", [False, True])
def test_a_compiled_module_streams(compiled_first):
    """With a backend that makes memory of its own for what hooks would write to."""
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(3, 8)
    streamed = copy.deepcopy(model)
    if compiled_first:
        streamed[0].compile(backend="aot_eager")
    streamed = ibp.stream_module(streamed, "cpu", min_bytes=1)
    called = streamed if compiled_first else torch.compile(streamed, backend="aot_eager")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(called(x), model(x))


def test_other_orders_are_learned():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

        def forward(self, x, order):
            for number in order:
                x = self.parts[number](x).relu()
            return x

    torch.manual_seed(0)
    model = Branches().eval()
    streamed = ibp.stream_module(copy.deepcopy(model), "cpu", min_bytes=1)
    with torch.inference_mode():
        for order in ([0, 1, 2], [0, 1, 2], [0, 2, 5, 5, 1], [3], [0, 2, 5], [4, 4, 4, 0], []):
            x = torch.randn(3, 8)
            assert torch.equal(streamed(x, order), model(x, order)), order


def test_layers_may_be_chosen():
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), nn.Linear(8, 8)).eval()
    pairs = check(model, torch.randn(2, 8), "cpu", layers=None)
    assert pairs.weight_stream.stats().layers == 3
    chosen = copy.deepcopy(model)
    streamed = ibp.stream_module(chosen, "cpu", layers=[chosen[0]], min_bytes=1)
    assert streamed is chosen and streamed.weight_stream.stats().layers == 1
    x = torch.randn(2, 8)
    with torch.no_grad():
        assert torch.equal(streamed(x), model(x))
    for layers in ([model[0], model[0][1]], [model[0][1], model[0]], [model[1], model[1]]):
        with pytest.raises(CohortError, match="layers: expected modules, none inside another, found a"):
            ibp.stream_module(model, "cpu", layers=layers)


def test_layers_may_have_modules_in_common():
    """As the activation of PyG's models, and one linear part of two blocks, whose weights stay."""
    shared, act = nn.Linear(8, 8), nn.ReLU()

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.act, self.shared = nn.Linear(8, 8), act, shared

        def forward(self, x):
            return self.shared(self.act(self.own(x)))

    model = nn.Sequential(Block(), act, Block(), Block()).eval()
    stats = check(model, torch.randn(2, 8), "cpu").weight_stream.stats()
    assert stats.layers == 3 and stats.weight_bytes == 3 * 8 * 8 * 4


def test_weights_are_there_while_their_layer_is_called_alone():
    model = ibp.stream_module(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), "cpu", min_bytes=1)
    assert model[0].weight.numel() == 0 and model[0].bias.numel() == 8
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes"):
        model(torch.zeros(2, 9))
    assert model[0].weight.numel() == 0, "also after an error"
    with torch.no_grad():
        assert model(torch.zeros(2, 8)).shape == (2, 8)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm, nn.utils.parametrizations.weight_norm])
def test_hooks_of_a_layer_that_use_its_weights_find_them(norm):
    torch.manual_seed(0)

    def made():
        return nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), norm(nn.Linear(8, 4))).eval()

    model, streamed = made(), made()
    streamed.load_state_dict(model.state_dict())
    streamed = ibp.stream_module(streamed, "cpu", min_bytes=1)
    assert streamed.weight_stream.stats().layers == 2
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(streamed(x), model(x))


def test_a_layer_that_calls_another_needs_room_for_both():
    class Caller(nn.Linear):
        def forward(self, x):
            return super().forward(self.others[0](x))

    model = nn.Sequential(Caller(8, 8), nn.Linear(8, 8)).eval()
    model[0].others = [model[1]]  # no submodule
    model = ibp.stream_module(model, "cpu", min_bytes=1)
    with torch.no_grad(), pytest.raises(CohortError, match="expected layers that are called one after the other"):
        model(torch.zeros(2, 8))


def test_what_is_not_inference_is_refused():
    with pytest.raises(CohortError, match="expected a module in eval mode, found a module in training mode"):
        ibp.stream_module(nn.Linear(8, 8), "cpu")
    with pytest.raises(CohortError, match="ahead: expected 0 or more, found -1"):
        ibp.stream_module(nn.Linear(8, 8).eval(), "cpu", ahead=-1)
    for call, found in (
        (lambda: ibp.stream_module("model", "cpu"), "str 'model'"),
        (lambda: ibp.stream_module(nn.Sequential(nn.Linear(8, 8)).eval(), "cpu", layers=["0"]), "str '0'"),
    ):
        with pytest.raises(CohortError, match=f"(?s)expected a torch.nn.Module, found {found}.*get_submodule"):
            call()
    model = ibp.stream_module(nn.Linear(8, 8).eval(), "cpu", min_bytes=1)
    with pytest.raises(CohortError, match="without gradients, found gradients"):
        model(torch.zeros(2, 8))
    with pytest.raises(CohortError, match="whose weights are streamed"):
        model.state_dict()
    with torch.no_grad(), pytest.raises(CohortError, match="found a module in training"):
        model.train()(torch.zeros(2, 8))


def test_lists_of_parameters_beside_layers_stay():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.ParameterList([torch.randn(8, 8)])
            self.named = nn.ParameterDict({"last": torch.randn(8, 8)})
            self.layers = nn.ModuleList([nn.Linear(8, 8)])

        def forward(self, x):
            return self.layers[0](x * self.factors[0].sum()) @ self.named["last"]

    torch.manual_seed(0)
    model = Scaled().eval()
    streamed = ibp.stream_module(copy.deepcopy(model), "cpu", min_bytes=1)
    assert streamed.weight_stream.stats().layers == 1
    with torch.no_grad():
        x = torch.randn(3, 8)
        assert torch.equal(streamed(x), model(x))


def test_parts_with_streamed_weights_have_no_state_dict():
    parts = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 2), nn.ReLU())]
    model = ibp.stream_module(nn.Sequential(*parts).eval(), "cpu", min_bytes=128)
    for part in (model, model[0], model[0][0]):
        with pytest.raises(CohortError, match="whose weights are streamed"):
            part.state_dict()
        with pytest.raises(CohortError, match="(?s)whose weights are streamed.*load it into a module before"):
            part.load_state_dict({})
    assert [each.shape for each in model[1].state_dict().values()] == [(2, 8), (2,)], "small weights are there"


def test_a_module_without_large_weights_stays_as_it_is():
    model = ibp.stream_module(nn.Sequential(nn.Linear(8, 8)).eval(), "cpu")
    stats = model.weight_stream.stats()
    assert (stats.layers, stats.saved, stats.kept_bytes) == (0, 0.0, 4 * 72)
    with torch.no_grad():
        assert model(torch.zeros(2, 8)).shape == (2, 8)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 32))

    def forward(self, count):
        return {"rows": self.weight[:count], "count": count}


class WithPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions, self.linear = Positions(), nn.Linear(32, 32)

    def forward(self, x):
        positions = self.positions(len(x))
        return self.linear(x) + positions["rows"] * positions["count"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_may_return_a_part_of_its_weights(device):
    module, x = WithPositions().eval(), torch.randn(5, 32)
    expected = copy.deepcopy(module).to(device)
    streamed = ibp.stream_module(module, device, min_bytes=0)
    with torch.no_grad():
        assert torch.equal(streamed(x.to(device)), expected(x.to(device)))


@pytest.mark.parametrize("device", DEVICES)
def test_an_interrupt_within_a_layer_leaves_the_module_whole(device):
    class Interrupted(nn.Linear):
        interrupts = False

        def forward(self, x):
            if self.interrupts:
                raise KeyboardInterrupt
            return super().forward(x)

    module, x = nn.Sequential(nn.Linear(32, 32), Interrupted(32, 32)).eval(), torch.randn(3, 32, device=device)
    expected = copy.deepcopy(module).to(device)
    streamed = ibp.stream_module(module, device, min_bytes=0)
    with torch.no_grad():
        for _ in range(3):
            Interrupted.interrupts = True
            with pytest.raises(KeyboardInterrupt):
                streamed(x)
            Interrupted.interrupts = False
            assert torch.equal(streamed(x), expected(x))


def test_a_decoder_takes_the_same_way_with_streamed_weights():
    module = nn.Transformer(32, 4, 2, 2, 64, batch_first=True).eval()
    source, target = torch.randn(2, 5, 32), torch.randn(2, 6, 32)
    streamed = ibp.stream_module(copy.deepcopy(module), "cpu", min_bytes=0)
    with torch.no_grad():
        assert torch.equal(streamed(source, target), module(source, target))


def test_what_cannot_be_streamed_is_refused_and_stays_whole():
    module = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 5, device="meta")).eval()
    with pytest.raises(CohortError, match="found parameters on the device meta"):
        ibp.stream_module(module, "cpu", min_bytes=1)
    module = nn.Sequential(nn.Linear(32, 64)).eval()
    with pytest.raises(CohortError, match="codec: expected a codec whose rows are one plane, found planes"):
        ibp.stream_module(module, "cpu", codec="planes", min_bytes=1)
    assert module[0].weight.shape == (64, 32)
    ibp.stream_module(module, "cpu", min_bytes=1)
    with pytest.raises(CohortError, match="found a module whose weights are streamed already"):
        ibp.stream_module(module, "cpu", min_bytes=1)


def test_a_copy_has_weights_of_its_own():
    model, ids = language(), torch.randint(500, (2, 16))
    streamed = ibp.stream_module(copy.deepcopy(model), "cpu", min_bytes=1)
    copied = copy.deepcopy(streamed)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert torch.equal(copied(ids), model(ids)) and torch.equal(streamed(ids), model(ids))
    assert copied.weight_stream.stats() == streamed.weight_stream.stats()
