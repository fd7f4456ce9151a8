// detail: what opens below a row: charts of the past with live values, and all quantities.
import { ASKED, Chart, CHARTS, loadCharts } from "./chart.js";
import { history, model, now, ranges } from "./data.js";
import { Figures } from "./figures.js";
import * as f from "./format.js";
import { Past } from "./past.js";
import { el, put, unknown, width } from "./rows.js";
import { packages } from "./words.js";

const POINTS = 600; // in a zoomed part
const SHORTEST = 10; // seconds: the smallest zoom

export class Detail {
	constructor(row, range) {
		this.row = row;
		this.range = ranges[range];
		this.part = null; // [from, to] of the zoom
		this.past = new Past(this.range.step, ASKED);
		this.charts = CHARTS.map((c) => new Chart(c, this));
		this.figures = new Figures(row);
		this.note = el("p", { className: "empty", role: "status", hidden: true });
		this.buttons = ranges.map((r, i) => el("button", {
			type: "button", textContent: r.label, title: `${r.label} (${i + 1})`, "aria-pressed": String(i === range),
			onclick: () => this.onrange?.(i),
		}));
		const group = el("div", { className: "ranges", role: "group", ariaLabel: "Range of the charts" }, ...this.buttons);
		this.back = el("button", { type: "button", className: "small", textContent: "Reset zoom", title: "Double click on a chart does the same", hidden: true, onclick: () => this.zoom(null) });
		const csv = el("button", { type: "button", className: "small", textContent: "CSV", title: "The data of these charts as a file", onclick: () => this.download() });
		this.facts = el("p", { className: "facts" });
		this.parts = el("ul", { className: "mig", ariaLabel: "MIG instances" });
		this.grid = el("div", { className: "charts" }, ...this.charts.map((c) => c.box));
		row.place.replaceChildren(el("div", { className: "inside" },
			el("div", { className: "bar-top" }, this.facts, el("div", { className: "choose" }, this.back, group, csv)), this.parts, this.note, this.grid, this.figures.box));
		this.watch = new ResizeObserver(() => this.charts.forEach((c) => c.resize()));
		this.watch.observe(this.grid);
		this.update();
		this.load();
	}

	// ---- which time is shown

	shown() {
		if (this.part)
			return this.part;
		const end = Math.max(this.past.time.at(-1) || 0, now() - 2 * this.past.step);
		return [end - this.range.seconds, end];
	}

	words() {
		return this.part ? `from ${f.when(this.part[0] * 1000)} to ${f.when(this.part[1] * 1000)}` : `of the last ${this.range.label}`;
	}

	// When the stored history begins, if that is well inside the chart.
	since() {
		const first = this.past.begin(), [from, to] = this.shown();
		return first !== null && first - from > Math.max(2.5 * this.past.step, (to - from) / 50) ? first : null;
	}

	setRange(i) {
		this.range = ranges[i];
		this.part = null;
		this.buttons.forEach((b, n) => b.setAttribute("aria-pressed", String(n === i)));
		return this.load();
	}

	zoom(part) {
		this.charts.forEach((c) => c.plot?.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false));
		if (part === this.part || (part && part[1] - part[0] < SHORTEST))
			return;
		this.part = part;
		this.load();
	}

	asked() {
		if (!this.part)
			return this.range;
		const [from, to] = this.part;
		return { from: Math.floor(from), to: Math.ceil(to), step: Math.max(1, Math.ceil((to - from) / POINTS)) };
	}

	async load() {
		const turn = this.turn = (this.turn || 0) + 1, range = this.asked();
		this.back.hidden = !this.part;
		try {
			const [series] = await Promise.all([history(this.row.device, ASKED, range), loadCharts()]);
			if (turn !== this.turn || this.closed)
				return;
			this.past = new Past(range.step, ASKED).load(series);
			this.ready = true;
			this.note.hidden = true;
			this.grid.hidden = false;
			this.draw();
		} catch (e) {
			if (turn !== this.turn || this.ready)
				return;
			this.note.hidden = false;
			this.grid.hidden = Boolean(!packages.charts);
			put(this.note, e.message);
		}
	}

	download() {
		const link = el("a", { href: URL.createObjectURL(new Blob([this.past.csv()], { type: "text/csv" })), download: `gpu${this.row.device.index}-${this.part ? "part" : this.range.name}.csv` });
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 1000);
	}

	// ---- content

	update() {
		const d = this.row.device;
		put(this.facts, [d.name, d.uuid, d.pci_bus_id, d.driver_version && `driver ${d.driver_version}`, d.message].filter(Boolean).join(" · "));
		this.instances(d.mig_devices || []);
	}

	// A MIG GPU: memory is per instance, power and energy are of the whole GPU.
	instances(list) {
		this.parts.hidden = !list.length;
		while (this.parts.childElementCount > list.length)
			this.parts.lastChild.remove();
		list.forEach((m, i) => {
			if (!this.parts.children[i])
				this.parts.append(el("li", {}, el("b"), el("span", { className: "of" }), el("span", { className: "bar", ariaHidden: "true" }, el("i", { className: "fill memory" }))));
			const [name, memory, bar] = this.parts.children[i].children, known = m.memory_used_bytes !== null && m.memory_total_bytes !== null;
			put(name, `${m.index}: ${(m.name || "").replace(/^.*MIG /, "")}`);
			name.title = m.uuid || "";
			if (known)
				put(memory, `${f.gib(m.memory_used_bytes)} of ${f.gib(m.memory_total_bytes)} GiB`);
			else
				unknown(memory, m.memory_absent);
			width(bar.firstChild, known ? m.memory_used_bytes / m.memory_total_bytes : 0);
		});
	}

	tick() {
		const t = Date.parse(model.tick?.time_utc) / 1000;
		if (this.ready && t && !this.part)
			this.past.add(t, this.row.device, this.range.seconds);
		this.draw();
	}

	draw() {
		if (document.hidden)
			return;
		this.update();
		this.figures.draw();
		if (this.ready)
			this.charts.forEach((c) => c.draw());
	}

	remake() {
		if (this.ready)
			this.charts.forEach((c) => c.remake());
	}

	close() {
		this.closed = true;
		this.watch.disconnect();
		this.charts.forEach((c) => c.plot?.destroy());
		this.row.place.replaceChildren();
	}
}
