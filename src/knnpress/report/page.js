"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARKERS = {
    circle: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z",
    square: "M-4-4H4V4H-4Z",
    diamond: "M0-5.5L5.5 0L0 5.5L-5.5 0Z",
    up: "M0-5L5 4H-5Z",
    down: "M0 5L5-4H-5Z",
    left: "M-5 0L4-5V5Z",
    right: "M5 0L-4-5V5Z",
    cross: "M-4-4L4 4M4-4L-4 4",
    plus: "M0-5V5M-5 0H5",
    star: "M0-5V5M-5 0H5M-3.5-3.5L3.5 3.5M3.5-3.5L-3.5 3.5",
    hexagon: "M-5 0L-2.5-4.3H2.5L5 0L2.5 4.3H-2.5Z",
    none: "",
  };
  const OPEN = new Set(["cross", "plus", "star"]);

  const draw = (parent, name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const make = (parent, name, kind, text) => {
    const node = document.createElement(name);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const marker = (parent, look, x, y, hollow) => {
    if (look.marker === "none") return;
    const open = OPEN.has(look.marker);
    draw(parent, "path", {
      d: MARKERS[look.marker], transform: `translate(${x} ${y})`, stroke: `var(--m-${look.colour})`,
      fill: open ? "none" : hollow ? "var(--paper)" : `var(--m-${look.colour})`, "stroke-width": open || hollow ? 2 : 1,
    });
  };
  const swatch = (parent, series) => {
    const svg = draw(parent, "svg", { viewBox: "0 0 34 14", width: 34, height: 14, "aria-hidden": "true" });
    draw(svg, "path", {
      d: "M1 7H33", stroke: `var(--m-${series.look.colour})`, "stroke-dasharray": series.look.dash,
      "stroke-width": series.strong ? 3 : 2,
    });
    marker(svg, series.look, 17, 7);
  };
  const number = (value) => (Math.abs(value) < 9.995 ? value.toFixed(2) : value.toFixed(1));
  const spread = (mean, std) => number(mean) + (std === null ? "" : " ± " + number(std));

  const linearTicks = (top) => {
    const rough = top / 5, unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((s) => s >= 0.85 * rough);
    const ticks = [];
    for (let k = 0; k * step <= top * 1.0001; k++) ticks.push(k * step);
    return ticks;
  };
  const logTicks = (low, high) => {
    const ticks = [];
    for (let unit = 10 ** Math.floor(Math.log10(low)); unit <= high; unit *= 10)
      for (const k of [1, 2, 5]) if (k * unit >= low * 0.999 && k * unit <= high * 1.001) ticks.push(k * unit);
    return ticks;
  };

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.cases = JSON.parse(figure.querySelector("script").textContent);
      this.hidden = new Set();
      this.seen = new Set();
      this.log = null;
      this.at = null;
      const controls = figure.querySelector(".controls");
      if (this.cases.length > 1) {
        const label = make(controls, "label", "", "Variant ");
        const select = make(label, "select");
        this.cases.forEach((one, k) => { make(select, "option", "", one.label).value = k; });
        select.addEventListener("change", () => { this.pick(Number(select.value)); });
      }
      this.scale = make(controls, "button", "key", "logarithmic axis");
      this.scale.type = "button";
      this.scale.addEventListener("click", () => { this.log = !this.isLog(); this.render(); });
      this.keys = make(controls, "div", "keys");
      this.keys.setAttribute("role", "group");
      this.keys.setAttribute("aria-label", "Methods shown");
      this.plot = figure.querySelector(".plot");
      this.tip = make(this.plot, "div", "tip");
      this.tip.setAttribute("role", "status");
      this.tip.hidden = true;
      this.pick(0);
      new ResizeObserver(() => {
        if (this.plot.clientWidth !== this.width) this.render();
      }).observe(this.plot);
    }

    pick(k) {
      this.case = this.cases[k];
      this.at = null;
      this.keys.replaceChildren();
      for (const series of this.case.series) {
        if (!this.seen.has(series.name)) {
          this.seen.add(series.name);
          if (series.hidden) this.hidden.add(series.name);
        }
        const key = make(this.keys, "button", "key");
        key.type = "button";
        key.dataset.method = series.name;
        swatch(key, series);
        make(key, "span", "", series.title);
        key.setAttribute("aria-pressed", String(!this.hidden.has(series.name)));
        key.addEventListener("click", () => {
          const shown = this.hidden.delete(series.name);
          if (!shown) this.hidden.add(series.name);
          key.setAttribute("aria-pressed", String(shown));
          this.render();
        });
        const light = (on) => {
          for (const group of this.plot.querySelectorAll(".series"))
            group.classList.toggle("dim", on && group.dataset.method !== series.name);
        };
        key.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") light(!this.hidden.has(series.name)); });
        key.addEventListener("pointerleave", () => light(false));
      }
      this.render();
    }

    visible() { return this.case.series.filter((series) => !this.hidden.has(series.name)); }

    /* Every [x or null, mean, std] of what is shown. */
    values(list) {
      return list.flatMap((s) => [...s.curve, ...(s.own ? [s.own] : []), ...(s.line ? [[null, ...s.line]] : [])]);
    }

    isLog() {
      if (this.log !== null) return this.log;
      const means = this.values(this.case.series).map((v) => v[1]).filter((v) => v > 0);
      return Math.max(...means) > 8 * Math.min(...means);
    }

    render() {
      const width = (this.width = Math.max(260, this.plot.clientWidth));
      const height = Math.round(Math.min(440, Math.max(300, width * 0.55)));
      const [left, right, top, bottom] = [46, 12, 12, 44];
      this.plot.querySelector("svg")?.remove();
      const svg = (this.svg = document.createElementNS(SVG, "svg"));
      this.plot.prepend(svg);
      for (const [key, value] of Object.entries({
        width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": this.case.alt,
      })) svg.setAttribute(key, value);
      const log = this.isLog();
      this.scale.setAttribute("aria-pressed", String(log));
      const shown = this.visible();
      const values = this.values(shown.length ? shown : this.case.series);
      const positive = values.map((v) => v[1]).filter((v) => v > 0);
      const high = Math.max(...values.map((v) => v[1] + (v[2] ?? 0)), 0.01) * (log ? 1.15 : 1.04);
      const low = log ? Math.min(...(positive.length ? positive : [0.1])) / 1.5 : 0;
      const y = (value) => {
        const share = log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : value / high;
        return Number((height - bottom - share * (height - top - bottom)).toFixed(1));
      };
      const columns = [...new Set([...this.case.ratios, ...shown.filter((s) => s.own).map((s) => s.own[0])])].sort((a, b) => a - b);
      const xs = columns.length ? columns : [1];
      const [first, last] = [Math.log(xs[0] * 0.88), Math.log(xs[xs.length - 1] * 1.12)];
      const x = (value) =>
        Number((left + ((Math.log(value) - first) / (last - first)) * (width - left - right)).toFixed(1));
      const axis = draw(svg, "g", { class: "axis" });
      for (const tick of log ? logTicks(low, high) : linearTicks(high)) {
        draw(axis, "path", { d: `M${left} ${y(tick)}H${width - right}`, class: "grid" });
        draw(axis, "text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, String(Number(tick.toPrecision(3))));
      }
      draw(axis, "path", { d: `M${left} ${height - bottom}H${width - right}`, class: "base" });
      const ticks = [...this.case.ratios];
      while (ticks.length && ticks[ticks.length - 1] * 2 <= xs[xs.length - 1] * 1.12) ticks.push(ticks[ticks.length - 1] * 2);
      for (const ratio of ticks) {
        draw(axis, "path", { d: `M${x(ratio)} ${height - bottom}v5`, class: "base" });
        draw(axis, "text", { x: x(ratio), y: height - bottom + 18, "text-anchor": "middle" }, `${ratio} %`);
      }
      draw(axis, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", class: "label" },
        "prototypes, share of the training set");
      draw(axis, "text", { transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "label" },
        "test error, %");
      const rule = draw(svg, "path", { class: "rule", d: "" });
      for (const series of [...shown].reverse()) this.series(svg, series, x, y, left, width - right);
      this.columns = columns;
      this.place = x;
      this.rule = (value) => rule.setAttribute("d", value === null ? "" : `M${x(value)} ${top}V${height - bottom}`);
      svg.addEventListener("pointermove", (event) => this.nearest(event));
      svg.addEventListener("pointerdown", (event) => this.nearest(event));
      svg.addEventListener("pointerleave", () => this.show(null));
      svg.addEventListener("blur", () => this.show(null));
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (event.key === "Escape") this.show(null);
        if (!step || !columns.length) return;
        event.preventDefault();
        const k = this.at === null ? (step > 0 ? -1 : columns.length) : columns.indexOf(this.at);
        this.show(columns[Math.min(columns.length - 1, Math.max(0, k + step))]);
      });
      this.show(null);
    }

    series(svg, series, x, y, left, right) {
      const { look } = series;
      const colour = `var(--m-${look.colour})`;
      const group = draw(svg, "g", { class: "series", "data-method": series.name });
      const stroke = { stroke: colour, "stroke-dasharray": look.dash, "stroke-width": series.strong ? 3 : 2, fill: "none" };
      if (series.line) {
        const [mean, std] = series.line;
        if (series.strong && std !== null)
          draw(group, "path", { d: `M${left} ${y(mean + std)}H${right}V${y(mean - std)}H${left}Z`, fill: colour, class: "band" });
        draw(group, "path", { d: `M${left} ${y(mean)}H${right}`, ...stroke });
      }
      const points = series.curve;
      if (points.length) {
        const banded = points.filter((p) => p[2] !== null);
        if (banded.length > 1) {
          const upper = banded.map((p) => `${x(p[0])} ${y(p[1] + p[2])}`);
          const lower = banded.map((p) => `${x(p[0])} ${y(p[1] - p[2])}`).reverse();
          draw(group, "path", { d: `M${upper.join("L")}L${lower.join("L")}Z`, fill: colour, class: "band" });
        }
        draw(group, "path", { d: `M${points.map((p) => `${x(p[0])} ${y(p[1])}`).join("L")}`, ...stroke });
        for (const p of points) marker(group, look, x(p[0]), y(p[1]));
      }
      if (series.own) {
        const [at, mean, std] = series.own;
        if (std !== null)
          draw(group, "path", { d: `M${x(at)} ${y(mean - std)}V${y(mean + std)}`, stroke: colour, "stroke-width": 1.5 });
        marker(group, { ...look, marker: look.marker === "none" ? "circle" : look.marker }, x(at), y(mean), true);
      }
    }

    nearest(event) {
      const at = event.clientX - this.svg.getBoundingClientRect().left;
      const far = (column) => Math.abs(this.place(column) - at);
      this.show(this.columns.reduce((best, c) => (best === null || far(c) < far(best) ? c : best), null));
    }

    show(column) {
      if (column === this.at && column !== null) return;
      this.at = column;
      this.rule(column);
      this.tip.hidden = column === null;
      if (column === null) return;
      this.tip.replaceChildren();
      make(this.tip, "b", "", `${Number(column.toPrecision(3))} % of the training set`);
      const rows = [];
      for (const series of this.visible()) {
        const here = series.curve.find((p) => p[0] === column);
        if (here) rows.push([series, here[1], here[2], ""]);
        if (series.own && series.own[0] === column) rows.push([series, series.own[1], series.own[2], ", its own size"]);
        if (series.line && this.case.ratios.includes(column)) rows.push([series, ...series.line, ""]);
      }
      rows.sort((a, b) => a[1] - b[1]);
      for (const [series, mean, std, more] of rows) {
        const row = make(this.tip, "div");
        swatch(row, series);
        make(row, "span", "", series.title + more);
        make(row, "span", "value", spread(mean, std));
      }
      const at = this.place(column), room = this.plot.clientWidth - this.tip.offsetWidth;
      const beside = at + 14 + this.tip.offsetWidth <= this.plot.clientWidth ? at + 14 : at - 14 - this.tip.offsetWidth;
      this.tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
    }
  }

  for (const figure of document.querySelectorAll("figure.chart")) new Chart(figure);

  addEventListener("beforeprint", () => { for (const folded of document.querySelectorAll("details")) folded.open = true; });

  for (const figure of document.querySelectorAll("figure.map")) {
    const select = figure.querySelector("select");
    select?.addEventListener("change", () => {
      for (const group of figure.querySelectorAll("[data-class]"))
        group.classList.toggle("dim", select.value !== "" && group.dataset.class !== select.value);
    });
  }
})();
