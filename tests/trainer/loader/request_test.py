"""The request of a pass: fields by name, values of enums by word."""

import pytest

from cohort_gnn import CohortError, NeighborLoader

pytestmark = pytest.mark.usefixtures("shm")

REFUSED = {
    "negative_mode": ("some", "none, binary, triplet or in_batch"),
    "exclude": ("both", "none, self or reverse"),
    "draw": ("sampled", "uniform, replaced or last"),
    "disjoint": (0, "a value that fits the field"),
    "redraws": (2**32, "a value that fits the field"),
    "negatives": ("1", "a value that fits the field"),
    "replaces": (True, "fields of channel/request.h alone"),
}


@pytest.fixture(scope="module")
def loader(cora):
    with NeighborLoader(cora, [4], batch_size=1000, device="cpu") as loader:
        yield loader


@pytest.mark.parametrize("field", REFUSED)
def test_what_a_request_has_not_is_refused(loader, field):
    value, expected = REFUSED[field]
    with pytest.raises(CohortError, match=f"expected {expected}, found .*{value}") as error:
        loader._sampler.source._receiver.request([4], **{field: value})
    assert field in str(error.value)


def test_fields_that_are_left_out_have_the_first_word(loader):
    source, how = loader._sampler.source, {"draw": "uniform", "disjoint": False, "plane_a": False}
    found = []
    for fields in ({}, how, how | {"draw": "replaced"}):
        (slot,) = (slot for slot in source.slots(source.request(loader._seed_set, [4], 5000, **fields)))
        found.append(slot.edges_of_relations[0][0])
        del slot
    assert found[0] == found[1] < found[2]
