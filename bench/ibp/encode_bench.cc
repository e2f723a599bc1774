// Encoding on the host: raw GB/s of one core, for every codec, alone and with the layout around it.
// Usage: taskset -c 0 ibp_encode_bench [Google Benchmark's options]
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <string>

#include "base/random.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

constexpr int64_t kTableBytes = int64_t{64} << 20;

struct Case {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  uint32_t num_columns = 0;
  bool sparse = false;
  FitOptions options;
  LayoutChoice layout = LayoutChoice::kAuto;
};

float gaussian(uint64_t row, uint64_t column) {
  const uint64_t bits = base::random_64(base::key_of(1), row, column);
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f, v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return std::sqrt(-2 * std::log(u)) * std::cos(6.2831853f * v);
}

// 0.9 % of a sparse row is set, to one value.
float sparse_element(uint64_t row, uint64_t column) {
  const bool set = base::random_below(1000, base::key_of(2), row, column) < 9;
  return set ? 1.0f / static_cast<float>(20 + row % 27) : 0.0f;
}

std::vector<std::byte> make_bytes(const Case& what, int64_t num_rows) {
  const uint32_t size = element_bytes(what.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(num_rows) * what.num_columns * size);
  for (std::size_t i = 0; i < bytes.size() / size; ++i) {
    const uint64_t row = i / what.num_columns, column = i % what.num_columns;
    const float value = what.sparse ? sparse_element(row, column) : gaussian(row, column);
    // The upper bytes of a float are the same number in bfloat16.
    std::memcpy(bytes.data() + i * size, reinterpret_cast<const std::byte*>(&value) + 4 - size, size);
  }
  return bytes;
}

// The codec alone, row after row.
void run_rows(benchmark::State& state, const RowTable& rows, const Profile& profile) {
  const ProfileTables tables(profile);
  std::vector<std::byte> out(encode_room(tables.ref()));
  for (auto iteration : state) {
    for (int64_t i = 0; i < rows.num_rows; ++i) {
      benchmark::DoNotOptimize(encode_row(tables.ref(), rows.row(i), out.data()));
    }
  }
}

// encode(): the memory of the result and its directory included.
void run_encode(benchmark::State& state, const RowTable& rows, const Profile& profile, LayoutChoice layout) {
  for (auto iteration : state) benchmark::DoNotOptimize(encode(rows, profile, {.layout = layout}).ref.data_bytes);
}

void run(benchmark::State& state, const Case& what, bool whole) {
  const int64_t num_rows = kTableBytes / (what.num_columns * element_bytes(what.dtype));
  const std::vector<std::byte> bytes = make_bytes(what, num_rows);
  const RowTable rows{bytes.data(), num_rows, what.dtype, what.num_columns};
  const Profile profile = fit(rows, what.options).profile;
  if (whole) run_encode(state, rows, profile, what.layout);
  if (!whole) run_rows(state, rows, profile);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
}

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  for (const uint32_t chunk_bytes : {4u, 8u}) {
    const FitOptions options{.codec = "invariant", .chunk_bytes = chunk_bytes};
    const std::string name = "invariant" + std::to_string(chunk_bytes);
    cases.push_back({name + "/float32x128", Dtype::kFloat32, 128, false, options});
    cases.push_back({name + "/bf16x1024", Dtype::kBfloat16, 1024, false, options});
  }
  const FitOptions exponent{.codec = "exponent"}, sparse{.codec = "sparse"};
  cases.push_back({"exponent/float32x128", Dtype::kFloat32, 128, false, exponent});
  cases.push_back({"exponent/bf16x1024", Dtype::kBfloat16, 1024, false, exponent});
  cases.push_back({"sparse/float32x3703", Dtype::kFloat32, 3703, true, sparse});
  return cases;
}

}  // namespace
}  // namespace cohort::ibp

int main(int argc, char** argv) {
  using namespace cohort::ibp;
  for (Case what : make_cases()) {
    const auto add = [&](const std::string& name, bool whole) {
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, what, whole); });
    };
    add("rows/" + what.name, false);
    for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
      what.layout = layout;
      add((layout == LayoutChoice::kPacked ? "packed/" : "slots/") + what.name, true);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
