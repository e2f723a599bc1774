// The sampler's backend in the process that trains: what a run is compared with that has one process, two streams for
// sampling and fetching, and no SMs of its own for either.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/nanobind_errors.h"
#include "channel/publisher.h"
#include "dataset/dataset.h"
#include "dataset/dtype.h"
#include "sampler/draw.h"
#include "sampler/load.h"

#ifdef COHORT_WITH_CUDA
#include "base/cuda_check.h"
#include "base/owners.h"
#include "base/shared_gpu_bytes.h"
#endif

namespace nb = nanobind;
using namespace cohort;
using Seeds = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

namespace {

// A slot's memory, on the backend's device.
class Memory {
 public:
  explicit Memory(bool on_gpu) : on_gpu_(on_gpu) {}
  std::byte* at_least(std::size_t bytes) {
    if (bytes > bytes_) grow(bytes + bytes / 4);
    return on_gpu_ ? device() : host_.data();
  }
  bool on_gpu() const { return on_gpu_; }

 private:
#ifdef COHORT_WITH_CUDA
  std::byte* device() const { return device_.data(); }
  base::DeviceBytes device_;
#else
  std::byte* device() const { return nullptr; }
#endif
  void grow(std::size_t bytes) {
    bytes_ = bytes;
    if (!on_gpu_) return host_.resize(bytes);
#ifdef COHORT_WITH_CUDA
    device_ = base::DeviceBytes();
    device_ = base::DeviceBytes(bytes, "allocate a slot");
#endif
  }

  bool on_gpu_;
  std::size_t bytes_ = 0;
  std::vector<std::byte> host_;
};

class OneProcess {
 public:
  OneProcess(const std::string& run_json, int num_slots)
      : options_(sampler::read_options(run_json)),
        data_(dataset::Dataset::open(options_.dataset)),
        graph_(view_of(data_, options_, num_slots)),
        backends_(sampler::make_backends(options_, graph_)),
        gpu_(options_.device == "cuda" ? options_.gpus[0] : -1),
        slots_(static_cast<std::size_t>(num_slots), Slot(gpu_ >= 0)) {
    if (names_rows()) make_rows();
    base::require(data_.meta().label_dtype == dataset::DType::int64, "labels that are classes");
    backends_[0]->enter_thread();
  }

  // Draws and relabels, and waits for it.
  std::tuple<std::vector<int64_t>, std::vector<int64_t>> sample(const Seeds& seeds, std::vector<int32_t> fanout,
                                                                uint64_t epoch, uint64_t step) {
    const std::span<const int64_t> ids(seeds.data(), seeds.size());
    sampled_ = backends_[0]->sample({ids, fanout, sampler::batch_key(options_.seed, epoch, step)});
    return {sampled_.nodes_per_hop, sampled_.edges_per_hop};
  }

  // Starts to write the sampled batch into a slot, after `wait` (a cudaEvent_t; 0: none).
  void fetch(std::size_t slot, const Seeds& positions, std::uintptr_t wait) {
    Slot& to = slots_.at(slot);
    channel::Batch& batch = to.batch = {};
    batch.num_nodes = batch.num_labels = sampled_.num_nodes;
    batch.num_edges = batch.num_local_edges = sampled_.num_edges;
    batch.num_seeds = sampled_.nodes_per_hop.front();
    batch.num_hops = static_cast<int32_t>(sampled_.edges_per_hop.size());
    std::ranges::copy(sampled_.nodes_per_hop, batch.nodes[0].per_hop);
    std::ranges::copy(sampled_.edges_per_hop, batch.edges[0].per_hop);
    to.data = to.memory.at_least(channel::lay_out(sampler::slot_contents(graph_, false), batch));
    if (graph_.rows_in == channel::RowsIn::kPool) make_room(batch.num_nodes);
#ifdef COHORT_WITH_CUDA
    if (wait) {
      backends_[0]->before_fetch([&](base::GpuStream stream) {
        base::cuda_check(cudaStreamWaitEvent(stream, reinterpret_cast<cudaEvent_t>(wait)), "wait for a slot's readers");
      });
    }
#endif
    base::require(gpu_ >= 0 || wait == 0, "no event on the CPU");
    sampler::SlotArrays arrays = arrays_of(to);
    const uint64_t others = std::min(num_fetches_, static_cast<uint64_t>(slots_.size() - 1));  // that may be in use
    arrays.number = num_fetches_;
    arrays.oldest_in_use = num_fetches_++ - others;
    backends_[0]->fetch(arrays, {positions.data(), positions.size()});
  }

