// In a build without nvCOMP.
#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {

void run_nvcomp(const Lines& lines, const DeviceRows& rows) {
  lines.write("codec", {{"rows", rows.name}, {"algorithm", "nvcomp"}, {"missing", "nvcomp not installed"}});
}

}  // namespace cohort::ibp::paper
