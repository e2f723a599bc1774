"""Activation and dropout in one pass."""

import pytest
import torch
import torch.nn.functional as F
from blocks import DEVICES

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import activated
from cohort_gnn.nn.activation import ACTIVATIONS


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [(0,), (1,), (1003,), (50, 64)])
def test_what_is_kept_is_activated_and_scaled(device, activation, size):
    torch.manual_seed(1)
    x = torch.randn(size, device=device).requires_grad_()
    y = activated(x, activation, 0.25)
    grad = torch.randn(size, device=device)
    y.backward(grad)
    twin = x.detach().clone().requires_grad_()
    expected = getattr(F, activation)(twin) / 0.75 * (y != 0)
    expected.backward(grad)
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_without_dropout_it_is_the_activation(activation):
    x = torch.randn(300)
    for found in (activated(x, activation), activated(x, activation, 0.5, training=False)):
        torch.testing.assert_close(found, getattr(F, activation)(x))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_seed_drops_the_same_elements_everywhere(device, dtype):
    x = torch.ones(100_000, dtype=dtype)
    drawn = []
    for where in ("cpu", device, device):
        torch.manual_seed(5)
        drawn.append(activated(x.to(where), "relu", 0.3).cpu())
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[1], drawn[2])
    share = (drawn[0] == 0).double().mean().item()
    assert abs(share - 0.3) < 6 * (0.3 * 0.7 / 100_000) ** 0.5
    kept = drawn[0] != 0
    assert abs((kept[1:] & kept[:-1]).double().mean().item() - 0.49) < 0.01, "neighbours do not go together"
    torch.manual_seed(6)
    assert not torch.equal(activated(x, "relu", 0.3), drawn[0])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_those_of_differences(activation):
    x = torch.randn(40, dtype=torch.float64)
    x[x.abs() < 0.1] += 0.3

    def dropped(x):
        torch.manual_seed(0)
        return activated(x, activation, 0.4)

    assert torch.autograd.gradcheck(dropped, (x.requires_grad_(),))


def test_views_and_nan():
    x = torch.randn(41, 3)[1:, :2]
    torch.testing.assert_close(activated(x, "relu"), F.relu(x))
    assert activated(torch.tensor([float("nan"), -1.0]), "relu").isnan().tolist() == [True, False]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_leaky_relu_has_gradients_at_zeros_but_not_where_it_dropped(device, dtype):
    torch.manual_seed(3)
    x = torch.zeros(1000, dtype=dtype, device=device, requires_grad=True)
    activated(x, "leaky_relu", 0.5).backward(torch.ones_like(x))
    assert x.grad.unique().tolist() == [0, torch.tensor(0.02, dtype=dtype).item()]


@pytest.mark.parametrize("arguments", [("gelu", 0.1), ("relu", 1.0), ("relu", -0.1)])
def test_what_it_does_not_know_is_refused(arguments):
    with pytest.raises(CohortError, match="activated"):
        activated(torch.zeros(3), *arguments)
