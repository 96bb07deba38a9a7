#include "base/version.h"

#include "build_info.h"

namespace hayfork {

std::string_view version() {
  return HAY_VERSION;
}
std::string_view commit() {
  return HAY_COMMIT;
}
bool commit_dirty() {
  return HAY_DIRTY != 0;
}

}  // namespace hayfork
