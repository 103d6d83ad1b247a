"""Open sessions with servers, and the processes behind them."""
