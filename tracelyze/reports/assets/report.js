(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // Theme: what the reader chose, else what the system prefers.
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const themeButton = byId("theme");
  const nameTheme = () => { themeButton.textContent = dark() ? "Light theme" : "Dark theme"; };
  themeButton.hidden = false;
  nameTheme();
  themeButton.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("tracelyze-theme", root.dataset.theme); } catch { /* no storage here */ }
    nameTheme();
    dispatchEvent(new Event("tracelyze-theme"));
  });

  // A link to something in a fold opens the fold.
  const reveal = () => {
    let target = byId(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  reveal();

  // Copy: the text of the element that the button names.
  const toast = byId("toast");
  const say = (text) => {
    toast.textContent = text;
    toast.classList.add("shown");
    setTimeout(() => toast.classList.remove("shown"), 1600);
  };
  all("[data-copy]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const source = byId(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        say("Copied");
      } catch {
        const area = document.createElement("textarea");
        area.value = source.textContent;
        document.body.append(area);
        area.select();
        const done = document.execCommand("copy");
        area.remove();
        say(done ? "Copied" : "Copying is not allowed here");
      }
    });
  });

  // The filter of the checks opens the groups that match and says how many do.
  const filter = byId("filter");
  if (filter) {
    filter.parentElement.hidden = false;
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      let shown = 0;
      all(".group").forEach((group) => {
        let hits = 0;
        all("li", group).forEach((item) => {
          const hit = !wanted || item.textContent.toLowerCase().includes(wanted) || item.dataset.rule.includes(wanted);
          item.hidden = !hit;
          hits += hit;
        });
        all(".need", group).forEach((need) => { need.hidden = !need.querySelector("li:not([hidden])"); });
        group.hidden = Boolean(wanted) && hits === 0;
        group.open = Boolean(wanted) && hits > 0;
        shown += hits;
      });
      byId("hits").textContent = wanted ? `${shown} of ${filter.dataset.count} checks shown` : "";
    });
  }

  // Crosshair: the values at one position in all charts of a card, read from the diagnosis at the end of the page.
  addEventListener("DOMContentLoaded", () => {
    const data = byId("diagnosis") || byId("comparison");
    if (!data) return;
    const diagnosis = JSON.parse(data.textContent);
    const number = (value) => value === null || value === undefined ? "not measured"
      : Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));

    all("[data-crosshair]").forEach((card) => {
      const parts = all("[data-chart]", card).map((figure) => {
        const chart = figure.dataset.chart.split(".").reduce((value, key) => value?.[key], diagnosis);
        const area = figure.querySelector(".area");
        const [x0, x1, low, high] = ["x0", "x1", "lo", "hi"].map((name) => Number(area.dataset[name]));
        return { chart, area, output: figure.querySelector("output"), x0, x1, low, high, log: "log" in area.dataset };
      });
      if (parts.some(({ chart }) => !chart || !chart.x.length)) return;
      const positions = parts[0].chart.x;
      const bars = parts[0].chart.lines.some((line) => line.style === "bars");
      let current = -1;

      const nearest = (values, x) => {
        let best = 0;
        values.forEach((value, index) => { if (Math.abs(value - x) < Math.abs(values[best] - x)) best = index; });
        return best;
      };
      const written = ({ chart }, value) => value === null || value === undefined ? "not measured"
        : chart.unit === "share" ? `${number(value * 100)}%` : `${number(value)} ${chart.unit}`.trim();
      const height = (part, value) => part.log
        ? (Math.log(value) - Math.log(part.low)) / (Math.log(part.high) - Math.log(part.low))
        : (value - part.low) / (part.high - part.low);

      const show = (index) => {
        current = Math.max(0, Math.min(positions.length - 1, index));
        const x = positions[current];
        parts.forEach((part) => {
          const { chart, area, output } = part;
          let cross = area.querySelector(".cross");
          if (!cross) {
            cross = document.createElement("div");
            cross.className = "cross";
            cross.append(document.createElement("i"));
            area.append(cross);
          }
          const at = nearest(chart.x, x);
          cross.hidden = false;
          cross.style.left = `${(x - part.x0) / (part.x1 - part.x0) * 100}%`;
          const value = chart.lines[0]?.y[at] ?? null;
          const off = value === null || (part.log && value <= 0) || bars;
          cross.firstChild.hidden = off;
          if (!off) cross.firstChild.style.top = `${(1 - height(part, value)) * 100}%`;
          const values = chart.lines.slice(0, 8).map((line) =>
            (chart.lines.length > 1 ? `${line.name} ` : "") + written(part, line.y[at] ?? null));
          output.textContent = `${chart.x_label} ${number(chart.x[at])}: ${values.join(", ")}`;
        });
      };
      const hide = () => {
        current = -1;
        parts.forEach(({ area, output }) => {
          const cross = area.querySelector(".cross");
          if (cross) cross.hidden = true;
          output.textContent = "";
        });
      };
      parts.forEach((part) => {
        const point = (event) => {
          const box = part.area.getBoundingClientRect();
          show(nearest(positions, part.x0 + (part.x1 - part.x0) * (event.clientX - box.left) / box.width));
        };
        part.area.addEventListener("pointermove", point);
        part.area.addEventListener("pointerdown", point);
        part.area.addEventListener("pointerleave", hide);
      });
      card.tabIndex = 0;
      card.addEventListener("keydown", (event) => {
        if (event.target !== card || event.altKey || event.ctrlKey || event.metaKey) return;
        const far = event.shiftKey ? 10 : 1;
        const next = { ArrowRight: current + far, ArrowLeft: current - far, Home: 0, End: positions.length - 1 }[event.key];
        if (next !== undefined) { event.preventDefault(); show(next); }
      });
      card.addEventListener("blur", hide);
      const hint = card.querySelector(".hint");
      if (hint) hint.hidden = false;
    });
  });
})();
