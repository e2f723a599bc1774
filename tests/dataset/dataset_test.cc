#include "dataset/dataset.h"

#include <gtest/gtest.h>

#include <fstream>

#include "dataset/generating/generate.h"
#include "tests/dataset/folder_test.h"

namespace cohort::dataset {
namespace {

class DatasetFolder : public FolderTest {
 protected:
  void SetUp() override { generate(data_, {GraphKind::sbm, 50, 400, 6, DType::float32, 4, 1, {0.5, 0.2, 0.2}, false}); }
};

TEST_F(DatasetFolder, RefusesAMetaThatIsNotOurs) {
  edit_meta("\"version\": 1", "\"version\": 4");
  expect_refused("expected format cohort-dataset version 1 to 3, found format cohort-dataset version 4");
  edit_meta("\"version\": 4", "\"version\": [");
  expect_refused("expected JSON");
  std::filesystem::remove(path("meta.json"));
  expect_refused("meta.json: expected the description of a data set, found no such file");
  std::filesystem::create_directory(path("meta.json"));
  expect_refused("meta.json: expected the description of a data set, found a folder");
  std::filesystem::remove(path("meta.json"));
  std::ofstream(path("run.json")) << "{}";
  expect_refused("expected the folder of a data set, found the folder of a run");
  std::filesystem::remove_all(data_);
  expect_refused("expected the folder of a data set, found no such folder");
}

TEST_F(DatasetFolder, RefusesMembersOfTheWrongKind) {
  edit_meta("\"num_nodes\": 50", "\"num_nodes\": \"50\"");
  expect_refused("expected \"num_nodes\": an integer, found \"50\"");
  edit_meta("\"num_nodes\": \"50\"", "\"num_nodes\": 0");
  expect_refused("expected \"num_nodes\" in [1, 2^48], found 0");
  edit_meta("\"num_nodes\": 0", "\"nodes\": 50");
  expect_refused("expected the key \"num_nodes\", found none");
}

TEST_F(DatasetFolder, RefusesJsonOfAnyDepth) {
  edit_meta("\"num_nodes\": 50", "\"num_nodes\": " + std::string(100000, '[') + std::string(100000, ']'));
  expect_refused("meta.json: expected JSON of at most 32 levels, found more");
}

TEST_F(DatasetFolder, ShowsTheStartOfALongValue) {
  edit_meta("\"num_nodes\": 50", "\"num_nodes\": \"" + std::string(1000, '5') + "\"");
  expect_refused("expected \"num_nodes\": an integer, found \"" + std::string(79, '5') + "...\n");
}

}  // namespace
}  // namespace cohort::dataset
