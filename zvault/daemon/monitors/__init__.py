"""What zvaultd watches and starts by itself: vaults, scrubs, verification, stalls, sleep."""
