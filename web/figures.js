// figures: all quantities of a GPU, searchable.
import { model } from "./data.js";
import * as f from "./format.js";
import { el, put, unknown } from "./rows.js";
import { quantities } from "./words.js";

const SKIP = new Set(["absent", "index", "mig_devices", "energy_joules_total"]);

export class Figures {
	constructor(row) {
		this.row = row;
		this.cells = new Map();
		this.search = el("input", { type: "search", placeholder: "power, ecc, clock …", autocomplete: "off" });
		this.list = el("dl", { className: "figures" });
		this.none = el("p", { className: "empty", textContent: "No quantity has this in its name.", hidden: true });
		this.search.addEventListener("input", () => this.filter());
		this.box = el("details", { className: "all", open: model.devices.length === 1 && !model.guarded && matchMedia("(min-width: 761px)").matches },
			el("summary", { textContent: "All figures" }), el("label", { className: "search" }, "Search ", this.search), this.list, this.none);
	}

	draw() {
		const d = this.row.device;
		if (!("provenance" in d))
			return; // Wait for the snapshot, because the stream has only a few quantities.
		for (const key of Object.keys(d)) {
			if (SKIP.has(key) || (d[key] === null && !(key in d.absent)))
				continue;
			if (!this.cells.has(key))
				this.make(key);
			const cell = this.cells.get(key).value;
			if (d[key] === null)
				unknown(cell, d.absent[key]);
			else {
				put(cell, f.quantity(key, d[key]));
				cell.removeAttribute("title");
			}
		}
	}

	make(key) {
		const help = quantities[key]?.[1] || "", value = el("dd"), name = el("dt", { textContent: f.title(key), title: help ? `${help} (${key})` : key });
		const box = el("div", {}, name, value);
		this.cells.set(key, { box, value, text: `${key} ${f.title(key)} ${help}`.toLowerCase() });
		this.list.append(box);
		this.filter();
	}

	filter() {
		const wanted = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
		let shown = 0;
		for (const c of this.cells.values()) {
			c.box.hidden = !wanted.every((w) => c.text.includes(w));
			shown += !c.box.hidden;
		}
		this.none.hidden = shown > 0;
	}
}
