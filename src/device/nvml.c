/* nvml: initialises the NVIDIA management library and finds its GPUs.
 *
 * nvml_library.c loads the library. All symbols except four are optional. Suspended GPUs are
 * not woken: nvmlInit is not called while a GPU is suspended, because we assume that it wakes
 * all GPUs. */
#include "nvml.h"

#include "context.h"
#include "drm.h"
#include "environment.h"

#include "base/array.h"
#include "base/utf8.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char nvml_symbol[CALL_COUNT][NVML_SYMBOL_SIZE] = {
#define N(name, symbol, args) #symbol,
	NVML_CALLS(N)
#undef N
};

static const struct nvml_meaning meanings[] = {
	{ 0, "SUCCESS", GW_HAVE, REACT_NONE, GW_CAUSE_NONE },
	{ 1, "UNINITIALIZED", GW_ABSENT_NO_DRIVER, REACT_REOPEN, GW_CAUSE_NO_DRIVER },
	{ 2, "INVALID_ARGUMENT", GW_ABSENT_NOT_SUPPORTED, REACT_FORGET, GW_CAUSE_DRIVER_ERROR },
	{ 3, "NOT_SUPPORTED", GW_ABSENT_NOT_SUPPORTED, REACT_FORGET, GW_CAUSE_DRIVER_ERROR },
	{ 4, "NO_PERMISSION", GW_ABSENT_NO_PERMISSION, REACT_FORGET, GW_CAUSE_NO_PERMISSION },
	{ 5, "ALREADY_INITIALIZED", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 6, "NOT_FOUND", GW_ABSENT_NO_DATA, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 7, "INSUFFICIENT_SIZE", GW_ABSENT_NO_DATA, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 8, "INSUFFICIENT_POWER", GW_ABSENT_ERROR, REACT_FAULT, GW_CAUSE_GPU_FAULT },
	{ 9, "DRIVER_NOT_LOADED", GW_ABSENT_NO_DRIVER, REACT_REOPEN, GW_CAUSE_NO_DRIVER },
	{ 10, "TIMEOUT", GW_ABSENT_NO_DATA, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 11, "IRQ_ISSUE", GW_ABSENT_ERROR, REACT_FAULT, GW_CAUSE_GPU_FAULT },
	{ 12, "LIBRARY_NOT_FOUND", GW_ABSENT_NO_DRIVER, REACT_REOPEN, GW_CAUSE_NO_DRIVER },
	{ 13, "FUNCTION_NOT_FOUND", GW_ABSENT_NO_SYMBOL, REACT_FORGET, GW_CAUSE_NO_FUNCTION },
	{ 14, "CORRUPTED_INFOROM", GW_ABSENT_ERROR, REACT_FAULT, GW_CAUSE_GPU_FAULT },
	{ 15, "GPU_IS_LOST", GW_ABSENT_LOST, REACT_LOST, GW_CAUSE_GPU_LOST },
	{ 16, "RESET_REQUIRED", GW_ABSENT_LOST, REACT_LOST, GW_CAUSE_GPU_LOST },
	{ 17, "OPERATING_SYSTEM", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 18, "LIB_RM_VERSION_MISMATCH", GW_ABSENT_NO_DRIVER, REACT_REOPEN,
	  GW_CAUSE_VERSION_MISMATCH },
	{ 19, "IN_USE", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 20, "MEMORY", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 21, "NO_DATA", GW_ABSENT_NO_DATA, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 22, "VGPU_ECC_NOT_SUPPORTED", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 23, "INSUFFICIENT_RESOURCES", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 24, "FREQ_NOT_SUPPORTED", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 25, "ARGUMENT_VERSION_MISMATCH", GW_ABSENT_NOT_SUPPORTED, REACT_FORGET,
	  GW_CAUSE_DRIVER_ERROR },
	{ 26, "DEPRECATED", GW_ABSENT_NOT_SUPPORTED, REACT_FORGET, GW_CAUSE_DRIVER_ERROR },
	{ 27, "NOT_READY", GW_ABSENT_NO_DATA, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 28, "GPU_NOT_FOUND", GW_ABSENT_LOST, REACT_LOST, GW_CAUSE_GPU_LOST },
	{ 29, "INVALID_STATE", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
	{ 30, "RESET_TYPE_NOT_SUPPORTED", GW_ABSENT_ERROR, REACT_NONE, GW_CAUSE_DRIVER_ERROR },
};

const struct nvml_meaning *nvml_meaning(abi_return code)
{
	static const struct nvml_meaning unknown = { 999, "UNKNOWN", GW_ABSENT_ERROR,
						     REACT_NONE, GW_CAUSE_DRIVER_ERROR };

	return code >= 0 && (size_t)code < COUNT(meanings) ? &meanings[code] : &unknown;
}

const char *nvml_code_name(abi_return code, char out[static 24])
{
	const struct nvml_meaning *m = nvml_meaning(code);

	if (m->code == code)
		return m->name;
	snprintf(out, 24, "code %d", code);
	return out;
}

/* Begins a call that is not about one device. b->call holds the name of the call until the call
 * returns. */
static void backend_calling(struct backend *b, enum nvml_call call)
{
	atomic_store_explicit(&b->call, nvml_symbol[call], memory_order_relaxed);
	b->began_ns = call_cost_now_ns();
}

static abi_return backend_called(struct backend *b, enum nvml_call call, abi_return code)
{
	call_cost_add(b->env->cost, call, code, b->began_ns);
	atomic_store_explicit(&b->call, NULL, memory_order_relaxed);
	return code;
}

/* Works like NVML(), for a call that is not about one device. */
#define NVML_B(b, fn, ...)              \
	(backend_calling(b, CALL_##fn), \
	 backend_called(b, CALL_##fn, ((struct nvml *)(b)->priv)->call.fn(__VA_ARGS__)))

static bool find_symbols(struct backend *b, struct nvml *n)
{
	static const enum nvml_call mandatory[] = { CALL_init, CALL_shutdown, CALL_count,
						    CALL_by_index };
	void *spell;

	for (unsigned i = 0; i < CALL_COUNT; i++) {
		void *sym = dlsym(n->lib, nvml_symbol[i]);

		memcpy(&n->any[i], &sym, sizeof(sym));
	}
	spell = dlsym(n->lib, "nvmlErrorString");
	memcpy(&n->error_string, &spell, sizeof(spell));
	b->simulated = dlsym(n->lib, NVML_SIMULATOR_MARK) != NULL;
	for (size_t i = 0; i < COUNT(mandatory); i++) {
		if (n->any[mandatory[i]])
			continue;
		backend_fail(b, GW_CAUSE_NO_FUNCTION, "%s has no %s", b->library_path,
			     nvml_symbol[mandatory[i]]);
		return false;
	}
	return true;
}

/* Writes the version of the driver that the library belongs to. nvmlSystemGetNVMLVersion needs
 * no initialisation and returns the number of the CUDA release before the version:
 * "13.580.159.04". If the call fails, takes the version from the file name
 * (".../libnvidia-ml.so.580.159.04"). */
static void library_version(struct backend *b, char *out, size_t size)
{
	const struct nvml *n = b->priv;
	const char *at = strstr(b->library_path, ".so.");
	char reply[ABI_VERSION_SIZE] = "";

	if (n->call.nvml_version &&
	    NVML_B(b, nvml_version, reply, sizeof(reply)) == ABI_SUCCESS && strchr(reply, '.'))
		snprintf(out, size, "%s", strchr(reply, '.') + 1);
	else if (at && strchr(at + 4, '.'))
		snprintf(out, size, "%s", at + 4);
	else
		snprintf(out, size, "of unknown version");
}

/* The error strings of the toolkit's stub contain this text, so a stub is recognised under any
 * file name. */
#define STUB_SAYS "is a stub library"
/* The error string of the simulator begins with this if it could not load a scenario. */
#define SCENARIO_SAYS "GPUWARD_SIM: "

static void init_failed(struct backend *b, abi_return code)
{
	const struct root *root = b->env->root;
	const struct nvml *n = b->priv;
	const char *reply = n->error_string ? n->error_string(code) : NULL;
	char kernel[64], ours[ABI_VERSION_SIZE], name[24], clean[300];
	bool open;

	/* Check the text and not the code: the stub returns 9, which also means that the driver
	 * is not loaded. */
	if (reply && strstr(reply, STUB_SAYS)) {
		backend_fail(b, GW_CAUSE_STUB_LIBRARY, "%s", b->library_path);
		return;
	}
	utf8_clean(clean, sizeof(clean), reply ? reply : "");
	if (b->simulated && strncmp(clean, SCENARIO_SAYS, strlen(SCENARIO_SAYS)) == 0) {
		backend_fail(b, GW_CAUSE_NO_SCENARIO, "%s", clean);
		return;
	}
	switch (nvml_meaning(code)->cause) {
	case GW_CAUSE_VERSION_MISMATCH:
		environment_nvidia_module(root, kernel, sizeof(kernel), &open);
		library_version(b, ours, sizeof(ours));
		backend_fail(b, GW_CAUSE_VERSION_MISMATCH, "kernel driver %s, library %s",
			     *kernel ? kernel : "of unknown version", ours);
		break;
	case GW_CAUSE_NO_DRIVER:
		if (root_exists(root, "proc/driver/nvidia/version") &&
		    !root_exists(root, "dev/nvidiactl"))
			backend_fail(b, GW_CAUSE_CONTAINER_NO_DEVICES, "no /dev/nvidiactl");
		else
			backend_fail(b, GW_CAUSE_NO_DRIVER, "nvmlInit: %s",
				     nvml_code_name(code, name));
		break;
	case GW_CAUSE_NO_PERMISSION:
		backend_fail(b, GW_CAUSE_NO_PERMISSION, "nvmlInit: %s",
			     nvml_code_name(code, name));
		break;
	default:
		backend_fail(b, GW_CAUSE_DRIVER_ERROR, "nvmlInit: %s%s%.160s",
			     nvml_code_name(code, name), *clean ? ", " : "", clean);
	}
}

typedef abi_return fn_text(abi_device, char *, uint32_t);

static void read_text(struct device *d, enum gw_text t, enum nvml_call call, uint32_t size)
{
	char text[ABI_NAME_SIZE] = "";
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (nvml_of(d)->any[call])
		code = NVML_ANY(fn_text, d, call, text, size);
	text[sizeof(text) - 1] = '\0';
	if (code == ABI_SUCCESS)
		report_text(&d->r, t, text, GW_ABSENT_NO_DATA);
	/* A known string is kept, because the identity of a lost GPU does not change. */
	else if (d->r.text_why[t] != GW_HAVE)
		report_text(&d->r, t, NULL, nvml_meaning(code)->absence);
}

static void read_pci(struct device *d)
{
	char id[16];
	struct abi_pci pci;
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	memset(&pci, 0, sizeof(pci));
	if (nvml_of(d)->call.pci)
		code = NVML(d, pci, nvml_device_of(d)->handle, &pci);
	if (code != ABI_SUCCESS)
		report_text(&d->r, GW_T_PCI, NULL, nvml_meaning(code)->absence);
	else if (pci_normalise(pci.bus_id, id))
		report_text(&d->r, GW_T_PCI, id, GW_ABSENT_NO_DATA);
}

static const struct {
	enum gw_text text;
	enum nvml_call call;
	uint32_t size;
} texts[] = {
	{ GW_T_NAME, CALL_name, ABI_NAME_SIZE },
	{ GW_T_UUID, CALL_uuid, ABI_UUID_SIZE },
	{ GW_T_PCI, CALL_pci, 0 },
	{ GW_T_SERIAL, CALL_serial, ABI_SERIAL_SIZE },
	{ GW_T_VBIOS, CALL_vbios, ABI_VBIOS_SIZE },
	{ GW_T_PART_NUMBER, CALL_part_number, ABI_PART_SIZE },
};

/* True if the string is absent, but a later call may return it. */
static bool text_may_come(const struct device *d, enum gw_text t)
{
	const uint8_t why = d->r.text_why[t];

	return why != GW_HAVE && why != GW_ABSENT_NOT_SUPPORTED &&
	       why != GW_ABSENT_NO_PERMISSION && why != GW_ABSENT_NO_SYMBOL;
}

void nvml_read_texts(struct device *d)
{
	for (size_t i = 0; i < COUNT(texts); i++) {
		if (!text_may_come(d, texts[i].text))
			continue;
		if (texts[i].call == CALL_pci)
			read_pci(d);
		else
			read_text(d, texts[i].text, texts[i].call, texts[i].size);
	}
}

bool nvml_lacks_texts(const struct device *d)
{
	for (size_t i = 0; i < COUNT(texts); i++)
		if (text_may_come(d, texts[i].text))
			return true;
	return false;
}

static void list_instances(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);
	const struct nvml *n = nvml_of(d);
	uint32_t max = 0;

	d->r.mig_count = 0;
	if (!report_has(&d->r, GW_Q_MIG_MODE) || d->r.v[GW_Q_MIG_MODE] == 0 ||
	    !n->call.mig_max || !n->call.mig_by_index ||
	    NVML(d, mig_max, nd->handle, &max) != ABI_SUCCESS)
		return;
	for (uint32_t i = 0; i < max && d->r.mig_count < DEVICE_MIG_MAX; i++) {
		struct gw_mig *g = &d->r.mig[d->r.mig_count];
		char text[ABI_NAME_SIZE] = "";
		abi_device handle;
		uint32_t id;

		if (NVML(d, mig_by_index, nd->handle, i, &handle) != ABI_SUCCESS)
			continue; /* Not every index has an instance. */
		*g = (struct gw_mig){ .index = i,
				      .gpu_instance = -1,
				      .compute_instance = -1,
				      .memory_total_bytes = -1,
				      .memory_used_bytes = -1,
				      .memory_free_bytes = -1,
				      .memory_absence = GW_ABSENT_NOT_READ };
		if (n->call.uuid && NVML(d, uuid, handle, text, sizeof(text)) == ABI_SUCCESS)
			utf8_clean(g->uuid, sizeof(g->uuid), text);
		if (n->call.name && NVML(d, name, handle, text, sizeof(text)) == ABI_SUCCESS)
			utf8_clean(g->name, sizeof(g->name), text);
		id = ABI_NO_U32;
		if (n->call.gpu_instance)
			NVML(d, gpu_instance, handle, &id);
		g->gpu_instance = (int)id; /* NVML's "none" (all bits set) becomes -1 */
		id = ABI_NO_U32;
		if (n->call.compute_instance)
			NVML(d, compute_instance, handle, &id);
		g->compute_instance = (int)id;
		nd->mig[d->r.mig_count++] = handle;
	}
}

/* Stores a new handle; everything must be read again. */
static void attach_device(struct device *d, abi_device handle)
{
	struct nvml_device *nd = nvml_device_of(d);

	nd->handle = handle;
	nd->attached++;
	nd->retry_ns = nd->backoff_ns = 0;
	memset(d->r.tier_ns, 0, sizeof(d->r.tier_ns));
	report_absent(&d->r, GW_TIERS_ALL, GW_ABSENT_NOT_READ);
	/* Also read the strings again that the driver refused before. */
	for (size_t i = 0; i < COUNT(texts); i++)
		if (d->r.text_why[texts[i].text] != GW_HAVE)
			report_text(&d->r, texts[i].text, NULL, GW_ABSENT_NOT_READ);
	report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
	report_text(&d->r, GW_T_DRIVER, d->backend->driver_version, GW_ABSENT_NO_DATA);
	nvml_plan(d);
	d->fresh = true;
}

/* Reads UUID and PCI id, for a GPU that was already lost when it was opened. */
static void read_ids(struct device *d)
{
	if (d->r.text_why[GW_T_UUID] == GW_HAVE || d->r.text_why[GW_T_PCI] == GW_HAVE)
		return;
	read_text(d, GW_T_UUID, CALL_uuid, ABI_UUID_SIZE);
	read_pci(d);
}

/* Reads only what `list` shows and what determines the sensor model, because the first calls
 * cost up to 5 ms each (measured). This function is not called while the backend opens, so that
 * a GPU that hangs does not hide the others. */
void nvml_identify(struct device *d)
{
	d->fresh = false;
	read_ids(d);
	read_text(d, GW_T_NAME, CALL_name, ABI_NAME_SIZE);
	/* These values determine the sensor model, so they are read now. Reading the other
	 * STATIC values takes milliseconds, so they are read later. */
	read_text(d, GW_T_VBIOS, CALL_vbios, ABI_VBIOS_SIZE);
	if (nvml_read_one(d, GW_Q_ARCHITECTURE) &&
	    nvml_read_one(d, GW_Q_COMPUTE_CAPABILITY_MAJOR) &&
	    nvml_read_one(d, GW_Q_MEMORY_TOTAL))
		nvml_instances(d);
}

void nvml_instances(struct device *d)
{
	if (nvml_read_one(d, GW_Q_MIG_MODE)) {
		list_instances(d);
		nvml_mig_memory(d);
	}
}

/* Returns the slot of a GPU that did not report its identity, or NULL. */
static struct device *find_unnamed(struct backend *b, unsigned index)
{
	for (unsigned i = 0; i < b->count; i++) {
		struct report *r = &b->slot[i]->r;

		if (r->index == index && r->text_why[GW_T_UUID] != GW_HAVE &&
		    r->text_why[GW_T_PCI] != GW_HAVE)
			return b->slot[i];
	}
	return NULL;
}

/* Finds the slot for a handle by UUID or else by PCI id. Sets *ret to NULL if there is no
 * memory. If the GPU reports neither UUID nor PCI id, returns the driver's code and leaves *ret
 * unchanged. */
static abi_return slot_named(struct backend *b, unsigned index, abi_device handle,
			     struct device **ret)
{
	const struct nvml *n = b->priv;
	char uuid[ABI_UUID_SIZE] = "", id[16] = "";
	abi_return code = ABI_FUNCTION_NOT_FOUND;
	struct abi_pci pci;
	struct device *d;

	memset(&pci, 0, sizeof(pci));
	if (n->call.uuid)
		code = NVML_B(b, uuid, handle, uuid, sizeof(uuid));
	if (code != ABI_SUCCESS)
		uuid[0] = '\0';
	if (!n->call.pci || NVML_B(b, pci, handle, &pci) != ABI_SUCCESS ||
	    !pci_normalise(pci.bus_id, id))
		id[0] = '\0';
	if (!*uuid && !*id)
		return code ? code : ABI_UNKNOWN;
	d = backend_find(b, *uuid ? uuid : NULL, *id ? id : NULL);
	if (!d) /* Perhaps the GPU had no identity before and reports it now. */
		d = find_unnamed(b, index);
	if (!d)
		d = backend_slot(b, *uuid ? uuid : NULL, *id ? id : NULL);
	if (d) {
		report_text(&d->r, GW_T_UUID, uuid, GW_ABSENT_NO_DATA);
		report_text(&d->r, GW_T_PCI, id, GW_ABSENT_NO_DATA);
	}
	*ret = d;
	return ABI_SUCCESS;
}

static bool ensure_priv(struct device *d)
{
	if (!d->priv)
		d->priv = calloc(1, sizeof(struct nvml_device));
	return d->priv != NULL;
}

static void set_refused(struct device *d, abi_return code)
{
	char name[24];
	const struct nvml_meaning *m = nvml_meaning(code);
	enum gw_device_state state = code == ABI_NO_PERMISSION       ? GW_DEVICE_DENIED
				     : m->cause == GW_CAUSE_GPU_LOST ? GW_DEVICE_LOST
								     : GW_DEVICE_FAULT;

	report_state(&d->r, state, m->cause, nvml_code_name(code, name));
	report_absent(&d->r, GW_TIERS_ALL, m->absence);
}

static int fill_slot(struct backend *b, struct device *d, unsigned index)
{
	if (!d || !ensure_priv(d))
		return -GW_E_NOMEM;
	d->r.index = index;
	d->r.provenance = b->simulated ? GW_FROM_SIMULATOR : GW_FROM_DRIVER;
	return 0;
}

/* Opens the GPU if the driver reports its identity. Otherwise opens nothing, and *ret_code is
 * the driver's code. Returns 0 in both cases, or -GW_E_NOMEM. */
static int open_named(struct backend *b, unsigned index, abi_return *ret_code)
{
	abi_device handle = NULL;
	struct device *d = NULL;
	int err;

	*ret_code = NVML_B(b, by_index, index, &handle);
	if (*ret_code == ABI_SUCCESS)
		*ret_code = slot_named(b, index, handle, &d);
	if (*ret_code != ABI_SUCCESS)
		return 0;
	err = fill_slot(b, d, index);
	if (!err)
		attach_device(d, handle);
	return err;
}

/* Opens a GPU that reports no identity. */
static int open_unnamed(struct backend *b, unsigned index)
{
	abi_device handle = NULL;
	abi_return code = NVML_B(b, by_index, index, &handle);
	struct device *d = find_unnamed(b, index);

	if (!d)
		d = backend_slot(b, NULL, NULL);
	if (fill_slot(b, d, index) != 0)
		return -GW_E_NOMEM;
	if (code == ABI_SUCCESS)
		attach_device(d, handle);
	else
		set_refused(d, code);
	return 0;
}

/* Returns the number of GPUs with a known identity that are missing now. *ret is the missing
 * GPU that had this index, or NULL. */
static unsigned find_missing(const struct backend *b, unsigned index, struct device **ret)
{
	unsigned n = 0;

	*ret = NULL;
	for (unsigned i = 0; i < b->count; i++) {
		struct device *d = b->slot[i];

		if (nvml_device_of(d)->handle ||
		    (d->r.text_why[GW_T_UUID] != GW_HAVE && d->r.text_why[GW_T_PCI] != GW_HAVE))
			continue;
		n++;
		if (d->r.index == index)
			*ret = d;
	}
	return n;
}

/* Opens the GPUs in the order of the driver. If the driver is opened again and a GPU reports
 * neither UUID nor PCI id, we assume that it is one of the known GPUs that are missing, so that
 * no GPU is listed twice. nvml_find_again() later finds the missing GPUs by UUID. */
static int open_each(struct backend *b, unsigned count)
{
	const bool again = b->count > 0;
	abi_return refused[256];
	unsigned taken = 0;
	struct device *missing;
	int err = 0;

	for (unsigned i = 0; i < count && !err; i++) {
		err = open_named(b, i, &refused[i]);
		if (!err && refused[i] != ABI_SUCCESS && !again)
			err = open_unnamed(b, i);
	}
	for (unsigned i = 0; i < count && !err && again; i++) {
		if (refused[i] == ABI_SUCCESS)
			continue;
		if (find_missing(b, i, &missing) == taken)
			err = open_unnamed(b, i);
		else if (taken++, missing)
			set_refused(missing, refused[i]);
	}
	return err;
}

static void retry_later(struct device *d, uint64_t now)
{
	struct nvml_device *nd = nvml_device_of(d);

	nd->backoff_ns = backend_backoff_ns(nd->backoff_ns);
	nd->retry_ns = now + nd->backoff_ns;
}

bool nvml_react(struct device *d, abi_return code)
{
	const struct nvml_meaning *m = nvml_meaning(code);
	char name[24];

	if (m->reaction != REACT_LOST && m->reaction != REACT_REOPEN)
		return false;
	if (m->reaction == REACT_LOST) {
		report_state(&d->r, GW_DEVICE_LOST, m->cause, nvml_code_name(code, name));
		retry_later(d, clock_mono_ns(d->backend->env->clock));
	} else {
		report_state(&d->r, GW_DEVICE_CLOSED, m->cause, nvml_code_name(code, name));
		atomic_store(&d->backend->reopen, true);
	}
	report_absent(&d->r, GW_TIERS_ALL, m->absence);
	memset(d->r.tier_ns, 0, sizeof(d->r.tier_ns));
	nvml_device_of(d)->handle = NULL;
	return true;
}

void nvml_find_again(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);
	struct nvml *n = nvml_of(d);
	uint64_t now = clock_mono_ns(d->backend->env->clock);
	abi_device handle = NULL;
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (!nd || nd->handle || now < nd->retry_ns || d->r.state == GW_DEVICE_CLOSED)
		return;
	if (d->r.text_why[GW_T_UUID] == GW_HAVE && n->call.by_uuid)
		code = NVML(d, by_uuid, d->r.text[GW_T_UUID], &handle);
	else
		code = NVML(d, by_index, d->r.index, &handle);
	if (code == ABI_SUCCESS && handle)
		attach_device(d, handle);
	else
		retry_later(d, now);
}

static void read_versions(struct backend *b)
{
	struct nvml *n = b->priv;
	char reply[ABI_VERSION_SIZE] = "";
	int cuda = 0;

	if (!n->call.driver_version ||
	    NVML_B(b, driver_version, reply, sizeof(reply)) != ABI_SUCCESS)
		reply[0] = '\0';
	utf8_clean(b->driver_version, sizeof(b->driver_version), reply);
	if (!n->call.nvml_version ||
	    NVML_B(b, nvml_version, reply, sizeof(reply)) != ABI_SUCCESS)
		reply[0] = '\0';
	utf8_clean(b->nvml_version, sizeof(b->nvml_version), reply);
	b->cuda_version[0] = '\0';
	if (n->call.cuda_version && NVML_B(b, cuda_version, &cuda) == ABI_SUCCESS && cuda > 0)
		snprintf(b->cuda_version, sizeof(b->cuda_version), "%d.%d", cuda / 1000,
			 cuda % 1000 / 10);
}

static int open_devices(struct backend *b)
{
	uint32_t count = 0;
	char name[24];
	abi_return code = NVML_B(b, count, &count);

	if (code != ABI_SUCCESS) {
		backend_fail(b, nvml_meaning(code)->cause, "nvmlDeviceGetCount: %s",
			     nvml_code_name(code, name));
		return 0;
	}
	/* Mark every GPU as lost. Those that are found below are marked as present again. */
	for (unsigned i = 0; i < b->count; i++) {
		report_state(&b->slot[i]->r, GW_DEVICE_LOST, GW_CAUSE_GPU_LOST,
			     "the driver no longer lists it");
		report_absent(&b->slot[i]->r, GW_TIERS_ALL, GW_ABSENT_LOST);
		if (!ensure_priv(b->slot[i]))
			return -GW_E_NOMEM;
	}
	if (count == 0) {
		backend_fail(b, b->count ? GW_CAUSE_GPU_LOST : GW_CAUSE_NO_GPU,
			     "the driver is loaded but reports no GPU");
		return 0;
	}
	backend_fail(b, GW_CAUSE_NONE, NULL);
	return open_each(b, count < 256 ? count : 256);
}

static void nvml_close(struct backend *b)
{
	struct nvml *n = b->priv;

	for (unsigned i = 0; i < b->count; i++) {
		struct nvml_device *nd = b->slot[i]->priv;

		if (!nd)
			continue;
		for (unsigned k = 0; k < 2; k++)
			if (nd->gpm[k] && n->call.gpm_free)
				n->call.gpm_free(nd->gpm[k]);
		free(nd->processes);
		free(nd);
		b->slot[i]->priv = NULL;
	}
	if (!n)
		return;
	if (n->initialised && !b->env->process_ends)
		NVML_B(b, shutdown, );
	if (n->lib && !b->env->process_ends)
		dlclose(n->lib);
	free(n);
	b->priv = NULL;
	b->open = false;
}

static int open_library(struct backend *b)
{
	struct nvml *n = b->priv;
	abi_return code;

	n->lib = nvml_library_open(b);
	if (!n->lib || !find_symbols(b, n))
		return 0;
	/* The GPUs of the simulator are not in the real /sys, so /sys cannot show whether they
	 * are suspended. */
	if (!(b->simulated && b->env->root->real) && drm_list_suspended(b, PCI_VENDOR_NVIDIA))
		return 0;
	code = NVML_B(b, init, );
	if (code != ABI_SUCCESS) {
		init_failed(b, code);
		return 0;
	}
	n->initialised = true;
	read_versions(b);
	nvml_missing(n, b->missing, sizeof(b->missing));
	b->open = true;
	return open_devices(b);
}

/* Marks the values of the devices as absent. The devices stay in the list even if the driver
 * could not be opened again. */
static void close_slots(struct backend *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		struct report *r = &b->slot[i]->r;

		if (b->cause == GW_CAUSE_ASLEEP || b->cause == GW_CAUSE_GPU_LOST)
			continue;
		report_state(r, GW_DEVICE_CLOSED, b->cause, NULL);
		report_absent(r, GW_TIERS_ALL, GW_ABSENT_NO_DRIVER);
	}
}

static int nvml_open(struct backend *b)
{
	int err;

	b->library_path[0] = '\0';
	b->priv = calloc(1, sizeof(struct nvml));
	if (!b->priv)
		return -GW_E_NOMEM;
	err = open_library(b);
	if (!((struct nvml *)b->priv)->initialised && b->cause != GW_CAUSE_ASLEEP)
		atomic_fetch_add(b->env->init_failures, 1);
	if (err || !b->open || b->cause != GW_CAUSE_NONE) {
		char path[sizeof(b->library_path)];

		/* Keep the path, because `gpuward doctor` shows it. */
		memcpy(path, b->library_path, sizeof(path));
		nvml_close(b);
		memcpy(b->library_path, path, sizeof(path));
		close_slots(b);
	}
	return err;
}

const struct backend_ops backend_nvml = {
	.name = "nvml",
	.vendor = GW_VENDOR_NVIDIA,
	.open = nvml_open,
	.close = nvml_close,
	.read = nvml_read,
	.processes = nvml_processes,
	.memory = nvml_read_memory,
	.power_samples = nvml_power_samples,
	.process_use = nvml_process_use,
	.has_events = nvml_has_events,
	.events_open = nvml_events_open,
	.events_add = nvml_events_add,
	.events_wait = nvml_events_wait,
	.events_close = nvml_events_close,
	.can_set = nvml_can_set,
	.get = nvml_get,
	.set = nvml_set,
};

static void copy_row(struct call_cost *out, const char *name, struct call_cost_row *r)
{
	*out = (struct call_cost){ .name = name };
	out->total_ns = atomic_load_explicit(&r->total_ns, memory_order_relaxed);
	out->max_ns = atomic_load_explicit(&r->max_ns, memory_order_relaxed);
	out->count = atomic_load_explicit(&r->count, memory_order_relaxed);
	for (unsigned i = 1; i < CALL_COST_CODES; i++) {
		out->code[i] = atomic_load_explicit(&r->code[i], memory_order_relaxed);
		out->errors += out->code[i];
	}
}

unsigned call_cost_list(struct gw_ctx *ctx, struct call_cost *out, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; ctx && i < CALL_COUNT && n < max; i++)
		if (atomic_load_explicit(&ctx->cost.row[i].count, memory_order_relaxed))
			copy_row(&out[n++], nvml_symbol[i], &ctx->cost.row[i]);
	return n;
}

const char *call_cost_code_name(unsigned code)
{
	return nvml_meaning(code < CALL_COST_CODES - 1 ? (abi_return)code : ABI_UNKNOWN)->name;
}
