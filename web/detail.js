// detail: the part that opens below the row of a GPU: charts of the past with live values, and all quantities.
import { ASKED, Chart, CHARTS, loadCharts, UNWATCHED_NOTE } from "./chart.js";
import { history, model } from "./data.js";
import { Figures } from "./figures.js";
import * as f from "./format.js";
import { Past, saveCsv } from "./past.js";
import { between, isLive, query, rangeButtons, shown, words } from "./range.js";
import { el, put, since, unknown, width } from "./rows.js";
import { packages } from "./words.js";

export class Detail {
	constructor(row, range) {
		this.row = row;
		this.range = range;
		this.part = null; // The range that the user zoomed to; null: no zoom.
		this.past = new Past(this.range.step, ASKED);
		this.charts = CHARTS.map((c) => new Chart(c, this));
		this.figures = new Figures(row);
		this.note = el("p", { className: "empty", role: "status", hidden: true });
		this.buttons = rangeButtons((r) => this.onrange?.(r));
		this.buttons.press(range);
		this.back = el("button", { type: "button", className: "small", textContent: "Reset zoom", title: "Double click on a chart does the same", hidden: true, onclick: () => this.zoom(null) });
		const csv = el("button", { type: "button", className: "small", textContent: "CSV", title: "The data of these charts as a file", onclick: () => this.download() });
		this.facts = el("p", { className: "facts" }, el("span"), el("span", { className: "counted" }));
		this.parts = el("ul", { className: "mig", ariaLabel: "MIG instances" });
		this.unwatched = el("p", { className: "note unwatched", hidden: true, textContent: UNWATCHED_NOTE });
		this.grid = el("div", { className: "charts" }, ...this.charts.map((c) => c.box));
		row.place.replaceChildren(el("div", { className: "inside" },
			el("div", { className: "bar-top" }, this.facts, el("div", { className: "choose" }, this.back, this.buttons.box, csv)), this.parts, this.note, this.grid, this.unwatched, this.figures.box));
		this.watch = new ResizeObserver(() => this.charts.forEach((c) => c.resize()));
		this.watch.observe(this.grid);
		this.update();
		this.load();
	}

	current() {
		return this.part || this.range;
	}

	shown() {
		return shown(this.current(), this.past.time.at(-1), this.past.step);
	}

	words() {
		return words(this.current());
	}

	// Returns the time at which the stored history begins, if the chart begins clearly earlier; else null.
	since() {
		const first = this.past.begin(), [from, to] = this.shown();
		return first !== null && first - from > Math.max(2.5 * this.past.step, (to - from) / 50) ? first : null;
	}

	setRange(r) {
		this.range = r;
		this.part = null;
		this.buttons.press(r);
		return this.load();
	}

	// part: [from, to]; null: the whole range.
	zoom(part) {
		this.charts.forEach((c) => c.plot?.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false));
		const next = part && between(...part);
		if (part ? !next : !this.part)
			return;
		this.part = next;
		this.load();
	}

	async load() {
		const turn = this.turn = (this.turn || 0) + 1, range = query(this.current());
		this.back.hidden = !this.part;
		try {
			const [series] = await Promise.all([history(this.row.device, ASKED, range.text), loadCharts()]);
			if (turn !== this.turn || this.closed)
				return;
			this.past = new Past(range.step, ASKED).load(series);
			this.ready = true;
			this.note.hidden = true;
			this.grid.hidden = false;
			this.draw();
		} catch (e) {
			if (turn !== this.turn || (this.ready && !e.status))
				return; // Without an answer, the charts stay until the service is back.
			this.note.hidden = false;
			this.grid.hidden = Boolean(!packages.charts);
			put(this.note, e.message);
		}
	}

	download() {
		saveCsv(`gpu${this.row.device.index}-${this.current().name}`, this.past);
	}

	update() {
		const d = this.row.device;
		const [who, counted] = this.facts.children;
		put(who, [d.name, d.uuid, d.pci_bus_id, d.driver_version && `driver ${d.driver_version}`].filter(Boolean).join(" · "));
		since(counted, model.since.get(this.row.key));
		this.instances(d.mig_devices || []);
	}

	// Shows the memory of each MIG instance. Power and energy are known only for the whole GPU.
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
		if (this.ready && t && isLive(this.current()))
			this.past.add(t, this.row.device, t - this.shown()[0]);
		this.draw();
	}

	draw() {
		if (document.hidden)
			return;
		this.update();
		this.figures.draw();
		if (!this.ready)
			return;
		this.charts.forEach((c) => c.draw());
		this.unwatched.hidden = !this.past.unwatched(this.past.column(ASKED[0]).mean).length;
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
