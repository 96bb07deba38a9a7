// The leaf everything stands on: errors, files, digests, JSON, text, threads, random numbers. Knows nobody.
#pragma once

#include "base/digest.h"    // IWYU pragma: export
#include "base/error.h"     // IWYU pragma: export
#include "base/events.h"    // IWYU pragma: export
#include "base/file_map.h"  // IWYU pragma: export
#include "base/half.h"      // IWYU pragma: export
#include "base/json.h"      // IWYU pragma: export
#include "base/parallel.h"  // IWYU pragma: export
#include "base/rng.h"       // IWYU pragma: export
#include "base/stop.h"      // IWYU pragma: export
#include "base/units.h"     // IWYU pragma: export
#include "base/utf8.h"      // IWYU pragma: export
