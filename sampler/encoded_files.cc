#include "sampler/encoded_files.h"

#include "cache/host_rows.h"

namespace cohort::sampler {

std::vector<std::filesystem::path> encoded_files(const dataset::Dataset& data, bool with_edges) {
  const dataset::Meta& meta = data.meta();
  std::vector<std::filesystem::path> files;
  for (int type = 0; type < static_cast<int>(meta.node_types.size()); ++type) {
    files.push_back(data.encoded_rows_of(type));
  }
  for (int relation = 0; with_edges && relation < static_cast<int>(meta.edge_types.size()); ++relation) {
    files.push_back(data.encoded_edge_rows_of(relation));
  }
  std::erase_if(files, [](const std::filesystem::path& file) { return file.empty(); });
  return files;
}

std::future<void> verify_rows(const dataset::Dataset& data, bool with_edges) {
  return std::async(std::launch::async, [files = encoded_files(data, with_edges)] {
    for (const std::filesystem::path& file : files) cache::verify_rows(file.string());
  });
}

}  // namespace cohort::sampler
