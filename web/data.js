// data: the current state of the service.
//
// This module opens the event stream, opens it again after an error, makes the other requests, and
// derives the state of the connection that the page shows. Other modules see only its data and its events: "tick", "snapshot",
// "events", "windows", "link", "self", and "gap" (readings were missed, so the past must be loaded again).
import * as f from "./format.js";

// Seconds between two readings of the service while no client watches.
export const UNWATCHED = 10;
// A solid line joins two readings that are at most this many seconds apart. If they are further apart, nothing was measured in between.
export const near = (step = 1) => 2.5 * Math.max(step, model.self?.interval_seconds || 0);
export const MANY = 8; // With more GPUs than this, rows are lower and lists are shorter.
const SPARK_SECONDS = 120;
const BACKOFF = [500, 1000, 2000, 3000]; // Milliseconds before each attempt to connect again. The longest delay is short, because a person waits.
const OPEN_ASKED = 4; // Maximum number of open windows that are requested after each tick.
const EVENTS_KEPT = 200;
const TICK_PROCESSES = 64;

export const model = {
	snapshot: null, tick: null, devices: [], processes: [], host: null, hostname: "", self: null, selfBefore: null,
	events: [], windows: new Map(), sparks: new Map(), interval: 1000,
	link: { state: "connecting", why: "" }, heard: 0, guarded: false,
	health: new Map(), // For each UUID: its part of /api/v1/health.
	since: new Map(), // For each keyOf(): time in milliseconds since which the energy of the GPU is counted.
};

const listeners = {};
export function on(name, fn) {
	(listeners[name] ||= []).push(fn);
}
export function emit(name, ...more) {
	for (const fn of listeners[name] || [])
		fn(...more);
}

export class Problem extends Error {
	constructor(status, body) {
		super(f.sentences(body?.detail, body?.remedy) || `The service answered ${status}.`);
		this.status = status;
		this.type = body?.type?.split(":").pop();
	}
}

export async function ask(path, options) {
	const reply = await fetch(`api/v1/${path}`, { cache: "no-cache", headers: { Accept: "application/json" }, ...options });
	const body = await reply.json().catch(() => null);
	if (!reply.ok)
		throw new Problem(reply.status, body);
	return body;
}

export const token = {
	get: () => sessionStorage.getItem("token") || "",
	set: (t) => (t ? sessionStorage.setItem("token", t) : sessionStorage.removeItem("token")),
};

export function change(method, path, body) {
	const headers = { Accept: "application/json" };
	if (body)
		headers["Content-Type"] = "application/json";
	if (token.get())
		headers.Authorization = `Bearer ${token.get()}`;
	return ask(path, { method, headers, body: body && JSON.stringify(body) });
}

// Returns the key of a GPU. Some GPUs have no UUID, but each has an index.
export const keyOf = (d) => d.uuid || `#${d.index}`;
// Returns why no GPU is known although the machine may have GPUs; "": the driver answers.
export function whyBlind() {
	const s = model.snapshot?.source;
	return !model.devices.length && s?.cause && s.cause !== "no_gpu" ? s.message || f.words(s.cause) : "";
}

// Replaces UUIDs in a text by the index of the GPU, which people know.
export const named = (s) => model.devices.reduce((t, d) => (d.uuid ? t.replaceAll(d.uuid, `GPU ${d.index}`) : t), s || "");
export const selector = (d) => encodeURIComponent(d.uuid || d.index);

let open = false, opened = 0, fresh = false, notReady = "";

export const age = () => (model.heard ? performance.now() - model.heard : Infinity);
// Returns the time of the service's clock, in seconds, because the clock of the browser may be wrong.
export const now = () => (model.tick ? Date.parse(model.tick.time_utc) + age() : Date.now()) / 1000;
const late = () => age() > Math.max(5000, 3.5 * model.interval);

