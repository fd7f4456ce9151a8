// past: measured values as columns with a common time axis; live values are appended.
import { near, UNWATCHED } from "./data.js";
import { el } from "./rows.js";

// Returns the median distance between points, in seconds.
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
		this.marks = new Set(); // inserted times without values: nothing was measured there
		this.columns = new Map(); // key: { mean, min, max }
	}

	// Inserts a mark between two readings that are not near each other, so that no solid line joins them.
	load(series) {
		const times = new Set();
		for (const s of series) {
			this.step = Math.max(this.step, s.step_seconds || 0);
			this.usual = Math.max(this.usual || 0, distance(s.time));
			s.time.forEach((t, i) => {
				times.add(t);
				if (i && t - s.time[i - 1] > near(this.step))
					this.marks.add(s.time[i - 1] + this.step);
			});
		}
		this.marks = new Set([...this.marks].filter((t) => !times.has(t)));
		this.marks.forEach((t) => times.add(t));
		this.time = [...times].sort((a, b) => a - b);
		const place = new Map(this.time.map((t, i) => [t, i]));
		for (const s of series) {
			const c = this.column(s.quantity);
			for (const kind of ["mean", "min", "max"])
				s.time.forEach((t, i) => { c[kind][place.get(t)] = s[kind]?.[i] ?? null; });
		}
		return this;
	}

	// Returns the pairs of readings in a column, as indices, that a dashed line joins: no client watched, so the service
	// read the GPU only every 10 s. Readings that are further apart are not joined, because the service did not run.
	unwatched(list) {
		const reach = 2.5 * Math.max(this.step, this.usual || 0, UNWATCHED), out = [];
		list.forEach((v, n) => {
			if (v !== null && this.marks.has(this.time[n + 1]) && list[n + 2] != null && this.time[n + 2] - this.time[n] <= reach)
				out.push([n, n + 2]);
		});
		return out;
	}

	// Returns the time of the first value; null: there is none.
	begin() {
		const at = this.time.findIndex((t, i) => this.keys.some((k) => this.column(k).mean[i] !== null));
		return at < 0 ? null : this.time[at];
	}

	csv() {
		const names = this.keys.flatMap((k) => ["mean", "min", "max"].map((kind) => `${k}_${kind}`));
		const line = (t, i) => [new Date(t * 1000).toISOString(), ...this.keys.flatMap((k) => {
			const c = this.column(k);
			return [c.mean[i], c.min[i], c.max[i]].map((v) => v ?? "");
		})].join();
		const lines = this.time.map((t, i) => (this.marks.has(t) ? "" : line(t, i))).filter(Boolean);
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
		if (fresh && last && t - last > near(this.step)) {
			this.marks.add(last + this.step);
			this.push(last + this.step);
		}
		if (fresh)
			this.push(begin);
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

	push(t) {
		this.time.push(t);
		for (const c of this.columns.values())
			for (const kind of ["mean", "min", "max"])
				c[kind].push(null);
	}

	shift() {
		this.marks.delete(this.time.shift());
		for (const c of this.columns.values())
			for (const kind of ["mean", "min", "max"])
				c[kind].shift();
	}
}
