#include "cache/list_slab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "cache/list_ref.h"
#include "tests/base/on_gpu.h"

namespace cohort::cache {
namespace {

// Lists of 0 to 19 neighbours, and one of 1000.
template <typename Index>
struct SlabLists {
  std::vector<int64_t> indptr{0};
  std::vector<Index> indices;

  explicit SlabLists(uint64_t num_nodes) {
    for (uint64_t node = 0; node < num_nodes; ++node) {
      const uint64_t degree = node == 5 ? 1000 : base::random_below(20, base::key_of(1), node, 0);
      for (uint64_t i = 0; i < degree; ++i) indices.push_back(static_cast<Index>(1 + node * 7919 + i));
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
  }
  std::vector<RelationLists> view() const {
    return {{{num_nodes(), indptr.back(), indptr.data(), indices.data(), sizeof(Index)}}};
  }
  int64_t num_nodes() const { return static_cast<int64_t>(indptr.size()) - 1; }
  int64_t degree(int64_t node) const {
    const auto at = static_cast<std::size_t>(node);
    return indptr[at + 1] - indptr[at];
  }
  // Every third node, from the last; 5 among them.
  std::vector<uint32_t> some_nodes() const {
    std::vector<uint32_t> nodes;
    for (int64_t node = num_nodes() - 1; node >= 0; --node) {
      if (node % 3 == 2) nodes.push_back(static_cast<uint32_t>(node));
    }
    return nodes;
  }
  // The slab from its definition, list after list.
  std::vector<std::byte> expected(const std::vector<uint32_t>& nodes) const {
    std::vector<std::byte> bytes;
    const auto append = [&](const void* from, std::size_t size) {
      const auto* first = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), first, first + size);
    };
    for (const uint32_t node : nodes) {
      const int64_t count = degree(node);
      append(&count, sizeof(count));
      append(indices.data() + indptr[node], static_cast<std::size_t>(count) * sizeof(Index));
      while (bytes.size() % 8 != 0) bytes.push_back(std::byte{0});
    }
    return bytes;
  }
  Slab slab() const {
    Slab slab;
    slab.nodes = some_nodes();
    slab.bytes = static_cast<int64_t>(expected(slab.nodes).size());
    return slab;
  }
};

template <typename Index>
class ListSlabOf : public ::testing::Test {};
template <typename Index>
class GpuListSlab : public ::testing::Test {};
using IndexTypes = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(ListSlabOf, IndexTypes);
TYPED_TEST_SUITE(GpuListSlab, IndexTypes);

TYPED_TEST(ListSlabOf, IsTheSameInPiecesOfAnySize) {
  const SlabLists<TypeParam> lists(100);
  const std::vector<uint32_t> nodes = lists.some_nodes();
  const std::vector<std::byte> expected = lists.expected(nodes);
  const ListPacker packer(lists.view(), nodes);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{8}, std::size_t{13}, std::size_t{64},
                                  std::size_t{1000}, expected.size()}) {
    std::vector<std::byte> packed(expected.size(), std::byte{0xAB});
    for (std::size_t begin = 0; begin < packed.size(); begin += piece) {
      packer.write(static_cast<int64_t>(begin),
                   std::span(packed).subspan(begin, std::min(piece, packed.size() - begin)));
    }
    ASSERT_EQ(packed, expected) << piece;
  }
  std::vector<std::byte> beyond(expected.size() + 1);
  EXPECT_THROW(packer.write(0, beyond), base::Error);
}

// The lists of a second relation, with indices of another width, follow those of the first.
TYPED_TEST(ListSlabOf, TakesListsOfAllRelations) {
  const SlabLists<TypeParam> first(30);
  const SlabLists<int32_t> second(20);
  std::vector<RelationLists> relations = first.view();
  relations.push_back(second.view()[0]);
  relations[1].first = 30;
  const std::vector<uint32_t> nodes{49, 5, 35, 30, 29};
  std::vector<std::byte> expected;
  for (const uint32_t node : nodes) {
    const auto list = node < 30 ? first.expected({node}) : second.expected({node - 30});
    expected.insert(expected.end(), list.begin(), list.end());
  }
  const ListPacker packer(relations, nodes);
  std::vector<std::byte> packed(static_cast<std::size_t>(packer.bytes()));
  packer.write(0, packed);
  EXPECT_EQ(packed, expected);
}

// Two slabs in host memory, looked up as a kernel does.
TYPED_TEST(ListSlabOf, FindsListsOfEverySlab) {
  const SlabLists<TypeParam> lists(100);
  const std::vector<uint32_t> own{7, 5, 3}, peers{99, 8, 0};
  const std::vector<std::byte> own_bytes = lists.expected(own), peer_bytes = lists.expected(peers);
  const ListPacker own_packer(lists.view(), own), peer_packer(lists.view(), peers);
  std::vector<uint64_t> entry_of(100, kNoEntry);
  for (std::size_t i = 0; i < 3; ++i) {
    entry_of[own[i]] = ibp::entry_in_region(own_packer.entries()[i], 6);
    entry_of[peers[i]] = ibp::entry_in_region(peer_packer.entries()[i], 2);
  }
  const DirectoryArrays directory(entry_of);
  CachedListsRef cached{directory.ref(), {}, 6};
  cached.slabs[6] = own_bytes.data();
  cached.slabs[2] = peer_bytes.data();
  for (int64_t node = 0; node < 100; ++node) {
    const bool is_own = std::count(own.begin(), own.end(), node) > 0;
    const ListRef list = cached.find(node);
    if (!is_own && std::count(peers.begin(), peers.end(), node) == 0) {
      ASSERT_EQ(list.neighbours, nullptr);
      continue;
    }
    ASSERT_EQ(list.tier, is_own ? Tier::kLocal : Tier::kPeer);
    ASSERT_EQ(list.degree, lists.degree(node));
    ASSERT_EQ(std::memcmp(list.neighbours, lists.indices.data() + lists.indptr[static_cast<std::size_t>(node)],
                          static_cast<std::size_t>(list.degree) * sizeof(TypeParam)),
              0);
  }
  EXPECT_EQ(CachedListsRef{}.find(7).neighbours, nullptr);
}

TYPED_TEST(GpuListSlab, HoldsTheListsOfThePlan) {
  const SlabLists<TypeParam> lists(1000);
  const Slab slab = lists.slab();
  const ListPacker packer(lists.view(), slab.nodes);
  for (const int64_t piece : {int64_t{24}, int64_t{1000}, int64_t{4096}, slab.bytes, kListPieceBytes}) {
    const ListSlab on_gpu(lists.view(), slab, piece);
    ASSERT_EQ(base::download(on_gpu.data(), on_gpu.bytes()), lists.expected(slab.nodes)) << piece;
    ASSERT_TRUE(
        std::equal(on_gpu.entries().begin(), on_gpu.entries().end(), packer.entries().begin(), packer.entries().end()));
  }
}

TYPED_TEST(GpuListSlab, MayBeEmpty) {
  const SlabLists<TypeParam> lists(10);
  const ListSlab slab(lists.view(), {});
  EXPECT_EQ(slab.bytes(), 0);
  EXPECT_TRUE(slab.entries().empty());
}

// Needs no GPU: it is refused before anything is allocated.
TYPED_TEST(ListSlabOf, RefusesAPlanOfOtherLists) {
  const SlabLists<TypeParam> lists(100);
  Slab slab = lists.slab();
  slab.bytes += 8;
  EXPECT_THROW(ListSlab(lists.view(), slab), base::Error);
}

}  // namespace
}  // namespace cohort::cache
