"""S3 and what stands in front of it: metering, a rate limit, retries."""
