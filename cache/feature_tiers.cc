// The tiers of a FeatureFetch.
#include <utility>

#include "cache/feature_fetch.h"

namespace cohort::cache {

void FeatureFetch::set_slabs(SlabView view) {
  slabs_ = std::move(view);
  for (const Tier tier : {Tier::kLocal, Tier::kPeer}) {
    profiles_[index_of(tier)] = std::make_unique<ibp::DeviceProfile>(slabs_.profile);
  }
  share_anew();
}

void FeatureFetch::set_far(const FarPart& part) {
  far_ = std::make_unique<FarGather>(part, in_flight_.size());
  share_anew();
}

void FeatureFetch::set_num_sms(int num_sms) {
  settings_.num_sms = num_sms;
  share_.set_num_sms(num_sms);
}

void FeatureFetch::run_on(const std::function<base::Stream(base::Priority)>& make_stream, int num_sms) {
  for (base::Stream& stream : streams_) stream = make_stream(base::Priority::kNormal);
  if (far_) far_->run_on(make_stream);
  set_num_sms(num_sms);
}

void FeatureFetch::share_anew() {
  std::array<bool, kNumLinks> present{};
  for (int tier = 0; tier < kNumLinks; ++tier) present[tier] = has(static_cast<Tier>(tier));
  share_ = SmShare(settings_.num_sms, row_bytes_, settings_.host_bytes_per_second, present);
}

bool FeatureFetch::has_planes() const {
  return host_->coded() && host_->encoded().profile.codec == ibp::Codec::kPlanes &&
         (slabs_.slabs.empty() || slabs_.profile.codec == ibp::Codec::kPlanes);
}

bool FeatureFetch::has(Tier tier) const {
  if (tier == Tier::kHost && far_) return host_->num_rows() > 0;
  if (tier == Tier::kHost) return slabs_.directory.num_entries() < host_->num_rows();
  return static_cast<int>(slabs_.slabs.size()) > index_of(tier);
}

}  // namespace cohort::cache
