"""The host below zvault: processes, logind, systemd's notify socket, leases."""
