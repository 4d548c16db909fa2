//! Inline SVG charts: lines and bars, coloured by the page's style sheet.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;

/// Colour classes (`c0`, `c1` ...) that the style sheet defines; later lines share `rest`.
pub const COLOURS: usize = 8;

/// One line of a chart, its points in order of x.
pub struct Line {
    /// Shown in the legend.
    pub name: String,
    /// (x, y), both finite and at least 0.
    pub points: Vec<(f64, f64)>,
}

/// One bar of a chart.
pub struct Bar {
    /// Under the bar; may be empty.
    pub label: String,
    /// Shown while the pointer rests on the bar.
    pub hint: String,
    /// Height, finite and at least 0.
    pub value: f64,
}

/// A chart with its legend. Titles and names are text, not markup.
pub fn lines(x_title: &str, y_title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_max = points().map(|point| point.0).fold(0.0, f64::max);
    let y_max = points().map(|point| point.1).fold(0.0, f64::max);
    let scale = Scale::new(x_max, y_max);

    let mut svg = String::new();
    let mut legend = String::new();
    scale.frame(&mut svg, x_title, y_title, true);
    // The named lines last, so that the others do not cover them.
    for (i, line) in lines.iter().enumerate().rev() {
        let class = if i < COLOURS { format!("c{i}") } else { "rest".to_owned() };
        let mut path = String::new();
        for &(x, y) in &line.points {
            put(&mut path, format_args!("{:.1},{:.1} ", scale.x(x), scale.y(y)));
        }
        let name = escape(&line.name);
        put(
            &mut svg,
            format_args!(
                "<polyline class=\"line {class}\" points=\"{path}\"><title>{name}</title></polyline>"
            ),
        );
    }
    for (i, line) in lines.iter().take(COLOURS).enumerate() {
        let name = escape(&line.name);
        put(&mut legend, format_args!("<span class=\"c{i}\"><i></i>{name}</span>"));
    }
    if lines.len() > COLOURS {
        let others = lines.len() - COLOURS;
        put(&mut legend, format_args!("<span class=\"rest\"><i></i>{others} more</span>"));
    }
    format!("<div class=\"legend\">{legend}</div>{}", wrap(&svg, y_title))
}

/// A chart of bars of equal width.
pub fn bars(x_title: &str, y_title: &str, bars: &[Bar]) -> String {
    let y_max = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let scale = Scale::new(bars.len() as f64, y_max);
    let mut svg = String::new();
    scale.frame(&mut svg, x_title, y_title, false);
    for (i, bar) in bars.iter().enumerate() {
        let (x, right) = (scale.x(i as f64), scale.x(i as f64 + 1.0));
        let (y, bottom) = (scale.y(bar.value), scale.y(0.0));
        put(
            &mut svg,
            format_args!(
                "<rect class=\"bar\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                x + 1.0,
                (right - x - 2.0).max(0.5),
                bottom - y,
                escape(&bar.hint)
            ),
        );
        if !bar.label.is_empty() {
            text(&mut svg, x, bottom + 16.0, "middle", &bar.label);
        }
    }
    wrap(&svg, y_title)
}

/// Text made safe inside markup and attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

/// From values to places, with round steps on the y axis.
struct Scale {
    x_max: f64,
    y_max: f64,
    y_step: f64,
}

impl Scale {
    fn new(x_max: f64, y_max: f64) -> Self {
        let y_step = round_step(y_max / 4.0);
        let y_max = (y_max / y_step).ceil().max(1.0) * y_step;
        Self { x_max: if x_max > 0.0 { x_max } else { 1.0 }, y_max, y_step }
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + x / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - y / self.y_max * (HEIGHT - TOP - BOTTOM)
    }

