// format: writes numbers for people. An unknown value is written as "–".
import { absences, quantities } from "./words.js";

export const DASH = "–";

const SI = ["", "k", "M", "G", "T", "P"];
const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// Writes about three significant digits. Whole numbers keep all digits.
export function digits(v) {
	const a = Math.abs(v);
	if (Number.isInteger(v) || a >= 100)
		return v.toFixed(0);
	if (a === 0 || a >= 10)
		return v.toFixed(1);
	return a >= 0.01 ? v.toFixed(2) : figures(v, 2);
}

// Writes n significant digits, including zeros at the end. Writes all digits before the decimal
// point, and never an exponent.
export function figures(v, n = 3) {
	const r = Math.abs(Number(v.toPrecision(n)));
	return v.toFixed(r ? Math.max(0, Math.min(20, n - 1 - Math.floor(Math.log10(r)))) : 0);
}

export function si(v, unit) {
	let i = 0;
	while (Math.abs(Number(v.toPrecision(3))) >= 1000 && i < SI.length - 1) {
		v /= 1000;
		i++;
	}
	return `${figures(v)} ${SI[i]}${unit}`;
}

export function bytes(v) {
	let i = 0;
	while (Math.abs(v) >= 1024 && i < IEC.length - 1) {
		v /= 1024;
		i++;
	}
	return `${i && Math.abs(v) < 100 ? v.toFixed(1) : v.toFixed(0)} ${IEC[i]}`;
}

export const gib = (v) => (v / 2 ** 30).toFixed(v >= 100 * 2 ** 30 ? 0 : 1);
export const percent = (r) => `${Math.round(r * 100)} %`;
export const watts = (v) => `${v.toFixed(0)} W`;
export const celsius = (v) => `${v.toFixed(0)} °C`;
export const hertz = (v) => `${(v / 1e6).toFixed(0)} MHz`;
export const joules = (v) => (v < 999.5 ? `${v.toFixed(0)} J` : si(v, "J"));

export const wattHours = (j) => si(j / 3600, "Wh");

// Writes energy as kWh, money and CO2. r: energy_cost of the service.
export function cost(j, r) {
	const of = (k, u) => k && `${figures(k * j / 3.6e6)} ${u}`;
	return r && j ? [of(1, "kWh"), of(r.price_per_kwh, r.price_currency || "(price)"), of(r.gco2_per_kwh, "g CO2")].filter(Boolean).join(", ") : "";
}

export function seconds(v) {
	if (v < 1e-3)
		return `${digits(v * 1e6)} µs`;
	if (v < 1)
		return `${digits(v * 1e3)} ms`;
	return v < 120 ? `${digits(v)} s` : span(v);
}

export function span(v) {
	const s = Math.floor(v), d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24;
	const m = Math.floor(s / 60) % 60, two = (n) => String(n).padStart(2, "0");
	if (d)
		return `${d} d ${h} h`;
	if (h)
		return `${h} h ${two(m)} min`;
	return m ? `${m} min ${two(s % 60)} s` : `${s} s`;
}

export function clock(t, withSeconds = true) {
	const d = new Date(t), two = (n) => String(n).padStart(2, "0");
	const text = `${two(d.getHours())}:${two(d.getMinutes())}`;
	return withSeconds ? `${text}:${two(d.getSeconds())}` : text;
}

export const day = (t) => new Date(t).toLocaleDateString(undefined, { day: "numeric", month: "short" });
export const when = (t, withSeconds = true) => (Date.now() - t > 64800e3 ? `${day(t)} ${clock(t, false)}` : clock(t, withSeconds));

// Writes " since 12 Nov 10:01"; writes "" if t is null.
export const sinceText = (t) => (t ? ` since ${day(t)} ${clock(t, false)}` : "");

export const absence = (key) => (key === "first_reading" ? "first reading" : absences[key]) || (key ? words(key) : "not reported");
export const words = (key) => String(key).replaceAll("_", " ").replaceAll("-", " ");

// Makes a sentence of each part that is not empty, with a capital letter and a full stop, and joins the sentences.
export function sentences(...parts) {
	return parts.filter(Boolean).map((s) => `${s[0] === "/" ? s[0] : s[0].toUpperCase()}${s.slice(1)}`.replace(/[^.!?:]$/, "$&.")).join(" ");
}

const BY_UNIT = {
	watts: (v) => `${v.toFixed(1)} W`, bytes, celsius, joules, ratio: percent, rpm: (v) => `${v} rpm`,
	hertz, seconds: (v) => (v ? seconds(v) : "0 s"), second: (v) => `${bytes(v)}/s`,
};

// The name of a quantity ends with its unit: power_watts, memory_used_bytes.
export function quantity(key, v) {
	const kind = quantities[key]?.[0];
	if (Array.isArray(v))
		return v.length ? v.map((x) => (typeof x === "object" ? x.name ?? "…" : words(x))).join(", ") : "none";
	if (typeof v === "boolean")
		return v ? "yes" : "no";
	if (typeof v !== "number")
		return kind ? words(v) : String(v);
	const unit = BY_UNIT[key.slice(key.lastIndexOf("_") + 1)];
	return unit ? unit(v) : digits(v);
}

const UNITS = /_(watts|bytes|celsius|joules|ratio|hertz|seconds)$/;
export function title(key) {
	const text = words(key.replace(UNITS, "")).replace(/\b(gpu|sm|ecc|mig|cuda|ofa|jpeg|bar1|pci|gpm|tpc|uuid|sram|dram|vbios|fp\d+)\b/g,
		(w) => w.toUpperCase()).replace("pcie", "PCIe");
	return text[0].toUpperCase() + text.slice(1);
}
