"""What object stores cost: their prices, what was asked of them day by day, and what a month comes to."""
