#include "cache/remote/divided_rows.h"

#include <utility>
#include <vector>

namespace cohort::cache {
namespace {

// Some of a fetch's rows.
struct Some {
  std::vector<int64_t> ids;
  std::vector<std::size_t> numbers;  // in the fetch
  FarFetch fetch_from(const FarRows& rows, bool plane_a, const TakeRow& take) {
    if (ids.empty()) return {};
    return rows.fetch(ids, plane_a, [take, numbers = std::move(numbers)](std::size_t i, const ibp::RowSpan& row) {
      take(numbers[i], row);
    });
  }
};

}  // namespace

DividedRows::DividedRows(std::shared_ptr<const DiskRows> own, std::shared_ptr<const RemoteRows> others)
    : FarRows(own->file()), own_(std::move(own)), others_(std::move(others)) {}

FarFetch DividedRows::fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const {
  Some own, others;
  others.ids.reserve(ids.size());
  others.numbers.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Some& some = others_->is_own(ids[i]) ? own : others;
    some.ids.push_back(ids[i]);
    some.numbers.push_back(i);
  }
  FarFetch fetch = others.fetch_from(*others_, plane_a, take);
  fetch.add(own.fetch_from(*own_, plane_a, take));
  return fetch;
}

}  // namespace cohort::cache
