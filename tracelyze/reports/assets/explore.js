(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // The library is unpacked when the first chart is explored.
  let figures;
  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const load = () => figures ||= (async () => {
    const script = document.createElement("script");
    script.textContent = await unpack("plotly");
    document.head.append(script);
    if (!window.Plotly) throw new Error("the page may not run scripts that it unpacks");
    return JSON.parse(await unpack("figures"));
  })();

  const color = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const themed = (figure) => {
    const [text, muted, grid, line, surface] = ["--text", "--muted", "--grid", "--line-strong", "--surface"].map(color);
    const roles = { onset: "--critical", mark: "--muted", limit: "--text", healthy: "--healthy" };
    const { layout } = figure;
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: line, automargin: true };
    const title = (of) => ({ ...of.title, font: { size: 12, color: muted } });
    return {
      ...layout,
      xaxis: { ...layout.xaxis, ...axis, title: title(layout.xaxis) },
      yaxis: { ...layout.yaxis, ...axis, title: title(layout.yaxis) },
      shapes: layout.shapes.map(({ name, ...shape }) => shape.type === "rect"
        ? { ...shape, fillcolor: color(roles[name]), line: { width: 0 } }
        : { ...shape, line: { ...shape.line, color: color(roles[name]) } }),
      annotations: layout.annotations.map(({ name, ...note }) => ({ ...note, font: { size: 12, color: color(roles[name]) } })),
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      colorway: [0, 1, 2, 3, 4, 5, 6, 7].map((number) => color(`--series-${number}`)),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: surface, font: { color: text } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: text },
      legend: { orientation: "h", y: -0.3 },
      margin: { l: 56, r: 16, t: 52, b: 48 },
      height: 340,
    };
  };
  const colored = (figure) => figure.data.map((trace) =>
    trace.type === "bar" ? { ...trace, marker: { color: color(`--${trace.meta}`) } } : trace);
  const shown = new Map();
  // Only what works on the chart in front of the reader: the library also has a button that sends a chart away.
  const options = {
    responsive: true, displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };
  addEventListener("tracelyze-theme", () => shown.forEach((figure, canvas) =>
    window.Plotly.react(canvas, colored(figure), themed(figure), options)));

  // The packed library stands behind this script, at the end of the page.
  addEventListener("DOMContentLoaded", () => {
    if (!byId("plotly") || !("DecompressionStream" in window)) return;
    all(".explore").forEach((button) => {
      button.hidden = false;
      const still = button.parentElement.querySelector(".canvas");
      const canvas = document.createElement("div");
      canvas.className = "canvas live";
      button.addEventListener("click", async () => {
        if (canvas.isConnected) {
          shown.delete(canvas);
          window.Plotly.purge(canvas);
          canvas.replaceWith(still);
          button.textContent = "Zoom and pan";
          return;
        }
        button.disabled = true;
        button.textContent = "Opening";
        try {
          const figure = (await load())[Number(button.dataset.figure)];
          still.replaceWith(canvas);
          await window.Plotly.newPlot(canvas, colored(figure), themed(figure), options);
          shown.set(canvas, figure);
          button.textContent = "Back to the still chart";
        } catch (error) {
          if (canvas.isConnected) canvas.replaceWith(still);
          button.textContent = `Not available here: ${error.message}`;
        }
        button.disabled = false;
      });
    });
  });
})();