  bool finished() { return backends_[0]->finished(); }
  // Seconds of the last fetch; once it has finished.
  double fetch_seconds() {
    const sampler::FetchUse use = backends_[0]->fetched();
    return (use.time.end_us - use.time.begin_us) / 1e6;
  }

  // The arrays of a slot by name, as views that live as long as this object and until the slot is fetched into again.
  static nb::dict arrays(nb::handle self, std::size_t slot) {
    auto& own = nb::cast<OneProcess&>(self);
    const Slot& from = own.slots_.at(slot);
    const auto view = [&](uint64_t offset, std::vector<std::size_t> shape, nb::dlpack::dtype dtype) {
      const int device = own.gpu_ >= 0 ? nb::device::cuda::value : nb::device::cpu::value;
      return nb::ndarray<nb::pytorch>(from.data + offset, shape.size(), shape.data(), self, nullptr, dtype, device,
                                      std::max(own.gpu_, 0));
    };
    const auto count = [](int64_t value) { return static_cast<std::size_t>(value); };
    const channel::Batch& batch = from.batch;
    const std::size_t nodes = count(batch.num_nodes), dim = count(own.rows_of_nodes().feature_dim);
    const auto int64 = nb::dtype<int64_t>();
    nb::dict found;
    if (!own.names_rows()) found["x"] = view(batch.nodes[0].x_offset, {nodes, dim}, own.feature_type());
    found["row_index"] = view(batch.row_index_offset, {nodes}, int64);
    found["y"] = view(batch.y_offset, {nodes}, int64);
    found["edge_index"] = view(batch.edge_index_offset, {2, count(batch.num_edges)}, int64);
    found["indptr"] = view(batch.indptr_offset, {count(channel::num_targets(batch, 0)) + 1}, int64);
    found["n_id"] = view(batch.n_id_offset, {nodes}, int64);
    return found;
  }

  // Rows [any, dim] that `row_index` of batches names; None: slots have rows.
  static nb::object rows(nb::handle self) {
    auto& own = nb::cast<OneProcess&>(self);
    if (!own.names_rows()) return nb::none();
    const bool has_pool = own.graph_.rows_in == channel::RowsIn::kPool;
    const int64_t count = has_pool ? own.backends_[0]->most_pool_rows(0) : own.graph_.num_nodes;
    const int64_t stride =
        has_pool ? own.graph_.types[0].rows.row_bytes : cache::raw_row_stride(own.graph_.types[0].rows.row_bytes);
    const auto dim = own.rows_of_nodes().feature_dim;
    const std::array<std::size_t, 2> shape = {static_cast<std::size_t>(count), static_cast<std::size_t>(dim)};
    const std::array<int64_t, 2> strides = {stride * dim / own.graph_.types[0].rows.row_bytes, 1};
    return nb::cast(nb::ndarray<nb::pytorch>(own.rows_, 2, shape.data(), self, strides.data(), own.feature_type(),
                                             nb::device::cuda::value, own.gpu_));
  }

 private:
  static sampler::GraphView view_of(const dataset::Dataset& data, sampler::Options& options, int num_slots) {
    options.num_slots = num_slots;
    sampler::GraphView graph = sampler::view_of(data, options);
    graph.rows_in = sampler::rows_lie_in(graph, options);
    return graph;
  }
  bool names_rows() const { return graph_.rows_in != channel::RowsIn::kSlots; }
  void make_rows() {
#ifdef COHORT_WITH_CUDA
    if (const base::SharedGpuBytes* table = backends_[0]->all_rows()) {
      rows_ = table->data();
    } else {
      rows_ = backends_[0]->grow_pool(0, 1, 1)->data();  // further memory comes behind this
    }
#endif
  }
  // In the pool, for a batch of so many nodes in each slot.
  void make_room(int64_t num_nodes) {
    const auto num_slots = std::ssize(slots_);
    const int64_t needed = channel::pool_rows(num_slots, num_nodes, graph_.num_nodes, options_.reuse);
    if (needed <= backends_[0]->pool_rows(0)) return;
    const int64_t batch_nodes = channel::pool_batch_nodes(num_nodes, graph_.num_nodes);
    const int64_t preferred = channel::pool_rows(num_slots, batch_nodes, graph_.num_nodes, options_.reuse);
    backends_[0]->grow_pool(0, needed, preferred);
  }

