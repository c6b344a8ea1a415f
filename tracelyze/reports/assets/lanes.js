(() => {
  "use strict";
  const ACROSS = 1e5; // units of the drawing's width
  const CLOSEST = 32; // times the whole step
  const NAMED_FROM = 0.025;
  const MOST_NAMES = 150;
  const SVG = "http://www.w3.org/2000/svg";

  const svg = (tag, attributes, text) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const html = (tag, className, text) => {
    const node = document.createElement(tag);
    node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const percent = (share) => `${(share * 100).toFixed(3)}%`;
  const digits = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 });
  const duration = (us) => us >= 1e6 ? `${digits(us / 1e6)} s` : us >= 1e3 ? `${digits(us / 1e3)} ms` : `${digits(us)} µs`;

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };

  // Times are packed as tenths of microseconds: a begin from the begin before, a launch from the begin.
  const unpackTimes = (lane) => {
    let at = 0;
    lane.start = lane.start.map((step) => { at += step; return at / 10; });
    lane.length = lane.length.map((length) => length / 10);
    lane.busy = lane.busy.map((busy, index) => lane.merged[index] > 1 ? busy / 10 : lane.length[index]);
    lane.launched = lane.launched.map((before, index) => before === null ? null : lane.start[index] - before / 10);
  };

  class View {
    constructor(figure, data) {
      this.data = data;
      data.lanes.forEach(unpackTimes);
      this.from = 0;
      this.to = data.length;
      this.box = figure.querySelector(".lanes");
      this.cut = figure.querySelector(".cut code");
      this.drawing = this.box.querySelector(".drawing");
      this.slices = this.drawing.querySelector(".slices");
      this.names = this.drawing.querySelector(".slice-names");
      this.scale = this.drawing.querySelector(".scale");
      this.still = [this.slices, this.names, this.scale].map((part) => [...part.childNodes]);
      this.grounds = [...this.drawing.querySelectorAll(".lane-ground")];
      this.titles = [...this.drawing.querySelectorAll(".lane-name")];
      data.lanes.forEach((lane, index) => {
        lane.outer = lane.rows;
        if (lane.rows < lane.levels) this.titles[index].classList.add("opens");
      });
      this.pointers = new Map();
      this.addControls();
      this.listen();
    }

    get whole() { return this.from <= 0 && this.to >= this.data.length; }

    addControls() {
      const bar = html("div", "lane-controls");
      const button = (label, title, act) => {
        const one = html("button", "", label);
        one.type = "button";
        one.title = title;
        if (!/[a-z]/i.test(label)) one.setAttribute("aria-label", title);
        one.addEventListener("click", act);
        bar.append(one);
        return one;
      };
      button("+", "Zoom in", () => this.zoom(2));
      button("\u2212", "Zoom out", () => this.zoom(0.5));
      button("\u2190", "Earlier", () => this.pan(-0.4));
      button("\u2192", "Later", () => this.pan(0.4));
      this.reset = button("Show all", "Show the whole timeline", () => this.show(0, this.data.length));
      this.search = html("input", "lane-search");
      this.search.type = "search";
      this.search.placeholder = "Find a kernel or an operator";
      this.search.setAttribute("aria-label", "Find a kernel or an operator in this timeline");
      this.search.addEventListener("input", () => this.find());
      this.search.addEventListener("keydown", (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.next(); }
      });
      bar.append(this.search);
      if (this.data.lanes.some((lane) => lane.rows < lane.levels)) {
        this.depth = button("All levels", "Show what operators call, down to the innermost", () => {
          const open = this.data.lanes.some((lane) => lane.rows < lane.levels);
          this.open(this.data.lanes, open);
        });
        this.depth.setAttribute("aria-pressed", "false");
      }
      button("Save for Perfetto", "Save what is drawn here as a trace for ui.perfetto.dev, thinned as it is drawn", () => this.save());
      this.said = html("output", "quiet");
      bar.append(this.said);
      this.box.before(bar);
      this.tip = html("div", "lane-tip");
      this.tip.hidden = true;
      this.arrow = svg("svg", { class: "lane-arrow", "aria-hidden": "true" });
      this.selection = html("div", "lane-selection");
      this.selection.hidden = true;
      this.box.append(this.arrow, this.selection, this.tip);
      this.box.tabIndex = 0;
      this.box.classList.add("live");
      this.box.setAttribute("role", "group");
      this.box.setAttribute("aria-label",
        "Timeline. Plus and minus zoom, the arrow keys move, Home shows the whole step. The numbers stand below.");
      this.tell();
    }

    tell() {
      this.reset.disabled = this.whole;
      if (this.cut) {
        const at = (time) => (this.data.begin + time).toFixed(1);
        this.cut.textContent = `tracelyze cut ${this.data.source} --from ${at(this.from)} --to ${at(this.to)}`;
      }
      if (this.wanted) return;
      this.said.textContent = this.whole
        ? "Drag over a stretch to zoom; click into the picture, then the wheel zooms too."
        : `${duration(this.from)} to ${duration(this.to)} of ${duration(this.data.length)}`;
    }

    // Lanes with all their levels, or with the outer ones alone; those below them move.
    open(lanes, open) {
      lanes.forEach((lane) => { lane.rows = open ? lane.levels : lane.outer; });
      const { data } = this;
      let at = 0;
      data.lanes.forEach((lane, index) => {
        lane.top = at + data.head;
        this.grounds[index].setAttribute("y", lane.top);
        this.grounds[index].setAttribute("height", lane.rows * data.row);
        this.titles[index].setAttribute("y", lane.top - 6);
        if (lane.outer < lane.levels) {
          const shown = lane.rows < lane.levels ? `the outer ${lane.rows} of ${lane.levels}` : `all ${lane.levels}`;
          this.titles[index].textContent = `${lane.name}, ${shown} levels`;
        }
        at += data.head + lane.rows * data.row + data.gap;
      });
      data.bottom = at;
      this.opened = data.lanes.some((lane) => lane.rows > lane.outer);
      this.slices.setAttribute("height", at);
      this.drawing.setAttribute("height", at + data.foot);
      this.depth.setAttribute("aria-pressed", String(data.lanes.every((lane) => lane.rows === lane.levels)));
      this.filled = false;
      this.show(this.from, this.to);
    }

    // The full slices replace the still ones when they are first needed.
    fill() {
      if (this.filled) return;
      this.filled = true;
      const paths = new Map();
      const scale = ACROSS / this.data.length;
      for (const lane of this.data.lanes) {
        for (let index = 0; index < lane.start.length; index += 1) {
          if (lane.level[index] >= lane.rows) continue;
          const faded = this.wanted && !this.wanted.has(lane.label[index]);
          const key = `${lane.top}/${lane.level[index]}/${lane.kind[index]}/${index % 2}/${faded}`;
          const y = lane.top + (lane.level[index] + 0.5) * this.data.row;
          const width = Math.max(lane.length[index] * scale, 1);
          const stroke = `M${(lane.start[index] * scale).toFixed(1)} ${y}h${width.toFixed(1)}`;
          if (!paths.has(key)) paths.set(key, { kind: lane.kind[index], shade: index % 2, faded, strokes: [] });
          paths.get(key).strokes.push(stroke);
        }
      }
      this.slices.replaceChildren(...[...paths.values()].map(({ kind, shade, faded, strokes }) => {
        const color = (this.data.kinds[kind] || ["k-other"])[0];
        return svg("path", { d: strokes.join(""), class: `${color} t${shade}${faded ? " faded" : ""}` });
      }));
    }

    // Fades everything but the slices whose name holds what was typed, and counts those.
    find() {
      const text = this.search.value.trim().toLowerCase();
      const labels = this.data.names.flatMap((name, label) => name.toLowerCase().includes(text) ? [label] : []);
      this.wanted = text ? new Set(labels) : null;
      // What was asked for by three letters or more opens the lanes that hide it.
      const hides = (lane) => lane.label.some((label, index) => lane.level[index] >= lane.rows && this.wanted.has(label));
      const hiding = text.length > 2 ? this.data.lanes.filter(hides) : [];
      if (hiding.length) this.open(hiding, true);
      this.found = [];
      let time = 0;
      for (const lane of this.wanted ? this.data.lanes : []) {
        for (let index = 0; index < lane.start.length; index += 1) {
          if (!this.wanted.has(lane.label[index]) || lane.level[index] >= lane.rows) continue;
          this.found.push({ lane, index });
          time += lane.busy[index];
        }
      }
      this.found.sort((a, b) => a.lane.start[a.index] - b.lane.start[b.index]);
      this.turn = -1;
      this.filled = false;
      this.show(this.from, this.to);
      if (this.wanted) {
        const count = this.found.length;
        this.said.textContent = count
          ? `${count.toLocaleString("en")} ${count === 1 ? "slice" : "slices"}, ${duration(time)}. Enter shows the next.`
          : "No slice has this name.";
      }
    }

    next() {
      if (!this.wanted || !this.found.length) return;
      this.turn = (this.turn + 1) % this.found.length;
      const { lane, index } = this.found[this.turn];
      const span = Math.max(lane.length[index] * 6, this.data.length / CLOSEST);
      const middle = lane.start[index] + lane.length[index] / 2;
      this.show(middle - span / 2, middle + span / 2);
      this.drawArrow({ lane, index });
    }

    // The innermost slice of the host that is drawn where a slice of the device was launched.
    caller(launched, drawn = true) {
      let caller = null;
      for (const lane of this.data.lanes) {
        if (lane.launched.length) continue;
        for (let index = 0; index < lane.start.length; index += 1) {
          if (drawn && lane.level[index] >= lane.rows) continue;
          const inside = lane.start[index] <= launched + 1 && launched <= lane.start[index] + lane.length[index] + 1;
          const better = caller === null || lane.length[index] < caller.lane.length[caller.index];
          if (inside && better) caller = { lane, index };
        }
      }
      return caller;
    }

    // A line from the call that launched a slice of the device to the slice.
    drawArrow(hit) {
      this.arrow.replaceChildren();
      const launched = hit && hit.lane.launched[hit.index];
      if (launched === null || launched === undefined || !hit) return;
      const caller = this.caller(launched);
      if (!caller) return;
      const span = this.to - this.from;
      const middle = ({ lane, index }) => lane.top + (lane.level[index] + 0.5) * this.data.row;
      const across = (at) => percent((at - this.from) / span);
      const ends = { x1: across(launched), y1: middle(caller), x2: across(hit.lane.start[hit.index]), y2: middle(hit) };
      this.arrow.append(svg("line", ends), svg("circle", { cx: ends.x2, cy: ends.y2, r: 3 }));
    }

    // What a slice says of itself: grid and block, bytes, shapes of its inputs.
    detail(lane, index) { return this.data.details[lane.detail[index] ?? -1]; }

    // The part that is shown, in the format that ui.perfetto.dev and chrome://tracing read.
    save() {
      const events = [];
      this.data.lanes.forEach((lane, thread) => {
        events.push({ ph: "M", name: "thread_name", pid: 0, tid: thread, args: { name: lane.name } });
        for (let index = 0; index < lane.start.length; index += 1) {
          const end = lane.start[index] + lane.length[index];
          if (end < this.from || lane.start[index] > this.to) continue;
          const merged = lane.merged[index];
          const name = this.data.names[lane.label[index]];
          const detail = this.detail(lane, index);
          events.push({
            ph: "X", pid: 0, tid: thread, ts: lane.start[index], dur: lane.length[index],
            name: merged > 1 ? `${merged} short ones, most time in ${name}` : name,
            cat: (this.data.kinds[lane.kind[index]] || ["", ""])[1],
            ...(detail ? { args: { detail } } : {}),
          });
          const launched = lane.launched[index];
          const caller = typeof launched === "number" && launched >= this.from ? this.caller(launched, false) : null;
          if (caller) {
            const flow = { cat: "launch", name: "launch", id: events.length, pid: 0 };
            const begins = Math.max(launched, caller.lane.start[caller.index]);
            events.push({ ...flow, ph: "s", tid: this.data.lanes.indexOf(caller.lane), ts: begins });
            events.push({ ...flow, ph: "f", bp: "e", tid: thread, ts: lane.start[index] });
          }
        }
      });
      const file = new Blob([JSON.stringify({ displayTimeUnit: "ms", traceEvents: events })], { type: "application/json" });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(file);
      link.download = `${this.data.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60) || "timeline"}.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }

    show(from, to) {
      const { length } = this.data;
      const span = Math.min(Math.max(to - from, length / CLOSEST), length);
      const middle = (from + to) / 2;
      this.from = Math.min(Math.max(middle - span / 2, 0), length - span);
      this.to = this.from + span;
      this.tip.hidden = true;
      this.arrow.replaceChildren();
      if (this.whole && !this.wanted && !this.opened) {
        this.filled = false;
        [this.slices, this.names, this.scale].forEach((part, index) => part.replaceChildren(...this.still[index]));
        this.slices.setAttribute("viewBox", this.stillBox);
      } else {
        this.fill();
        const unit = ACROSS / length;
        this.slices.setAttribute("viewBox", `${this.from * unit} 0 ${span * unit} ${this.data.bottom}`);
        this.drawNames(span);
        this.drawScale(span);
      }
      this.tell();
    }

    drawNames(span) {
      const wide = [];
      for (const lane of this.data.lanes) {
        for (let index = 0; index < lane.start.length; index += 1) {
          const begin = Math.max(lane.start[index], this.from);
          const end = Math.min(lane.start[index] + lane.length[index], this.to);
          if (end - begin >= NAMED_FROM * span && lane.level[index] < lane.rows) {
            const merged = lane.merged[index];
            const said = merged > 1 ? `${merged.toLocaleString("en")} short ones` : this.data.names[lane.label[index]];
            wide.push({ begin, end, y: lane.top + lane.level[index] * this.data.row, said });
          }
        }
      }
      wide.sort((a, b) => (b.end - b.begin) - (a.end - a.begin));
      this.names.replaceChildren(...wide.slice(0, MOST_NAMES).map(({ begin, end, y, said }) => {
        const frame = svg("svg", {
          x: percent((begin - this.from) / span), y, width: percent((end - begin) / span), height: this.data.row,
        });
        frame.append(svg("text", { x: 3, y: this.data.row - 4 }, said));
        return frame;
      }));
    }

    drawScale(span) {
      const [unit, name] = [[1e6, "s"], [1e3, "ms"], [1, "µs"]].find(([size]) => this.to >= 2 * size || size === 1);
      const rough = span / unit / 5;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
      const { bottom } = this.data;
      const nodes = [svg("line", { x1: "0", x2: "100%", y1: bottom, y2: bottom, class: "axis" })];
      for (let index = Math.ceil(this.from / unit / step); index * step * unit <= this.to; index += 1) {
        const share = (index * step * unit - this.from) / span;
        const side = share < 0.02 ? "begin" : share > 0.98 ? "end" : "middle";
        nodes.push(svg("line", { x1: percent(share), x2: percent(share), y1: bottom, y2: bottom + 4, class: "axis" }));
        nodes.push(svg("text", { x: percent(share), y: bottom + 17, class: `tick ${side}` }, digits(index * step)));
      }
      nodes.push(svg("text", { x: "100%", y: bottom + 33, class: "name end" }, `${name} from the beginning`));
      this.scale.replaceChildren(...nodes);
    }

    zoom(factor, at = (this.from + this.to) / 2) {
      const span = Math.min(Math.max((this.to - this.from) / factor, this.data.length / CLOSEST), this.data.length);
      const share = (at - this.from) / (this.to - this.from);
      this.show(at - span * share, at + span * (1 - share));
    }

    pan(share) {
      const by = (this.to - this.from) * share;
      this.show(this.from + by, this.to + by);
    }

    moment(clientX) {
      const frame = this.drawing.getBoundingClientRect();
      const share = Math.min(Math.max((clientX - frame.left) / frame.width, 0), 1);
      return this.from + share * (this.to - this.from);
    }

    // The slice under the pointer, or the nearest one within three pixels.
    slice(clientX, clientY) {
      const frame = this.drawing.getBoundingClientRect();
      const y = clientY - frame.top;
      const at = this.moment(clientX);
      const near = 3 * (this.to - this.from) / frame.width;
      for (const lane of this.data.lanes) {
        const level = Math.floor((y - lane.top) / this.data.row);
        if (level < 0 || level >= lane.rows) continue;
        let best = null;
        for (let index = 0; index < lane.start.length; index += 1) {
          if (lane.level[index] !== level) continue;
          const off = Math.max(lane.start[index] - at, at - lane.start[index] - lane.length[index], 0);
          if (off <= near && (best === null || off < best.off)) best = { off, index };
        }
        return best && { lane, index: best.index };
      }
      return null;
    }

    // The lane whose name is under the pointer, if it opens.
    title(clientX, clientY) {
      const index = this.titles.findIndex((one) => {
        const { left, right, top, bottom } = one.getBoundingClientRect();
        const inside = clientX >= left && clientX <= right && clientY >= top && clientY <= bottom;
        return inside && one.classList.contains("opens");
      });
      return this.data.lanes[index];
    }

    point(event) {
      const hit = this.slice(event.clientX, event.clientY);
      this.tip.hidden = !hit;
      this.drawArrow(hit);
      if (!hit) return;
      const { lane, index } = hit;
      const merged = lane.merged[index];
      const name = this.data.names[lane.label[index]];
      const kind = (this.data.kinds[lane.kind[index]] || ["", ""])[1];
      const lines = [
        merged > 1 ? `${merged.toLocaleString("en")} short ones, most time in ${name}` : name,
        merged > 1
          ? `${duration(lane.busy[index])} within ${duration(lane.length[index])}`
          : `${duration(lane.length[index])}, from ${duration(lane.start[index])}`,
        `${kind} \u00b7 ${lane.name}`,
      ];
      const launched = lane.launched[index];
      if (this.detail(lane, index)) lines.push(this.detail(lane, index));
      if (typeof launched === "number") lines.push(`launched ${duration(Math.max(0, lane.start[index] - launched))} before`);
      this.tip.replaceChildren(...lines.map((line, number) => html("div", number ? "" : "tip-name", line)));
      const box = this.box.getBoundingClientRect();
      const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4);
      this.tip.style.left = `${Math.max(0, left)}px`;
      this.tip.style.top = `${event.clientY - box.top + 16}px`;
    }

    listen() {
      const { box } = this;
      this.stillBox = this.slices.getAttribute("viewBox");
      box.addEventListener("wheel", (event) => {
        const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
        const asked = event.ctrlKey || event.metaKey || document.activeElement === box;
        if (sideways && !this.whole) {
          event.preventDefault();
          this.pan((event.deltaX || event.deltaY) / this.drawing.clientWidth);
        } else if (asked && !sideways) {
          event.preventDefault();
          this.zoom(Math.exp(-event.deltaY / 300), this.moment(event.clientX));
        }
      }, { passive: false });
      box.addEventListener("keydown", (event) => {
        if (event.altKey || event.ctrlKey || event.metaKey) return;
        const act = {
          "+": () => this.zoom(2), "=": () => this.zoom(2), "-": () => this.zoom(0.5),
          ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
          Home: () => this.show(0, this.data.length), Escape: () => this.show(0, this.data.length),
        }[event.key];
        if (act) { event.preventDefault(); act(); }
      });
      box.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        this.pointers.set(event.pointerId, event);
        this.begun = { x: event.clientX, at: this.moment(event.clientX), from: this.from, to: this.to };
        if (event.pointerType === "mouse") { event.preventDefault(); box.focus({ preventScroll: true }); }
        try { box.setPointerCapture(event.pointerId); } catch { /* the pointer is gone already */ }
      });
      box.addEventListener("pointermove", (event) => this.move(event));
      const lift = (event) => {
        const begun = this.pointers.size === 1 && this.pointers.has(event.pointerId) ? this.begun : null;
        this.pointers.delete(event.pointerId);
        this.pinch = null;
        this.selection.hidden = true;
        if (event.type === "pointercancel" || !begun) return;
        const title = this.title(event.clientX, event.clientY);
        if (Math.abs(event.clientX - begun.x) < 5 && title) this.open([title], title.rows < title.levels);
        else if (Math.abs(event.clientX - begun.x) < 5) this.point(event);
        else if (event.pointerType === "mouse") {
          const at = this.moment(event.clientX);
          this.show(Math.min(begun.at, at), Math.max(begun.at, at));
        }
      };
      box.addEventListener("pointerup", lift);
      box.addEventListener("pointercancel", lift);
      box.addEventListener("pointerleave", () => { if (!this.pointers.size) { this.tip.hidden = true; this.drawArrow(null); } });
    }

    move(event) {
      if (!this.pointers.has(event.pointerId)) {
        if (event.pointerType === "mouse") this.point(event);
        return;
      }
      this.pointers.set(event.pointerId, event);
      this.tip.hidden = true;
      if (this.pointers.size === 2) {
        const [one, other] = [...this.pointers.values()];
        const apart = Math.max(Math.abs(one.clientX - other.clientX), 8);
        if (this.pinch) this.zoom(apart / this.pinch, this.moment((one.clientX + other.clientX) / 2));
        this.pinch = apart;
      } else if (event.pointerType !== "mouse") {
        if (this.whole) return;
        const by = (this.begun.x - event.clientX) / this.drawing.clientWidth * (this.begun.to - this.begun.from);
        this.show(this.begun.from + by, this.begun.to + by);
      } else if (Math.abs(event.clientX - this.begun.x) >= 5) {
        const box = this.box.getBoundingClientRect();
        this.selection.hidden = false;
        this.selection.style.left = `${Math.min(event.clientX, this.begun.x) - box.left}px`;
        this.selection.style.width = `${Math.abs(event.clientX - this.begun.x)}px`;
      }
    }
  }

  // The packed slices stand behind this script, at the end of the page.
  addEventListener("DOMContentLoaded", async () => {
    const packed = document.getElementById("timelines");
    if (!packed || !("DecompressionStream" in window)) return;
    const timelines = await unpack(packed.textContent);
    const views = [...document.querySelectorAll("[data-timeline]")].map((figure) =>
      new View(figure, timelines[Number(figure.dataset.timeline)]));
    // Paper gets the whole step.
    let before = [];
    addEventListener("beforeprint", () => {
      before = views.map((view) => [view.from, view.to]);
      views.forEach((view) => view.show(0, view.data.length));
    });
    addEventListener("afterprint", () => views.forEach((view, index) => view.show(...before[index])));
    document.documentElement.dataset.lanes = "ready";
  });
})();