function judge() {
	if (!open || (!fresh && performance.now() - opened < 5000))
		return model.heard ? ["reconnecting", "The service does not answer; trying again."] : ["connecting", ""];
	if (model.tick?.let_go)
		return ["let-go", "The drivers were released on request; nothing is read until POST /api/v1/resume opens them again."];
	if (notReady || model.tick?.ready === false) {
		const hangs = /not returned|hang/i.test(notReady) || model.devices.some((d) => d.state === "stalled");
		return [hangs ? "hangs" : late() ? "stale" : "not-ready", notReady || "The service is not ready."];
	}
	if (late() && model.heard)
		return ["stale", "This page is connected to the service, but the service sends no readings."];
	const stalled = model.devices.filter((d) => d.state === "stalled");
	if (stalled.length)
		return ["hangs", `A driver call for GPU ${stalled.map((d) => d.index).join(", ")} has not returned.`];
	return model.heard ? ["live", ""] : ["connecting", ""];
}

function rejudge() {
	const [state, why] = judge();
	if (state === model.link.state && why === model.link.why)
		return;
	model.link = { state, why };
	emit("link");
}

// Reads /readyz, which names a driver call that hangs.
let readyAsked = -Infinity;
async function askReady() {
	if (performance.now() - readyAsked < 3000)
		return;
	readyAsked = performance.now();
	try {
		const reply = await fetch("readyz", { cache: "no-store" });
		const body = reply.ok ? null : await reply.json().catch(() => null);
		notReady = reply.ok ? "" : body?.detail || "The service is not ready.";
	} catch {
		notReady = "";
	}
	rejudge();
}

function spark(key) {
	if (!model.sparks.has(key))
		model.sparks.set(key, { time: [], value: [] });
	return model.sparks.get(key);
}

function addSpark(key, t, v) {
	const s = spark(key);
	if (s.time.length && t <= s.time[s.time.length - 1])
		return;
	s.time.push(t);
	s.value.push(v ?? null);
	while (s.time[0] < t - SPARK_SECONDS - 5) {
		s.time.shift();
		s.value.shift();
	}
}

function merge() {
	const late = new Map((model.tick?.devices || []).map((d) => [keyOf(d), d]));
	const base = model.snapshot?.devices || model.tick?.devices || [];
	model.devices = base.map((d) => {
		const live = late.get(keyOf(d));
		if (!live)
			return { ...d, absent: d.absent || {} };
		const absent = { ...d.absent, ...live.absent };
		for (const key of Object.keys(live))
			if (live[key] !== null && key !== "absent")
				delete absent[key];
		const all = { ...d, ...live, absent }, was = d.temperature_gpu_celsius, is = live.temperature_gpu_celsius;
		if (d.temperature_margin_celsius != null && was != null && is != null) // The stream has no margin: correct the one of the snapshot.
			all.temperature_margin_celsius += was - is;
		return all;
	});
	mergeProcesses();
}

// Takes the figures of processes from the tick, so that the figures of a process and of its GPU have the same time. The tick has
// only the 64 largest processes, and no MIG instances.
const sameProcess = (p) => `${p.device_index} ${p.pid} ${p.start_ticks}`;
function mergeProcesses() {
	const late = new Map((model.tick?.processes || []).map((p) => [sameProcess(p), p]));
	model.processes = (model.snapshot?.processes || []).map((p) => {
		const live = p.gpu_instance == null && late.get(sameProcess(p)), all = { ...p, ...live, absent: { ...p.absent } };
		for (const key of Object.keys(live || {}))
			if (live[key] !== null)
				delete all.absent[key];
		if (all.absent.utilization_sm_ratio === "not_read") // While this page is open, the service reads the utilisation: the next tick has it.
			all.absent.utilization_sm_ratio = "first_reading";
		return all;
	});
}

function processesChanged() {
	const few = model.devices.length <= MANY && model.tick.processes, old = model.snapshot.processes || [];
	return few && few.length < TICK_PROCESSES && few.map(sameProcess).sort().join() !==
		[...new Set(old.map(sameProcess))].sort().join();
}

