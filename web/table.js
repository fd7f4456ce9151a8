// table: a list with columns. Rows are kept by their key, so that an update does not move what the user reads. On a phone each row is
// shown as a card, and cells show the name of their column.
import { $, el, put, unknown } from "./rows.js";

// A column is { name, num, wrap, lead, fill(cell, item), sort(item), first, show(items), title, unseen }. num: aligned as a number.
// lead: the title of the card. first: the table is first sorted by this column. show: false hides the column. unseen: a name only for
// screen readers.
export class Table {
	constructor(id, columns, key, empty) {
		this.table = $(id);
		this.columns = columns;
		this.key = key;
		this.made = new Map();
		this.empty = this.table.parentElement.nextElementSibling;
		if (empty && this.empty)
			put(this.empty, empty);
		this.by = columns.find((c) => c.first) || null;
		this.down = true;
		this.heads = columns.map((c) => this.head(c));
		this.table.hidden = true; // It is shown when there are rows.
		this.table.setAttribute("role", "table");
		for (const part of [this.table.tHead, this.table.tBodies[0]])
			part.setAttribute("role", "rowgroup");
		this.table.tHead.replaceChildren(el("tr", { role: "row" }, ...this.heads));
	}

	head(c) {
		const th = el("th", { scope: "col", role: "columnheader", className: c.num ? "num" : "", title: c.title || "" });
		if (!c.sort)
			th.append(c.unseen ? el("span", { className: "unseen", textContent: c.unseen }) : c.name);
		else
			th.append(el("button", { type: "button", textContent: c.name, onclick: () => this.sortBy(c) }));
		return th;
	}

	sortBy(c) {
		this.down = this.by === c ? !this.down : Boolean(c.num);
		this.by = c;
		this.draw(this.items);
	}

	order(items) {
		if (!this.by)
			return items;
		const way = this.down ? -1 : 1, of = this.by.sort;
		return [...items].sort((a, b) => {
			const x = of(a) ?? null, y = of(b) ?? null;
			if (x === null || y === null)
				return (x === null) - (y === null);
			return way * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
		});
	}

	cell(c, i) {
		const kind = [c.num && "num", c.wrap && "wrap", c.lead && "lead"].filter(Boolean).join(" ");
		const cell = el(i ? "td" : "th", { className: kind, role: i ? "cell" : "rowheader", ...(i ? {} : { scope: "row" }) });
		cell.dataset.name = c.name;
		return cell;
	}

	row(item) {
		const key = this.key(item);
		if (!this.made.has(key)) {
			const cells = this.columns.map((c, i) => this.cell(c, i));
			this.made.set(key, { tr: el("tr", { role: "row" }, ...cells), cells });
		}
		return this.made.get(key);
	}

	// Returns the items in the order of the rows on the page, so that a row that the user
	// reads or points at does not move.
	asShown(items) {
		const at = (x) => this.made.get(this.key(x))?.tr.rowIndex ?? Infinity;
		return [...items].sort((a, b) => at(a) - at(b) || 0);
	}

	draw(items, still = false) {
		this.items = items;
		const body = this.table.tBodies[0], keep = new Set();
		const shown = this.columns.map((c) => !c.show || c.show(items));
		(still ? this.asShown(items) : this.order(items)).forEach((item, at) => {
			const r = this.row(item);
			keep.add(this.key(item));
			this.columns.forEach((c, i) => {
				r.cells[i].hidden = !shown[i];
				c.fill(r.cells[i], item);
			});
			if (body.children[at] !== r.tr)
				body.insertBefore(r.tr, body.children[at] || null);
		});
		for (const [key, r] of this.made)
			if (!keep.has(key)) {
				r.tr.remove();
				this.made.delete(key);
			}
		this.heads.forEach((th, i) => {
			th.hidden = !shown[i];
			if (this.columns[i].sort)
				th.setAttribute("aria-sort", this.by !== this.columns[i] ? "none" : this.down ? "descending" : "ascending");
		});
		this.table.hidden = !items.length;
		if (this.empty)
			this.empty.hidden = items.length > 0;
	}
}

export const text = (of) => (cell, item) => {
	const v = of(item);
	if (v === null || v === undefined || v === "")
		unknown(cell, "no_data");
	else {
		put(cell, String(v));
		cell.removeAttribute("title");
	}
};
