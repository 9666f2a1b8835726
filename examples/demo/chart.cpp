#include "chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace demo {
namespace {

constexpr double kWidth = 860, kHeight = 380;  // of a panel
constexpr double kLeft = 72, kRight = 28, kTop = 48, kBottom = 56;
constexpr double kTitle = 30;  // its line

/// A range of numbers on a line of pixels, with round numbers to mark.
struct Axis {
  double low, high, from, to;

  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }

  std::vector<double> marks() const {
    const double rough = (high - low) / 6;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= rough) {
        step = factor * power;
        break;
      }
    }
    std::vector<double> values;
    const auto last = static_cast<int64_t>(std::floor(high / step + 1e-9));
    for (auto i = static_cast<int64_t>(std::ceil(low / step - 1e-9)); i <= last; ++i) {
      values.push_back(static_cast<double>(i) * step);
    }
    return values;
  }
};

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, colour);
}

std::string text(double x, double y, const std::string& extra, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, extra, words);
}

std::string stroke(const Curve& curve) {
  return fmt::format(
      "stroke=\"{}\" stroke-width=\"{}\"{}", curve.colour, curve.width,
      curve.dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", curve.dashes));
}

std::string path(const Curve& curve, const Axis& x, const Axis& y) {
  std::string points;
  for (size_t i = 0; i < curve.values.size(); ++i) {
    points += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : " L", x.at(static_cast<double>(i)),
                          y.at(curve.values[i]));
  }
  return fmt::format("<path d=\"{}\" fill=\"none\" {} stroke-linejoin=\"round\"/>\n", points,
                     stroke(curve));
}

std::string axes(const Axis& x, const Axis& y, const std::string& unit) {
  std::string svg;
  for (double mark : x.marks()) {
    svg += line(x.at(mark), y.from, x.at(mark), y.to, "#e4e4e4");
    svg += text(x.at(mark), y.from + 20, " text-anchor=\"middle\"", fmt::format("{:g}", mark));
  }
  for (double mark : y.marks()) {
    svg += line(x.from, y.at(mark), x.to, y.at(mark), "#e4e4e4");
    svg += text(x.from - 10, y.at(mark) + 4, " text-anchor=\"end\"", fmt::format("{:g}", mark));
  }
  svg +=
      line(x.from, y.from, x.to, y.from, "#444444") + line(x.from, y.from, x.from, y.to, "#444444");
  svg += text((x.from + x.to) / 2, kHeight - 14, " text-anchor=\"middle\"", "step");
  const double middle = (y.from + y.to) / 2;
  svg += text(20, middle,
              fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 20 {:.1f})\"", middle),
              unit);
  return svg;
}

/// Beside the title, so that no curve runs through it. Widths of words are estimated.
std::string legend(const std::vector<Curve>& curves, double right) {
  constexpr double kLine = 36, kGap = 8, kBetween = 22, kCharacter = 7;
  const auto width = [](const Curve& curve) {
    return kLine + kGap + kCharacter * static_cast<double>(curve.name.size());
  };
  double x = right + kBetween;
  for (const Curve& curve : curves) x -= width(curve) + kBetween;
  std::string svg;
  for (const Curve& curve : curves) {
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{2:.1f}\" x2=\"{1:.1f}\" y2=\"{2:.1f}\" {3}/>\n",
                       x, x + kLine, kTitle - 5, stroke(curve));
    svg += text(x + kLine + kGap, kTitle, "", curve.name);
    x += width(curve) + kBetween;
  }
  return svg;
}

/// The panel with its upper left corner at 0, 0.
std::string draw(const Panel& panel) {
  size_t steps = 2;
  double low = panel.from_zero ? 0 : INFINITY, high = -INFINITY;
  for (const Curve& curve : panel.curves) {
    steps = std::max(steps, curve.values.size());
    for (double value : curve.values) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (!(low < high)) high = low + 1;
  const double margin = 0.06 * (high - low);
  const Axis x{0, static_cast<double>(steps - 1), kLeft, kWidth - kRight};
  const Axis y{panel.from_zero ? 0 : low - margin, high + margin, kHeight - kBottom, kTop};
  std::string svg = text(kLeft, kTitle, " font-size=\"17\"", panel.title) + axes(x, y, panel.unit);
  for (const Curve& curve : panel.curves) svg += path(curve, x, y);
  return svg + legend(panel.curves, kWidth - kRight);
}

}  // namespace

bool write_chart(const std::filesystem::path& file, const std::vector<Panel>& panels) {
  const double height = kHeight * static_cast<double>(panels.size());
  std::ofstream out(file);
  out << fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#333333\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      kWidth, height);
  for (size_t i = 0; i < panels.size(); ++i) {
    out << fmt::format("<g transform=\"translate(0 {})\">\n", kHeight * static_cast<double>(i))
        << draw(panels[i]) << "</g>\n";
  }
  out << "</svg>\n";
  out.flush();
  return out.good();
}

}  // namespace demo
