"use strict";
// Draws the figures of a report, in the colours of the page. The numbers are all in #figures; nothing is computed here.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const hasMouse = matchMedia("(hover: hover)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: hasMouse ? "hover" : false,
    modeBarButtonsToRemove: ["select2d", "lasso2d"],
  };
  const axesOf = (layout) => Object.keys(layout).filter((name) => /^[xy]axis/.test(name));

  function colours(layout, isDark) {
    const line = isDark ? "#343a42" : "#e3e6eb";
    const text = isDark ? "#c3c9d1" : "#3a414b";
    const found = { "font.color": text, "modebar.color": text, "modebar.bgcolor": "rgba(0,0,0,0)" };
    for (const name of axesOf(layout)) {
      found[`${name}.gridcolor`] = line;
      found[`${name}.linecolor`] = line;
    }
    return found;
  }

  function whole(layout, height) {
    const clear = "rgba(0,0,0,0)";
    const found = {
      ...layout,
      height,
      paper_bgcolor: clear,
      plot_bgcolor: clear,
      margin: { l: 56, r: 12, t: 12, b: 44 },
      modebar: {},
      font: { size: 13, family: "system-ui, sans-serif" },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
      hovermode: "closest",
      // A finger that moves over a plot means to scroll the page.
      dragmode: hasMouse ? "zoom" : false,
    };
    for (const name of axesOf(found)) found[name] = { ...found[name] };
    for (const [key, value] of Object.entries(colours(found, dark.matches))) {
      const [part, field] = key.split(".");
      found[part][field] = value;
    }
    return found;
  }

  function broken(place, error) {
    place.textContent = `This plot could not be drawn: ${error.message}`;
    place.classList.add("broken");
  }

  const drawn = [];
  figures.forEach(({ data, layout }, number) => {
    const place = document.getElementById(`plot-${number}`);
    try {
      Plotly.newPlot(place, data, whole(layout, place.clientHeight), config).catch((error) => broken(place, error));
      drawn.push({ place, layout });
    } catch (error) {
      broken(place, error);
    }
  });

  function repaint(isDark, more) {
    for (const { place, layout } of drawn) Plotly.relayout(place, { ...colours(layout, isDark), ...more });
  }
  dark.addEventListener("change", () => repaint(dark.matches, {}));
  // Paper is white and narrower than most windows.
  addEventListener("beforeprint", () => repaint(false, { width: 680 }));
  addEventListener("afterprint", () => repaint(dark.matches, { width: null, autosize: true }));
})();
