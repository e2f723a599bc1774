#include "tests/dataset/folder_test.h"
#include "tests/dataset/typed_folder.h"

namespace cohort::dataset {
namespace {

class TypedDataset : public FolderTest {
 protected:
  // Asserts that a changed meta.json is refused in these words, by opening and by the check.
  void expect_refused(const std::string& from, const std::string& to, const std::string& words) {
    write_bytes(path(kMetaFile), good_);
    edit_meta(from, to);
    FolderTest::expect_refused(words);
  }

  // Asserts that a changed Meta is refused in these words.
  void expect_refused(const std::function<void(Meta&)>& change, const std::string& words) {
    Meta meta = TypedFolder::meta();
    change(meta);
    write_typed_meta(data_, meta);
    FolderTest::expect_refused(words);
  }

  TypedFolder folder_{data_};
  std::string good_ = read_bytes(path(kMetaFile));
};

TEST_F(TypedDataset, RefusesListsAndMembersOfTheWrongKind) {
  expect_refused("\"version\": 3", "\"version\": 4", "expected format cohort-dataset version 1 to 3");
  expect_refused("\"nodes\": [", "\"knots\": [", "expected the key \"nodes\", found none");
  expect_refused("\"edges\": [", "\"nodes_\": [], \"edges\": 5, \"old\": [", "\"edges\": a list of 1 to 128, found 5");
  expect_refused("\"edges\": [", "\"edges\": [], \"old\": [", "\"edges\": a list of 1 to 128, found 0");
  expect_refused("\"target\": {", "\"targets\": {", "expected the key \"target\", found none");
  expect_refused("\"count\": 3", "\"count\": 0", "nodes[0]: expected \"count\" in [1, 2^48], found 0");
  expect_refused("\"count\": 5", "\"count\": -1", "edges[0]: expected \"count\" in [0, 2^48], found -1");
  expect_refused("\"features\": {", "\"features\": 7, \"old\": {",
                 "nodes[1]: expected \"features\": an object, found 7");
  expect_refused("\"float32\"", "\"int64\"",
                 "nodes[1]: features: expected \"dtype\": uint8, float16, bfloat16 or float32");
  expect_refused("\"paper.labels.npy\"", "\"../labels.npy\"",
                 "target: expected \"labels\": a file name without a folder");
  expect_refused("\"task\": \"classification\"", "\"task\": \"guess\"", "target: expected \"task\": classification");
  expect_refused("\"label_dtype\": \"int64\",", "", "target: expected the key \"label_dtype\", found none");
  expect_refused("\"type\": \"author\"", "\"type\": 4", "nodes[0]: expected \"type\": a string, found 4");
  expect_refused(
      "\"type\": [\n        \"author\",", "\"type\": [",
      "edges[0]: expected \"type\": a list of source type, name and target type, found [\"writes\",\"paper\"]");
}

TEST_F(TypedDataset, RefusesNames) {
  expect_refused([](Meta& meta) { meta.node_types[0].name = "an author"; },
                 "nodes[0]: expected \"type\": names of 1 to 64 letters, digits, _ and -, found an author");
  expect_refused([](Meta& meta) { meta.edge_types[2].name = ""; }, "edges[2]: expected \"type\": names of 1 to 64");
  expect_refused([](Meta& meta) { meta.edge_types[2].name = std::string(65, 'x'); }, "edges[2]: expected \"type\"");
  expect_refused([](Meta& meta) { meta.node_types[0].name = "paper"; },
                 "nodes[1]: expected a type that is named once, found paper again");
  expect_refused([](Meta& meta) { meta.edge_types[0].source = "writer"; },
                 "edges[0]: expected \"type\": the name of a type in \"nodes\", found writer");
  expect_refused([](Meta& meta) { meta.edge_types[1] = meta.edge_types[0]; },
                 "edges[1]: expected a relation that is named once, found author, writes, paper again");
  expect_refused("\"type\": \"paper\",\n    \"task\"", "\"type\": \"venue\",\n    \"task\"",
                 "target: expected \"type\": the name of a type in \"nodes\", found venue");
}

TEST_F(TypedDataset, RefusesTooMuch) {
  expect_refused(
      [](Meta& meta) {
        meta.node_types.assign(33, meta.node_types[0]);
        meta.target_type = 0;
      },
      "\"nodes\": a list of 1 to 32, found 33");
  expect_refused([](Meta& meta) { meta.edge_types.assign(129, meta.edge_types[0]); },
                 "\"edges\": a list of 1 to 128, found 129");
  expect_refused([](Meta& meta) { meta.node_types[0].num_nodes = (int64_t{1} << 31) - 4; },
                 "expected at most 2147483647 nodes of all types together, found 2147483648");
}

TEST_F(TypedDataset, RefusesRelationsOutOfOrder) {
  expect_refused(
      [](Meta& meta) {
        std::swap(meta.edge_types[0], meta.edge_types[2]);
        meta.edge_types[1].reverse_of = 2;
      },
      "edges[2]: expected relations in the order of their source types, found source type author (nodes[0]) after "
      "paper (nodes[1])");
  Meta meta = TypedFolder::meta();
  std::swap(meta.edge_types[1], meta.edge_types[2]);
  write_typed_meta(data_, meta);
  EXPECT_EQ(Dataset::open(data_).meta().edge_types[1].name, "cites") << "relations of one source type";
}

TEST_F(TypedDataset, RefusesReversesThatAreNone) {
  const auto reverse_of = [](std::size_t relation, int of) {
    return [=](Meta& meta) { meta.edge_types[relation].reverse_of = of; };
  };
  const std::string expected =
      "edges[1]: expected \"reverse_of\": the number of a relation with edges from author to paper, or null";
  expect_refused("\"reverse_of\": 0", "\"reverse_of\": -1", expected + ", found -1");
  expect_refused(reverse_of(1, 3), expected + ", found 3");
  expect_refused(reverse_of(1, 1), expected + ", found 1: edges from paper to author");
  expect_refused(reverse_of(1, 2), expected + ", found 2: edges from paper to paper");
  expect_refused("\"reverse_of\": 0", "\"position\": -1", "edges[1]: expected \"position\" in [0, 2^48], found -1");
}

TEST_F(TypedDataset, RefusesFilesThatDoNotBelongTogether) {
  expect_refused("\"count\": 4", "\"count\": 5", "author.writes.paper.indptr.npy: expected shape [6], found shape [5]");
  expect_refused("\"count\": 3,\n      \"indptr\"", "\"count\": 2,\n      \"indptr\"",
                 "paper.cites.paper.indptr.npy[4]: expected 2 (count), found 3");
  expect_refused("\"dim\": 2", "\"dim\": 3", "paper.features.npy: expected shape [4, 3], found shape [4, 2]");
  expect_refused("\"type\": \"paper\",\n    \"task\"", "\"type\": \"author\",\n    \"task\"",
                 "paper.labels.npy: expected shape [3], found shape [4]");
}

// Each array is looked at with the limits of its own type: author 3 and paper 3 differ.
TEST_F(TypedDataset, ChecksEachRelationAndTable) {
  const auto expect_found = [&](const std::string& words, bool by_demand = true) {
    const auto problems = check(data_);
    ASSERT_EQ(problems.size(), 1u) << words;
    const std::string message = base::Error(problems.front()).what();
    EXPECT_NE(message.find(words), std::string::npos) << message;
    const std::string demanded = base::error_of([&] { demand_in_range(Dataset::open(data_)); });
    EXPECT_EQ(demanded, by_demand ? message : "no error");
    for (const auto& [name, bytes] : folder_.files()) write_bytes(path(name), bytes);
  };
  poke<int32_t>("author.writes.paper.indices.npy", 4, 3);
  expect_found("author.writes.paper.indices.npy[4]: expected a node of type author in [0, 3), found 3");
  poke<int32_t>("paper.rev_writes.author.indices.npy", 0, -1);
  expect_found("paper.rev_writes.author.indices.npy[0]: expected a node of type paper in [0, 4), found -1");
  poke<int64_t>("paper.cites.paper.indices.npy", 1, 4);
  expect_found("paper.cites.paper.indices.npy[1]: expected a node of type paper in [0, 4), found 4");
  poke<int64_t>("paper.rev_writes.author.indptr.npy", 1, 4);
  expect_found("paper.rev_writes.author.indptr.npy[2]: expected at least 4, the value before, found 3");
  poke<int64_t>("paper.labels.npy", 3, 3);
  expect_found("paper.labels.npy[3]: expected a class in [0, 3)");
  poke<int64_t>("paper.train_ids.npy", 1, 4);
  expect_found("paper.train_ids.npy[1]: expected a node of type paper in [0, 4), found 4");
  poke<float>("paper.features.npy", 5, std::numeric_limits<float>::infinity());
  expect_found("paper.features.npy[2, 1]: expected a finite number, found Inf", false);
  poke<int64_t>("paper.val_ids.npy", 0, 2);
  expect_found("paper.val_ids.npy[0]: expected a node with a label, found node 2", false);
  EXPECT_TRUE(check(data_).empty());
}

}  // namespace
}  // namespace cohort::dataset