  struct Slot {
    explicit Slot(bool on_gpu) : memory(on_gpu) {}
    Slot(const Slot& other) : memory(other.memory.on_gpu()) {}  // an empty one
    Memory memory;
    std::byte* data = nullptr;
    channel::Batch batch{};
  };

  static sampler::SlotArrays arrays_of(const Slot& slot) {
    const channel::Batch& batch = slot.batch;
    sampler::SlotArrays arrays;
    arrays.n_id = reinterpret_cast<int64_t*>(slot.data + batch.n_id_offset);
    arrays.y = slot.data + batch.y_offset;
    arrays.edge_index = reinterpret_cast<int64_t*>(slot.data + batch.edge_index_offset);
    arrays.input_id = reinterpret_cast<int64_t*>(slot.data + batch.input_id_offset);
    arrays.x = {slot.data + batch.nodes[0].x_offset};
    arrays.indptr = reinterpret_cast<int64_t*>(slot.data + batch.indptr_offset);
    arrays.num_labels = batch.num_labels;
    arrays.row_index = reinterpret_cast<int64_t*>(slot.data + batch.row_index_offset);
    return arrays;
  }

  const dataset::NodeType& rows_of_nodes() const { return data_.meta().node_types[0]; }

  nb::dlpack::dtype feature_type() const {
    const auto bits = static_cast<uint8_t>(8 * dataset::size_of(rows_of_nodes().feature_dtype));
    switch (rows_of_nodes().feature_dtype) {
      case dataset::DType::uint8:
        return nb::dtype<uint8_t>();
      case dataset::DType::bfloat16:
        return {static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), bits, 1};
      default:
        return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), bits, 1};
    }
  }

  sampler::Options options_;
  dataset::Dataset data_;
  sampler::GraphView graph_;
  std::vector<std::unique_ptr<sampler::Backend>> backends_;  // one
  int gpu_;                                                  // CUDA ordinal; -1: the CPU
  std::vector<Slot> slots_;
  std::byte* rows_ = nullptr;  // that batches name, in memory of the GPU
  uint64_t num_fetches_ = 0;
  sampler::BatchSizes sampled_;
};

}  // namespace

NB_MODULE(one_process_native, m) {
  base::raise_errors_as_cohort_error();
  nb::class_<OneProcess>(m, "OneProcess", "A sampler in this process, for one GPU or the CPU.")
      .def(nb::init<const std::string&, int>(), nb::arg("run_json"), nb::arg("num_slots"))
      .def("sample", &OneProcess::sample, nb::arg("seeds"), nb::arg("fanout"), nb::arg("epoch"), nb::arg("step"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Draws and relabels a batch of seeds int64 [n]; returns nodes and edges by hop, once they are known.")
      .def("fetch", &OneProcess::fetch, nb::arg("slot"), nb::arg("positions"), nb::arg("wait") = 0,
           nb::call_guard<nb::gil_scoped_release>(),
           "Starts to write the sampled batch, whose seeds stand at `positions` int64 [n], into a slot; `wait`: a "
           "cudaEvent_t that comes first.")
      .def("finished", &OneProcess::finished, "Whether all that fetch() started is in the slot.")
      .def("fetch_seconds", &OneProcess::fetch_seconds, "Of the last fetch, once it is finished.")
      .def("rows", &OneProcess::rows, "Rows [any, dim] that `row_index` of batches names; None: slots have rows, x.")
      .def("arrays", &OneProcess::arrays, nb::arg("slot"), "The batch in a slot: tensors by name.");
}
