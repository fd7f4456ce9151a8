// past: measured values as columns with a common time axis; live values are appended.
import { model, UNWATCHED } from "./data.js";
import { el } from "./rows.js";

// Returns the usual distance between points, so that a service that reads every 10 s has no gaps.
function distance(times) {
	const steps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b);
	return steps[steps.length >> 1] || 0;
}

export function saveCsv(name, past) {
	const link = el("a", { href: URL.createObjectURL(new Blob([past.csv()], { type: "text/csv" })), download: `${name}.csv` });
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export class Past {
	constructor(step, keys = ["power_watts"]) {
		this.step = step;
		this.keys = keys;
		this.time = [];
		this.columns = new Map(); // key: { mean, min, max }
	}

	// Missing points are gaps: a time with nulls is inserted.
	load(series) {
		const times = new Set();
		for (const s of series) {
			this.step = Math.max(this.step, s.step_seconds || 0);
			const hole = 2.5 * Math.max(this.step, distance(s.time), UNWATCHED);
			s.time.forEach((t, i) => {
				times.add(t);
				if (i && t - s.time[i - 1] > hole)
					times.add(s.time[i - 1] + this.step);
			});
		}
		this.time = [...times].sort((a, b) => a - b);
		const place = new Map(this.time.map((t, i) => [t, i]));
		for (const s of series) {
			const c = this.column(s.quantity);
			for (const kind of ["mean", "min", "max"])
				s.time.forEach((t, i) => { c[kind][place.get(t)] = s[kind]?.[i] ?? null; });
		}
		return this;
	}

	// Returns the time of the first value; null: there is none.
	begin() {
		const at = this.time.findIndex((t, i) => this.keys.some((k) => this.column(k).mean[i] !== null));
		return at < 0 ? null : this.time[at];
	}

	csv() {
		const names = this.keys.flatMap((k) => ["mean", "min", "max"].map((kind) => `${k}_${kind}`));
		const lines = this.time.map((t, i) => [new Date(t * 1000).toISOString(), ...this.keys.flatMap((k) => {
			const c = this.column(k);
			return [c.mean[i], c.min[i], c.max[i]].map((v) => v ?? "");
		})].join());
		return `${["time_utc", ...names].join()}\n${lines.join("\n")}\n`;
	}

	column(key) {
		if (!this.columns.has(key)) {
			const empty = () => new Array(this.time.length).fill(null);
			this.columns.set(key, { mean: empty(), min: empty(), max: empty(), sum: 0, count: 0 });
		}
		return this.columns.get(key);
	}

	// Adds a live reading: as a new point, or to the last point if steps are long.
	add(t, d, span) {
		const last = this.time.at(-1) ?? 0;
		const begin = this.step > 1 ? Math.floor(t / this.step) * this.step : t;
		if (t <= last)
			return;
		const fresh = begin > last;
		if (fresh && last && t - last > 2.5 * Math.max(this.step, model.interval / 1000))
			this.push(last + this.step, () => null);
		if (fresh)
			this.push(begin, () => null);
		for (const key of this.keys)
			this.more(this.column(key), d[key], fresh);
		while (this.time.length && this.time[0] < t - span)
			this.shift();
	}

	more(c, v, fresh) {
		const i = this.time.length - 1;
		if (fresh)
			c.sum = c.count = 0;
		if (v === null || v === undefined)
			return;
		if (!c.count && c.mean[i] !== null) {
			c.sum = c.mean[i];
			c.count = 1;
		}
		c.sum += v;
		c.count++;
		c.mean[i] = c.sum / c.count;
		c.min[i] = Math.min(c.min[i] ?? v, v);
		c.max[i] = Math.max(c.max[i] ?? v, v);
	}

	push(t, value) {
		this.time.push(t);
		for (const c of this.columns.values())
			for (const kind of ["mean", "min", "max"])
				c[kind].push(value());
	}

	shift() {
		this.time.shift();
		for (const c of this.columns.values())
			for (const kind of ["mean", "min", "max"])
				c[kind].shift();
	}
}
