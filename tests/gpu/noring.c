/* noring: the driver's library with its power ring (and its counter) taken away, so that gpuward polls on a card that
 * has one.  Linked with the real library, which answers everything else. */
int nvmlDeviceGetSamples(void);
int nvmlDeviceGetTotalEnergyConsumption(void);

int nvmlDeviceGetSamples(void)
{
	return 3; /* NOT_SUPPORTED */
}

#ifdef NO_COUNTER
int nvmlDeviceGetTotalEnergyConsumption(void)
{
	return 3;
}
#endif
