// Fetching batches through the cache: GB/s of decoded rows by tier, and whether the tiers overlap.
//
//   fetch_bench [GB]       size of the decoded table (default 4); with two GPUs also rows of a peer
//
// float32 x 128, Gaussian, exponent codec, 1 M random rows a batch, medians of 11. Every batch is compared with the
// table.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/cuda_check.h"
#include "base/device.h"
#include "bench/ibp/made_rows.cuh"
#include "cache/fill_slabs.h"

namespace {

using namespace cohort;
using base::cuda_check;

constexpr int64_t kColumns = 128, kRowBytes = 512, kBatch = 1'000'000;

struct Graph {
  explicit Graph(int64_t num_rows) : memory(static_cast<std::size_t>(num_rows * kRowBytes)) {
    rows.shape = {num_rows, kColumns, "float32"};
    rows.row_bytes = kRowBytes;
    constexpr int64_t kPiece = 1 << 20;
    const base::DeviceBytes made(kPiece * kRowBytes);
    for (int64_t first = 0; first < num_rows; first += kPiece) {
      const int64_t count = std::min(kPiece, num_rows - first);
      ibp::fill_kernel<<<4096, 256>>>(made.data(), count, kColumns, ibp::Dtype::kFloat32, ibp::Kind::kGaussian);
      cuda_check(cudaMemcpy(memory.data() + first * kRowBytes, made.data(), static_cast<std::size_t>(count * kRowBytes),
                            cudaMemcpyDefault));
      for (int64_t row = first; row < first + count; ++row) {  // no two alike
        std::memcpy(memory.data() + row * kRowBytes, &row, sizeof row);
      }
    }
    rows.raw = memory.data();
    const ibp::RowTable table{memory.data(), num_rows, ibp::Dtype::kFloat32, kColumns};
    rows.encoded =
        std::make_shared<cache::HostRows>(ibp::encode(table, ibp::fit(table, {.codec = "exponent"}).profile));
  }
  std::vector<std::byte> memory;
  cache::FeatureRows rows;
};

// Every `num_members`-th node on each GPU of one clique, up to `share` of all.
cache::Plan plan_of(const Graph& graph, cache::SlabRows& rows, int num_members, double share) {
  cache::Plan plan;
  plan.cliques.resize(1);
  plan.gpus.resize(static_cast<std::size_t>(num_members));
  cache::CliqueRows& clique = plan.cliques[0].rows[0];
  const cache::RowSizes sizes = rows.sizes();
  for (int member = 0; member < num_members; ++member) plan.cliques[0].gpus.push_back(member);
  const auto cached = static_cast<uint32_t>(share * static_cast<double>(graph.rows.shape.num_rows));
  for (uint32_t node = 0; node < cached; ++node) {
    const auto owner = static_cast<uint16_t>(node % static_cast<uint32_t>(num_members));
    clique.nodes.push_back(node);
    clique.owners.push_back(owner);
    cache::Slab& slab = plan.gpus[owner].slabs[0];
    slab.nodes.push_back(node);
    slab.bytes += sizes.each.empty() ? sizes.row_bytes : sizes.each[node];
  }
  for (auto& gpu : plan.gpus) gpu.slabs[0].num_entries = cached;
  return plan;
}

// Random nodes, each once; `keep(node)` says which.
template <typename Keep>
std::vector<int64_t> random_nodes(int64_t num_rows, Keep keep) {
  std::vector<int64_t> nodes;
  for (int64_t node = 0; node < num_rows; ++node) {
    if (keep(node)) nodes.push_back(node);
  }
  std::shuffle(nodes.begin(), nodes.end(), std::mt19937_64(5));
  nodes.resize(std::min<std::size_t>(nodes.size(), kBatch));
  return nodes;
}

void measure(const char* name, cache::FeatureFetch& fetch, const Graph& graph, const std::vector<int64_t>& nodes,
             int sms) {
  const auto count = static_cast<int64_t>(nodes.size());
  base::DeviceArray<int64_t> on_gpu(nodes.size());
  const base::DeviceBytes out(nodes.size() * kRowBytes);
  cuda_check(cudaMemcpy(on_gpu.data(), nodes.data(), nodes.size() * 8, cudaMemcpyHostToDevice));
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<std::pair<float, cache::TierUses>> runs;
  for (int i = 0; i < 14; ++i) {
    begin.record(stream);
    fetch.fetch(on_gpu.data(), count, {out.data()}, stream);
    end.record(stream);
    end.synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begin, end));
    const cache::TierUses uses = fetch.use();
    if (i >= 3) runs.emplace_back(ms, uses);  // the first ones learn
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto& [ms, uses] = runs[runs.size() / 2];
  std::vector<std::byte> got(nodes.size() * kRowBytes);
  cuda_check(cudaMemcpy(got.data(), out.data(), got.size(), cudaMemcpyDeviceToHost));
  bool same = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    same = same && std::memcmp(got.data() + i * kRowBytes, graph.memory.data() + nodes[i] * kRowBytes, kRowBytes) == 0;
  }
  std::printf("%-22s %4d %8.1f %8.3f", name, sms, 1e-6 * static_cast<double>(count * kRowBytes) / ms, ms);
  double slowest = 0;
  for (const cache::TierUse& use : uses) {
    slowest = std::max(slowest, 1e-3 * use.us);
    std::printf(" %8.3f %7.1f", 1e-3 * use.us,
                use.us > 0 ? 1e-3 * static_cast<double>(use.rows * kRowBytes) / use.us : 0);
  }
  std::printf("  %6.3f %s\n", ms - slowest, same ? "" : "WRONG ROWS");
  if (!same) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) try {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 0);
  const double gigabytes = argc > 1 ? std::atof(argv[1]) : 4;
  const Graph graph(static_cast<int64_t>(gigabytes * 1e9) / kRowBytes);
  const int64_t num_rows = graph.rows.shape.num_rows;
  const auto host = std::make_shared<const cache::HostFeatures>(graph.rows, true);
  std::printf("%-22s %4s %8s %8s %8s %7s %8s %7s %8s %7s  %6s\n", "rows from", "SMs", "GB/s", "ms", "local ms", "GB/s",
              "peer ms", "GB/s", "host ms", "GB/s", "rest");
  const auto run = [&](const char* name, int num_members, double share, auto keep, bool coded = true) {
    std::vector<int> gpus(static_cast<std::size_t>(num_members));
    std::iota(gpus.begin(), gpus.end(), 0);
    cache::SlabRows slab_rows(graph.rows, coded);
    auto views = cache::fill_row_slabs(plan_of(graph, slab_rows, num_members, share), gpus, slab_rows, num_rows);
    cuda_check(cudaSetDevice(0));
    cache::FeatureFetch fetch(host, kRowBytes, {});
    fetch.set_slabs(std::move(views[0]));
    const std::vector<int64_t> nodes = random_nodes(num_rows, keep);
    for (const int sms : {4, 8, 16, 32, 64, 132}) {
      fetch.set_num_sms(sms);
      measure(name, fetch, graph, nodes, sms);
    }
  };
  const auto all = [](int64_t) { return true; };
  run("host", 1, 0.0, all);
  run("30 % local, host", 1, 0.3, all);
  run("70 % local, host", 1, 0.7, all);
  run("local", 1, 1.0, all);
  run("local, raw", 1, 1.0, all, false);
  if (base::visible_gpus().size() < 2) return 0;
  run("half local, half peer", 2, 1.0, all);
  const auto of_peer = [](int64_t node) { return node % 2 == 1; };
  run("peer", 2, 1.0, of_peer);
  run("peer, raw", 2, 1.0, of_peer, false);
  run("third local, peer, host", 2, 0.67, all);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cache_fetch_bench: %s\n", error.what());
  return 1;
}
