// A folder with damage: byte 0 says which files; a text takes the place of meta.json or of prepared.json, or bytes of
// the others change and their ends are cut off.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "dataset/check.h"
#include "dataset/encoded.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/dataset/typed_folder.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kMeta = 1, kPrepared = 2, kFiles = 4;

// 4 nodes, 5 edges, 2 features, 3 classes.
struct Good {
  Good() {
    add("indptr.npy", dataset::DType::int64, {5}, bytes_of(std::array<int64_t, 5>{0, 2, 2, 4, 5}));
    add("indices.npy", dataset::DType::int32, {5}, bytes_of(std::array<int32_t, 5>{1, 2, 0, 3, 2}));
    add("features.npy", dataset::DType::float32, {4, 2}, bytes_of(std::array<float, 8>{1, 2, 3, 4, 5, 6, 7, 8}));
    add("labels.npy", dataset::DType::int64, {4}, bytes_of(std::array<int64_t, 4>{0, 2, -1, 1}));
    add("train_ids.npy", dataset::DType::int64, {2}, bytes_of(std::array<int64_t, 2>{0, 1}));
    add("val_ids.npy", dataset::DType::int64, {1}, bytes_of(std::array<int64_t, 1>{3}));
    add("test_ids.npy", dataset::DType::int64, {0}, "");
    add("edge_weights.npy", dataset::DType::float32, {5}, bytes_of(std::array<float, 5>{1, 2, 3, 4, 5}));
    dataset::Meta meta = dataset::plain_meta(4, 5, 2, dataset::DType::float32);
    meta.name = "small";
    meta.num_classes = 3;
    meta.edge_types[0].edge_weights = "edge_weights.npy";
    dataset::write_meta(folder.path(), meta);
    meta_text = dataset::read_bytes(folder / dataset::kMetaFile);
    dataset::write_typed_meta(folder.path(), typed());
    typed_meta_text = dataset::read_bytes(folder / dataset::kMetaFile);
    dataset::write_bytes(folder / dataset::kMetaFile, meta_text);
    prepared_text =
        "{\"format\": \"cohort-prepared\", \"version\": 1, \"raw_file\": \"features.npy\", \"raw_bytes\": 160,\n"
        " \"raw_mtime_ns\": 12}";
  }

  // The same files as arrays of two types and two relations.
  static dataset::Meta typed() {
    dataset::Meta out;
    out.typed = true;
    out.name = "typed";
    out.num_classes = 3;
    out.node_types = {{"a", 4, 0, dataset::DType::float32, ""}, {"b", 4, 2, dataset::DType::float32, "features.npy"}};
    out.edge_types = {{"a", "to", "b", 0, 1, 5, "indptr.npy", "indices.npy", -1},
                      {"b", "rev_to", "a", 1, 0, 5, "indptr.npy", "indices.npy", 0}};
    out.target_type = 1;
    return out;
  }

  void add(const std::string& name, dataset::DType dtype, const std::vector<int64_t>& shape, const std::string& data) {
    files.emplace_back(name, dataset::format_npy_header(dtype, shape) + data);
    dataset::write_bytes(folder / name, files.back().second);
  }

  dataset::TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> files;
  std::string meta_text, typed_meta_text, prepared_text;
};

Good& good() {
  static Good made;
  return made;
}

// One place to damage: 8 bytes of the input.
struct Damage {
  uint8_t file;
  uint8_t cut;  // 255: from there the file is cut off
  uint16_t at;
  int32_t value;
};
static_assert(sizeof(Damage) == 8);

void damage_files(std::span<const std::byte> input, std::vector<std::string>& changed) {
  const std::size_t num_files = good().files.size();
  std::vector<std::string> bytes;
  for (const auto& [name, text] : good().files) bytes.push_back(text);
  for (; input.size() >= sizeof(Damage); input = input.subspan(sizeof(Damage))) {
    Damage damage;
    std::memcpy(&damage, input.data(), sizeof damage);
    std::string& file = bytes[damage.file % num_files];
    const std::size_t at = damage.at % (file.size() + 1);
    if (damage.cut == 255) {
      file.resize(at);
    } else {
      std::memcpy(file.data() + at, &damage.value, std::min(sizeof damage.value, file.size() - at));
    }
  }
  for (std::size_t i = 0; i < num_files; ++i) {
    if (bytes[i] == good().files[i].second) continue;
    changed.push_back(good().files[i].first);
    dataset::write_bytes(good().folder / changed.back(), bytes[i]);
  }
}

void open_and_check() {
  const fs::path folder = good().folder.path();
  std::vector<dataset::Problem> problems;
  dataset::Dataset::open(folder, problems, dataset::Rows::kRaw);
  bool opened = false;
  try {
    const dataset::Dataset data = dataset::Dataset::open(folder);
    opened = data.indptr_of(0).back() == data.meta().edge_types[0].num_edges;
  } catch (const base::Error&) {
  }
  const auto all = dataset::check(folder);
  demand(opened || !all.empty(), "check finds a problem where opening does");
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string damage = bytes_of(Damage{1, 0, 128, 7}) + bytes_of(Damage{0, 0, 136, -1});
  const std::string cut = bytes_of(Damage{2, 255, 130, 0}), nan = bytes_of(Damage{2, 0, 128, 0x7FC00000});
  return {static_cast<char>(kMeta) + good().meta_text,
          static_cast<char>(kMeta) + good().typed_meta_text,
          static_cast<char>(kPrepared) + good().prepared_text,
          static_cast<char>(kFiles) + damage,
          static_cast<char>(kFiles) + cut,
          static_cast<char>(kFiles) + nan,
          static_cast<char>(kFiles) + std::string()};
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  const auto which = std::to_integer<unsigned>(input[0]);
  const std::string text = text_of(input.subspan(1));
  const fs::path meta = good().folder / dataset::kMetaFile, prepared = good().folder / dataset::kPreparedFile;
  std::vector<std::string> changed;
  if (which & kMeta) dataset::write_bytes(meta, text);
  if (which & kPrepared) dataset::write_bytes(prepared, text);
  if (which & kFiles) damage_files(input.subspan(1), changed);
  open_and_check();
  if (which & kMeta) dataset::write_bytes(meta, good().meta_text);
  if (which & kPrepared) fs::remove(prepared);
  for (const auto& [name, bytes] : good().files) {
    if (std::find(changed.begin(), changed.end(), name) != changed.end()) {
      dataset::write_bytes(good().folder / name, bytes);
    }
  }
}

}  // namespace cohort::fuzz
