#include "dataset/npy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "temporary_folder.h"
#include "tests/base/fails.h"

namespace cohort::dataset {
namespace {

// A version 1 file around a header text; `data_bytes` bytes of zeros follow.
std::string npy_file(const std::string& header, std::size_t data_bytes) {
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(data_bytes, '\0');
}

void expect_refused(const std::filesystem::path& path, const char* words) {
  EXPECT_TRUE(base::fails_with([&] { map_npy(path); }, {path.string(), words}));
}

TEST(NpyHeader, IsWhatNumpyWrites) {
  const std::string header = format_npy_header(DType::float32, {3});
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(10, 58), "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } ");
  EXPECT_EQ(header.back(), '\n');
  EXPECT_NE(format_npy_header(DType::uint8, {4, 5}).find("'|u1', 'fortran_order': False, 'shape': (4, 5), }"),
            std::string::npos);
}

TEST(Npy, ComesBackAsWritten) {
  const TemporaryFolder folder;
  {
    const MappedOutput out = create_npy(folder / "a.npy", DType::int32, {5, 3});
    const auto values = out.as<int32_t>();
    std::iota(values.begin(), values.end(), -7);
  }
  const MappedArray array = map_npy(folder / "a.npy", {{DType::int64, DType::int32}, {-1, 3}});
  EXPECT_EQ(array.dtype(), DType::int32);
  EXPECT_EQ(array.shape(), (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(array.bytes(), 60u);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(array.as<int32_t>()[i], i - 7);
  EXPECT_THROW(array.as<float>(), base::Error);
}

TEST(Npy, HoldsNoElementsToo) {
  const TemporaryFolder folder;
  create_npy(folder / "a.npy", DType::int64, {0});
  EXPECT_TRUE(map_npy(folder / "a.npy").as<int64_t>().empty());
}

TEST(Npy, ReadsVersions2And3AndAnyOrderOfKeys) {
  const TemporaryFolder folder;
  std::string header = R"({"shape": (2, ), "fortran_order": False, "descr": "<i8"})";
  header.resize((12 + header.size() + 7) / 8 * 8 - 12, ' ');
  for (const char version : {'\x02', '\x03'}) {
    std::string file = "\x93NUMPY";
    file += version;
    file += '\0';
    file += static_cast<char>(header.size());
    file += std::string(3, '\0') + header + std::string(16, '\0');
    write_bytes(folder / "a.npy", file);
    EXPECT_EQ(map_npy(folder / "a.npy").as<int64_t>().size(), 2u);
  }
}

TEST(Npy, MissingEmptyOrNoFile) {
  const TemporaryFolder folder;
  expect_refused(folder / "a.npy", "no such file");
  write_bytes(folder / "a.npy", "");
  expect_refused(folder / "a.npy", "an empty file");
  std::filesystem::create_directory(folder / "b.npy");
  expect_refused(folder / "b.npy", "a regular file");
}

struct Damage {
  const char* what;
  std::string file;
  const char* message;
};

class NpyDamage : public testing::TestWithParam<Damage> {};

TEST_P(NpyDamage, IsNamed) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.npy", GetParam().file);
  expect_refused(folder / "a.npy", GetParam().message);
}

const std::string kGood = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }          \n";

std::string with(const std::string& descr, const std::string& order, const std::string& shape) {
  return npy_file("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n", 64);
}

INSTANTIATE_TEST_SUITE_P(
    All, NpyDamage,
    testing::Values(Damage{"version", std::string("\x93NUMPY\x04\x00\x00\x00\x00\x00", 12), "format 4.0"},
                    Damage{"object", with("'|O'", "False", "(2, 2)"), "dtype '|O'"},
                    Damage{"structured", with("[('a', '<f4')]", "False", "(2,)"), "a quoted string"},
                    Damage{"negative", with("'<f4'", "False", "(-2, 2)"), "a length of the shape"},
                    Damage{"huge", with("'<f4'", "False", "(4611686018427387904, 4)"), "less than 2^63 bytes"},
                    Damage{"order", with("'<f4'", "Maybe", "(2, 2)"), "'False' in the .npy header"},
                    Damage{"missing_key", npy_file("{'descr': '<f4', 'shape': (2,), }", 8), "the keys descr"},
                    Damage{"twice", npy_file("{'descr': '<f4', 'descr': '<f4', }", 8), "instead of 'descr'"},
                    Damage{"unknown_key", npy_file("{'descr': '<f4', 'more': 1}", 8), "instead of 'more'"},
                    Damage{"start", npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 16),
                           "data that start at a multiple of 4 bytes"},
                    Damage{"trailing", npy_file(kGood + "exit()", 64), "the end of the header"}),
    [](const auto& test) { return std::string(test.param.what); });

}  // namespace
}  // namespace cohort::dataset
