#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {

void Lines::write(const char* figure, std::initializer_list<Field> fields) const {
  nlohmann::ordered_json line{{"figure", figure}};
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { line[field.first] = value; }, field.second);
  }
  std::ofstream file(path_, std::ios::app);
  file << line.dump() << std::endl;
  if (!file) throw base::Error({path_, "a file to write results to", "an error", "--out names another"});
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace cohort::ibp::paper
