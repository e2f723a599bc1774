// Checks of what callers hand in. Internal to ibp/.
#pragma once

#include "ibp/ibp.h"

namespace cohort::ibp {

// Throws Error on a table of impossible shape; `place` names the call.
void check_table(const RowTable& rows, const std::string& place);
// The same, and that the profile is valid and was made for rows of this dtype and width.
void check_table_fits(const RowTable& rows, const Profile& profile, const std::string& place);

}  // namespace cohort::ibp
