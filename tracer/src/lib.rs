//! podlapse: an eBPF lifecycle tracer for Kubernetes pod starts.
