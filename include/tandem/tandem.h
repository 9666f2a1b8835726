#pragma once

/// All of the C++ interface.
#include "tandem/about.h"
#include "tandem/annotations.h"
#include "tandem/backend.h"
#include "tandem/checkpoint.h"
#include "tandem/compile.h"
#include "tandem/compiled.h"
#include "tandem/entry.h"
#include "tandem/error.h"
#include "tandem/exported.h"
#include "tandem/flatten.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tandem/ir/text.h"
#include "tandem/options.h"
#include "tandem/pass.h"
#include "tandem/stages.h"
