(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Theme: what the reader chose, else what the system says.
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const themeButton = document.getElementById("theme");
  const nameTheme = () => { themeButton.textContent = dark() ? "Light" : "Dark"; };
  themeButton.hidden = false;
  nameTheme();
  themeButton.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("tracelyze-theme", root.dataset.theme); } catch { /* no storage here */ }
    nameTheme();
    redraw();
  });

  // A link to a folded finding opens it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  reveal();

  // Paper has no folds.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    folded.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((details) => { details.open = false; }));

  // The repair can be copied.
  all(".code.instead").forEach((box) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = box.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    box.querySelector(".code-title").append(button);
  });

  // Interactive charts: unpacked when the first one is asked for.
  const packed = document.getElementById.bind(document);
  let figures;
  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(packed(id).textContent), (char) => char.charCodeAt(0));
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
    const [ink, quiet, line, surface, accent] = ["--ink", "--quiet", "--line", "--surface", "--critical"].map(color);
    const title = (of) => ({ ...of.title, font: { size: 12, color: quiet } });
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
    const { layout } = figure;
    return {
      ...layout,
      xaxis: { ...layout.xaxis, ...axis, title: title(layout.xaxis), showgrid: false },
      yaxis: { ...layout.yaxis, ...axis, title: title(layout.yaxis) },
      shapes: layout.shapes.map((shape, index) => ({
        ...shape, line: { ...shape.line, color: index === 0 && shape.yref === "paper" ? accent : quiet },
      })),
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
      colorway: [0, 1, 2, 3, 4, 5, 6, 7].map((number) => color(`--series-${number}`)),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: surface, font: { color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: ink },
      legend: { orientation: "h", y: -0.3 },
      margin: { l: 56, r: 16, t: 52, b: 48 },
      height: 340,
    };
  };
  const coloured = (figure) => figure.data.map((trace) =>
    trace.type === "bar" ? { ...trace, marker: { color: color(`--${trace.meta}`) } } : trace);
  const shown = new Map();
  // Only what works on the chart in front of the reader: the library also has a button that sends a chart away.
  const options = {
    responsive: true, displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };
  const redraw = () => shown.forEach((figure, canvas) =>
    window.Plotly.react(canvas, coloured(figure), themed(figure), options));

  // The packed library stands behind this script, at the end of the page.
  addEventListener("DOMContentLoaded", () => {
    if (!packed("plotly") || !("DecompressionStream" in window)) return;
    all(".zoom").forEach((button) => {
      button.hidden = false;
      const still = button.parentElement.querySelector(".canvas");
      const canvas = document.createElement("div");
      canvas.className = "canvas live";
      button.addEventListener("click", async () => {
        if (canvas.isConnected) {
          shown.delete(canvas);
          window.Plotly.purge(canvas);
          canvas.replaceWith(still);
          button.parentElement.classList.remove("live");
          button.textContent = "Zoom and hover";
          return;
        }
        button.disabled = true;
        button.textContent = "Opening";
        try {
          const figure = (await load())[Number(button.dataset.figure)];
          still.replaceWith(canvas);
          button.parentElement.classList.add("live");
          await window.Plotly.newPlot(canvas, coloured(figure), themed(figure), options);
          shown.set(canvas, figure);
          button.textContent = "Back to the still chart";
        } catch (error) {
          if (canvas.isConnected) canvas.replaceWith(still);
          button.parentElement.classList.remove("live");
          button.textContent = `Not available here: ${error.message}`;
        }
        button.disabled = false;
      });
    });
  });
})();
