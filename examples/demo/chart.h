#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace demo {

/// One line of a chart: a value per step.
struct Curve {
  std::string name;
  std::string colour{};  // as SVG names it
  double width = 2;
  std::string dashes{};  // of the stroke; empty: solid
  std::vector<double> values{};
};

/// Curves over one pair of axes.
struct Panel {
  std::string title;
  std::string unit;  // of the values
  bool from_zero = false;
  std::vector<Curve> curves{};
};

/// Writes the panels below each other, with axes, grid and legends, as an SVG picture. False if the
/// file cannot be written.
bool write_chart(const std::filesystem::path& file, const std::vector<Panel>& panels);

}  // namespace demo