function onTick(data) {
	const before = model.tick;
	model.tick = data;
	model.heard = performance.now();
	fresh = true;
	const t = Date.parse(data.time_utc) / 1000;
	if (before)
		model.interval = Math.max(200, Math.min(60000, t * 1000 - Date.parse(before.time_utc) || 1000));
	if (before && t * 1000 < Date.parse(before.time_utc)) { // The clock of the service was set back.
		model.sparks.clear();
		fillSparks().then(() => emit("gap")).catch(() => {});
	}
	for (const d of data.devices)
		addSpark(keyOf(d), t, d.power_watts);
	model.host = data.host || model.host;
	merge();
	refreshSince();
	const known = model.snapshot?.devices;
	if (!known || known.length !== data.devices.length ||
			data.devices.some((d) => !known.some((k) => keyOf(k) === keyOf(d) && k.state === d.state)) || processesChanged())
		refresh();
	if (data.ready === false || notReady)
		askReady();
	rejudge();
	emit("tick");
	followWindows();
}

function onEvent(e, live = true) {
	if (model.events.some((x) => x.id === e.id))
		return;
	// If a new event has a lower id, the service has begun to count from 1 again.
	if (live && e.id < model.events[0]?.id) {
		model.events = [];
		refreshEvents().catch(() => {});
	}
	model.events.unshift(e);
	model.events.sort((a, b) => b.id - a.id);
	model.events.length = Math.min(model.events.length, EVENTS_KEPT);
	emit("events");
	if (e.kind === "window")
		refreshWindows().catch(() => {});
}

let refreshing = null;
export function refresh() {
	refreshing ||= Promise.all([ask("snapshot"), ask("health").catch(() => null)]).then(([s, h]) => {
		model.snapshot = s;
		model.health = new Map((h?.gpus || []).map((g) => [g.uuid, g]));
		model.host ||= s.host;
		merge();
		refreshSince();
		emit("snapshot");
	}).catch((e) => {
		if (e.status === 503)
			askReady();
	}).finally(() => {
		setTimeout(() => { refreshing = null; }, 500);
	});
	return refreshing;
}

async function refreshWindows() {
	const list = (await ask("windows")).windows;
	model.windows = new Map(list.map((w) => [String(w.id), w]));
	emit("windows");
}

// Removes a window for good. The stream may still deliver a message about it that was sent before.
const forgotten = new Set();
export function forgetWindow(id) {
	forgotten.add(String(id));
	model.windows.delete(String(id));
}

export const openWindows = () => [...model.windows.values()].filter((w) => w.state === "open");

// Requests a few windows at a time, because documents of windows with many GPUs are long.
let turn = 0, asking = false;
async function followWindows() {
	const all = openWindows();
	if (asking || !all.length || document.hidden)
		return;
	asking = true;
	const few = all.length <= OPEN_ASKED ? all : Array.from({ length: OPEN_ASKED }, () => all[turn++ % all.length]);
	await Promise.all(few.map((w) => ask(`windows/${w.id}`).then((now) => {
		if (model.windows.get(String(w.id))?.state === "open")
			model.windows.set(String(w.id), now);
	}, (e) => e.status === 404 && model.windows.delete(String(w.id)))));
	asking = false;
	emit("windows");
}

// Reads the cost of the service. After a restart of the service, drops the events and windows of the earlier run.
async function refreshSelf() {
	const s = await ask("self"), restarted = model.self && model.self.start_utc !== s.start_utc;
	model.selfBefore = restarted ? null : model.self;
	model.self = { ...s, at: performance.now() };
	if (restarted) {
		model.events = [];
		model.windows.clear();
		emit("events");
		await Promise.all([refreshEvents(), refreshWindows()]);
	}
	emit("self");
}

async function refreshEvents() {
	for (const e of (await ask("events?limit=100")).events)
		onEvent(e, false);
}

