#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace demo {

/// One line of the chart: a value per step.
struct Curve {
  std::string name;
  std::string colour;  // as SVG names it
  double width = 2;
  std::string dashes{};  // of the stroke; empty: solid
  std::vector<double> values{};
};

/// Writes the curves as an SVG picture with axes, grid and legend. False if the file cannot be
/// written.
bool write_chart(const std::filesystem::path& file, const std::string& title,
                 const std::vector<Curve>& curves);

}  // namespace demo