    fn frame(&self, svg: &mut String, x_title: &str, y_title: &str, x_ticks: bool) {
        let steps = (self.y_max / self.y_step).round() as u32;
        for y in (0..=steps).map(|i| f64::from(i) * self.y_step) {
            let at = self.y(y);
            put(
                svg,
                format_args!(
                    "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                    WIDTH - RIGHT
                ),
            );
            text(svg, LEFT - 6.0, at + 4.0, "end", &label(y, self.y_step));
        }
        if x_ticks {
            let step = round_step(self.x_max / 5.0);
            let steps = (self.x_max / step).floor() as u32;
            for x in (0..=steps).map(|i| f64::from(i) * step) {
                text(svg, self.x(x), HEIGHT - BOTTOM + 16.0, "middle", &label(x, step));
            }
        }
        text(svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0, "middle", x_title);
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        put(
            svg,
            format_args!(
                "<text transform=\"translate(12 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
                escape(y_title)
            ),
        );
    }
}

/// The smallest of 1, 2, 2.5, 5, 10, 20 ... (and 0.5, 0.25 ...) that is at least `least`.
fn round_step(least: f64) -> f64 {
    if least <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|&step| step >= least * 0.999_999).unwrap_or(10.0 * power)
}

/// A tick with no more decimals than its step needs.
fn label(value: f64, step: f64) -> String {
    if value <= 0.0 {
        return "0".to_owned();
    }
    let (unit, letter) = if step >= 1_000.0 { (1_000.0, "k") } else { (1.0, "") };
    let is_whole = |x: f64| (x - x.round()).abs() < 1e-6;
    let decimals = (0..9).find(|&n| is_whole(step / unit * 10_f64.powi(n))).unwrap_or(9) as usize;
    format!("{:.decimals$}{letter}", value / unit)
}

fn wrap(svg: &str, name: &str) -> String {
    let name = escape(name);
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\">{svg}</svg>")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escape(text);
    put(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"),
    );
}

fn put(svg: &mut String, part: std::fmt::Arguments<'_>) {
    svg.write_fmt(part).expect("writing to a string succeeds");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_labels_are_round() {
        let cases = [
            (0.0, 1.0),
            (0.9, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (0.024, 0.025),
            (6e3, 1e4),
            (2.1, 2.5),
        ];
        for (least, step) in cases {
            let got = round_step(least);
            assert!((got - step).abs() < step * 1e-9, "{least}: {got}");
        }
        let ticks = [(0.05, 0.05), (20.0, 10.0), (4e3, 2e3), (0.0, 2e3), (5e3, 2.5e3), (7.5, 2.5)];
        let labels = ticks.map(|(value, step)| label(value, step));
        assert_eq!(labels, ["0.05", "20", "4k", "0", "5.0k", "7.5"]);
    }

    #[test]
    fn every_point_is_inside_the_frame_and_text_is_escaped() {
        let line =
            |name: &str| Line { name: name.to_owned(), points: vec![(0.0, 0.0), (9.0, 7.3)] };
        let chart = lines("x", "y", &[line("<b>"), line("b")]);
        assert!(chart.contains("&lt;b&gt;") && !chart.contains("<b>"));
        let points = chart.split("points=\"").skip(1).flat_map(|rest| {
            rest.split('"').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>()
        });
        let mut seen = 0;
        for point in points {
            let (x, y) = point.split_once(',').expect("a pair");
            let (x, y): (f64, f64) = (x.parse().expect("a number"), y.parse().expect("a number"));
            assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y));
            seen += 1;
        }
        assert_eq!(seen, 4);
    }

    #[test]
    fn empty_and_flat_charts_have_no_bad_numbers() {
        let flat = Line { name: "flat".to_owned(), points: vec![(0.0, 0.0)] };
        let bar = Bar { label: String::new(), hint: String::new(), value: 0.0 };
        for chart in [
            lines("x", "y", &[]),
            lines("x", "y", &[flat]),
            bars("x", "y", &[]),
            bars("x", "y", &[bar]),
        ] {
            assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
        }
    }

    #[test]
    fn many_lines_share_one_entry_of_the_legend() {
        let many: Vec<_> =
            (0..64).map(|i| Line { name: format!("DC {i}"), points: vec![(1.0, 1.0)] }).collect();
        let chart = lines("x", "y", &many);
        assert_eq!(chart.matches("<span").count(), COLOURS + 1);
        assert!(chart.contains("56 more"));
        assert_eq!(chart.matches("<polyline").count(), 64);
    }
}