// Reads since when the energy of each GPU is counted. GPUs without measured energy are requested later. Old
// versions of the service did not store this time.
const sinceAsked = new Set();
function refreshSince() {
	const lacks = model.devices.filter((d) => d.energy_joules_total != null && !sinceAsked.has(keyOf(d)));
	if (!lacks.length)
		return;
	lacks.forEach((d) => sinceAsked.add(keyOf(d)));
	ask("devices").then((r) => {
		for (const d of r.devices) {
			if (d.energy_since_utc)
				model.since.set(keyOf(d), Date.parse(d.energy_since_utc));
			if (d.energy_joules_total == null) // A service that has just started has measured nothing yet.
				sinceAsked.delete(keyOf(d));
		}
	}).catch(() => sinceAsked.clear());
}

async function fillSparks() {
	for (const s of (await ask("series?quantity=power_watts&from=-2m&step=1")).series) {
		const key = keyOf({ uuid: s.gpu, index: s.index }), old = spark(key), last = s.time.at(-1);
		if (!s.time.length)
			continue;
		const keep = old.time.findIndex((t) => t > last + 0.5);
		model.sparks.set(key, {
			time: [...s.time, ...(keep < 0 ? [] : old.time.slice(keep))],
			value: [...s.mean, ...(keep < 0 ? [] : old.value.slice(keep))],
		});
	}
	emit("tick");
}

let source = null, tries = 0, retry = 0;

function lost() {
	source?.close();
	source = null;
	open = fresh = false;
	rejudge();
	clearTimeout(retry);
	const wait = BACKOFF[Math.min(tries++, BACKOFF.length - 1)];
	retry = setTimeout(connect, wait * (0.8 + 0.4 * Math.random()));
}

function greet() {
	tries = 0;
	if (open)
		return;
	open = true;
	opened = performance.now();
	notReady = "";
	// The service may have been restarted, and may count its energy from zero.
	model.since.clear();
	sinceAsked.clear();
	// Load what was missed while there was no connection.
	refresh().then(fillSparks).then(() => emit("gap")).catch(() => {});
	for (const fn of [refreshWindows, refreshSelf, refreshEvents])
		fn().catch(() => {});
	ask("environment").then((e) => {
		model.hostname = e.host?.hostname || location.hostname;
		emit("link");
	}).catch(() => {});
	askReady();
}

function connect() {
	source = new EventSource("api/v1/events?topics=tick,event,window");
	const hear = (name, fn) => source.addEventListener(name, (m) => {
		greet();
		fn(JSON.parse(m.data));
	});
	source.onopen = greet;
	source.onerror = lost;
	hear("tick", onTick);
	hear("event", onEvent);
	hear("window", (w) => {
		if (forgotten.has(String(w.id)))
			return;
		model.windows.set(String(w.id), w);
		emit("windows");
	});
	source.addEventListener("gap", () => emit("gap"));
}

export function retryNow() {
	if (open)
		return;
	tries = 0;
	clearTimeout(retry);
	source?.close();
	connect();
}

export function start() {
	connect();
	addEventListener("online", retryNow);
	setInterval(() => {
		rejudge();
		if (open && late())
			askReady();
		// A connection can end without notice, for example while a laptop sleeps.
		if (open && model.heard && age() > Math.max(20000, 10 * model.interval)) {
			model.heard = performance.now() - Math.max(5000, 3.5 * model.interval);
			lost();
		}
	}, 1000);
	let round = 0;
	setInterval(() => {
		if (!open || document.hidden)
			return;
		// With many GPUs, read the snapshot less often: the stream has the values that change fast.
		if (model.devices.length <= MANY || round++ % 3 === 0)
			refresh();
		refreshSelf().catch(() => {});
	}, 5000);
	document.addEventListener("visibilitychange", () => {
		if (!document.hidden && open)
			refresh().then(fillSparks).then(() => emit("gap")).catch(() => {});
	});
}

// Requests /api/v1/series. device null: all GPUs. range: the query parameters of the time range.
export async function history(device, quantities, range) {
	const gpu = device ? `gpu=${selector(device)}&` : "";
	const self = model.self || refreshSelf().catch(() => {}); // near() needs the interval of the service
	const [r] = await Promise.all([ask(`series?${gpu}quantity=${quantities.join(",")}&${range}`), self]);
	return r.series;
}
