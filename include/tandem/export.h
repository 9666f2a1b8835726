#pragma once

/// Marks what libtandem exports. Everything else is hidden, by compiler flag and by version script.
#define TANDEM_API __attribute__((visibility("default")))
